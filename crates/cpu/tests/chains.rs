//! The law of what a chain of draft tokens emits is the target's, whatever the draft's: by a G-test over many seeds, which
//! two wrong ways to replace a rejected token fail.

use qrita_core::philox::random;
use qrita_core::verify::{Share, excess, upper};
use qrita_core::weight::{distance, weight};
use qrita_core::{Backend, ChainOutputs, Chains, Logits, NO_TOKEN, Params, Plan, Side};
use qrita_cpu::CpuBackend;

const VOCAB: usize = 6;
const REQUESTS: usize = 240_000;
const DRAFTS: usize = 2;

/// With 4 degrees of freedom, a statistic above this has a probability of 10^-4.
const BOUND: f64 = 23.51;

const DRAFT: [[f32; VOCAB]; DRAFTS] = [[0.3, -0.5, 1.1, 0.0, 0.8, -1.0], [1.5, 0.2, -0.7, 0.9, 0.0, 0.4]];
const TARGET: [[f32; VOCAB]; DRAFTS + 1] =
    [[0.9, 0.1, -0.4, 0.6, 1.0, -2.0], [0.1, 1.2, -0.2, 0.8, -3.0, 0.5], [0.0, -1.0, 0.7, 0.4, 0.2, 1.3]];

fn draft_params() -> Params<'static> {
    Params::default().temperature(0.8).min_p(0.2)
}

fn target_params() -> Params<'static> {
    Params::default().temperature(1.2).top_k(5)
}

/// What one seed's chain came to: how many draft tokens were accepted, and the tokens emitted.
struct Outcome {
    accepted: usize,
    tokens: [u32; DRAFTS + 1],
}

fn outcomes() -> Vec<Outcome> {
    let backend = CpuBackend::new();
    let mut workspace = backend.workspace();
    // Draft rows have seed, position and stream of the target rows that verify them, as an engine's do.
    let numbers = |each: usize| {
        let seeds = (0..REQUESTS as u64).flat_map(move |seed| vec![seed; each]);
        let positions = (0..REQUESTS).flat_map(move |_| 0..each as u64);
        (seeds.collect::<Vec<_>>(), positions.collect::<Vec<_>>())
    };
    let draft_logits = DRAFT.concat().repeat(REQUESTS);
    let target_logits = TARGET.concat().repeat(REQUESTS);
    let ((draft_seeds, draft_positions), (seeds, positions)) = (numbers(DRAFTS), numbers(DRAFTS + 1));
    let draft = Side {
        logits: Logits::new(&draft_logits, VOCAB).unwrap(),
        params: draft_params().seed(&draft_seeds).position(&draft_positions),
    };
    let target = Side {
        logits: Logits::new(&target_logits, VOCAB).unwrap(),
        params: target_params().seed(&seeds).position(&positions),
    };
    let drawn = backend.sample(&draft.logits, &draft.params, &Plan::default(), &mut workspace).unwrap();
    let tokens: Vec<u32> = drawn.iter().map(|row| row.token.unwrap()).collect();
    let offsets: Vec<usize> = (0..=REQUESTS).map(|request| request * DRAFTS).collect();
    let chains = Chains { offsets: &offsets, tokens: &tokens, draft, target };
    let (mut accepted, mut emitted) = (vec![0; REQUESTS], vec![0; REQUESTS * (DRAFTS + 1)]);
    let mut outputs = ChainOutputs { accepted: Some(&mut accepted), tokens: Some(&mut emitted), status: None };
    backend.verify(&chains, &Plan::default(), &mut outputs, &mut workspace).unwrap();
    let outcome = |(&accepted, tokens): (&u32, &[u32])| Outcome {
        accepted: accepted as usize,
        tokens: tokens.try_into().unwrap(),
    };
    accepted.iter().zip(emitted.chunks(DRAFTS + 1)).map(outcome).collect()
}

/// The weights that a row keeps, and their sum.
fn law(row: &[f32; VOCAB], params: &Params<'_>) -> ([u64; VOCAB], u64) {
    let backend = CpuBackend::with_threads(1).unwrap();
    let logits = Logits::new(row, VOCAB).unwrap();
    let kept = backend.filter(&logits, params, &Plan::default(), &mut backend.workspace()).unwrap().swap_remove(0);
    let max = row.iter().copied().fold(f32::MIN, f32::max);
    let mut weights = [0; VOCAB];
    for &id in &kept.ids {
        weights[id as usize] = weight(distance(row[id as usize], max, params.row(0).temperature));
    }
    (weights, weights.iter().sum())
}

