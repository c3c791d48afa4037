//! Samplers of logits in host memory.

use std::ffi::{CStr, CString, c_char};
use std::ptr;

use qrita::{BackendKind, Dtype, Input, Logit, Logits, LogitsMut, Sampler, bf16, f16};

use crate::code::{Failure, QritaCode, enter};
use crate::types::{QritaLogits, QritaOutputs, QritaParams, read};

/// A backend, its threads and its scratch memory, for logits in host memory. One thread at a time may call with it; another
/// sampler gives the same bits.
#[derive(Debug)]
pub struct QritaSampler {
    sampler: Sampler,
    description: CString,
}

/// Makes a sampler: `backend` is `auto`, `cpu` or `cuda`; null is `auto`, which is CUDA where that can be used, else the CPU.
/// `threads` are those of the CPU backend: 0 is all cores. The sampler goes to `sampler`, and back by `qrita_destroy`.
///
/// # Safety
/// `backend` is null or ends with a zero byte; `sampler` is null, which is refused, or has room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qrita_create(
    backend: *const c_char,
    threads: u32,
    sampler: *mut *mut QritaSampler,
) -> QritaCode {
    enter(|| {
        if sampler.is_null() {
            return Err(Failure::null("sampler"));
        }
        let kind = if backend.is_null() {
            BackendKind::Auto
        } else {
            // SAFETY: the caller's promise.
            let name = unsafe { CStr::from_ptr(backend) }.to_str();
            let name = name.map_err(|_| Failure::new(QritaCode::Pointer, "the backend's name is no UTF-8"))?;
            name.parse::<BackendKind>().map_err(|error| Failure::new(QritaCode::Unsupported, error.to_string()))?
        };
        let made = Sampler::builder().backend(kind).threads(threads as usize).build()?;
        let description = format!("{}: {}", made.backend_name(), made.description()).replace('\0', " ");
        let description = CString::new(description).unwrap_or_default();
        let made = Box::new(QritaSampler { sampler: made, description });
        // SAFETY: the caller's promise, and it is not null.
        unsafe { sampler.write(Box::into_raw(made)) };
        Ok(())
    })
}

/// Ends a sampler; null is none.
///
/// # Safety
/// `sampler` is null, or was made by `qrita_create`, is in no call and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qrita_destroy(sampler: *mut QritaSampler) -> QritaCode {
    enter(|| {
        if !sampler.is_null() {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(sampler) });
        }
        Ok(())
    })
}

/// What a sampler runs on, for people: UTF-8, as long as the sampler lives. Null for null.
///
/// # Safety
/// `sampler` is null or lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qrita_description(sampler: *const QritaSampler) -> *const c_char {
    // SAFETY: the caller's promise. Nothing here panics.
    unsafe { sampler.as_ref() }.map_or(ptr::null(), |sampler| sampler.description.as_ptr())
}

/// Filters and samples rows of logits in host memory: every output that is asked for, among them the mask in place. Returns when
/// it is done.
///
/// # Safety
/// `sampler` lives and is in no other call. Logits, arrays of parameters and outputs have the elements that their structs say;
/// outputs, and logits that are to be masked, overlap nothing else.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qrita_run(
    sampler: *mut QritaSampler,
    logits: *const QritaLogits,
    params: *const QritaParams,
    outputs: *const QritaOutputs,
) -> QritaCode {
    enter(|| {
        // SAFETY: the caller's promise.
        let (sampler, logits) = unsafe { (sampler.as_mut(), logits.as_ref()) };
        let sampler = &mut sampler.ok_or_else(|| Failure::null("sampler"))?.sampler;
        let logits = logits.ok_or_else(|| Failure::null("logits"))?;
        // SAFETY: as above.
        let (params, outputs) = unsafe { (read(params, "params")?, read(outputs, "outputs")?) };
        let dtype = logits.dtype()?;
        // SAFETY: as above; the logits are of this dtype.
        unsafe {
            match dtype {
                Dtype::F32 => run::<f32>(sampler, logits, &params, &outputs),
                Dtype::F16 => run::<f16>(sampler, logits, &params, &outputs),
                Dtype::Bf16 => run::<bf16>(sampler, logits, &params, &outputs),
            }
        }
    })
}

/// As [`qrita_run`], of logits of this type.
///
/// # Safety
/// As there.
unsafe fn run<T: Logit>(
    sampler: &mut Sampler,
    logits: &QritaLogits,
    params: &QritaParams,
    outputs: &QritaOutputs,
) -> Result<(), Failure> {
    let &QritaLogits { rows, vocab, stride, .. } = logits;
    // Before any length follows from them.
    qrita::Params::check_draws(params.draws)?;
    // SAFETY: the caller's promise.
    let (lent, mut wanted) = unsafe { (params.lend(rows)?, outputs.lend(rows, vocab, params.draws)?) };
    let input: Input<'_> = if outputs.mask == 0 {
        // SAFETY: the caller's promise; they are only read.
        Logits::strided(unsafe { logits.elements::<T>() }?, rows, vocab, stride)?.into()
    } else {
        // SAFETY: the caller's promise.
        LogitsMut::strided(unsafe { logits.elements_mut::<T>() }?, rows, vocab, stride)?.into()
    };
    Ok(sampler.run(input, &lent, &mut wanted)?)
}
