//! The law of the draws: thirty rows whose exact law the oracle knows, and tests of what any sampler draws from them.
//!
//! A sampler is here a function from a law's row, places (seed, position, stream) and a number of draws to tokens:
//! [`of_backend`] makes one of a backend, and this crate's tests make wrong ones, which must fail. A backend's own tests are one
//! line: [`laws!`](crate::laws!).
//!
//! All but the second come to p-values, of which a [`Verdict`] asks two things: that none is absurdly small, and that together
//! they are uniform. The latter sees what no single one shows: a law that is slightly wrong everywhere, and draws that are
//! too even to be random.

use qrita_core::{Backend, Dtype, Order, Outputs, Plan, Ties};

use crate::batch::{Batch, OwnedPenalties, OwnedSparse, Stored};
use crate::fixtures;
use crate::oracle;
use crate::rows::{Random, RowKind, row};
use crate::statistics::{g_test, total_variation, uniform_p_value};

/// Makes tests that hold the draws of a backend to their law: see [`laws`](mod@crate::laws).
#[macro_export]
macro_rules! laws {
    ($make:expr) => {
        #[test]
        fn thirty_laws() {
            $crate::laws::thirty_laws($crate::laws::of_backend(&$make)).unwrap();
        }

        #[test]
        fn four_million_draws() {
            $crate::laws::four_million_draws($crate::laws::of_backend(&$make)).unwrap();
        }

        #[test]
        fn independence() {
            $crate::laws::independence(&$crate::laws::Apart::ALL, $crate::laws::of_backend(&$make)).unwrap();
        }
    };
}

/// The least count that a bin of a G-test is expected to have.
const LEAST_EXPECTED: f64 = 64.0;

/// A row, its parameters, and the exact law of what is drawn from it.
#[derive(Clone, Debug)]
pub struct Law {
    /// What is special about it.
    pub name: String,
    /// The row, alone in its batch.
    pub row: Batch,
    /// The tokens that can be drawn, ascending.
    ids: Vec<u32>,
    /// Their weights, summed up to each of them.
    ends: Vec<u64>,
}

/// Where a row is in its sequence: what its random bits are made of, but for the number of the draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Place {
    pub seed: u64,
    pub position: u64,
    pub stream: u32,
}

impl Place {
    /// Places with random seeds and positions, as those of unrelated requests.
    pub fn random(count: usize, random: &mut Random) -> Vec<Place> {
        (0..count).map(|_| Place { seed: random.bits(), position: random.below(4096) as u64, stream: 0 }).collect()
    }
}

impl Law {
    /// The law of a batch of one row.
    ///
    /// # Panics
    /// If nothing can be drawn from it.
    pub fn new(name: impl Into<String>, row: Batch) -> Law {
        let params = row.params();
        let answer = oracle::answer(&row.logits().row(0), &params.row(0), &params.adjustments.row(0), &Plan::default());
        let mut kept: Vec<(u32, u64)> = answer.kept().iter().map(|entry| (entry.id, entry.weight)).collect();
        // A weight of 0 is never drawn.
        kept.retain(|entry| entry.1 > 0);
        kept.sort_unstable();
        let mut end = 0;
        let ends = kept.iter().map(|entry| {
            end += entry.1;
            end
        });
        let law = Law { name: name.into(), ends: ends.collect(), ids: kept.iter().map(|entry| entry.0).collect(), row };
        assert!(!law.ids.is_empty(), "{}: nothing to draw", law.name);
        law
    }

    /// The sum of the weights.
    pub fn mass(&self) -> u64 {
        *self.ends.last().expect("a law has a token")
    }

    /// How many tokens can be drawn.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether no token can be drawn: of no law.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The tokens with their weights, ids ascending.
    pub fn tokens(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        self.ids.iter().zip(&self.ends).zip(starts).map(|((&id, end), start)| (id, end - start))
    }

    /// The token whose interval holds `target`, which is below the mass.
    pub fn token_at(&self, target: u64) -> u32 {
        self.ids[self.ends.partition_point(|&end| end <= target)]
    }

    fn probabilities(&self) -> Vec<f64> {
        self.tokens().map(|(_, weight)| weight as f64 / self.mass() as f64).collect()
    }

