//! Properties of every call: all plans, all outputs, all kinds of rows, in any company.

use std::cell::RefCell;
use std::env;

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use qrita_core::philox::{random, target};
use qrita_core::weight::{ONE, weight};
use qrita_core::{
    Backend, Dtype, Filtered, MAX_TOP, MAX_VOCAB, NO_TOKEN, Order, Outputs, Plan, Sampled, Status, Ties, Top,
};
use rayon::prelude::*;

use super::harness::{Suite, Wanted};
use crate::batch::{Batch, OwnedBitmask, OwnedParams, OwnedSparse, Stored};
use crate::fixtures;
use crate::oracle::{self, Answer};
use crate::rows::{self, Random, RowKind, Size};

/// Every plan, on every kind of row, under every policy.
pub fn every_plan<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    let plans = suite.plans().to_vec();
    let mut random = Random::new(11);
    for vocab in [1, 2, 33, 500, 3001] {
        for ties in [Ties::LowestId, Ties::KeepAll] {
            for order in [Order::TopKThenTopP, Order::Joint] {
                let mut batch = rows::batch_of(&RowKind::ALL, vocab, &mut random);
                (batch.params.ties, batch.params.order) = (ties, order);
                suite.check_plans(&batch, &plans);
            }
        }
    }
}

/// Each output has the same bits whichever others are asked for with it.
pub fn every_subset_of_outputs<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    for seed in 0..8 {
        let batch = rows::batch(seed, Size { rows: 12, vocab: 200 });
        let answers = oracle::answers(&batch.logits(), &batch.params(), &Plan::default());
        for bits in 0..=255 {
            // Top and probabilities: each subset of them beside every subset of the others, in turn over the seeds.
            let bits = bits | (((bits + seed as u16) % 4) << 8);
            for capacity in [0, 1, 10, 200] {
                let wanted = Wanted::subset(bits, capacity);
                if wanted.candidates.is_none() && wanted.top.is_none() && capacity > 0 {
                    continue;
                }
                suite
                    .compare(&batch, &answers, &Plan::default(), &wanted)
                    .unwrap_or_else(|difference| panic!("{difference}"));
            }
        }
    }
}

/// Several draws: each has the bits that a call for it alone would have, whatever is asked for beside it, and they follow the
/// kept law.
pub fn several_draws<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    for draws in [1, 2, 5, 100] {
        for vocab in [1, 9, 5000] {
            // Wide kept sets, narrow ones, and rows with nothing to draw.
            let kinds = [RowKind::LanguageModel, RowKind::Flat, RowKind::AllNegativeInfinity, RowKind::Equal];
            let batch = Batch::new(&kinds.map(|kind| rows::row(kind, vocab, 4))).with(|params| {
                params.top_k = vec![0, 3, 3, 0];
                params.seed = vec![5, 6, 7, 8];
                params.position = vec![1 << 40, 0, 3, 9];
                params.stream = vec![0, 2, 0, 0];
                params.draws = draws;
            });
            suite.check(&batch);
            let answers = oracle::answers(&batch.logits(), &batch.params(), &Plan::default());
            for output in 4..8 {
                let wanted = Wanted::subset(1 << output, 0);
                suite
                    .compare(&batch, &answers, &Plan::default(), &wanted)
                    .unwrap_or_else(|difference| panic!("{difference}"));
            }
        }
    }
    // More than have their ranks of one pass over a wide row, with the same token many times.
    let batch = Batch::new(&[rows::row(RowKind::Standard, 5000, 4)])
        .with(|params| (params.draws, params.temperature) = (700, vec![0.3]));
    let answers = oracle::answers(&batch.logits(), &batch.params(), &Plan::default());
    for output in [1 << 7, Wanted::EVERY] {
        let compared = suite.compare(&batch, &answers, &Plan::default(), &Wanted::subset(output, 9));
        compared.unwrap_or_else(|difference| panic!("{difference}"));
    }
    // Two kept tokens of four, three times as likely the one as the other: by hand, from the random bits.
    let draws = 4000;
    let batch = Batch::new(&[[3f32.ln(), -1.0, 0.0, -1.0]]).with(|params| {
        (params.top_k, params.seed, params.position, params.stream) = (vec![2], vec![11], vec![12], vec![13]);
        params.draws = draws;
    });
    let first_weight = weight(-(3f32.ln()));
    let found = suite.draw(&batch);
    for (draw, &token) in (0..).zip(&found) {
        let target = target(random(11, 12, 13, draw), ONE + first_weight);
        assert_eq!(token, if target < ONE { 0 } else { 2 }, "draw {draw}");
    }
    let share = found.iter().filter(|&&token| token == 0).count() as f64 / f64::from(draws);
    assert!((share - 0.75).abs() < 0.03, "{share} of the draws");
}

