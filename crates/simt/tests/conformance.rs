//! The kernel against the contract, on the machine, with either warp.
//!
//! Most of the suite runs as it is. Nine tests would take minutes to hours, or more memory than a test machine has: they are
//! ignored here (`cargo test -p qrita-simt -- --ignored` runs them) and run on every other backend. Smaller ones of the
//! same kind stand in.

use std::collections::HashMap;

use qrita_core::{Backend as _, Dtype, Logits, Outcome, Params, Plan};
use qrita_kernels::HostBackend;
use qrita_simt::SimtDevice;
use qrita_testkit::batch::{Batch, Stored};
use qrita_testkit::conformance::{Suite, Wanted};
use qrita_testkit::rows::{self, Random, RowKind, Size};
use qrita_testkit::{fixtures, oracle};

type Backend = HostBackend<SimtDevice>;

macro_rules! suite {
    ($module:ident, $make:expr) => {
        mod $module {
            use super::*;

            fn make() -> Backend {
                $make
            }

            qrita_testkit::conformance_tests! { make();
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
                empty_batch
                seeds_and_batch_mates
                far_tail
                position_advances
                bitmask_shorter_than_vocab
                logprob_after_filtering
                greedy
                invalid_parameters
                plans_that_are_not_compiled_in
                invalid_adjustments
                too_many_first_candidates
                wrong_lengths
                every_subset_of_outputs
                several_draws
                rows_that_share_logits
                first_candidates
                renormalised_probabilities
                overflow_is_never_silent
                batch_invariance
                workspace_keeps_nothing
                shrinking_batches
                stage_truncate
                stage_search
                stage_dedup
                stage_emit
                chains_by_hand
                drafts_that_cannot_be
                chains_and_batch_mates
                invalid_chains
                steps_by_hand
                invalid_steps
            }

            #[test]
            fn some_random_rows() {
                super::some_random_rows(&mut Suite::new(make));
            }

            #[test]
            fn some_large_rows() {
                super::some_large_rows(&mut Suite::new(make));
            }

            #[test]
            fn some_real_rows() {
                super::some_real_rows(&mut Suite::new(make));
            }

            #[test]
            fn some_chains() {
                let mut suite = Suite::new(make);
                qrita_testkit::conformance::some_random_chains(&mut suite, 100);
                qrita_testkit::conformance::some_wide_chains(&mut suite, &[4_099]);
            }

            #[test]
            fn some_steps() {
                qrita_testkit::conformance::some_random_steps(&mut Suite::new(make), 80);
            }

            suite! { @ignored
                offsets_of_64_bits: "18 GB of memory"
                zero_weight: "a million rows"
                random_rows: "300 000 rows"
                large_rows: "rows of two million logits"
                real_rows: "every plan on real rows"
                random_chains: "two thousand batches"
                random_steps: "fifteen hundred batches"
                wide_chains: "rows of fifty thousand logits"
                many_real_rows: "files that are not part of the repository"
            }
        }
    };
    (@ignored $($name:ident: $why:literal)*) => {$(
        #[test]
        #[ignore = $why]
        fn $name() {
            qrita_testkit::conformance::$name(make);
        }
    )*};
}

fn backend(warp: u32, threads: u32, seed: u64) -> Backend {
    HostBackend::new(SimtDevice::new(warp, threads, seed))
}

suite!(warp32, backend(32, 64, 1));
suite!(warp64, backend(64, 128, 2));

/// Small rows under every plan, over and over: half of the suite's time.
mod warp32_every_plan {
    use super::*;

    qrita_testkit::conformance_tests! { backend(32, 64, 1);
        ties_at_k
        f16_with_tiny_temperature
        every_plan
    }
}

/// The other tests run every plan too, on fewer rows: that must do for the second warp.
mod warp64_every_plan {
    use super::*;

    fn make() -> Backend {
        backend(64, 128, 2)
    }

    suite! { @ignored
        ties_at_k: "every plan on small rows"
        f16_with_tiny_temperature: "every plan on small rows"
        every_plan: "every plan on small rows"
    }
}