    /// How often each token was drawn.
    ///
    /// # Panics
    /// If a token was drawn that is not kept.
    fn counts(&self, tokens: &[u32]) -> Vec<u64> {
        let mut counts = vec![0u64; self.row.vocab];
        for &token in tokens {
            let count = counts.get_mut(token as usize);
            *count.unwrap_or_else(|| panic!("{}: {token} is no token of the row", self.name)) += 1;
        }
        let of_kept: Vec<u64> = self.ids.iter().map(|&id| counts[id as usize]).collect();
        if of_kept.iter().sum::<u64>() != tokens.len() as u64 {
            let stray = tokens.iter().find(|token| self.ids.binary_search(token).is_err());
            panic!("{}: {stray:?} was drawn and is not kept", self.name);
        }
        of_kept
    }

    /// The p-value of tokens under this law, by a G-test. Likely tokens have a bin each, others share one with those that
    /// follow them by id.
    ///
    /// # Panics
    /// If a token was drawn that is not kept, or there are too few draws for two bins.
    pub fn p_value(&self, tokens: &[u32]) -> f64 {
        let (counts, law) = (self.counts(tokens), self.probabilities());
        let enough = LEAST_EXPECTED / tokens.len() as f64;
        let (mut bins, mut open) = (Vec::new(), (0, 0.0));
        for (count, probability) in counts.into_iter().zip(law) {
            if probability >= enough {
                bins.push((count, probability));
                continue;
            }
            open = (open.0 + count, open.1 + probability);
            if open.1 >= enough {
                bins.push(std::mem::take(&mut open));
            }
        }
        // What is left over joins the last bin.
        let last = bins.last_mut().expect("enough draws for a bin");
        *last = (last.0 + open.0, last.1 + open.1);
        assert!(bins.len() > 1, "{}: one bin tells nothing", self.name);
        let (counts, law): (Vec<u64>, Vec<f64>) = bins.into_iter().unzip();
        g_test(&counts, &law)
    }

    /// The total variation between tokens and this law.
    ///
    /// # Panics
    /// If a token was drawn that is not kept.
    pub fn total_variation(&self, tokens: &[u32]) -> f64 {
        total_variation(&self.counts(tokens), &self.probabilities())
    }
}

/// A sampler of a backend: it runs a row for each place, all of which share the law's logits.
pub fn of_backend<B: Backend>(backend: &B) -> impl FnMut(&Law, &[Place], u32) -> Vec<u32> {
    let mut workspace = backend.workspace();
    move |law, places, draws| {
        let mut batch = law.row.clone().indexed(&vec![0; places.len()]);
        batch.params = law.row.params.select(&vec![0; places.len()]);
        batch.params.seed = places.iter().map(|place| place.seed).collect();
        batch.params.position = places.iter().map(|place| place.position).collect();
        batch.params.stream = places.iter().map(|place| place.stream).collect();
        batch.params.draws = draws;
        let mut token = vec![0; places.len() * draws as usize];
        let mut outputs = Outputs { token: Some(&mut token), ..Outputs::default() };
        let run = backend.run(batch.logits().into(), &batch.params(), &Plan::default(), &mut outputs, &mut workspace);
        run.unwrap_or_else(|error| panic!("{}: {error}", law.name));
        token
    }
}

/// What p-values come to.
#[derive(Clone, Copy, Debug)]
pub struct Verdict {
    /// The least of them.
    pub least: f64,
    /// The p-value of their being uniform.
    pub uniform: f64,
}

impl Verdict {
    /// Of these p-values.
    pub fn of(p_values: &[f64]) -> Verdict {
        Verdict { least: p_values.iter().copied().fold(1.0, f64::min), uniform: uniform_p_value(p_values) }
    }

    /// Whether they may be those of a right sampler. Of a thousand right ones with seeds of their own about ten fail by the
    /// second number, and less than one by the first.
    pub fn passes(&self) -> bool {
        self.least > 1e-5 && self.uniform > 0.01
    }
}

/// Rows that a law's draws are divided among: unrelated requests.
const PLACES: usize = 8;

