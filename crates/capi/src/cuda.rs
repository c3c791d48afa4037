//! Samplers of logits in the memory of a CUDA device, on the caller's stream. A build without the feature `cuda` refuses them.

use std::ffi::c_void;

use crate::code::{Failure, QritaCode, enter};
use crate::types::{QritaLogits, QritaOutputs, QritaParams, read};

#[cfg(feature = "cuda")]
type Inner = qrita::cuda::CudaSampler;
/// There is none.
#[cfg(not(feature = "cuda"))]
type Inner = std::convert::Infallible;

/// A sampler of logits of one dtype in the memory of one CUDA device. It holds compiled kernels and no memory of the device; any
/// number of threads may launch with it.
#[derive(Debug)]
pub struct QritaCuda {
    inner: Inner,
}

/// Makes a sampler of logits of this dtype on this device, which counts from 0, in its primary context: the one of the CUDA
/// runtime, and of torch. Kernels are compiled here, or taken from the cache: it may take seconds. The sampler goes to `sampler`,
/// and back by `qrita_cuda_destroy`.
///
/// # Safety
/// `sampler` is null, which is refused, or has room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qrita_cuda_create(device: u32, dtype: u32, sampler: *mut *mut QritaCuda) -> QritaCode {
    enter(|| {
        if sampler.is_null() {
            return Err(Failure::null("sampler"));
        }
        let inner = imp::create(device, dtype)?;
        // SAFETY: the caller's promise, and it is not null.
        unsafe { sampler.write(Box::into_raw(Box::new(QritaCuda { inner }))) };
        Ok(())
    })
}

/// Ends a sampler; null is none. What it launched goes on.
///
/// # Safety
/// `sampler` is null, or was made by `qrita_cuda_create`, is in no call and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qrita_cuda_destroy(sampler: *mut QritaCuda) -> QritaCode {
    enter(|| {
        if !sampler.is_null() {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(sampler) });
        }
        Ok(())
    })
}

/// The bytes of device memory that a launch of this shape works in. They do not fall with `rows` or `vocab`: memory for the largest
/// batch serves all. It is zeroed once, when it is allocated, aligned to 16 bytes, and for one launch at a time.
///
/// # Safety
/// `sampler` is null, which is refused, or lives; `bytes` is null, which is refused, or has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qrita_cuda_workspace_bytes(
    sampler: *const QritaCuda,
    rows: usize,
    vocab: usize,
    bytes: *mut usize,
) -> QritaCode {
    enter(|| {
        // SAFETY: the caller's promise.
        let (sampler, bytes) = unsafe { (sampler.as_ref(), bytes.as_mut()) };
        let sampler = sampler.ok_or_else(|| Failure::null("sampler"))?;
        *bytes.ok_or_else(|| Failure::null("bytes"))? = imp::workspace_bytes(&sampler.inner, rows, vocab);
        Ok(())
    })
}

/// The bytes of a row's parameters as a launch reads them: see `qrita_cuda_row_args`. 0 in a build without CUDA.
#[unsafe(no_mangle)]
pub extern "C" fn qrita_cuda_row_args_bytes() -> usize {
    imp::ROW_ARGS_BYTES
}

/// Checks the parameters of row `row` and writes them as a launch reads them: `qrita_cuda_row_args_bytes` bytes of host memory. An
/// array with one of these a row, copied to device memory, gives rows parameters of their own, and lets them change between
/// replays of a CUDA graph.
///
/// # Safety
/// `sampler` is null, which is refused, or lives. The arrays of `params` have more than `row` elements, in host memory.
/// `row_args` is null, which is refused, or has room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qrita_cuda_row_args(
    sampler: *const QritaCuda,
    params: *const QritaParams,
    row: usize,
    vocab: usize,
    row_args: *mut c_void,
) -> QritaCode {
    enter(|| {
        // SAFETY: the caller's promise.
        let sampler = unsafe { sampler.as_ref() }.ok_or_else(|| Failure::null("sampler"))?;
        // SAFETY: as above.
        let params = unsafe { read(params, "params")? };
        if row_args.is_null() {
            return Err(Failure::null("row_args"));
        }
        // SAFETY: as above, and it is not null.
        unsafe { imp::row_args(&sampler.inner, &params, row, vocab, row_args) }
    })
}

