//! The contract of Qrita: the step between a language model's logits and the next token.
//!
//! This crate holds what every backend must agree on, bit for bit: the types of a call ([`Logits`], [`Params`],
//! [`Plan`], [`Outputs`]), the integer [`weight`], the integer [`logarithm`], the random bits ([`philox`]), the ordered
//! [`Key`], what decides about draft tokens ([`verify`]), and the [`Backend`] trait that names the stages of the algorithm (arXiv 2602.01518): truncate, search,
//! dedup, emit. It has no I/O, no threads and needs no `std`. The contract in words is `docs/contract.md`.
//!
//! The Cargo features `truncation`, `quaternary`, `duplicates` and `autotune` say which choices of a [`Plan`] there are,
//! and are on by default: see [`Features`]. **Without `duplicates` outputs differ.**
//!
//! ```
//! use qrita_core::weight::{ONE, distance, need, weight};
//! // Two tokens, probabilities 3/4 and 1/4 but for f32's rounding; top-p 0.7 keeps the first.
//! let logits = [3.0f32.ln(), 0.0];
//! let weights = logits.map(|y| weight(distance(y, logits[0], 1.0)));
//! assert_eq!(weights[0], ONE);
//! assert!(weights[0] >= need(0.7, weights.iter().sum()));
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod adjust;
mod backend;
mod chains;
mod decay;
mod error;
mod key;
pub mod logarithm;
mod logits;
mod outputs;
mod params;
pub mod philox;
mod plan;
pub mod probability;
mod stages;
mod status;
pub mod verify;
pub mod weight;

pub use adjust::{Adjustments, Bitmask, Penalties, RowAdjustments, RowPenalties, Sparse, Standing};
pub use backend::{Backend, Filtered, Sampled};
pub use chains::{ChainOutputs, Chains, Side};
pub use decay::{Decay, RowDecay};
pub use error::Error;
pub use half::{bf16, f16};
pub use key::{Candidate, Key};
pub use logits::{Dtype, Input, Logit, Logits, LogitsMut, MAX_VOCAB, Row, RowMut, Shape};
pub use outputs::{Candidates, MAX_TOP, NO_TOKEN, Outputs, Top};
pub use params::{MAX_DRAWS, Order, Param, Params, RowParams, Ties};
pub use plan::{Features, Plan, Search, Truncation};
pub use stages::{Boundary, Cut, Gathering, Outcome, Truncated};
pub use status::Status;