/// The p-value of each law under `draws` tokens that a sampler draws from it; eight times as many of the one with a [`TAIL`].
///
/// # Panics
/// If a token was drawn that is not kept.
pub fn p_values(laws: &[Law], draws: usize, mut sampler: impl FnMut(&Law, &[Place], u32) -> Vec<u32>) -> Vec<f64> {
    let mut random = Random::new(laws.len() as u64);
    let p_value = |law: &Law| {
        // The tail of a head takes more, for a few bins of its own.
        let draws = if law.name == TAIL { 8 * draws } else { draws };
        law.p_value(&sampler(law, &Place::random(PLACES, &mut random), (draws / PLACES) as u32))
    };
    laws.iter().map(p_value).collect()
}

/// The law with 262144 tokens 20.5 nats below a head, which f32 sums lose.
pub const TAIL: &str = "262144 tokens 20.5 nats below a head";

/// Thirty laws: by hand the ends of what there is, by chance what lies between, and logits of real models.
pub fn laws(seed: u64) -> Vec<Law> {
    let random = &mut Random::new(seed);
    let real = fixtures::small();
    let mut laws = by_hand(random);
    for (model, rows) in real.iter().enumerate() {
        let of_model = |row: usize| Stored::Bf16(rows.logits[row * rows.vocab..(row + 1) * rows.vocab].to_vec());
        let batch = |row: usize| Batch::of(of_model(row), rows.vocab);
        let name = |what: &str| format!("{}, {what}", rows.model);
        laws.push(Law::new(
            name("k = 50, p = 0.9"),
            batch(1).with(|params| (params.top_k, params.top_p, params.temperature) = (vec![50], vec![0.9], vec![1.5])),
        ));
        laws.push(Law::new(
            name("p = 0.95 at temperature 2"),
            batch(2 + model % 2).with(|params| (params.top_p, params.temperature) = (vec![0.95], vec![2.0])),
        ));
        laws.push(Law::new(name("unfiltered"), batch(2).with(|params| params.temperature = vec![1.2])));
    }
    while laws.len() < 30 {
        laws.extend(by_chance(laws.len(), random));
    }
    laws
}

fn by_hand(random: &mut Random) -> Vec<Law> {
    let made = |kind, vocab, random: &mut Random| row(kind, vocab, random.bits());
    let of = |kind, vocab, dtype, random: &mut Random| Batch::narrow(&[made(kind, vocab, random)], dtype);
    let mut tail = vec![-20.5; (1 << 18) + 8];
    // In front: what follows it by id is what is lost.
    tail[..8].copy_from_slice(&[0.0, -0.25, -0.5, -1.0, -0.1, -2.0, -3.0, -0.7]);
    let adjusted = of(RowKind::Standard, 1500, Dtype::F32, random).with(|params| {
        let entries = |from: u32, value: f32| (0..40).map(|i| (from + 31 * i, value + i as f32 / 16.0)).collect();
        params.top_k = vec![400];
        params.bitmask = Some(crate::batch::OwnedBitmask { words: vec![0x7FFF_5FDB; 47], ids: 1480, stride: 0 });
        params.bias = Some(OwnedSparse::new(&[entries(3, -1.0)]));
        params.penalties = Some(OwnedPenalties {
            repetition: vec![1.3],
            frequency: vec![0.1],
            presence: vec![0.2],
            counts: OwnedSparse::new(&[(0..60).map(|i| (20 * i, i % 3)).collect()]),
        });
    });
    let standard = |vocab, dtype, random: &mut Random| of(RowKind::Standard, vocab, dtype, random);
    vec![
        Law::new(TAIL, Batch::new(&[tail])),
        Law::new("two kept", standard(5000, Dtype::F32, random).with(|params| params.top_k = vec![2])),
        Law::new("two kept of equals", Batch::narrow(&[[1.0; 777]], Dtype::F16).with(|params| params.top_k = vec![2])),
        Law::new("fifty kept", standard(32_000, Dtype::Bf16, random).with(|params| params.top_k = vec![50])),
        Law::new("thousands kept", standard(20_000, Dtype::F16, random).with(|params| params.top_p = vec![0.95])),
        Law::new("unfiltered", standard(50_257, Dtype::F32, random)),
        Law::new("all equal", Batch::new(&[[-1.7; 3000]])),
        Law::new(
            "ties at top-k",
            of(RowKind::FewValues, 1000, Dtype::F32, random).with(|params| params.top_k = vec![300]),
        ),
        Law::new(
            "ties, all kept",
            of(RowKind::Plateaus, 4000, Dtype::Bf16, random)
                .with(|params| (params.top_k, params.ties) = (vec![100], Ties::KeepAll)),
        ),
        Law::new("min-p", standard(4000, Dtype::F16, random).with(|params| params.min_p = vec![0.05])),
        Law::new(
            "joint order",
            standard(9000, Dtype::F32, random).with(|params| {
                (params.top_k, params.top_p, params.order) = (vec![600], vec![0.4], Order::Joint);
            }),
        ),
        Law::new(
            "several +∞",
            Batch::new(&[(0..99).map(|id| if id % 9 == 4 { f32::INFINITY } else { 0.0 }).collect::<Vec<_>>()]),
        ),
        Law::new("bitmask, bias and penalties", adjusted),
    ]
}

