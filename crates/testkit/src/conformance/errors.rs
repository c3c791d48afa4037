//! What a backend must refuse, stage by stage, before it launches or writes anything.

use qrita_core::{
    Adjustments, Backend, Bitmask, Boundary, Candidates, Cut, Error, Features, MAX_TOP, Outputs, Params, Penalties,
    Plan, Search, Sparse, Status, Top, Truncated, Truncation,
};

use super::harness::{Buffers, Suite, Wanted};
use crate::batch::Batch;
use crate::oracle;

const ROWS: usize = 8;

/// Draws a row, where lengths depend on them.
const DRAWS: usize = 3;

fn batch() -> Batch {
    Batch::new(&[[1.0, 5.0, 3.0, 3.0]; ROWS])
}

/// Every stage and the whole call refuse `params` as `check` expects, and write nothing.
fn refuses<B: Backend>(suite: &mut Suite<B>, params: &Params<'_>, check: impl Fn(&Error)) {
    refuses_under(&Plan::default(), suite, params, check);
}

/// As [`refuses`], of the stages that take a plan. The others are left out where it is not the default one.
fn refuses_under<B: Backend>(plan: &Plan, suite: &mut Suite<B>, params: &Params<'_>, check: impl Fn(&Error)) {
    let batch = batch();
    let plain = oracle::answers(&batch.logits(), &batch.params(), &Plan::default());
    let truncated: Vec<Truncated> = plain.iter().map(|answer| answer.truncated(3.0, true)).collect();
    let cuts: Vec<Cut> = plain.iter().map(oracle::Answer::cut).collect();
    let boundaries: Vec<Boundary> = plain.iter().map(oracle::Answer::boundary).collect();
    let (backend, workspace) = (&suite.backend, &mut suite.workspace);
    let logits = batch.logits();
    check(&backend.truncate(&logits, params, plan, workspace).expect_err("truncate must refuse"));
    check(&backend.search(&logits, params, plan, &truncated, workspace).expect_err("search must refuse"));
    let wanted = Wanted::all(4);
    let mut buffers = Buffers::new(&batch, &wanted);
    let untouched = buffers.clone();
    if *plan == Plan::default() {
        check(&backend.dedup(&logits, params, &cuts, workspace).expect_err("dedup must refuse"));
        let emit = buffers
            .call(&batch, &wanted, |input, outputs| backend.emit(input, params, &boundaries, outputs, workspace));
        check(&emit.expect_err("emit must refuse"));
    }
    let run = buffers.call(&batch, &wanted, |input, outputs| backend.run(input, params, plan, outputs, workspace));
    let error = run.expect_err("run must refuse");
    check(&error);
    if let Some((row, what)) = buffers.difference(&untouched, &batch, &wanted) {
        panic!("refused ({error}), yet row {row} was written: {what}");
    }
}

/// The error names this parameter and row.
fn names(name: &'static str, place: Option<usize>) -> impl Fn(&Error) {
    move |error| match error {
        Error::Param { row, param, .. } => assert_eq!((*param, *row), (name, place), "{error}"),
        other => panic!("{other:?} and must name {name} in row {place:?}"),
    }
}

fn is_length(error: &Error) {
    assert!(matches!(error, Error::Length { .. }), "{error:?} and must speak of a length");
}

fn is_shape(error: &Error) {
    assert!(matches!(error, Error::Shape { .. }), "{error:?} and must speak of a shape");
}

/// Every value out of range of every parameter, for all rows and in each of them; and vectors of the wrong length.
pub fn invalid_parameters<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    type Set = for<'a> fn(Params<'a>, qrita_core::Param<'a, f32>) -> Params<'a>;
    let fields: [(&'static str, f32, &[f32], Set); 3] = [
        ("temperature", 1.0, &[f32::NAN, -1.0, f32::INFINITY, -1e-30], |params, value| params.temperature(value)),
        ("top_p", 0.9, &[f32::NAN, -0.1, f32::NEG_INFINITY], |params, value| params.top_p(value)),
        ("min_p", 0.1, &[f32::NAN, -0.1, 1.0 + f32::EPSILON, 2.0, f32::INFINITY], |params, value| params.min_p(value)),
    ];
    for (name, plain, invalid, set) in fields {
        for &value in invalid {
            refuses(&mut suite, &set(Params::default(), value.into()), names(name, None));
            for row in 0..ROWS {
                let mut values = [plain; ROWS];
                values[row] = value;
                refuses(&mut suite, &set(Params::default(), (&values).into()), names(name, Some(row)));
            }
        }
        for len in [0, 1, ROWS - 1, ROWS + 1] {
            refuses(&mut suite, &set(Params::default(), (&vec![plain; len]).into()), is_length);
        }
    }
    refuses(&mut suite, &Params::default().draws(0), names("draws", None));
    // Before memory is taken for as many.
    let draws = Params::default().draws(u32::MAX);
    refuses(&mut suite, &draws, names("draws", None));
    let sample = suite.backend.sample(&batch().logits(), &draws, &Plan::default(), &mut suite.workspace);
    names("draws", None)(&sample.unwrap_err());
    for len in [0, 1, ROWS - 1, ROWS + 1] {
        let (words, longs) = (vec![1; len], vec![1; len]);
        for params in [
            Params::default().top_k(&words),
            Params::default().stream(&words),
            Params::default().seed(&longs),
            Params::default().position(&longs),
        ] {
            refuses(&mut suite, &params, is_length);
        }
    }
}