/// Rows that read stored rows by an index: any number of them, in any order, each with parameters, adjustments and outputs
/// of its own, and with the bits that it has where nothing is shared.
pub fn rows_that_share_logits<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    for seed in 0..24 {
        let vocab = if seed % 8 == 0 { 5000 } else { 200 };
        let stored = rows::batch(seed, Size { rows: 6, vocab });
        let mut random = Random::new(seed);
        for rows in [0, 1, stored.stored_rows, 17] {
            let index: Vec<u32> = (0..rows).map(|_| random.below(stored.stored_rows) as u32).collect();
            let of_each = rows::batch_of(&vec![RowKind::Zeros; rows.max(1)], stored.vocab, &mut random).params;
            let all: Vec<usize> = (0..rows).collect();
            let params = OwnedParams { draws: 2, ..of_each.select(&all) };
            let batch = Batch { params, ..stored.clone() }.indexed(&index);
            suite.check(&batch);
            if rows > 0 {
                let apart = batch.select(&all);
                assert_eq!(row_bits(&mut suite, &batch), row_bits(&mut suite, &apart), "{}", batch.describe(0));
            }
        }
    }
    // By hand: the second stored row, the first, and the second again with a bias and another k.
    let batch = Batch::new(&[[3.0, 2.0, 1.0, 0.0], [0.0, 1.0, 2.0, 3.0]])
        .with(|params| {
            params.top_k = vec![1, 2, 2];
            params.bias = Some(OwnedSparse::new(&[vec![], vec![], vec![(0, 9.0)]]));
        })
        .indexed(&[1, 0, 1]);
    suite.check_keeps(&batch, &[vec![3], vec![0, 1], vec![0, 3]]);
}

/// The first candidates: whatever is kept, from one to as many as can be listed, of rows with fewer, with ties in every place,
/// and at temperature 0.
pub fn first_candidates<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    for vocab in [1, 7, 700, 9000] {
        let batch = Batch::new(&RowKind::ALL.map(|kind| rows::row(kind, vocab, 6)));
        for (k, p, temperature) in [(1, 1.0, 1.0), (50, 0.9, 0.7), (0, 0.5, 2.0), (0, 1.0, 1.0), (3, 1.0, 0.0)] {
            let batch = batch.clone().with(|params| {
                (params.top_k, params.top_p, params.temperature) = (vec![k], vec![p], vec![temperature]);
            });
            let answers = oracle::answers(&batch.logits(), &batch.params(), &Plan::default());
            for n in [0, 1, 2, 50, 51, 63, 64, 65, 129, MAX_TOP] {
                for others in [Wanted::subset(0, 0), Wanted::subset(1, 0), Wanted::all(60)] {
                    let wanted = Wanted { top: Some(n), ..others };
                    suite
                        .compare(&batch, &answers, &Plan::default(), &wanted)
                        .unwrap_or_else(|difference| panic!("{difference}"));
                }
            }
        }
    }
    // By hand: one token is kept, three are asked for, and what is disallowed is none of them. All weigh the same but one.
    let batch = Batch::new(&[[2.0, 9.0, 2.0, 2.0, 2.0 - 1e9]]).with(|params| {
        params.top_k = vec![1];
        params.bitmask = Some(OwnedBitmask { words: vec![0b11101], ids: 5, stride: 0 });
    });
    let (mut ids, mut logprobs) = ([0; 5], [0.0; 5]);
    let top = Top { n: 5, ids: &mut ids, logprobs: &mut logprobs };
    let mut outputs = Outputs { top: Some(top), ..Outputs::default() };
    let input = batch.logits().into();
    suite.backend.run(input, &batch.params(), &Plan::default(), &mut outputs, &mut suite.workspace).unwrap();
    assert_eq!(ids, [0, 2, 3, 4, NO_TOKEN]);
    assert_eq!(logprobs, [-(3f32.ln()), -(3f32.ln()), -(3f32.ln()), -1e9, f32::NEG_INFINITY]);
}