/// As the suite's `random_rows`: ten thousand of them.
fn some_random_rows(suite: &mut Suite<Backend>) {
    let plans = suite.plans().to_vec();
    for seed in 0..100 {
        let size = if seed % 50 == 0 { Size { rows: 6, vocab: 5000 } } else { Size { rows: 100, vocab: 300 } };
        let batch = rows::batch(seed, size);
        let mut random = Random::new(!seed);
        let plan = random.pick(&plans);
        let answers = oracle::answers(&batch.logits(), &batch.params(), &plan);
        let wanted = match random.once_in(2) {
            true => Wanted::all(batch.vocab),
            false => Wanted::subset(random.bits() as u16, random.below(batch.vocab)),
        };
        let result = suite.compare(&batch, &answers, &plan, &wanted);
        result.unwrap_or_else(|difference| panic!("{difference}\nseed {seed}"));
    }
}

/// Every kind of row, wider than a block gathers.
fn some_large_rows(suite: &mut Suite<Backend>) {
    let mut random = Random::new(3);
    for kinds in RowKind::ALL.chunks(6) {
        suite.check(&rows::batch_of(kinds, 20_001, &mut random));
    }
}

/// Rows of three real models: the plans that between them have every choice, as bf16; the default one in the other dtypes.
fn some_real_rows(suite: &mut Suite<Backend>) {
    let few = suite.few_plans();
    for rows in fixtures::small() {
        let wide: Vec<f32> = rows.logits.iter().take(2 * rows.vocab).map(|y| y.to_f32()).collect();
        for (dtype, plans) in
            [(Dtype::Bf16, &few[..]), (Dtype::F16, &[Plan::default()]), (Dtype::F32, &[Plan::default()])]
        {
            for (k, p) in [(50, 1.0), (0, 0.9), (50, 0.9)] {
                let batch = Batch::of(Stored::narrow(&wide, dtype), rows.vocab).with(|params| {
                    (params.top_k, params.top_p) = (vec![k], vec![p]);
                    params.position = vec![0, 1];
                });
                suite.check_plans(&batch, plans);
            }
        }
    }
}

/// How many of these rows are streamed, and how many of them stream leaves to be run whole.
#[cfg(feature = "truncation")]
fn streamed_and_missed(rows: &[f32], vocab: usize, top_k: u32, top_p: f32) -> (u64, u64) {
    let backend = backend(32, 256, 7);
    let logits = Logits::new(rows, vocab).unwrap();
    let params = Params::default().top_k(top_k).top_p(top_p);
    // Some launches of the machine are not split: again, until one is.
    while backend.device().streamed_and_missed().0 == 0 {
        backend.filter(&logits, &params, &Plan::default(), &mut ()).unwrap();
    }
    backend.device().streamed_and_missed()
}

/// The rows that the first kernel is made for do not reach the second's way of running rows whole: nothing else would notice,
/// as that is right, too.
#[cfg(feature = "truncation")]
#[test]
fn streamed_rows_are_seldom_missed() {
    for rows in fixtures::small() {
        let wide: Vec<f32> = rows.logits.iter().map(|y| y.to_f32()).collect();
        let name = rows.model;
        let (of_k, missed_by_k) = streamed_and_missed(&wide, rows.vocab, 50, 1.0);
        assert_eq!(missed_by_k, 0, "{name}: of {of_k} rows, k = 50");
        assert_eq!(streamed_and_missed(&wide, rows.vocab, 50, 0.9).1, 0, "{name}: k = 50 and p = 0.9");
        // Some of these rows keep thousands of tokens at p = 0.9: what a block gathers cannot reach that.
        let (of_p, missed_by_p) = streamed_and_missed(&wide, rows.vocab, 0, 0.9);
        assert!(missed_by_p * 2 <= of_p, "{name}: {missed_by_p} of {of_p} rows, p = 0.9");
    }
    let model: Vec<f32> = (0..8).flat_map(|seed| rows::row(RowKind::LanguageModel, 32_003, seed)).collect();
    for (k, p) in [(1, 1.0), (50, 1.0), (50, 0.9), (300, 1.0), (0, 0.5), (0, 0.9)] {
        assert_eq!(streamed_and_missed(&model, 32_003, k, p).1, 0, "k = {k} and p = {p}");
    }
    // A bitmask that leaves a few tokens of many.
    let mut few = vec![f32::NEG_INFINITY; 2 * 32_003];
    for id in (0..few.len()).step_by(1999) {
        few[id] = id as f32;
    }
    assert_eq!(streamed_and_missed(&few, 32_003, 50, 0.9).1, 0, "few tokens");
}

