//! δ tables: how many standard deviations above a row's mean the σ-truncation of Qrita puts its threshold.
//!
//! # Why
//!
//! The stage *truncate* (arXiv 2602.01518, section "σ-truncation") gathers the logits above `t = μ + δσ − margin`, with
//! `μ` and `σ` estimated on the row, and selects among them. The gathered set must hold the answer and should hold
//! little else, and δ decides both. It follows from a law of the row:
//!
//! * top-k: of `V` normal logits a share `k/V` lies above `δ_k = Φ⁻¹(1 − k/V)`. It depends on the ratio alone.
//! * top-p: of a normal row of scale `σ/T` (nats), the softmax mass above `μ + δσ` is `Φ(σ/T − δ)`, so
//!   `δ_p = σ/T + Φ⁻¹(1 − p)`. It depends on the scale as well, which the paper's one-dimensional table leaves out.
//!
//! Rows of real models are not normal. A [`Fitter`] replaces the law by what the rows of one model need, so that a chosen
//! share of them is hit (what the paper leaves as future work).
//!
//! # A hint, never a decision
//!
//! A wrong δ costs time (a miss is found by counting and repaired by a search over the whole row) and never changes what
//! is kept. Nothing here needs to be exact; it needs to be cheap, and to err to the side where an error is cheap: a δ a
//! little too low gathers a few more candidates, one a little too high costs another pass over the row.
//!
//! # The safe side
//!
//! A lookup never returns more than the table's law at the arguments given. The proof is in three steps:
//!
//! 1. *Grid.* The law does not rise with the ratio, nor with `p`. Both are rounded **up** to the next grid point, and above
//!    the last one the answer is −∞ (gather everything).
//! 2. *Scale.* The table stores `δ − σ/T`, not δ. Under the normal law that is `Φ⁻¹(1 − p)` whatever the scale, so nothing is
//!    lost to a grid of scales and nothing can be on its wrong side. Fitted offsets vary with the scale: they are kept per
//!    cell of scale, and a cell also answers for the rows less than half a cell outside it, hence an estimate of σ/T off by
//!    less than half a cell still reads an offset no higher than the row's own (see [`Fitter`]).
//! 3. *Rounding.* Stored values lie 2⁻¹⁶ to 2·2⁻¹⁶ below the law. That outweighs the error of the quantile (below 10⁻⁹) and
//!    of one rounding of the arguments or of `μ + δσ` to f32, and it makes the gather's strict `y > t` include the logit at δ.
//!
//! # Cost
//!
//! A lookup is a binary search in some three hundred floats, once a row. Under the normal law, rounding adds less than 5 %
//! to the gathered count for top-k and less than 10 % for top-p; `tests/normal_law.rs` measures both.
//!
//! # Example
//!
//! ```
//! use qrita_delta_tables::DeltaTables;
//!
//! let tables = DeltaTables::normal();
//! // 50 of 128256: the normal law says 3.36 standard deviations above the mean.
//! assert!((tables.top_k(50, 128_256) - 3.36).abs() < 0.02);
//! // p = 0.9 at a scale of 3 nats: 3 − 1.28.
//! assert!((tables.top_p(0.9, 3.0) - 1.72).abs() < 0.03);
//! // A filter that is off gathers everything.
//! assert_eq!(tables.top_k(0, 128_256), f32::NEG_INFINITY);
//! ```

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod error;
mod fit;
mod io;
pub mod marked;
pub mod normal;
mod table;

pub use error::Error;
pub use fit::Fitter;
pub use table::{DeltaTables, Provenance};