/// A law by chance, if two tokens at least have a share of it that shows.
fn by_chance(number: usize, random: &mut Random) -> Option<Law> {
    let kinds = [
        RowKind::Standard,
        RowKind::Normal,
        RowKind::LanguageModel,
        RowKind::Zipf,
        RowKind::Flat,
        RowKind::FewValues,
        RowKind::Plateaus,
        RowKind::HugeMasks,
        RowKind::Nans,
        RowKind::HiddenOutliers,
    ];
    let kind = random.pick(&kinds);
    let dtype = [Dtype::F32, Dtype::F16, Dtype::Bf16][number % 3];
    let vocab = 500 + random.below(12_000);
    let batch = Batch::narrow(&[row(kind, vocab, random.bits())], dtype).with(|params| {
        params.temperature = vec![random.pick(&[0.3, 0.7, 1.0, 1.3, 3.0])];
        params.top_k = vec![random.pick(&[0, 5, 50, 50, 700, vocab as u32 / 3])];
        params.top_p = vec![random.pick(&[1.0, 0.5, 0.8, 0.9, 0.95, 0.999])];
        params.min_p = vec![random.pick(&[0.0, 0.0, 0.0, 1e-6, 0.02, 0.3])];
        params.ties = random.pick(&[Ties::LowestId, Ties::KeepAll]);
        params.order = random.pick(&[Order::TopKThenTopP, Order::Joint]);
    });
    let params = batch.params();
    let answer = oracle::answer(&batch.logits().row(0), &params.row(0), &params.adjustments.row(0), &Plan::default());
    let likely = answer.kept().iter().filter(|entry| entry.weight as f64 > 0.002 * answer.kept_mass as f64).count();
    let shows = likely > 1 || (likely == 0 && answer.kept > 1);
    shows.then(|| Law::new(format!("{kind:?} by chance"), batch))
}

/// What must be independent of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apart {
    /// Rows of unrelated requests, side by side in a batch.
    Rows,
    /// Positions of a request.
    Positions,
    /// Neighbouring seeds at one position.
    Seeds,
    /// Streams of a seed.
    Streams,
    /// Draws of a row.
    Draws,
}

impl Apart {
    /// All of them.
    pub const ALL: [Apart; 5] = [Apart::Rows, Apart::Positions, Apart::Seeds, Apart::Streams, Apart::Draws];

    /// As many tokens of a law, one behind the other in what this is about.
    fn tokens(self, law: &Law, count: usize, sampler: &mut impl FnMut(&Law, &[Place], u32) -> Vec<u32>) -> Vec<u32> {
        let place = |i: usize| match self {
            Apart::Positions => Place { seed: 11, position: i as u64, stream: 0 },
            Apart::Seeds => Place { seed: i as u64, position: 5, stream: 0 },
            Apart::Streams => Place { seed: 3, position: 17, stream: i as u32 },
            Apart::Rows | Apart::Draws => unreachable!("these have no place by number"),
        };
        let random = &mut Random::new(count as u64);
        match self {
            Apart::Rows => sampler(law, &Place::random(count, random), 1),
            Apart::Draws => sampler(law, &Place::random(PLACES, random), (count / PLACES) as u32),
            _ => sampler(law, &(0..count).map(place).collect::<Vec<_>>(), 1),
        }
    }
}

/// How far apart the tokens of a pair are.
const LAGS: [usize; 4] = [1, 2, 3, 16];

