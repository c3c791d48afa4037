//! The CUDA backend of Qrita.
//!
//! Two ways in, to the same kernels:
//!
//! * [`CudaSampler`] for inference engines: logits and outputs lie in device memory, the stream is the caller's, the
//!   workspace too. A launch neither allocates nor synchronises, and a CUDA graph can capture it. Kernels are compiled
//!   when a sampler is made, never in a decode step. [`CudaVerifier`] verifies draft tokens in the same way.
//! * [`CudaBackend`] for tools and tests: the [`Backend`](qrita_core::Backend) trait over host memory, which copies there
//!   and back.
//!
//! Kernels are compiled by NVRTC for the very device ([`nvrtc`]), and kept on disk ([`Cache`]). Neither the driver nor
//! NVRTC is needed to build this crate; where one is missing at run time, [`Context::new`] says which.
//!
//! ```no_run
//! use qrita_core::{Backend, Logits, Params, Plan};
//!
//! let backend = qrita_cuda::backend(0)?;
//! let logits = Logits::new(&[3.0f32, 2.0, 1.0, 0.0], 4)?;
//! let rows = backend.filter(&logits, &Params::default().top_k(2), &Plan::default(), &mut backend.workspace())?;
//! assert_eq!(rows[0].ids, [0, 1]);
//! # Ok::<(), qrita_core::Error>(())
//! ```
#![deny(missing_docs)]

mod cache;
mod context;
mod device;
mod launch;
mod memory;
pub mod nvrtc;
mod policy;
mod present;
mod read;
mod sampler;
pub mod timing;
mod tune;
mod tuning;
mod verifier;
mod views;

use qrita_core::Error;
use qrita_kernels::HostBackend;

pub use cache::Cache;
pub use context::Context;
/// The version of cudarc whose streams and views this crate takes.
pub use cudarc;
pub use device::{CudaDevice, CudaMemory};
pub use memory::MemoryUse;
pub use policy::{LaunchShape, block_threads};
pub use qrita_kernels::RowArgs;
pub use sampler::{
    CudaSampler, DeviceAdjustments, DeviceBatch, DeviceCandidates, DeviceOutputs, DeviceSparse, DeviceTop,
    DeviceWorkspace, LaunchParams,
};
pub use tune::{TuneRequest, tune};
pub use tuning::{Operation, TunedCase, TunedDevice, TunedEntry, TunedFilter, Tuning, TuningError};
pub use verifier::{CudaVerifier, DeviceChainOutputs, DeviceChains};
pub use views::{ViewCandidates, ViewInput, ViewOutputs, ViewTop};

/// The backend's name in errors and reports.
const NAME: &str = "cuda";

/// Qrita on CUDA for callers with host memory.
pub type CudaBackend = HostBackend<CudaDevice>;

/// The backend on a device, counted from 0 as `CUDA_VISIBLE_DEVICES` lets them through.
///
/// # Errors
/// [`Error::Device`] when the driver, NVRTC or the device is missing: the message says which.
pub fn backend(ordinal: usize) -> Result<CudaBackend, Error> {
    Ok(CudaBackend::new(CudaDevice::new(&Context::new(ordinal)?)?))
}

/// What failed, as the error that callers match on.
fn failed(message: impl Into<String>) -> Error {
    Error::Device { backend: NAME, message: message.into() }
}
