//! The trust anchor of Qrita: what "right" means, in code that is slow and plain enough to be believed.
//!
//! - [`oracle`]: the contract by a stable sort and exact integers, and a [`Backend`](qrita_core::Backend) made of it.
//! - [`rows`]: rows of logits, parameters and batches that real models, users and adversaries come up with.
//! - [`batch`]: a batch with its parameters in memory of its own, so that it can be generated, cut up and permuted.
//! - [`chains`](mod@chains): the same for chains of draft tokens, and random ones.
//! - [`conformance`](mod@conformance): the suite that holds a backend to the oracle, bit for bit. One line runs it:
//!
//! ```
//! use qrita_testkit::oracle::OracleBackend;
//!
//! qrita_testkit::conformance!(OracleBackend);
//! ```
//!
//! - [`reference`](mod@reference): exponentials and logarithms with more than a hundred bits, which weight and logarithm are held to.
//! - [`functions`]: weight, logarithm and random bits as a device computes them, against core's.
//! - [`laws`](mod@laws): the law of the draws, by statistics, for thirty rows whose exact law the oracle knows.
//! - [`statistics`]: the tests that it takes.
//! - [`fixtures`]: logits of real models.
//!
//! Of `qrita-core` it takes the types, the random bits, `weight` and `ln_mass`. The last two are checked here on
//! their own against those references; everything else that core offers to backends is computed a second time, otherwise.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod batch;
pub mod chains;
pub mod conformance;
pub mod fixtures;
pub mod functions;
pub mod laws;
pub mod oracle;
pub mod reference;
pub mod rows;
pub mod statistics;