/// Every choice of a plan that was not compiled in, by an error that names it; what was compiled in is not refused so. In a
/// build with all [`Features`] there is only the latter to see.
pub fn plans_that_are_not_compiled_in<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    let Features { truncation, quaternary, duplicates, autotune } = Features::OF_CORE;
    let default = Plan::default();
    let truncations = [
        ("off", Truncation::Off),
        ("paper", Truncation::Paper),
        ("gaussian", Truncation::Gaussian),
        ("quantile", Truncation::Quantile),
        ("adaptive", Truncation::Adaptive),
    ];
    let of_truncation = truncations.map(|(name, choice)| {
        (truncation || name == "off", "truncation", name, "truncation", Plan { truncation: choice, ..default })
    });
    let others = [
        (quaternary, "search", "quaternary", "quaternary", Plan { search: Search::Quaternary, ..default }),
        (duplicates, "duplicates", "true", "duplicates", Plan { duplicates: true, ..default }),
        (autotune, "autotune", "true", "autotune", Plan { autotune: true, ..default }),
    ];
    for (compiled, switch, value, feature, plan) in of_truncation.into_iter().chain(others) {
        assert_eq!(Plan::all().any(|other| other == plan), compiled, "{plan:?}");
        if compiled {
            let batch = batch();
            let run = suite.backend.filter(&batch.logits(), &Params::default(), &plan, &mut suite.workspace);
            assert!(!matches!(run, Err(Error::NotCompiled { .. })), "{run:?} under {plan:?}");
        } else {
            let right = Error::NotCompiled { switch, value, feature };
            refuses_under(&plan, &mut suite, &Params::default(), |error| assert_eq!(error, &right));
        }
    }
}

/// More first candidates than can be listed.
pub fn too_many_first_candidates<B: Backend>(make: impl Fn() -> B) {
    let Suite { backend, mut workspace, .. } = Suite::new(make);
    let batch = batch();
    let boundaries = [Boundary::EMPTY; ROWS];
    let n = MAX_TOP + 1;
    let (mut ids, mut logprobs, mut kept) = (vec![7; ROWS * n], vec![7.0; ROWS * n], [7; ROWS]);
    let top = Top { n, ids: &mut ids, logprobs: &mut logprobs };
    let mut outputs = Outputs { top: Some(top), kept: Some(&mut kept), ..Outputs::default() };
    let (input, params) = (batch.logits(), batch.params());
    let refused = names("top", None);
    refused(&backend.run(input.into(), &params, &Plan::default(), &mut outputs, &mut workspace).unwrap_err());
    refused(&backend.emit(input.into(), &params, &boundaries, &mut outputs, &mut workspace).unwrap_err());
    assert!(ids.iter().chain(&kept).all(|&word| word == 7) && logprobs.iter().all(|&value| value == 7.0));
}

/// Bitmask, bias and penalties that do not fit the batch or have values out of range.
pub fn invalid_adjustments<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    let mut refuse = |adjustments: Adjustments<'_>, check: &dyn Fn(&Error)| {
        refuses(&mut suite, &Params::default().adjustments(adjustments), check);
    };
    let none = Adjustments::default();
    refuse(Adjustments { valid_vocab: Some(5), ..none }, &is_shape);

    let mask = |words, ids, stride| Adjustments { bitmask: Some(Bitmask { words, ids, stride }), ..none };
    refuse(mask(&[15; 7], 4, 1), &is_length);
    refuse(mask(&[], 4, 0), &is_length);
    refuse(mask(&[15; 16], 40, 1), &is_shape);

    let bias = |offsets, ids, values| Adjustments { bias: Some(Sparse { offsets, ids, values }), ..none };
    let in_row_3 = [0, 0, 0, 0, 2, 2, 2, 2, 2];
    refuse(bias(&in_row_3, &[0, 1], &[1.0, f32::NAN]), &names("logit_bias", Some(3)));
    refuse(bias(&in_row_3, &[1, 1], &[1.0, 1.0]), &names("logit_bias", Some(3)));
    refuse(bias(&in_row_3, &[2, 1], &[1.0, 1.0]), &names("logit_bias", Some(3)));
    refuse(bias(&in_row_3, &[2, 4], &[1.0, 1.0]), &names("logit_bias", Some(3)));
    refuse(bias(&in_row_3, &[2], &[1.0]), &names("logit_bias", Some(3)));
    refuse(bias(&[0, 0, 0, 2, 1, 2, 2, 2, 2], &[0, 1], &[1.0, 1.0]), &names("logit_bias", Some(3)));
    refuse(bias(&in_row_3, &[0, 1], &[1.0]), &is_length);
    refuse(bias(&in_row_3[..8], &[0, 1], &[1.0, 1.0]), &is_length);

    let counts = Sparse { offsets: &in_row_3, ids: &[0, 1], values: &[1, 2] };
    let plain = Penalties { repetition: 1.1.into(), frequency: 0.1.into(), presence: 0.1.into(), counts };
    let mut refuse_penalties = |penalties: Penalties<'_>, check: &dyn Fn(&Error)| {
        refuse(Adjustments { penalties: Some(penalties), ..none }, check);
    };
    for value in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        refuse_penalties(Penalties { repetition: value.into(), ..plain }, &names("repetition", None));
    }
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut values = [0.0; ROWS];
        values[6] = value;
        refuse_penalties(Penalties { frequency: (&values).into(), ..plain }, &names("frequency", Some(6)));
        refuse_penalties(Penalties { presence: (&values).into(), ..plain }, &names("presence", Some(6)));
    }
    refuse_penalties(Penalties { presence: (&[0.0; 7]).into(), ..plain }, &is_length);
    refuse_penalties(
        Penalties { counts: Sparse { ids: &[0, 4], ..counts }, ..plain },
        &names("penalty counts", Some(3)),
    );
}

