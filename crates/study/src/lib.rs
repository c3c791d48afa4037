//! What is measured of Qrita, defined once: the benchmarks and `qrita ablate` speak of the same rows, filters and runs.
//!
//! - [`Kind`] and [`Filter`]: what rows look like, and what is kept of them.
//! - [`Rows`]: different rows that batches repeat.
//! - [`ablation`]: the paper's runs A to J, and what each must keep by the oracle.
//! - [`HostBatch`]: a batch in host memory that is masked again and again.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod ablation;
mod host_batch;
mod kind;
mod rows;

pub use host_batch::HostBatch;
pub use kind::{Filter, Kind};
pub use rows::Rows;
