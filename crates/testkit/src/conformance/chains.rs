//! Chains of draft tokens: answers by hand, random chains, their company, and what must be refused.

use qrita_core::philox::random;
use qrita_core::{Backend, ChainOutputs, Chains, Dtype, Error, Features, Logits, NO_TOKEN, Params, Plan, Side, Status};
use rayon::prelude::*;

use super::harness::Suite;
use crate::batch::{Batch, Stored};
use crate::chains::{self, ChainBatch};
use crate::oracle::chain::{self, Walked};
use crate::rows::{self, Random, RowKind, Size};

const NONE: f32 = f32::NEG_INFINITY;
const UNTOUCHED: u32 = 0x7FC5_A5A5;

/// Memory for every output, filled with a pattern.
#[derive(Clone, Debug, PartialEq)]
struct Buffers {
    accepted: Vec<u32>,
    tokens: Vec<u32>,
    status: Vec<Status>,
}

impl Buffers {
    fn new(requests: usize, target_rows: usize) -> Buffers {
        Buffers {
            accepted: vec![UNTOUCHED; requests],
            tokens: vec![UNTOUCHED; target_rows],
            status: vec![Status::from_bits(15); requests],
        }
    }

    /// The outputs whose bit is set: accepted, tokens, status.
    fn outputs(&mut self, wanted: u8) -> ChainOutputs<'_> {
        ChainOutputs {
            accepted: (wanted & 1 != 0).then_some(&mut self.accepted),
            tokens: (wanted & 2 != 0).then_some(&mut self.tokens),
            status: (wanted & 4 != 0).then_some(&mut self.status),
        }
    }
}

impl<B: Backend> Suite<B> {
    /// Compares the verification of a batch of chains.
    ///
    /// # Errors
    /// What differs, with the request's rows.
    pub fn compare_chains(
        &mut self,
        batch: &ChainBatch,
        walks: &[Walked],
        plan: &Plan,
        wanted: u8,
    ) -> Result<(), String> {
        let chains = batch.chains();
        let mut right = Buffers::new(chains.requests(), chains.target.logits.rows());
        let mut found = right.clone();
        chain::write(walks, &mut right.outputs(wanted));
        let result = self.backend.verify(&chains, plan, &mut found.outputs(wanted), &mut self.workspace);
        result.map_err(|error| format!("{}: {error}\n{plan:?}", self.backend.name()))?;
        let differs = (0..chains.requests()).find(|&request| {
            let rows = chains.target_rows(request);
            found.accepted[request] != right.accepted[request]
                || found.status[request] != right.status[request]
                || found.tokens[rows.clone()] != right.tokens[rows]
        });
        let Some(request) = differs else { return Ok(()) };
        let of = |buffers: &Buffers| {
            let tokens = &buffers.tokens[chains.target_rows(request)];
            format!("{} accepted, tokens {tokens:?}, {}", buffers.accepted[request], buffers.status[request])
        };
        Err(format!(
            "{}: {} and must be {}\n{plan:?}, wanted {wanted}\n{}",
            self.backend.name(),
            of(&found),
            of(&right),
            batch.describe(request)
        ))
    }

    /// Checks a batch of chains against the oracle.
    ///
    /// # Panics
    /// At the first difference.
    pub fn check_chains(&mut self, batch: &ChainBatch, plans: &[Plan]) {
        for plan in plans {
            let walks = chain::walks(&batch.chains(), plan);
            self.compare_chains(batch, &walks, plan, 7).unwrap_or_else(|difference| panic!("{difference}"));
        }
    }

    /// What the backend makes of chains.
    fn verify(&mut self, chains: &Chains<'_>) -> Buffers {
        let mut found = Buffers::new(chains.requests(), chains.target.logits.rows());
        let result = self.backend.verify(chains, &Plan::default(), &mut found.outputs(7), &mut self.workspace);
        result.unwrap_or_else(|error| panic!("{error}"));
        found
    }
}

