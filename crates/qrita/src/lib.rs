//! Exact top-k, top-p and min-p filtering and sampling of logits, with the same bits on every device.
//!
//! The kept set is the one of a stable sort, for every input a caller can pass: ties, ±∞, NaN, flat rows, denormals.
//! The same kept set, token and log-probability come out of every backend, thread count, batch size and row position.
//! The algorithm goes back to "Qrita: High-performance Top-k and Top-p Algorithm for GPUs using Pivot-based Truncation
//! and Selection" (arXiv 2602.01518).
//!
//! # Filter and sample
//!
//! A [`Sampler`] is built once and used for every batch: it owns the backend and its scratch memory.
//!
#![cfg_attr(feature = "cpu", doc = "```")]
#![cfg_attr(not(feature = "cpu"), doc = "```no_run")]
//! use qrita::{BackendKind, Logits, Params, Sampler};
//!
//! let mut sampler = Sampler::new(BackendKind::Auto)?;
//! // Two rows of four logits.
//! let data = [0.0f32, 3.0, 2.0, 3.0, 1.0, -1.0, 5.0, 0.5];
//! let logits = Logits::new(&data, 4)?;
//!
//! let kept = sampler.filter(&logits, &Params::default().top_k(2))?;
//! // Ties go to the lowest id, as in a stable sort.
//! assert_eq!(kept[0].ids, [1, 3]);
//! assert_eq!(kept[1].ids, [2, 0]);
//!
//! // One value serves all rows, a slice gives each row its own.
//! let params = Params::default().top_p(0.9).temperature(&[0.0, 1.0]).seed(&[17, 18]);
//! let tokens = sampler.sample(&logits, &params)?;
//! // Temperature 0 is greedy.
//! assert_eq!(tokens[0].token, Some(1));
//! # Ok::<(), qrita::BuildError>(())
//! ```
//!
//! [`Sampler::filter`] and [`Sampler::sample`] allocate their answers. [`Sampler::run`] writes any combination of
//! outputs into memory of the caller's, masks logits in place, and allocates nothing once the workspace has grown:
//!
#![cfg_attr(feature = "cpu", doc = "```")]
#![cfg_attr(not(feature = "cpu"), doc = "```no_run")]
//! use qrita::{BackendKind, LogitsMut, Outputs, Params, Sampler};
//!
//! let mut sampler = Sampler::new(BackendKind::Auto)?;
//! let mut data = [0.0f32, 3.0, 2.0, 1.0];
//! let mut kept = [0];
//! let mut outputs = Outputs { kept: Some(&mut kept), ..Outputs::default() };
//! sampler.run(LogitsMut::new(&mut data, 4)?.into(), &Params::default().top_k(2), &mut outputs)?;
//! assert_eq!(data, [f32::NEG_INFINITY, 3.0, 2.0, f32::NEG_INFINITY]);
//! assert_eq!(kept, [2]);
//! # Ok::<(), qrita::BuildError>(())
//! ```
//!
//! [`Sampler::verify`] is for speculative decoding: it accepts or replaces draft tokens so that what comes out has the
//! target's law exactly.
//!
//! # Bad input
//!
//! A parameter out of range, or a slice of the wrong length, is an [`Error`] that names it; nothing was written. Bad
//! *data* is a row's [`Status`] and never disturbs another row: NaN counts as −∞, and a row without a candidate yields
//! no token.
//!
//! # Features
//!
//! * `cpu` (default): the rayon and SIMD backend.
//! * `cuda`: the CUDA backend. It builds on every machine and needs neither a toolkit nor a device: the driver and NVRTC
//!   are loaded at run time, and where they are missing, [`BackendKind::Auto`] takes the CPU.
//! * `serde`: [`Plan`] and the policies can be written to and read from files.
//!
//! Without any backend the crate still compiles, and [`Sampler::new`] says that none is there.
//!
//! Four more, on by default, are choices of a [`Plan`]. Off, a choice is compiled out of every backend, [`Plan::default`] and
//! [`Plan::paper`] do without it, and a plan that names it is refused as [`Error::NotCompiled`]:
//!
//! | feature | off, this is gone | outputs |
//! |---|---|---|
//! | `truncation` | every [`Truncation`] but `Off`, `DeltaTables` and what takes them; rows are searched whole | the same |
//! | `quaternary` | [`Search::Quaternary`]; the paper's search is [`Search::Binary`] | the same |
//! | `duplicates` | [`Plan::duplicates`], the handling of ties at a cut | **differ**: as under [`Ties::KeepAll`], all values equal to a cut are kept |
//! | `autotune` | [`Plan::autotune`], the choice of launch shapes and of how threads share rows | the same |
//!
//! With `default-features = false` all four are off: **name `duplicates` at least**, or ties are not cut as a stable sort
//! cuts them.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod kind;
mod sampler;

pub use kind::{Availability, BackendKind, UnknownBackend, available};
pub use qrita_core::{
    Adjustments, Backend, Bitmask, Boundary, Candidate, Candidates, ChainOutputs, Chains, Cut, Decay, Dtype, Error,
    Features, Filtered, Gathering, Input, Key, Logit, Logits, LogitsMut, MAX_DRAWS, MAX_TOP, MAX_VOCAB, NO_TOKEN,
    Order, Outcome, Outputs, Param, Params, Penalties, Plan, Row, RowDecay, RowMut, RowParams, Sampled, Search, Shape,
    Side, Sparse, Standing, Status, Ties, Top, Truncated, Truncation, bf16, f16, logarithm, philox, probability,
    verify, weight, with_dtype,
};
#[cfg(all(feature = "truncation", any(feature = "cpu", feature = "cuda")))]
pub use qrita_delta_tables::DeltaTables;
pub use sampler::{BuildError, Builder, Sampler};

/// The CPU backend.
#[cfg(feature = "cpu")]
pub mod cpu {
    pub use qrita_cpu::{CpuBackend, Workspace};
}

/// The CUDA backend, and its entry points for logits that lie in device memory.
#[cfg(feature = "cuda")]
pub mod cuda {
    pub use qrita_cuda::{
        Cache, Context, CudaBackend, CudaDevice, CudaMemory, CudaSampler, CudaVerifier, DeviceAdjustments, DeviceBatch,
        DeviceCandidates, DeviceChainOutputs, DeviceChains, DeviceOutputs, DeviceSparse, DeviceTop, DeviceWorkspace,
        LaunchParams, LaunchShape, Operation, RowArgs, TuneRequest, TunedCase, TunedDevice, TunedEntry, TunedFilter,
        Tuning, TuningError, ViewCandidates, ViewInput, ViewOutputs, ViewTop, backend, cudarc, timing, tune,
    };
}