/// The G statistic of tokens against a law; a token that the law does not have makes it infinite.
fn statistic(tokens: impl Iterator<Item = u32>, (weights, mass): ([u64; VOCAB], u64)) -> f64 {
    let mut counts = [0u32; VOCAB];
    tokens.for_each(|token| counts[token as usize] += 1);
    let all = f64::from(counts.iter().sum::<u32>());
    let part = |(&count, weight): (&u32, u64)| {
        let expected = all * weight as f64 / mass as f64;
        if count == 0 { 0.0 } else { f64::from(count) * (f64::from(count) / expected).ln() }
    };
    2.0 * counts.iter().zip(weights).map(part).sum::<f64>()
}

#[test]
fn every_token_has_the_law_of_its_target_row() {
    let outcomes = outcomes();
    for (place, row) in TARGET.iter().enumerate() {
        // Of the chains that came so far, whatever they had before.
        let reached = outcomes.iter().filter(|outcome| outcome.accepted >= place);
        assert!(reached.clone().count() > REQUESTS / 5);
        let found = statistic(reached.map(|outcome| outcome.tokens[place]), law(row, &target_params()));
        assert!(found < BOUND, "token {place}: {found}");
    }
    // The second token is independent of the first one.
    let first = |token| outcomes.iter().filter(move |outcome| outcome.accepted >= 1 && outcome.tokens[0] == token);
    for token in (0..VOCAB as u32).filter(|&token| first(token).count() > 1000) {
        let found = statistic(first(token).map(|outcome| outcome.tokens[1]), law(&TARGET[1], &target_params()));
        assert!(found < BOUND, "after token {token}: {found}");
    }
    // Acceptance is as likely as the laws overlap.
    let ((p, mass_p), (q, mass_q)) = (law(&TARGET[0], &target_params()), law(&DRAFT[0], &draft_params()));
    let part = |(p, q): (u64, u64)| (p as f64 / mass_p as f64).min(q as f64 / mass_q as f64);
    let overlap: f64 = p.into_iter().zip(q).map(part).sum();
    let rate = outcomes.iter().filter(|outcome| outcome.accepted > 0).count() as f64 / REQUESTS as f64;
    let deviation = (overlap * (1.0 - overlap) / REQUESTS as f64).sqrt();
    assert!((rate - overlap).abs() < 4.0 * deviation, "{rate} are accepted, and {overlap} should be");
}

/// The first token as drawn by `replace` where the draft's is rejected.
fn with_replacement(outcomes: &[Outcome], replace: impl Fn(u64) -> u32) -> f64 {
    let first = |(seed, outcome): (usize, &Outcome)| match outcome.accepted {
        0 => replace(seed as u64),
        _ => outcome.tokens[0],
    };
    statistic(outcomes.iter().enumerate().map(first), law(&TARGET[0], &target_params()))
}

#[test]
fn wrong_replacements_are_seen() {
    let outcomes = outcomes();
    let ((p, mass_p), (q, mass_q)) = (law(&TARGET[0], &target_params()), law(&DRAFT[0], &draft_params()));
    let draw = |masses: [u128; VOCAB], random: u64| {
        let mut left = upper(random, masses.iter().sum());
        for (id, mass) in (0..).zip(masses) {
            if left < mass {
                return id;
            }
            left -= mass;
        }
        NO_TOKEN
    };
    let excesses: [u128; VOCAB] =
        std::array::from_fn(|id| excess(Share { weight: q[id], mass: mass_q }, Share { weight: p[id], mass: mass_p }));
    let bits = |seed, draw| random(seed, 0, 0, draw);
    // The right one, computed here.
    let right = with_replacement(&outcomes, |seed| draw(excesses, bits(seed, u32::MAX - 1)));
    assert!(right < BOUND, "{right}");
    // From the target law in place of its excess.
    let whole = with_replacement(&outcomes, |seed| draw(p.map(u128::from), bits(seed, u32::MAX - 1)));
    // By the bits that drew the draft token, and by those that rejected it.
    let of_draft = with_replacement(&outcomes, |seed| draw(excesses, bits(seed, 0)));
    let of_acceptance = with_replacement(&outcomes, |seed| draw(excesses, bits(seed, u32::MAX)));
    for wrong in [whole, of_draft, of_acceptance] {
        assert!(wrong > 50.0 * BOUND, "{wrong} goes unnoticed");
    }
}