/// One request that repeats for as many seeds as given: its tokens, accepted count and status for each.
fn for_seeds<B: Backend>(
    suite: &mut Suite<B>,
    seeds: &[u64],
    tokens: &[u32],
    draft: &[&[f32]],
    target: &[&[f32]],
    params: Params<'_>,
) -> Vec<(u32, Vec<u32>, Status)> {
    let repeat = |rows: &[&[f32]]| Batch::new(&rows.repeat(seeds.len()));
    let of_rows: Vec<u64> = seeds.iter().flat_map(|&seed| vec![seed; target.len()]).collect();
    let positions: Vec<u64> = seeds.iter().flat_map(|_| 0..target.len() as u64).collect();
    let offsets: Vec<usize> = (0..=seeds.len()).map(|request| request * tokens.len()).collect();
    let (draft, target) = (repeat(draft), repeat(target));
    let found = suite.verify(&Chains {
        offsets: &offsets,
        tokens: &tokens.repeat(seeds.len()),
        draft: Side { logits: draft.logits(), params: Params::default() },
        target: Side { logits: target.logits(), params: params.seed(&of_rows).position(&positions) },
    });
    let rows = tokens.len() + 1;
    let answer = |request| {
        let tokens = found.tokens[request * rows..(request + 1) * rows].to_vec();
        (found.accepted[request], tokens, found.status[request])
    };
    (0..seeds.len()).map(answer).collect()
}

/// Laws of equal logits, whose probabilities are halves and quarters: every answer follows from a bit.
pub fn chains_by_hand<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    let seeds: Vec<u64> = (0..200).collect();
    let (all, half) = (&[0.0, 0.0, 0.0, 0.0][..], &[0.0, 0.0, NONE, NONE][..]);
    let (accept_draw, reject_draw) = (u32::MAX, u32::MAX - 1);
    let bits = |seed, position, draw, count: u32| (random(seed, position, 0, draw) >> (64 - count)) as u32;

    // Half as likely in the target's law: accepted by the upper bit; else one of the two that the draft's has not.
    for (&seed, found) in seeds.iter().zip(for_seeds(&mut suite, &seeds, &[1], &[half], &[all, all], Params::default()))
    {
        let right = match bits(seed, 0, accept_draw, 1) {
            0 => (1, vec![1, bits(seed, 1, 0, 2)], Status::OK),
            _ => (0, vec![2 + bits(seed, 0, reject_draw, 1), NO_TOKEN], Status::OK),
        };
        assert_eq!(found, right, "seed {seed}");
    }
    // Twice as likely: always accepted. And without a chance: never, and one of the two that have it.
    for (&seed, found) in
        seeds.iter().zip(for_seeds(&mut suite, &seeds, &[0, 3], &[all, all], &[half, half, all], Params::default()))
    {
        assert_eq!(found, (1, vec![0, bits(seed, 1, reject_draw, 1), NO_TOKEN], Status::OK), "seed {seed}");
    }
    // Of equal laws everything is accepted; so it is of laws that are equal after the filters.
    let unequal = &[0.0, 0.0, -1.0, -2.0][..];
    let filtered = Params::default().top_p(0.5);
    for (target, params) in [(half, Params::default()), (unequal, filtered)] {
        for (&seed, found) in
            seeds.iter().zip(for_seeds(&mut suite, &seeds, &[1, 0], &[half, half], &[target; 3], params))
        {
            assert_eq!(found, (2, vec![1, 0, bits(seed, 2, 0, 1)], Status::OK), "seed {seed}");
        }
    }
    // A greedy target accepts its first maximum and draws it in place of any other token.
    let greedy = Params::default().temperature(0.0);
    for found in for_seeds(&mut suite, &seeds, &[1, 2], &[all, all], &[&[0.0, 5.0, 5.0, 1.0][..]; 3], greedy) {
        assert_eq!(found, (1, vec![1, 1, NO_TOKEN], Status::OK));
    }
    // Nothing of what follows a rejected token is left, whether or not it would be accepted.
    for found in for_seeds(&mut suite, &seeds, &[2, 1], &[all, all], &[&[0.0, 5.0, 5.0, 1.0][..]; 3], greedy) {
        assert_eq!(found, (0, vec![1, NO_TOKEN, NO_TOKEN], Status::OK));
    }
    // No drafts: an ordinary row.
    for (&seed, found) in seeds.iter().zip(for_seeds(&mut suite, &seeds, &[], &[], &[all], Params::default())) {
        assert_eq!(found, (0, vec![bits(seed, 0, 0, 2)], Status::OK), "seed {seed}");
    }
}