/// Of `count` draws from a law, the p-values of pairs that are apart in one of these ways: whether the two are
/// independent, by a G-test of the pairs against the product of the law with itself, in which every token is of one pair.
///
/// # Panics
/// If a token was drawn that is not kept, or a pair is too rare for the test.
pub fn pair_p_values(
    law: &Law,
    apart: Apart,
    count: usize,
    sampler: &mut impl FnMut(&Law, &[Place], u32) -> Vec<u32>,
) -> [f64; LAGS.len()] {
    let tokens = apart.tokens(law, count, sampler);
    law.counts(&tokens);
    let single = law.probabilities();
    let joint: Vec<f64> = single.iter().flat_map(|p| single.iter().map(move |q| p * q)).collect();
    let at = |token: &u32| law.ids.partition_point(|id| id < token);
    LAGS.map(|lag| {
        let mut counts = vec![0u64; joint.len()];
        for block in tokens.chunks_exact(2 * lag) {
            let (firsts, seconds) = block.split_at(lag);
            firsts.iter().zip(seconds).for_each(|(a, b)| counts[at(a) * single.len() + at(b)] += 1);
        }
        let least = joint.iter().copied().fold(1.0, f64::min) * counts.iter().sum::<u64>() as f64;
        assert!(least > LEAST_EXPECTED, "{apart:?}: a pair is expected {least} times");
        g_test(&counts, &joint)
    })
}

/// Of each law; of the one with a [`TAIL`] eight times as many.
const DRAWS: usize = 240_000;

/// The law of what is drawn is the exact one, for thirty [`laws`].
///
/// # Errors
/// What their p-values are, where they are not those of a right sampler.
pub fn thirty_laws(sampler: impl FnMut(&Law, &[Place], u32) -> Vec<u32>) -> Result<(), String> {
    let laws = laws(30);
    assert_eq!(laws.len(), 30);
    let p_values = p_values(&laws, DRAWS, sampler);
    let verdict = Verdict::of(&p_values);
    let each = laws.iter().zip(&p_values).map(|(law, p)| format!("{p:.4} {}, {} tokens\n", law.name, law.len()));
    if verdict.passes() { Ok(()) } else { Err(format!("{verdict:?}\n{}", each.collect::<String>())) }
}

/// The total variation between four million draws and a law of fifty tokens is at most 0.002.
///
/// Of `n` draws from `K` tokens it is expected to be `½·√(2/π)·Σ√(p(1 − p)/n) ≤ 0.4·√(K/n)`, here 0.0014, with a deviation below
/// `0.31/√n = 0.00016`: the bound is four deviations above what a right sampler comes to. A law that is 0.002 away from the
/// exact one adds as much to the root of the sum of squares, and fails. For more tokens than a hundred a right sampler would
/// fail, for ten a bound of 0.001 would do.
///
/// # Errors
/// The law, where it is more.
pub fn four_million_draws(mut sampler: impl FnMut(&Law, &[Place], u32) -> Vec<u32>) -> Result<(), String> {
    let random = &mut Random::new(4);
    let row = row(RowKind::Standard, 32_000, random.bits());
    let law = Law::new("fifty kept", Batch::new(&[row]).with(|params| params.top_k = vec![50]));
    assert_eq!(law.len(), 50);
    let tokens = sampler(&law, &Place::random(PLACES, random), 4_000_000 / PLACES as u32);
    let variation = law.total_variation(&tokens);
    if variation <= 0.002 { Ok(()) } else { Err(format!("{}: {variation}", law.name)) }
}

/// Tokens that are apart in any of these ways are independent.
///
/// # Errors
/// The p-values, where they are not those of a right sampler.
pub fn independence(ways: &[Apart], mut sampler: impl FnMut(&Law, &[Place], u32) -> Vec<u32>) -> Result<(), String> {
    let logits = [0.3, -0.5, f32::NEG_INFINITY, 1.1, 0.0, 0.8, -1.0, -9.0];
    let law = Law::new("six kept", Batch::new(&[logits]).with(|params| params.top_k = vec![6]));
    let p_values: Vec<f64> = ways.iter().flat_map(|&apart| pair_p_values(&law, apart, DRAWS, &mut sampler)).collect();
    let verdict = Verdict::of(&p_values);
    if verdict.passes() { Ok(()) } else { Err(format!("{verdict:?} of {ways:?}: {p_values:.5?}")) }
}