/// Probabilities among the kept: each the nearest float, whatever is kept, and 0 elsewhere.
pub fn renormalised_probabilities<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    for vocab in [1, 7, 700, 9000] {
        let batch = Batch::new(&RowKind::ALL.map(|kind| rows::row(kind, vocab, 6)));
        for (k, p) in [(1, 1.0), (50, 0.9), (0, 0.5), (0, 1.0)] {
            let batch = batch.clone().with(|params| (params.top_k, params.top_p) = (vec![k], vec![p]));
            let answers = oracle::answers(&batch.logits(), &batch.params(), &Plan::default());
            for others in [Wanted::subset(0, 0), Wanted::subset(1, 0), Wanted::subset(Wanted::EVERY, 40)] {
                let wanted = Wanted { probabilities: true, ..others };
                suite
                    .compare(&batch, &answers, &Plan::default(), &wanted)
                    .unwrap_or_else(|difference| panic!("{difference}"));
            }
        }
    }
    // By hand: shares of three and of seven equal tokens, a token that is dropped, and one whose weight is 0.
    for (count, share) in [(3, 1.0 / 3.0), (7, 1.0 / 7.0)] {
        let mut row = vec![1.0; count];
        row.extend([0.0, -1e9]);
        let batch = Batch::new(&[&row]).with(|params| params.top_k = vec![count as u32]);
        let mut found = vec![f32::NAN; count + 2];
        let mut outputs = Outputs { probabilities: Some(&mut found), ..Outputs::default() };
        let input = batch.logits().into();
        suite.backend.run(input, &batch.params(), &Plan::default(), &mut outputs, &mut suite.workspace).unwrap();
        row.fill(share);
        row[count..].fill(0.0);
        assert_eq!(found, row);
    }
}

/// Candidates that find no room are announced, the count is whole, and those that found room are right.
pub fn overflow_is_never_silent<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    for (vocab, k) in [(100, 60), (5000, 3000), (5000, 0)] {
        let batch = Batch::new(&[
            rows::row(RowKind::LanguageModel, vocab, 1),
            rows::row(RowKind::Equal, vocab, 2),
            rows::row(RowKind::AllNegativeInfinity, vocab, 3),
        ])
        .with(|params| params.top_k = vec![k]);
        let answers = oracle::answers(&batch.logits(), &batch.params(), &Plan::default());
        let kept = answers[0].kept;
        for capacity in [0, 1, 7, kept - 1, kept, kept + 1] {
            for plan in suite.few_plans() {
                let answers = oracle::answers(&batch.logits(), &batch.params(), &plan);
                suite
                    .compare(&batch, &answers, &plan, &Wanted::all(capacity))
                    .unwrap_or_else(|difference| panic!("{difference}"));
            }
        }
    }
}

/// Everything that a row's outputs say, floats by their bits.
#[derive(Debug, PartialEq)]
struct RowBits {
    status: Status,
    kept: u32,
    draws: Vec<DrawBits>,
    /// Id, logit and log-probability.
    candidates: Vec<[u32; 3]>,
}

#[derive(Debug, PartialEq)]
struct DrawBits {
    token: Option<u32>,
    rank: u32,
    logprobs: [u32; 2],
}

fn row_bits<B: Backend>(suite: &mut Suite<B>, batch: &Batch) -> Vec<RowBits> {
    let (sampled, filtered) = (suite.sample(batch, &Plan::default()), suite.filter(batch, &Plan::default()));
    let draw = |sampled: &Sampled| DrawBits {
        token: sampled.token,
        rank: sampled.rank,
        logprobs: [sampled.logprob.to_bits(), sampled.raw_logprob.to_bits()],
    };
    let row = |(sampled, filtered): (&[Sampled], Filtered)| RowBits {
        status: sampled[0].status,
        kept: sampled[0].kept,
        draws: sampled.iter().map(draw).collect(),
        candidates: (0..filtered.ids.len())
            .map(|place| [filtered.ids[place], filtered.logits[place].to_bits(), filtered.logprobs[place].to_bits()])
            .collect(),
    };
    sampled.chunks(batch.params.draws as usize).zip(filtered).map(row).collect()
}

