//! The CPU backend of Qrita: rayon over rows and within a row, SIMD chosen at run time.
//!
//! [`CpuBackend`] implements [`qrita_core::Backend`]. Its default plan reads a row once for top-k: a threshold that
//! rises while the row streams by gathers exactly what the filters need (`truncate.rs`). Top-p reads it a second time, to
//! bound the mass of the whole row in floating point (`vector/estimate.rs`), and a third time in integers only where the
//! cut is not the same within the bounds. What the gathered set can not answer is found by histograms of keys
//! (`histogram.rs`). The paper's own stages, σ-truncation (`truncate.rs`) and pivot search (`pivot.rs`), are there to be
//! chosen by [`Plan`](qrita_core::Plan), with the same output bits.
//!
//! The Cargo features `truncation`, `quaternary`, `duplicates` and `autotune`, all on by default, are
//! [`Features`](qrita_core::Features): a plan that names what is not compiled in is refused. **Without `duplicates` outputs
//! differ**: all values equal to a cut are kept.
#![deny(missing_docs)]

mod backend;
mod chain;
mod decay;
mod dedup;
mod draw;
mod effective;
mod emit;
mod exec;
mod find;
mod gather;
mod histogram;
mod passes;
mod pivot;
mod row;
mod sink;
mod top;
#[cfg(feature = "truncation")]
mod truncate;
mod vector;
mod workspace;

pub use backend::CpuBackend;
pub use vector::Isa;
pub use workspace::Workspace;