/// Draft tokens that their law does not have, and rows without a token.
pub fn drafts_that_cannot_be<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    let seeds: Vec<u64> = (0..50).collect();
    let (all, half) = (&[0.0, 0.0, 0.0, 0.0][..], &[0.0, 0.0, NONE, NONE][..]);
    let (empty, nan) = (&[NONE, NONE, NONE, NONE][..], &[0.0, f32::NAN, 0.0, f32::NAN][..]);
    // Whatever the target's law thinks of the token, the next one is of the whole target law.
    for (draft, token) in [(half, 2), (half, 4), (all, 5), (all, NO_TOKEN), (empty, 0), (nan, 1)] {
        for (&seed, found) in
            seeds.iter().zip(for_seeds(&mut suite, &seeds, &[token], &[draft], &[all, all], Params::default()))
        {
            let drawn = (random(seed, 0, 0, u32::MAX - 1) >> 62) as u32;
            assert_eq!(found, (0, vec![drawn, NO_TOKEN], Status::OK), "seed {seed}, token {token}");
        }
    }
    // An empty target row ends the chain; rows behind the end have no say in its status.
    let none = (0, vec![NO_TOKEN, NO_TOKEN, NO_TOKEN], Status::EMPTY);
    for found in for_seeds(&mut suite, &seeds, &[0, 0], &[all, all], &[empty, nan, nan], Params::default()) {
        assert_eq!(found, none);
    }
    let ended = (1, vec![2, NO_TOKEN, NO_TOKEN], Status::NAN | Status::EMPTY);
    for found in for_seeds(&mut suite, &seeds, &[2, 0], &[all, all], &[nan, empty, all], Params::default()) {
        assert_eq!(found, ended);
    }
    for (&seed, found) in seeds.iter().zip(for_seeds(
        &mut suite,
        &seeds,
        &[2],
        &[all],
        &[&[0.0, 0.0, f32::INFINITY, 0.0], nan],
        Params::default(),
    )) {
        let drawn = 2 * (random(seed, 1, 0, 0) >> 63) as u32;
        assert_eq!(found, (1, vec![2, drawn], Status::NAN | Status::POS_INF), "seed {seed}");
    }
}

/// Random chains, under random plans, with any outputs wanted.
pub fn random_chains<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    some_random_chains(&mut suite, 2000);
}

/// As many batches of random chains.
///
/// # Panics
/// At the first difference.
pub fn some_random_chains<B: Backend>(suite: &mut Suite<B>, batches: u64) {
    let plans = suite.plans().to_vec();
    let (mut accepted, mut replaced, mut whole) = (0, 0, 0);
    let call = |seed: u64| {
        let size = if seed.is_multiple_of(20) { Size { rows: 3, vocab: 5000 } } else { Size { rows: 8, vocab: 150 } };
        let batch = chains::chains(seed, size);
        let plan = Random::new(!seed).pick(&plans);
        let walks = chain::walks(&batch.chains(), &plan);
        (batch, plan, walks)
    };
    let calls: Vec<_> = (0..batches).into_par_iter().map(call).collect();
    for (seed, (batch, plan, walks)) in (0u64..).zip(calls) {
        let wanted = if seed % 4 == 3 { (seed / 4 % 8) as u8 } else { 7 };
        suite
            .compare_chains(&batch, &walks, &plan, wanted)
            .unwrap_or_else(|difference| panic!("{difference}\nseed {seed}"));
        for walked in walks.iter().filter(|walked| walked.tokens.len() > 1) {
            accepted += u64::from(walked.accepted);
            let ends = walked.accepted as usize + 1 == walked.tokens.len();
            *(if ends { &mut whole } else { &mut replaced }) += 1;
        }
    }
    // A generator whose chains all end one way would test the others nowhere.
    assert!(accepted > batches && replaced > batches / 2 && whole > batches / 2, "{accepted}, {replaced}, {whole}");
}