/// A row alone, in another place, twice, or beside others: the same.
pub fn batch_invariance<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    for seed in 100..112 {
        let batch = rows::batch(seed, Size { rows: 16, vocab: if seed % 4 == 0 { 6000 } else { 300 } });
        let together = row_bits(&mut suite, &batch);
        for (row, beside) in together.iter().enumerate() {
            let alone = row_bits(&mut suite, &batch.select(&[row]));
            assert_eq!(&alone[0], beside, "alone\n{}", batch.describe(row));
        }
        let mut random = Random::new(seed);
        let others: Vec<usize> = (0..3 * batch.rows).map(|_| random.below(batch.rows)).collect();
        for (place, found) in row_bits(&mut suite, &batch.select(&others)).into_iter().enumerate() {
            let row = others[place];
            assert_eq!(found, together[row], "at place {place}\n{}", batch.describe(row));
        }
    }
}

/// Nothing of a call is left in the workspace for the next one, whatever their shapes.
pub fn workspace_keeps_nothing<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    let bad = [RowKind::Nans, RowKind::Infinities, RowKind::AllNegativeInfinity, RowKind::Equal];
    let good = [RowKind::Standard, RowKind::LanguageModel, RowKind::Flat, RowKind::Zipf];
    for plan in suite.plans().to_vec() {
        for vocab in [5, 700] {
            let bad = Batch::new(&bad.map(|kind| rows::row(kind, vocab, 1)));
            let good = Batch::new(&good.map(|kind| rows::row(kind, vocab, 1)))
                .with(|params| (params.top_k, params.top_p) = (vec![20], vec![0.9]));
            suite.filter(&bad, &plan);
            let used = (suite.filter(&good, &plan), suite.sample(&good, &plan));
            suite.workspace = suite.backend.workspace();
            assert_eq!((suite.filter(&good, &plan), suite.sample(&good, &plan)), used, "{plan:?}");
            assert!(used.1.iter().all(|sampled| sampled.status == Status::OK && sampled.token.is_some()));
        }
    }
}

/// Small batches by proptest: a failure is shrunk to the fewest rows and plainest values that show it.
pub fn shrinking_batches<B: Backend>(make: impl Fn() -> B) {
    let suite = RefCell::new(Suite::new(make));
    let config = Config { cases: 10_000, failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let plans = suite.borrow().plans().len();
    let strategy = (rows::any_batch(3, 24), 0..plans);
    let result = runner.run(&strategy, |(batch, plan)| {
        let plan = suite.borrow().plans()[plan];
        let answers = oracle::answers(&batch.logits(), &batch.params(), &plan);
        let wanted = Wanted::all(batch.vocab);
        suite.borrow_mut().compare(&batch, &answers, &plan, &wanted).map_err(TestCaseError::fail)
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(difference, _)) => panic!("{difference}"),
        Err(TestError::Abort(reason)) => panic!("the generator gave up: {reason}"),
    }
}

fn number_from_env(name: &str, default: u64) -> u64 {
    match env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")),
        Err(_) => default,
    }
}

/// The batch, plan and outputs of one seed of [`random_rows`].
fn random_call(seed: u64, plans: &[Plan]) -> (Batch, Plan, Vec<Answer>, Wanted) {
    let size = match seed % 50 {
        0 => Size { rows: 6, vocab: 5000 },
        1..20 => Size { rows: 120, vocab: 40 },
        _ => Size { rows: 100, vocab: 300 },
    };
    let batch = rows::batch(seed, size);
    let mut random = Random::new(!seed);
    let plan = random.pick(plans);
    let answers = oracle::answers(&batch.logits(), &batch.params(), &plan);
    let wanted = Wanted::random(&mut random, &answers);
    (batch, plan, answers, wanted)
}

/// Three hundred thousand random rows (`QRITA_ROWS` sets how many, `QRITA_SEED` where they start), all of them equal.
pub fn random_rows<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    let plans = suite.plans().to_vec();
    let rows = number_from_env("QRITA_ROWS", 300_000);
    let mut seed = number_from_env("QRITA_SEED", 0x5EED);
    let mut done = 0;
    while done < rows {
        // The oracle takes the longer part: it works ahead on all cores, and the backend follows.
        let calls: Vec<_> = (0..64).into_par_iter().map(|next| random_call(seed.wrapping_add(next), &plans)).collect();
        for (batch, plan, answers, wanted) in calls {
            if let Err(difference) = suite.compare(&batch, &answers, &plan, &wanted) {
                panic!("{difference}\nQRITA_SEED={seed} QRITA_ROWS=1 repeats it, after {done} rows that were right");
            }
            done += batch.rows as u64;
            seed = seed.wrapping_add(1);
            if done >= rows {
                break;
            }
        }
    }
}

