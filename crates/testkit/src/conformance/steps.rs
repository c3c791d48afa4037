//! Steps: standing penalties that are read, and taken on behind the token drawn.

use qrita_core::{Adjustments, Backend, Decay, Error, Logits, NO_TOKEN, Outputs, Param, Params, Plan, Standing};

use super::harness::{Buffers, Suite, Wanted};
use crate::batch::{Batch, OwnedStanding};
use crate::oracle;
use crate::rows::{self, Random, Size};

/// How standing penalties go on, in memory of its own. A vector of one value serves all rows.
#[derive(Clone, Debug)]
struct Rates {
    decay: Vec<f32>,
    presence: Vec<f32>,
    repetition: Vec<f32>,
}

impl Rates {
    fn on<'a>(&'a self, standing: &'a mut OwnedStanding) -> Decay<'a> {
        let param = |values: &'a [f32]| match values {
            [value] => Param::All(*value),
            values => Param::PerRow(values),
        };
        Decay {
            penalties: &mut standing.penalties,
            stride: standing.stride,
            decay: param(&self.decay),
            presence: param(&self.presence),
            repetition: param(&self.repetition),
        }
    }
}

/// Five steps of a row that is drawn from greedily, and of one that is empty, worked out by hand.
pub fn steps_by_hand<B: Backend>(make: impl Fn() -> B) {
    let Suite { backend, mut workspace, .. } = Suite::new(make);
    let none = f32::NEG_INFINITY;
    let batch = Batch::new(&[[1.0, 0.9, 0.5, none], [none; 4]]).with(|params| params.temperature = vec![0.0]);
    let rates = Rates { decay: vec![0.5], presence: vec![0.25, 7.0], repetition: vec![0.125] };
    let mut standing = OwnedStanding { penalties: vec![0.0, 0.0, 0.0, 0.0, 9.0, 64.0, 0.0, 0.0, 32.0], stride: 5 };
    let right = [
        (0, [0.25, 0.0, 0.0]),
        (1, [0.125, 0.25, 0.0]),
        (0, [0.1875, 0.125, 0.0]),
        (0, [0.218_75, 0.0625, 0.0]),
        (1, [0.109_375, 0.156_25, 0.0]),
    ];
    for (step, (token, penalties)) in (1..).zip(right) {
        // The token need not be asked for.
        let mut tokens = [7; 2];
        let token_out = (step % 2 == 1).then_some(&mut tokens[..]);
        let mut outputs = Outputs { token: token_out, ..Outputs::default() };
        let mut decay = rates.on(&mut standing);
        let run = backend.step(
            batch.logits().into(),
            &batch.params(),
            &mut decay,
            &Plan::default(),
            &mut outputs,
            &mut workspace,
        );
        run.unwrap();
        assert_eq!(tokens, if step % 2 == 1 { [token, NO_TOKEN] } else { [7; 2] }, "step {step}");
        assert_eq!(standing.penalties[..3], penalties, "step {step}");
        let halved = |times| [64.0, 32.0].map(|penalty: f32| penalty / f32::powi(2.0, times));
        assert_eq!([standing.penalties[5], standing.penalties[8]], halved(step), "step {step}");
        assert_eq!(standing.penalties[3..5], [0.0, 9.0], "step {step}");
    }
}

/// Random batches, three steps of each, against the oracle: every output, every penalty, and what lies between and behind them.
pub fn random_steps<B: Backend>(make: impl Fn() -> B) {
    some_random_steps(&mut Suite::new(make), 1500);
}

/// As many of [`random_steps`].
pub fn some_random_steps<B: Backend>(suite: &mut Suite<B>, batches: u64) {
    let plans = suite.few_plans();
    for seed in 0..batches {
        let random = &mut Random::new(seed ^ 0xDECA);
        let size = if seed % 100 == 0 { Size { rows: 4, vocab: 6000 } } else { Size { rows: 9, vocab: 200 } };
        let mut batch = rows::batch(seed, size);
        (batch.params.draws, batch.params.standing) = (1, None);
        let mut standing = rows::standing(batch.rows, batch.vocab, random);
        standing.penalties.extend([f32::NAN, 1.0]);
        let mut rates = |values: &[f32]| {
            let count = if random.once_in(2) { 1 } else { batch.rows };
            (0..count).map(|_| random.pick(values)).collect::<Vec<_>>()
        };
        let rates = Rates {
            decay: rates(&[0.5, 0.9, 1.0, 0.0, 1.25]),
            presence: rates(&[0.0, 0.3, 1.0, 1e-41, f32::MAX]),
            repetition: rates(&[0.0, 0.1, 2.0, f32::MAX]),
        };
        for step in 0..3 {
            let plan = random.pick(&plans);
            let mut read = batch.clone();
            read.params.standing = Some(standing.clone());
            let answers = oracle::answers(&read.logits(), &read.params(), &plan);
            let wanted = Wanted::random(random, &answers);
            let (mut right, mut found) = (Buffers::new(&batch, &wanted), Buffers::new(&batch, &wanted));
            right.call(&batch, &wanted, |input, outputs| oracle::write(&answers, input, &batch.params(), outputs));
            let mut after = standing.clone();
            oracle::decay(&answers, batch.vocab, &mut rates.on(&mut after));
            let (backend, workspace, params) = (&suite.backend, &mut suite.workspace, batch.params());
            let mut decay = rates.on(&mut standing);
            let run = found.call(&batch, &wanted, |input, outputs| {
                backend.step(input, &params, &mut decay, &plan, outputs, workspace)
            });
            let context =
                |row| format!("{}\n{plan:?}\n{wanted:?}\n{rates:?}\nseed {seed}, step {step}", read.describe(row));
            run.unwrap_or_else(|error| panic!("{error}\n{}", context(0)));
            if let Some((row, what)) = found.difference(&right, &batch, &wanted) {
                panic!("{what}\n{}", context(row));
            }
            for (place, (found, right)) in standing.penalties.iter().zip(&after.penalties).enumerate() {
                let (row, id) = (place / after.stride, place % after.stride);
                let bits = (found.to_bits(), right.to_bits());
                assert!(
                    bits.0 == bits.1,
                    "penalty {id} is {found:e} and must be {right:e}: {bits:x?}\n{}",
                    context(row.min(batch.rows - 1))
                );
            }
            batch.params.position.iter_mut().for_each(|position| *position = position.wrapping_add(1));
        }
    }
}