/// What a launch says that it gathered: all that lies above some logit, the kept among it, as many misses as slots tell of.
#[cfg(feature = "truncation")]
#[test]
fn what_is_gathered_lies_above_a_threshold() {
    let mut outcomes = HashMap::new();
    let mut check = |data: &[f32], vocab: usize, (k, p): (u32, f32)| {
        let logits = Logits::new(data, vocab).unwrap();
        let params = Params::default().top_k(k).top_p(p);
        // Launches of the machine differ in how they are divided.
        let backend = backend(32, 256, 7);
        let streamed_before = |backend: &Backend| backend.device().streamed_and_missed();
        for _ in 0..4 {
            let (streamed, missed) = streamed_before(&backend);
            let gathered = backend.gather(&logits, &params, &Plan::default(), &mut ()).unwrap();
            let (after, missed_after) = streamed_before(&backend);
            if after == streamed {
                // Not split: stage 1 spoke.
                continue;
            }
            let hits = gathered.iter().filter(|row| row.outcome == Outcome::Hit).count() as u64;
            assert_eq!(
                (after - streamed, missed_after - missed),
                (gathered.len() as u64, gathered.len() as u64 - hits)
            );
            for (row, found) in data.chunks(vocab).zip(&gathered) {
                let mut sorted = row.to_vec();
                sorted.sort_by(|a, b| b.total_cmp(a));
                let count = found.count as usize;
                let is_above = count == 0 || count == vocab || sorted[count - 1] > sorted[count];
                assert!(is_above, "{found:?}, k = {k} and p = {p}");
                *outcomes.entry(found.outcome).or_insert(0) += 1;
            }
        }
    };
    for rows in fixtures::small() {
        let wide: Vec<f32> = rows.logits.iter().take(3 * rows.vocab).map(|y| y.to_f32()).collect();
        for filter in [(50, 1.0), (50, 0.9), (0, 0.9), (0, 0.999)] {
            check(&wide, rows.vocab, filter);
        }
    }
    // A share that ends where a token does, but for the last bit of p: what bounds of the mass can not decide.
    let normal = rows::row(RowKind::Standard, 20_000, 1);
    let mut weights: Vec<f64> = normal.iter().map(|&y| f64::from(y).exp()).collect();
    weights.sort_by(|a, b| b.total_cmp(a));
    let share = weights[..100].iter().sum::<f64>() / weights.iter().sum::<f64>();
    check(&normal, 20_000, (0, share as f32));
    check(&normal, 20_000, (0, share as f32 + 1e-4));
    // The share of one token in 20 000 is more than the bounds leave open.
    assert_eq!(outcomes.get(&Outcome::Straddled), Some(&3), "{outcomes:?}");
    assert!(outcomes.contains_key(&Outcome::Missed), "{outcomes:?}");
}

/// The shares that docs/gpu.md quotes.
#[cfg(feature = "truncation")]
#[test]
#[ignore = "a report on files that are not part of the repository"]
#[allow(clippy::print_stderr, reason = "it is a report")]
fn shares_of_real_rows() {
    for rows in fixtures::large().expect("the larger files of real logits") {
        let wide: Vec<f32> = rows.logits.iter().map(|y| y.to_f32()).collect();
        let logits = Logits::new(&wide, rows.vocab).unwrap();
        for (k, p) in [(50, 1.0), (50, 0.9), (0, 0.5), (0, 0.9)] {
            // The first launch of a machine is split.
            let (backend, params) = (backend(32, 256, 7), Params::default().top_k(k).top_p(p));
            let gathered = backend.gather(&logits, &params, &Plan::default(), &mut ()).unwrap();
            let count = |outcome| gathered.iter().filter(|row| row.outcome == outcome).count();
            let all: u64 = gathered.iter().map(|row| u64::from(row.count)).sum();
            eprintln!(
                "{}, k = {k}, p = {p}: of {} rows {} are missed and {} straddle, N_t {:.1}",
                rows.model,
                gathered.len(),
                count(Outcome::Missed),
                count(Outcome::Straddled),
                all as f64 / gathered.len() as f64
            );
        }
    }
}

/// A test that the suite gains must be named here too.
#[test]
fn every_test_of_the_suite_is_named() {
    let (suite, here) = (include_str!("../../testkit/src/conformance/mod.rs"), include_str!("conformance.rs"));
    let (_, list) = suite.split_once("conformance_tests! { $make;").unwrap();
    let (list, _) = list.split_once('}').unwrap();
    assert!(list.split_whitespace().count() >= 50);
    for name in list.split_whitespace() {
        assert!(here.split([' ', '\n', ':']).any(|word| word == name), "{name} is missing");
    }
}
