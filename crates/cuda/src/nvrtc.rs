//! NVRTC: from the device source to machine code of one architecture.
//!
//! The product is a cubin, not PTX: nothing is left for the driver to compile when a module is loaded. No option lets the
//! compiler contract, reorder or approximate a floating-point operation.

use std::ffi::{CString, c_char};

use cudarc::nvrtc::result::{self, NvrtcError};
use cudarc::nvrtc::sys;
use qrita_core::Error;
use qrita_kernels::Specialization;

use crate::cache::Cache;
use crate::{failed, present};

/// A kernel, compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// Machine code, as an ELF file.
    pub cubin: Vec<u8>,
    /// What the compiler had to say; empty if nothing.
    pub log: String,
}

/// Says what is missing where NVRTC cannot be loaded.
///
/// # Errors
/// [`Error::Device`].
pub fn probe() -> Result<(), Error> {
    if present::nvrtc() {
        return Ok(());
    }
    Err(failed(
        "NVRTC (libnvrtc.so) is not found: install the CUDA toolkit, or PyPI's nvidia-cuda-nvrtc, and let LD_LIBRARY_PATH \
         name its folder",
    ))
}

/// NVRTC's version, major and minor.
///
/// # Errors
/// [`Error::Device`] when NVRTC is missing or fails; so in all functions of this module.
pub fn version() -> Result<(i32, i32), Error> {
    probe()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both pointers are to integers that live through the call.
    let status = unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
    status.result().map_err(|error| failed(format!("NVRTC does not tell its version: {error}")))?;
    Ok((major, minor))
}

/// The compiler's options for a specialisation on an architecture, as `90` for compute capability 9.0.
pub fn options(specialization: &Specialization, architecture: u32) -> Vec<String> {
    let mut options = vec![
        format!("--gpu-architecture=sm_{architecture}"),
        "--std=c++17".to_owned(),
        // What decides must have the bits of IEEE operations, each rounded on its own.
        "--fmad=false".to_owned(),
        "--ftz=false".to_owned(),
        "--prec-div=true".to_owned(),
        "--prec-sqrt=true".to_owned(),
    ];
    options.extend(specialization.defines().iter().map(|(name, value)| format!("--define-macro={name}={value}")));
    options
}

/// The machine code of a kernel for an architecture, as `90` for compute capability 9.0: from the cache, or compiled and put
/// there. Needs no device, so that a cache can be filled on another machine.
///
/// # Errors
/// [`Error::Device`] with the compiler's log when it refuses the source.
pub fn machine_code(cache: &Cache, specialization: &Specialization, architecture: u32) -> Result<Vec<u8>, Error> {
    let options = options(specialization, architecture);
    let (major, minor) = version()?;
    let source = qrita_kernels::source();
    let key = format!("nvrtc {major}.{minor}\n{}\n{source}", options.join("\n"));
    cache.get_or_compile(key.as_bytes(), || Ok(compile(&source, &options)?.cubin))
}

/// Compiles a source with these options.
///
/// # Errors
/// [`Error::Device`] with the compiler's log when it refuses the source.
pub fn compile(source: &str, options: &[String]) -> Result<Compiled, Error> {
    probe()?;
    let source = CString::new(source).map_err(|_| failed("the device source has a zero byte"))?;
    let options: Vec<CString> = options
        .iter()
        .map(|option| CString::new(option.as_str()))
        .collect::<Result<_, _>>()
        .map_err(|_| failed("a compiler option has a zero byte"))?;
    let program = result::create_program(&source, Some(c"qrita.cu"))
        .map_err(|error| failed(format!("NVRTC cannot create a program: {error}")))?;
    let program = Program(program);
    // SAFETY: the program was created above and is destroyed when `program` is dropped; source and options outlive it.
    let compiled = unsafe { result::compile_program(program.0, &options) };
    let log = program.log();
    compiled.map_err(|error| failed(format!("NVRTC cannot compile the kernel: {error}\n{log}")))?;
    let cubin = program.cubin().map_err(|error| failed(format!("NVRTC yields no machine code: {error}")))?;
    Ok(Compiled { cubin, log })
}

/// A program of NVRTC's, destroyed when dropped.
struct Program(sys::nvrtcProgram);

impl Program {
    fn log(&self) -> String {
        // SAFETY: the program is alive.
        let log = unsafe { result::get_program_log(self.0) }.unwrap_or_default();
        let bytes: Vec<u8> = log.iter().map(|&c| c as u8).take_while(|&byte| byte != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn cubin(&self) -> Result<Vec<u8>, NvrtcError> {
        let mut size = 0;
        // SAFETY: the program is alive, the pointer is to an integer that lives through the call.
        unsafe { sys::nvrtcGetCUBINSize(self.0, &mut size) }.result()?;
        let mut cubin = vec![0u8; size];
        // SAFETY: the buffer has the bytes that NVRTC asked for.
        unsafe { sys::nvrtcGetCUBIN(self.0, cubin.as_mut_ptr().cast::<c_char>()) }.result()?;
        Ok(cubin)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: nobody else has the program. It is not used after this, and an error leaves nothing to do.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use qrita_core::{Dtype, Plan};
    use qrita_kernels::Stage;

    use super::*;

    #[test]
    fn options_name_architecture_and_macros() {
        let specialization = Specialization {
            dtype: Dtype::Bf16,
            plan: Plan::default(),
            stage: Stage::Run,
            adjusted: true,
            threads: 256,
            warp: 32,
        };
        let options = options(&specialization, 90);
        for wanted in ["--gpu-architecture=sm_90", "--fmad=false", "--define-macro=THREADS=256"] {
            assert!(options.iter().any(|option| option == wanted), "{wanted} is not in {options:?}");
        }
    }

    #[test]
    fn a_refused_source_comes_with_the_log() {
        let Ok(_) = version() else {
            // Without NVRTC the other branch is what there is to test.
            let error = compile("", &[]).unwrap_err().to_string();
            assert!(error.contains("libnvrtc"), "{error}");
            return;
        };
        let error = compile("#error planted", &["--gpu-architecture=sm_90".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("planted"), "{error}");
        assert!(compile("\0", &[]).is_err());
    }
}