/// Launches on a stream, and returns before it is done: neither allocates, waits nor compiles, and a stream that captures a CUDA
/// graph captures it. `stream` is a `CUstream`, which a `cudaStream_t` is too; null is the default stream.
///
/// The parameters are those of `params` for all rows, whose arrays must be null; or, where `row_args` is not null, one
/// `qrita_cuda_row_args` a row at that address of device memory, aligned to 8 bytes, and of `params` the draws alone.
///
/// # Safety
/// `sampler` is null, which is refused, or lives. Until the launch is done: all addresses in `logits` and `outputs`, and `row_args`
/// and `workspace`, are of the device's memory with as many elements as their structs say; outputs, workspace and logits that are
/// to be masked are nobody else's; the stream lives. The workspace was zeroed once, and launches alone have written to it since.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qrita_cuda_launch(
    sampler: *const QritaCuda,
    stream: *mut c_void,
    logits: *const QritaLogits,
    params: *const QritaParams,
    row_args: *const c_void,
    outputs: *const QritaOutputs,
    workspace: *mut c_void,
    workspace_bytes: usize,
) -> QritaCode {
    enter(|| {
        // SAFETY: the caller's promise.
        let (sampler, logits) = unsafe { (sampler.as_ref(), logits.as_ref()) };
        let sampler = sampler.ok_or_else(|| Failure::null("sampler"))?;
        let logits = logits.ok_or_else(|| Failure::null("logits"))?;
        // SAFETY: as above.
        let (params, outputs) = unsafe { (read(params, "params")?, read(outputs, "outputs")?) };
        let memory = (workspace, workspace_bytes);
        // SAFETY: as above.
        unsafe { imp::launch(&sampler.inner, stream, logits, &params, row_args, &outputs, memory) }
    })
}

#[cfg(feature = "cuda")]
mod imp {
    use std::ffi::c_void;

    use qrita::cuda::{
        Context, CudaSampler, DeviceBatch, DeviceCandidates, DeviceOutputs, DeviceTop, DeviceWorkspace, LaunchParams,
        RowArgs,
    };
    use qrita::{Error, Plan};

    use crate::code::Failure;
    use crate::types::{QritaLogits, QritaOutputs, QritaParams};

    pub(super) const ROW_ARGS_BYTES: usize = size_of::<RowArgs>();

    pub(super) fn create(device: u32, dtype: u32) -> Result<CudaSampler, Failure> {
        let dtype = crate::types::dtype(dtype)?;
        Ok(CudaSampler::new(&Context::new(device as usize)?, dtype, Plan::default(), false)?)
    }

    pub(super) fn workspace_bytes(sampler: &CudaSampler, rows: usize, vocab: usize) -> usize {
        sampler.workspace_bytes(rows, vocab)
    }