/// Outputs and stage inputs that are not as long as the batch.
pub fn wrong_lengths<B: Backend>(make: impl Fn() -> B) {
    let Suite { backend, mut workspace, .. } = Suite::new(make);
    let batch = batch();
    let (logits, params, plan) = (batch.logits(), batch.params().draws(DRAWS as u32), Plan::default());
    let plain = oracle::answers(&logits, &params, &plan);
    let boundaries: Vec<Boundary> = plain.iter().map(oracle::Answer::boundary).collect();
    for len in [0, ROWS - 1, ROWS + 1] {
        for which in 0..12 {
            let len_of = |index| if index == which { len } else { ROWS };
            let (mut status, mut kept) = (vec![Status::OK; len_of(0)], vec![7; len_of(1)]);
            let (mut token, mut rank) = (vec![7; DRAWS * len_of(2)], vec![7; DRAWS * len_of(3)]);
            let (mut logprob, mut raw_logprob) = (vec![7.0; DRAWS * len_of(4)], vec![7.0; DRAWS * len_of(5)]);
            let (mut ids, mut values) = (vec![7; 4 * len_of(6)], vec![7.0; 4 * len_of(7)]);
            let mut logprobs = vec![7.0; 4 * len_of(8)];
            let (mut top_ids, mut top_logprobs) = (vec![7; 2 * len_of(9)], vec![7.0; 2 * len_of(10)]);
            let mut probabilities = vec![7.0; batch.vocab * len_of(11)];
            let mut masked = batch.stored.clone();
            {
                let mut outputs = Outputs {
                    status: Some(&mut status),
                    kept: Some(&mut kept),
                    candidates: Some(Candidates {
                        capacity: 4,
                        ids: &mut ids,
                        logits: &mut values,
                        logprobs: &mut logprobs,
                    }),
                    token: Some(&mut token),
                    logprob: Some(&mut logprob),
                    raw_logprob: Some(&mut raw_logprob),
                    rank: Some(&mut rank),
                    top: Some(Top { n: 2, ids: &mut top_ids, logprobs: &mut top_logprobs }),
                    probabilities: Some(&mut probabilities),
                };
                let input = batch.logits_mut(&mut masked).into();
                is_length(&backend.run(input, &params, &plan, &mut outputs, &mut workspace).unwrap_err());
                let input = batch.logits_mut(&mut masked).into();
                is_length(&backend.emit(input, &params, &boundaries, &mut outputs, &mut workspace).unwrap_err());
            }
            let untouched = status.iter().all(|&status| status == Status::OK)
                && [&kept, &token, &rank, &ids, &top_ids].iter().all(|words| words.iter().all(|&word| word == 7))
                && [&logprob, &raw_logprob, &values, &logprobs, &top_logprobs, &probabilities]
                    .iter()
                    .all(|list| list.iter().all(|&value| value == 7.0))
                && (0..masked.len()).all(|index| masked.bits(index) == batch.stored.bits(index));
            assert!(untouched, "written in spite of a wrong length");
        }
        let stretch = |count: usize| (0..count).map(|row| &plain[row % ROWS]);
        let truncated: Vec<Truncated> = stretch(len).map(|answer| answer.truncated(3.0, true)).collect();
        let cuts: Vec<Cut> = stretch(len).map(oracle::Answer::cut).collect();
        let boundaries: Vec<Boundary> = stretch(len).map(oracle::Answer::boundary).collect();
        is_length(&backend.search(&logits, &params, &plan, &truncated, &mut workspace).unwrap_err());
        is_length(&backend.dedup(&logits, &params, &cuts, &mut workspace).unwrap_err());
        let emit = backend.emit(logits.into(), &params, &boundaries, &mut Outputs::default(), &mut workspace);
        is_length(&emit.unwrap_err());
    }
}