/// A request alone, in another place, twice, or beside others: the same.
pub fn chains_and_batch_mates<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    for seed in 100..130 {
        let batch = chains::chains(seed, Size { rows: 8, vocab: if seed % 4 == 0 { 3000 } else { 200 } });
        let requests = batch.offsets.len() - 1;
        let of = |found: &Buffers, chains: &Chains<'_>, request: usize| {
            let tokens = found.tokens[chains.target_rows(request)].to_vec();
            (found.accepted[request], tokens, found.status[request])
        };
        let together = suite.verify(&batch.chains());
        let mut random = Random::new(seed);
        let others: Vec<usize> = (0..2 * requests).map(|_| random.below(requests)).collect();
        let mixed = batch.select(&others);
        let in_company = suite.verify(&mixed.chains());
        for (place, &request) in others.iter().enumerate() {
            let right = of(&together, &batch.chains(), request);
            let alone = batch.select(&[request]);
            assert_eq!(of(&suite.verify(&alone.chains()), &alone.chains(), 0), right, "{}", batch.describe(request));
            assert_eq!(of(&in_company, &mixed.chains(), place), right, "{}", batch.describe(request));
        }
    }
}

/// Chains over rows as wide as real vocabularies, with kept sets from one token to all of them.
pub fn wide_chains<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    some_wide_chains(&mut suite, &[8_191, 50_257]);
}

/// The same over rows of these lengths.
///
/// # Panics
/// At the first difference.
pub fn some_wide_chains<B: Backend>(suite: &mut Suite<B>, vocabs: &[usize]) {
    let kinds = [RowKind::LanguageModel, RowKind::Flat, RowKind::Standard, RowKind::Plateaus, RowKind::Equal];
    for (&vocab, dtype) in vocabs.iter().zip([Dtype::F32, Dtype::Bf16, Dtype::F16].into_iter().cycle()) {
        for (k, p) in [(50, 0.9), (0, 0.95), (0, 1.0), (3000, 1.0), (1, 1.0)] {
            let values: Vec<f32> = kinds.iter().flat_map(|&kind| rows::row(kind, vocab, u64::from(k) + 1)).collect();
            let noise = |(i, y): (usize, &f32)| y + 0.25 * ((i * 7919 % 13) as f32 - 6.0) / 6.0;
            let noisy: Vec<f32> = values[..3 * vocab].iter().enumerate().map(noise).collect();
            let side = |values: &[f32], vocab: usize, position: &[u64]| {
                Batch::of(Stored::narrow(values, dtype), vocab).with(|params| {
                    (params.top_k, params.top_p) = (vec![k], vec![p]);
                    params.position = position.to_vec();
                })
            };
            // Two drafts, then one: the rows of the second request are Plateaus and Equal.
            let target = side(&values, vocab, &[0, 1, 2, 3, 4]);
            for (seed, cut) in [(0u64, 0), (1, 0), (2, 1500), (3, 1500)] {
                let shorter: Vec<f32> = noisy.chunks(vocab).flat_map(|row| &row[..vocab - cut]).copied().collect();
                let draft = side(&shorter, vocab - cut, &[0, 1, 3]);
                let mut target = target.clone();
                target.params.seed = vec![seed];
                let drawn = crate::oracle::answers(&draft.logits(), &draft.params(), &Plan::default());
                let tokens =
                    drawn.iter().map(|answer| answer.drawn.first().map_or(NO_TOKEN, |drawn| drawn.token)).collect();
                suite.check_chains(&ChainBatch { offsets: vec![0, 2, 3], tokens, draft, target }, &[Plan::default()]);
            }
        }
    }
}

