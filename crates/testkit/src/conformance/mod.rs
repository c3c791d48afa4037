//! The suite that holds a backend to the oracle, bit for bit.
//!
//! One line in a backend's tests makes a module of named tests of it:
//!
//! ```
//! use qrita_testkit::oracle::OracleBackend;
//!
//! qrita_testkit::conformance!(OracleBackend);
//! // A second time, for instance for a backend made otherwise: then the module needs a name.
//! qrita_testkit::conformance!(once_more, OracleBackend);
//! ```
//!
//! Each test is a public function of this module that takes what makes the backend, so that a backend can also run one
//! alone. It panics with what differs, in which row, and everything that is needed to see it again.
//!
//! A plan that a backend refuses as [`Unsupported`](qrita_core::Error::Unsupported) is left out, and so are those that are
//! not [compiled in](qrita_core::Features); [`Plan::default`] must run. Two environment variables steer [`random_rows`]: `QRITA_ROWS`, how many rows, and `QRITA_SEED`, where they
//! start; a failure prints the pair that repeats it alone.
//!
//! The suite is itself tested: the oracle passes it, and a collection of deliberately wrong backends does not.
//!
//! [`Plan::default`]: qrita_core::Plan

mod cases;
mod chains;
mod errors;
mod general;
mod harness;
mod stages;
mod steps;

pub use cases::*;
pub use chains::*;
pub use errors::*;
pub use general::*;
pub use harness::{Suite, Wanted};
pub use stages::*;
pub use steps::*;

/// Makes a module of tests that hold a backend to the contract: see [`conformance`](mod@crate::conformance).
#[macro_export]
macro_rules! conformance {
    ($make:expr) => {
        $crate::conformance!(conformance, $make);
    };
    ($module:ident, $make:expr) => {
        mod $module {
            #[allow(unused_imports)]
            use super::*;

            $crate::conformance_tests! { $make;
                ties_at_k
                ties_at_the_minimum
                ties_in_one_group
                ties_drawn_evenly
                huge_negative_masks
                logits_closer_than_a_billionth
                positive_infinity
                one_nan
                nan_row_among_good_rows
                all_negative_infinity
                k_out_of_range
                p_at_its_ends
                p_near_one
                p_on_equal_mass
                k_then_p_renormalised
                joint_order
                logarithm_round_trip
                large_mean
                finite_in_one_block
                heavy_top_token
                top_p_at_extreme_temperatures
                parameters_out_of_range
                strides_and_padding
                alignment_and_odd_vocab
                offsets_of_64_bits
                empty_batch
                f16_with_tiny_temperature
                seeds_and_batch_mates
                far_tail
                zero_weight
                position_advances
                bitmask_shorter_than_vocab
                logprob_after_filtering
                greedy
                invalid_parameters
                plans_that_are_not_compiled_in
                invalid_adjustments
                too_many_first_candidates
                wrong_lengths
                every_plan
                every_subset_of_outputs
                several_draws
                rows_that_share_logits
                first_candidates
                renormalised_probabilities
                overflow_is_never_silent
                batch_invariance
                workspace_keeps_nothing
                shrinking_batches
                random_rows
                large_rows
                real_rows
                many_real_rows
                stage_truncate
                stage_search
                stage_dedup
                stage_emit
                chains_by_hand
                drafts_that_cannot_be
                random_chains
                chains_and_batch_mates
                wide_chains
                invalid_chains
                steps_by_hand
                random_steps
                invalid_steps
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ($make:expr; $($name:ident)*) => {$(
        #[test]
        fn $name() {
            // A pointer: each test is compiled once for a backend's type, not once for each place that makes one.
            $crate::conformance::$name((|| $make) as fn() -> _);
        }
    )*};
}

#[cfg(test)]
mod tests {
    /// A test that is written but not listed in the macro would never run.
    #[test]
    fn every_test_is_listed() {
        let listed = include_str!("mod.rs");
        let sources = [
            include_str!("cases.rs"),
            include_str!("chains.rs"),
            include_str!("errors.rs"),
            include_str!("general.rs"),
            include_str!("stages.rs"),
            include_str!("steps.rs"),
        ];
        let mut count = 0;
        for line in sources.iter().flat_map(|source| source.lines()) {
            let Some(rest) = line.strip_prefix("pub fn ") else { continue };
            let name = rest.split('<').next().unwrap();
            // Parts of tests, for backends that the whole takes too long.
            if name.starts_with("some_") {
                continue;
            }
            assert!(listed.lines().any(|line| line.trim() == name), "{name} is not listed");
            count += 1;
        }
        assert_eq!(count, 66);
    }
}