/// Steps whose values or memory are not as they must be, and such as draw more than once: nothing is written.
pub fn invalid_steps<B: Backend>(make: impl Fn() -> B) {
    let Suite { backend, mut workspace, .. } = Suite::new(make);
    const ROWS: usize = 3;
    let batch = Batch::new(&[[1.0, 5.0, 3.0, 3.0]; ROWS]);
    let mut refuse = |rates: &Rates, len: usize, stride: usize, params: &Params<'_>, check: &dyn Fn(&Error) -> bool| {
        let mut standing = OwnedStanding { penalties: vec![0.5; len], stride };
        let wanted = Wanted::all(4);
        let mut buffers = Buffers::new(&batch, &wanted);
        let untouched = buffers.clone();
        let mut decay = rates.on(&mut standing);
        let run = buffers.call(&batch, &wanted, |input, outputs| {
            backend.step(input, params, &mut decay, &Plan::default(), outputs, &mut workspace)
        });
        let error = run.expect_err("a step must refuse");
        assert!(check(&error), "{error}");
        assert!(standing.penalties.iter().all(|&penalty| penalty == 0.5), "{error}, yet penalties were written");
        assert_eq!(buffers.difference(&untouched, &batch, &wanted), None, "{error}");
    };
    let plain = Rates { decay: vec![0.9], presence: vec![0.5], repetition: vec![0.1] };
    let params = Params::default();
    let names = |name: &'static str, place: Option<usize>| move |error: &Error| matches!(error, Error::Param { row, param, .. } if *param == name && *row == place);
    type Set = fn(&mut Rates, Vec<f32>);
    let fields: [(&'static str, Set); 3] = [
        ("decay", |rates, values| rates.decay = values),
        ("standing presence", |rates, values| rates.presence = values),
        ("standing repetition", |rates, values| rates.repetition = values),
    ];
    for (name, set) in fields {
        let with = |values: Vec<f32>| {
            let mut rates = plain.clone();
            set(&mut rates, values);
            rates
        };
        for value in [f32::NAN, f32::INFINITY, -0.1, f32::NEG_INFINITY] {
            refuse(&with(vec![value]), 12, 4, &params, &names(name, None));
            refuse(&with(vec![0.5, 0.5, value]), 12, 4, &params, &names(name, Some(2)));
        }
        refuse(&with(vec![0.5; 2]), 12, 4, &params, &|error| matches!(error, Error::Length { .. }));
    }
    refuse(&plain, 11, 4, &params, &|error| matches!(error, Error::Length { found: 11, expected: 12, .. }));
    refuse(&plain, 13, 5, &params, &|error| matches!(error, Error::Length { expected: 14, .. }));
    refuse(&plain, 12, 3, &params, &|error| matches!(error, Error::Shape { value: 3, .. }));
    // Output slices would be too short too: the parameter comes first.
    refuse(&plain, 12, 4, &params.draws(2), &names("draws", None));
    refuse(&plain, 12, 4, &params.top_p(f32::NAN), &names("top_p", None));
    let beside =
        Adjustments { standing: Some(Standing { penalties: &[0.0; 12], stride: 4 }), ..Adjustments::default() };
    refuse(&plain, 12, 4, &params.adjustments(beside), &names("standing", None));
    // Those that other calls read have the same shape.
    for (standing, is_shape) in
        [(Standing { penalties: &[0.0; 11], stride: 4 }, false), (Standing { penalties: &[0.0; 12], stride: 3 }, true)]
    {
        let params = params.adjustments(Adjustments { standing: Some(standing), ..Adjustments::default() });
        let run = backend.filter(&batch.logits(), &params, &Plan::default(), &mut workspace);
        match run.expect_err("must refuse") {
            Error::Shape { .. } => assert!(is_shape),
            Error::Length { .. } => assert!(!is_shape),
            other => panic!("{other:?}"),
        }
    }
    // No rows: nothing to do, and nothing is needed.
    let mut empty = OwnedStanding { penalties: Vec::new(), stride: 4 };
    let mut outputs = Outputs::default();
    let mut decay = plain.on(&mut empty);
    let logits = Logits::new::<f32>(&[], 4).unwrap();
    backend.step(logits.into(), &params, &mut decay, &Plan::default(), &mut outputs, &mut workspace).unwrap();
}