/// Offsets, rows and parameters that do not fit, and slices that are too short: nothing is written.
pub fn invalid_chains<B: Backend>(make: impl Fn() -> B) {
    let Suite { backend, mut workspace, .. } = Suite::new(make);
    let (rows, narrow) = ([0.0f32; 5 * 3], [qrita_core::bf16::ZERO; 3 * 3]);
    let of = |count: usize| Side { logits: Logits::new(&rows[..count * 3], 3).unwrap(), params: Params::default() };
    let good = Chains { offsets: &[0, 2, 3], tokens: &[0, 1, 2], draft: of(3), target: of(5) };
    let mut refuses = |chains: &Chains<'_>, plan: &Plan, lengths: [usize; 3], check: &dyn Fn(&Error) -> bool| {
        let [accepted, tokens, status] = lengths;
        let mut found = Buffers {
            accepted: vec![UNTOUCHED; accepted],
            tokens: vec![UNTOUCHED; tokens],
            status: vec![Status::from_bits(15); status],
        };
        let untouched = found.clone();
        let result = backend.verify(chains, plan, &mut found.outputs(7), &mut workspace);
        assert!(result.as_ref().is_err_and(check), "{result:?}");
        assert_eq!(found, untouched, "refused, yet written");
    };
    let (plan, lengths) = (Plan::default(), [2, 5, 2]);
    let is_length =
        |what: &'static str| move |error: &Error| matches!(error, Error::Length { what: w, .. } if *w == what);
    let is_offset =
        |place| move |error: &Error| matches!(error, Error::Param { row, param: "offsets", .. } if *row == Some(place));
    refuses(&Chains { offsets: &[], ..good }, &plan, lengths, &is_length("offsets"));
    refuses(&Chains { offsets: &[1, 2, 3], ..good }, &plan, lengths, &is_offset(0));
    refuses(&Chains { offsets: &[0, 4, 3], ..good }, &plan, lengths, &is_offset(2));
    refuses(&Chains { offsets: &[0, 2, 4], ..good }, &plan, lengths, &is_length("draft tokens"));
    refuses(&Chains { offsets: &[0, 2, usize::MAX], ..good }, &plan, lengths, &is_length("draft tokens"));
    refuses(&Chains { tokens: &[0, 1], ..good }, &plan, lengths, &is_length("draft tokens"));
    refuses(&Chains { draft: of(2), ..good }, &plan, lengths, &is_length("draft rows"));
    refuses(&Chains { target: of(4), ..good }, &plan, lengths, &is_length("target rows"));
    refuses(&Chains { offsets: &[0, 3], ..good }, &plan, lengths, &is_length("target rows"));
    let bf16 = Side { logits: Logits::new(&narrow, 3).unwrap(), params: Params::default() };
    let is_dtype = |error: &Error| matches!(error, Error::Param { param: "draft dtype", .. });
    refuses(&Chains { draft: bf16, ..good }, &plan, lengths, &is_dtype);
    let is_temperature = |error: &Error| matches!(error, Error::Param { row: Some(2), param: "temperature", .. });
    let cold = [1.0, 1.0, -1.0, 1.0, 1.0];
    let target = Side { params: Params::default().temperature(&cold), ..good.target };
    refuses(&Chains { target, ..good }, &plan, lengths, &is_temperature);
    let draft = Side { params: Params::default().temperature(&cold[..3]), ..good.draft };
    let is_of_draft = |error: &Error| matches!(error, Error::Draft(inner) if is_temperature(inner));
    refuses(&Chains { draft, ..good }, &plan, lengths, &is_of_draft);
    for (wrong, what) in [([1, 5, 2], "accepted"), ([2, 4, 2], "tokens"), ([2, 6, 2], "tokens"), ([2, 5, 3], "status")]
    {
        refuses(&good, &plan, wrong, &is_length(what));
    }
    if !Features::OF_CORE.duplicates {
        let missing = Plan { duplicates: true, ..plan };
        refuses(&good, &missing, lengths, &|error| matches!(error, Error::NotCompiled { .. }));
    }

    let none = Chains { offsets: &[0], tokens: &[], draft: of(0), target: of(0) };
    let mut found = Buffers::new(0, 0);
    backend
        .verify(&none, &plan, &mut found.outputs(7), &mut workspace)
        .expect("no requests are a batch like any other");
    let mut found = Buffers::new(2, 5);
    backend.verify(&good, &plan, &mut found.outputs(7), &mut workspace).expect("good chains are not refused");
}