/// Rows as wide as real vocabularies, and as wide as the contract allows.
pub fn large_rows<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    let mut random = Random::new(3);
    for vocab in [40_001, 128_256] {
        for kinds in RowKind::ALL.chunks(6) {
            suite.check(&rows::batch_of(kinds, vocab, &mut random));
        }
        let kinds = [RowKind::LanguageModel, RowKind::Flat, RowKind::Standard, RowKind::HiddenOutliers, RowKind::Equal];
        let values: Vec<f32> = kinds.iter().flat_map(|&kind| rows::row(kind, vocab, 8)).collect();
        for dtype in [Dtype::F32, Dtype::Bf16] {
            for (k, p) in [(50, 1.0), (0, 0.9), (50, 0.9), (5000, 0.999)] {
                let batch = Batch::of(Stored::narrow(&values, dtype), vocab)
                    .with(|params| (params.top_k, params.top_p) = (vec![k], vec![p]));
                suite.check(&batch);
            }
        }
    }
    for kind in [RowKind::LanguageModel, RowKind::Equal] {
        let values = Stored::narrow(&rows::row(kind, MAX_VOCAB, 1), Dtype::Bf16);
        let batch = Batch::of(values, MAX_VOCAB);
        for (k, p) in [(50, 0.9), (0, 0.9)] {
            let batch = batch.clone().with(|params| (params.top_k, params.top_p) = (vec![k], vec![p]));
            suite.check_plans(&batch, &[Plan::default()]);
        }
        // Nothing filtered: the mass of the equal row is 2^63, the largest there is.
        let wanted = Wanted::all(1000);
        let answers = oracle::answers(&batch.logits(), &batch.params(), &Plan::default());
        suite.compare(&batch, &answers, &Plan::default(), &wanted).unwrap_or_else(|difference| panic!("{difference}"));
    }
}

/// Rows of three real models, with the parameters that people use: every plan as bf16, the choices once as f16 and f32.
pub fn real_rows<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    let every = suite.plans().to_vec();
    for rows in fixtures::small() {
        let wide: Vec<f32> = rows.logits.iter().map(|y| y.to_f32()).collect();
        for dtype in [Dtype::Bf16, Dtype::F16, Dtype::F32] {
            for (k, p) in [(50, 1.0), (0, 0.9), (50, 0.9)] {
                let batch = Batch::of(Stored::narrow(&wide, dtype), rows.vocab).with(|params| {
                    (params.top_k, params.top_p) = (vec![k], vec![p]);
                    params.position = (0..rows.rows() as u64).collect();
                });
                let plans = if dtype == Dtype::Bf16 && k > 0 && p < 1.0 { every.clone() } else { suite.few_plans() };
                suite.check_plans(&batch, &plans);
            }
        }
    }
}

/// Many more rows of the same models, where they are at hand (see [`fixtures::large`]); else it says that it skips.
#[allow(clippy::print_stderr, reason = "a test that checks nothing must say so")]
pub fn many_real_rows<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    let Some(models) = fixtures::large() else {
        eprintln!("skipped: the larger files of real logits are absent");
        return;
    };
    let plans = [Plan::default(), Plan::paper()].map(|plan| suite.plans().contains(&plan).then_some(plan));
    let plans: Vec<Plan> = plans.into_iter().flatten().collect();
    for rows in models {
        for chunk in rows.logits.chunks(16 * rows.vocab) {
            for (k, p) in [(50, 0.95), (0, 0.9)] {
                let batch = Batch::of(Stored::Bf16(chunk.to_vec()), rows.vocab).with(|params| {
                    (params.top_k, params.top_p) = (vec![k], vec![p]);
                    params.position = (0..(chunk.len() / rows.vocab) as u64).collect();
                });
                suite.check_plans(&batch, &plans);
            }
        }
    }
}