    /// # Safety
    /// The arrays have more than `row` elements, and `to` has room.
    pub(super) unsafe fn row_args(
        sampler: &CudaSampler,
        params: &QritaParams,
        row: usize,
        vocab: usize,
        to: *mut c_void,
    ) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        let params = unsafe { params.lend(row.saturating_add(1)) }?;
        let args = sampler.row_args(&params, row, vocab)?;
        // SAFETY: the caller's promise.
        unsafe { to.cast::<RowArgs>().write_unaligned(args) };
        Ok(())
    }

    /// # Safety
    /// As in `qrita_cuda_launch`.
    pub(super) unsafe fn launch(
        sampler: &CudaSampler,
        stream: *mut c_void,
        logits: &QritaLogits,
        params: &QritaParams,
        row_args: *const c_void,
        outputs: &QritaOutputs,
        (workspace, bytes): (*mut c_void, usize),
    ) -> Result<(), Failure> {
        let &QritaLogits { data, rows, vocab, stride, .. } = logits;
        if logits.dtype()? != sampler.dtype() {
            let what = format!("{} logits in a sampler of {}", logits.dtype()?.name(), sampler.dtype().name());
            return Err(Error::Unsupported { backend: "cuda", what }.into());
        }
        let launch_params = if !row_args.is_null() {
            LaunchParams::per_row(row_args.addr() as u64)
        } else if params.has_arrays() {
            let what = "launches with one parameter a row by value: copy row_args to the device".to_owned();
            return Err(Error::Unsupported { backend: "cuda", what }.into());
        } else {
            // SAFETY: no array is looked at.
            LaunchParams::all(sampler.row_args(&unsafe { params.lend(1) }?, 0, vocab)?)
        };
        if rows > 0 && (data.is_null() || workspace.is_null()) {
            return Err(Failure::null(if data.is_null() { "logits' data" } else { "workspace" }));
        }
        let needed = |address: *mut f32, what: &str| match address.is_null() {
            true => Err(Failure::null(what)),
            false => Ok(address.addr() as u64),
        };
        let address = |address: *mut u32| address.addr() as u64;
        let candidates = match outputs.candidate_ids.is_null() {
            true => None,
            false => Some(DeviceCandidates {
                capacity: outputs.capacity,
                ids: address(outputs.candidate_ids),
                logits: needed(outputs.candidate_logits, "candidate_logits")?,
                logprobs: needed(outputs.candidate_logprobs, "candidate_logprobs")?,
            }),
        };
        let top = match outputs.top_ids.is_null() {
            true => None,
            false => Some(DeviceTop {
                n: outputs.top,
                ids: address(outputs.top_ids),
                logprobs: needed(outputs.top_logprobs, "top_logprobs")?,
            }),
        };
        let device_outputs = DeviceOutputs {
            mask: outputs.mask != 0,
            status: address(outputs.status),
            kept: address(outputs.kept),
            candidates,
            token: address(outputs.token),
            logprob: address(outputs.logprob.cast()),
            raw_logprob: address(outputs.raw_logprob.cast()),
            rank: address(outputs.rank),
            top,
            probabilities: address(outputs.probabilities.cast()),
        };
        let batch = DeviceBatch { logits: data.addr() as u64, index: 0, rows, vocab, stride };
        let workspace = DeviceWorkspace { address: workspace.addr() as u64, bytes };
        let launch_params = launch_params.draws(params.draws);
        // SAFETY: the caller's promise.
        Ok(unsafe { sampler.launch(stream.cast(), &batch, &launch_params, &device_outputs, workspace) }?)
    }
}

/// No sampler can be made, and so none is called.
#[cfg(not(feature = "cuda"))]
mod imp {
    use std::ffi::c_void;

    use super::Inner;
    use crate::code::{Failure, QritaCode};
    use crate::types::{QritaLogits, QritaOutputs, QritaParams};

    pub(super) const ROW_ARGS_BYTES: usize = 0;

    pub(super) fn create(_: u32, _: u32) -> Result<Inner, Failure> {
        Err(Failure::new(QritaCode::Unsupported, "the cuda backend is not part of this build"))
    }

    pub(super) fn workspace_bytes(sampler: &Inner, _: usize, _: usize) -> usize {
        match *sampler {}
    }

    /// # Safety
    /// None is asked for.
    pub(super) unsafe fn row_args(
        sampler: &Inner,
        _: &QritaParams,
        _: usize,
        _: usize,
        _: *mut c_void,
    ) -> Result<(), Failure> {
        match *sampler {}
    }

    /// # Safety
    /// None is asked for.
    pub(super) unsafe fn launch(
        sampler: &Inner,
        _: *mut c_void,
        _: &QritaLogits,
        _: &QritaParams,
        _: *const c_void,
        _: &QritaOutputs,
        _: (*mut c_void, usize),
    ) -> Result<(), Failure> {
        match *sampler {}
    }
}
