//! Rows, parameters and batches: what models produce, what users pass, and what an adversary would.
//!
//! Everything is a function of a 64-bit seed, so that a failure is reproduced by a number, and benchmarks and tests can
//! speak of the same rows. [`batch`] makes whole batches for bulk comparisons; [`any_batch`] is a proptest strategy that
//! shrinks, for small ones.
//!
//! The kinds of row aim at what breaks samplers: ties at every level (a cut inside them decides by id), values whose
//! distance vanishes in f32 or in a tolerance, masks made of huge finite numbers, infinities and NaN, and rows whose
//! sample misleads an estimate of mean and deviation: two modes, finite values in one block only, outliers where an
//! evenly spread sample does not look, sorted rows.

use proptest::prelude::*;
use qrita_core::{Dtype, MAX_VOCAB, Order, RowParams, Ties};

use crate::batch::{Batch, OwnedBitmask, OwnedParams, OwnedPenalties, OwnedSparse, OwnedStanding, Stored};

/// Random numbers that are the same everywhere: the SplitMix64 sequence of a seed.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `0 .. end`.
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.bits()) * end as u128) >> 64) as usize
    }

    /// Whether something happens that does once in `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// A number in `0 .. 1`.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number of the normal law.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// One of `values`.
    pub fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }
}

/// What a row looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowKind {
    /// Normal with deviation 1 around 0.
    Standard,
    /// Normal with a deviation from 0.01 to 30 and a mean from −20 to 20.
    Normal,
    /// A skewed normal bulk and a few strong outliers, as the head of a language model has it.
    LanguageModel,
    /// `−ln` of the rank, shuffled.
    Zipf,
    /// One logit far above a constant.
    OneHot,
    /// Normal with a deviation of a hundredth: top-p keeps most of it.
    Flat,
    /// One value.
    Equal,
    /// From two to eight distinct values.
    FewValues,
    /// Normal, rounded to bf16: plateaus of equal values.
    Plateaus,
    /// Neighbouring f32 numbers.
    NearTies,
    /// Numbers below the smallest normal f32.
    Denormals,
    /// Both zeros, and the smallest numbers around them.
    Zeros,
    /// Normal, with +∞ and −∞ among it.
    Infinities,
    /// Normal, with NaN of several bit patterns among it.
    Nans,
    /// −∞ alone.
    AllNegativeInfinity,
    /// Most of the row masked with a huge negative finite number.
    HugeMasks,
    /// Arbitrary bits.
    Bits,
    /// Two normal modes, far from each other.
    Bimodal,
    /// Finite in one short block alone.
    OneBlock,
    /// Outliers at places that an evenly spread sample does not see.
    HiddenOutliers,
    /// Normal, ascending: the last ids are the largest.
    Ascending,
    /// Normal, descending.
    Descending,
}

impl RowKind {
    /// Every kind.
    pub const ALL: [RowKind; 22] = [
        RowKind::Standard,
        RowKind::Normal,
        RowKind::LanguageModel,
        RowKind::Zipf,
        RowKind::OneHot,
        RowKind::Flat,
        RowKind::Equal,
        RowKind::FewValues,
        RowKind::Plateaus,
        RowKind::NearTies,
        RowKind::Denormals,
        RowKind::Zeros,
        RowKind::Infinities,
        RowKind::Nans,
        RowKind::AllNegativeInfinity,
        RowKind::HugeMasks,
        RowKind::Bits,
        RowKind::Bimodal,
        RowKind::OneBlock,
        RowKind::HiddenOutliers,
        RowKind::Ascending,
        RowKind::Descending,
    ];
}

/// A row of `vocab` logits of this kind.
pub fn row(kind: RowKind, vocab: usize, seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed);
    fill(kind, vocab, &mut random)
}

fn fill(kind: RowKind, vocab: usize, random: &mut Random) -> Vec<f32> {
    let normal = |random: &mut Random, mean: f64, deviation: f64| -> Vec<f32> {
        (0..vocab).map(|_| (mean + deviation * random.normal()) as f32).collect()
    };
    match kind {
        RowKind::Standard => normal(random, 0.0, 1.0),
        RowKind::Normal => {
            let deviation = random.pick(&[0.01, 0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0]);
            let mean = random.pick(&[-20.0, -10.0, -1.0, 0.0, 1.0, 10.0, 20.0, 1e4]);
            normal(random, mean, deviation)
        }
        RowKind::LanguageModel => language_model(vocab, random),
        RowKind::Zipf => {
            let exponent = 0.8 + random.unit();
            let mut row: Vec<f32> = (1..=vocab).map(|rank| (-exponent * (rank as f64).ln()) as f32).collect();
            shuffle(&mut row, random);
            row
        }
        RowKind::OneHot => {
            let mut row = vec![random.pick(&[0.0, -5.0, 3.0]); vocab];
            row[random.below(vocab)] += random.pick(&[0.5, 5.0, 20.5, 29.0, 30.0, 1000.0]);
            row
        }
        RowKind::Flat => normal(random, 0.0, 0.01),
        RowKind::Equal => vec![random.pick(&[0.0, 1.0, -1.7, 1e-3, -1e30, f32::MAX, f32::MIN]); vocab],
        RowKind::FewValues => {
            let distinct = 2 + random.below(7);
            let values: Vec<f32> = (0..distinct).map(|_| (3.0 * random.normal()) as f32).collect();
            (0..vocab).map(|_| random.pick(&values)).collect()
        }
        RowKind::Plateaus => {
            let mean = random_mean(random);
            let row = normal(random, mean, 3.0);
            row.iter().map(|&y| qrita_core::bf16::from_f32(y).to_f32()).collect()
        }
        RowKind::NearTies => {
            let base = random.pick(&[1.0f32, -1.0, 11.0, 1e6, -1e-3, 1e30]).to_bits();
            let width = random.pick(&[2, 5, 40]);
            (0..vocab).map(|_| f32::from_bits(base + random.below(width) as u32)).collect()
        }
        RowKind::Denormals => (0..vocab).map(|_| f32::from_bits(signed(random, 0x0080_0010))).collect(),
        RowKind::Zeros => (0..vocab).map(|_| f32::from_bits(signed(random, 3))).collect(),
        RowKind::Infinities => {
            let mut row = normal(random, 0.0, 2.0);
            let often = random.pick(&[2, 10, 100]);
            for y in &mut row {
                if random.once_in(often) {
                    *y = random.pick(&[f32::INFINITY, f32::NEG_INFINITY, f32::NEG_INFINITY]);
                }
            }
            row
        }
        RowKind::Nans => {
            let mut row = normal(random, 0.0, 2.0);
            let often = random.pick(&[1, 2, 20, 200]);
            for y in &mut row {
                if random.once_in(often) {
                    *y = random.pick(&[f32::NAN, -f32::NAN, f32::from_bits(0x7F80_2001), f32::from_bits(0xFFFF_FFFF)]);
                }
            }
            row
        }
        RowKind::AllNegativeInfinity => vec![f32::NEG_INFINITY; vocab],
        RowKind::HugeMasks => {
            let mask = random.pick(&[-1e30, f32::MIN, -1e4, -6e4]);
            let mut row = normal(random, 0.0, 3.0);
            for y in &mut row {
                if !random.once_in(20) {
                    *y = mask;
                }
            }
            row
        }
        RowKind::Bits => (0..vocab).map(|_| f32::from_bits(random.bits() as u32)).collect(),
        RowKind::Bimodal => {
            let apart = random.pick(&[5.0, 20.0, 60.0]);
            let share = random.pick(&[2, 10, 100]);
            let mode = |random: &mut Random| if random.once_in(share) { apart } else { 0.0 };
            (0..vocab).map(|_| (mode(random) + random.normal()) as f32).collect()
        }
        RowKind::OneBlock => {
            let len = (vocab / 16).clamp(1, 50);
            let start = random.below(vocab - len + 1);
            let level = random.pick(&[-200.0, 0.0, 100.0]);
            let mut row = vec![f32::NEG_INFINITY; vocab];
            for y in &mut row[start..start + len] {
                *y = (level + 3.0 * random.unit()) as f32;
            }
            row
        }
        RowKind::HiddenOutliers => {
            let mut row = normal(random, 0.0, 1.0);
            // A sample that is spread evenly, in runs or one by one, sees even places or the starts of blocks.
            for id in (0..vocab).filter(|id| id % 32 == 31) {
                if random.once_in(4) {
                    row[id] += random.pick(&[6.0, 15.0]);
                }
            }
            row
        }
        RowKind::Ascending => {
            let mut row = normal(random, 0.0, 3.0);
            row.sort_by(f32::total_cmp);
            row
        }
        RowKind::Descending => {
            let mut row = normal(random, 0.0, 3.0);
            row.sort_by(|a, b| b.total_cmp(a));
            row
        }
    }
}

/// A skewed bulk of deviation 2.5 to 4 around a mean that wanders as real models' do, and up to a dozen outliers.
fn language_model(vocab: usize, random: &mut Random) -> Vec<f32> {
    let mean = random_mean(random);
    let deviation = 2.5 + 1.5 * random.unit();
    let bulk = |random: &mut Random| {
        let normal = random.normal();
        mean + deviation * (normal + 0.15 * (normal * normal - 1.0))
    };
    let mut row: Vec<f32> = (0..vocab).map(|_| bulk(random) as f32).collect();
    for _ in 0..1 + random.below(12) {
        row[random.below(vocab)] = (mean + deviation * 3.0 + 8.0 + 12.0 * random.unit().powi(3)) as f32;
    }
    row
}

fn random_mean(random: &mut Random) -> f64 {
    random.pick(&[-15.0, -10.0, -3.0, 0.0, 5.0, 16.0])
}

fn signed(random: &mut Random, end: u32) -> u32 {
    random.below(end as usize) as u32 | (random.bits() as u32 & 0x8000_0000)
}

fn shuffle(row: &mut [f32], random: &mut Random) {
    for end in (1..row.len()).rev() {
        row.swap(end, random.below(end + 1));
    }
}

/// The parameters of a row of `vocab` logits: plain ones, and both ends of every range.
pub fn row_params(vocab: usize, random: &mut Random) -> RowParams {
    let v = vocab as u32;
    let k_any = 1 + random.below(vocab) as u32;
    let p_any = random.unit() as f32;
    let top_p = [
        0.0,
        f32::from_bits(1),
        1e-30,
        1e-6,
        0.1,
        0.5,
        0.8,
        0.9,
        0.9,
        0.95,
        0.999,
        1.0 - 2f32.powi(-24),
        1.0,
        1.0,
        2.0,
    ];
    RowParams {
        temperature: random.pick(&[1.0, 1.0, 1.0, 0.0, 1e-5, 0.3, 0.7, 1.5, 10.0, 1e30, f32::MAX, f32::from_bits(1)]),
        top_k: random.pick(&[0, 0, 1, 2, 5, 20, 50, 50, k_any, k_any, v - 1, v, v + 1, 9_999_999, u32::MAX]),
        top_p: if random.once_in(4) { p_any } else { random.pick(&top_p) },
        min_p: random.pick(&[0.0, 0.0, 0.0, 0.0, f32::from_bits(1), 1e-13, 1e-6, 0.05, 0.3, 1.0]),
        seed: random.bits(),
        position: if random.once_in(2) { random.below(1000) as u64 } else { random.bits() },
        stream: random.pick(&[0, 0, 1, u32::MAX]),
        draws: 1,
        ties: random.pick(&[Ties::LowestId, Ties::LowestId, Ties::KeepAll]),
        order: random.pick(&[Order::TopKThenTopP, Order::TopKThenTopP, Order::Joint]),
    }
}

/// The size of generated batches.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Rows at most.
    pub rows: usize,
    /// Logits in a row at most.
    pub vocab: usize,
}

/// A batch of random rows of every kind, with random parameters, layout and adjustments.
pub fn batch(seed: u64, size: Size) -> Batch {
    let random = &mut Random::new(seed);
    let odd = [1, 2, 3, 5, 7, 8, 9, 16, 17, 31, 32, 33, 64, 65, 111, 127, 128, 257];
    let vocab = match random.below(3) {
        0 => random.pick(&odd).min(size.vocab),
        _ => 1 + random.below(size.vocab),
    };
    let rows = 1 + random.below(size.rows);
    let kinds: Vec<RowKind> = (0..rows).map(|_| random.pick(&RowKind::ALL)).collect();
    batch_of(&kinds, vocab, random)
}

/// A batch of rows of these kinds, with random parameters, layout and adjustments.
pub fn batch_of(kinds: &[RowKind], vocab: usize, random: &mut Random) -> Batch {
    assert!((1..=MAX_VOCAB).contains(&vocab));
    let rows = kinds.len();
    let values: Vec<f32> = kinds.iter().flat_map(|&kind| fill(kind, vocab, random)).collect();
    let dtype = random.pick(&[Dtype::F32, Dtype::F32, Dtype::F16, Dtype::Bf16]);
    let mut batch = Batch::of(Stored::narrow(&values, dtype), vocab);
    batch.params = params(rows, vocab, random);
    let stride = vocab + random.pick(&[0, 0, 1, 3, 8, 64]);
    let (start, tail) = (random.pick(&[0, 0, 1, 2, 3, 5, 7]), random.below(9));
    batch.params.draws = random.pick(&[1, 1, 1, 2, 3, 9]);
    let batch = batch.laid_out(start, stride, tail, &[1e30, f32::NAN, f32::INFINITY, 0.0, -1.0]);
    if random.once_in(6) {
        // Any order, repeats, and rows that nobody reads.
        let index: Vec<u32> = (0..rows).map(|_| random.below(rows) as u32).collect();
        return batch.indexed(&index);
    }
    batch
}

fn params(rows: usize, vocab: usize, random: &mut Random) -> OwnedParams {
    let uniform = random.once_in(5);
    let each: Vec<RowParams> = (0..if uniform { 1 } else { rows }).map(|_| row_params(vocab, random)).collect();
    let mut params = OwnedParams::from_rows(&each);
    if random.once_in(6) {
        params.valid_vocab = Some(random.pick(&[0, 1, vocab / 2, vocab - 1, vocab]).min(vocab));
    }
    if random.once_in(5) {
        params.bitmask = Some(bitmask(rows, vocab, random));
    }
    if random.once_in(5) {
        let biases = [0.0, -0.0, 1.5, -2.0, 100.0, -100.0, f32::NEG_INFINITY, f32::INFINITY, f32::MAX, 1e-40];
        params.bias = Some(sparse(rows, vocab, random, |random| random.pick(&biases)));
    }
    if random.once_in(5) {
        params.penalties = Some(OwnedPenalties {
            repetition: per_row(rows, random, &[1.0, 1.1, 1.3, 0.5, 1e30]),
            frequency: per_row(rows, random, &[0.0, 0.1, 0.7, -0.3, 1e38]),
            presence: per_row(rows, random, &[0.0, 0.5, -1.5]),
            counts: sparse(rows, vocab, random, |random| random.pick(&[0, 1, 2, 3, 17, u32::MAX])),
        });
    }
    if random.once_in(8) {
        params.standing = Some(standing(rows, vocab, random));
    }
    params
}

/// Standing penalties of any kind: most tokens have none, or all have one; some are none that a step would make.
pub fn standing(rows: usize, vocab: usize, random: &mut Random) -> OwnedStanding {
    let stride = vocab + random.pick(&[0, 0, 1, 5]);
    let often = random.pick(&[1, 3, 50]);
    let any = [0.5, 0.25, 1.0, 3.5, -0.0, -2.0, 1e-40, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::NAN];
    let usual = random.pick(&[4, any.len()]);
    let penalty = |random: &mut Random| if random.once_in(often) { random.pick(&any[..usual]) } else { 0.0 };
    let penalties = (0..rows.saturating_sub(1) * stride + vocab).map(|_| penalty(random)).collect();
    OwnedStanding { penalties, stride }
}

fn per_row(rows: usize, random: &mut Random, values: &[f32]) -> Vec<f32> {
    let count = if random.once_in(2) { 1 } else { rows };
    (0..count).map(|_| random.pick(values)).collect()
}

fn bitmask(rows: usize, vocab: usize, random: &mut Random) -> OwnedBitmask {
    let ids = random.pick(&[vocab, vocab, vocab + 40, vocab / 2, vocab.saturating_sub(1), 0]);
    let words = ids.div_ceil(32);
    let stride = random.pick(&[0, words, words + 3]);
    let density = random.pick(&[0, 1, 2, 3]);
    let word = |random: &mut Random| match density {
        0 => u32::MAX,
        1 => random.bits() as u32,
        2 => (random.bits() & random.bits() & random.bits()) as u32,
        _ => 1 << random.below(32),
    };
    let len = if stride == 0 { words } else { rows * stride };
    OwnedBitmask { words: (0..len).map(|_| word(random)).collect(), ids, stride }
}

fn sparse<T: Copy>(rows: usize, vocab: usize, random: &mut Random, value: impl Fn(&mut Random) -> T) -> OwnedSparse<T> {
    let entries = |random: &mut Random| {
        let often = random.pick(&[1, 3, 30, vocab]);
        let listed: Vec<usize> = (0..vocab).filter(|_| random.once_in(often)).collect();
        listed.into_iter().map(|id| (id as u32, value(random))).collect()
    };
    OwnedSparse::new(&(0..rows).map(|_| entries(random)).collect::<Vec<_>>())
}

/// Small batches that shrink: towards fewer rows, fewer logits, plain parameters.
pub fn any_batch(max_rows: usize, max_vocab: usize) -> impl Strategy<Value = Batch> {
    let shape = (1..=max_rows, 1..=max_vocab);
    shape.prop_flat_map(|(rows, vocab)| {
        let values = proptest::collection::vec(any_logit(), rows * vocab);
        let params = proptest::collection::vec(any_params(vocab as u32), rows);
        let index = proptest::option::weighted(0.2, proptest::collection::vec(0..rows as u32, rows));
        (values, params, any_policies(), any_dtype(), 0..4usize, 0..5usize, index).prop_map(
            move |(values, mut params, (ties, order, draws), dtype, start, padding, index)| {
                for row in &mut params {
                    (row.ties, row.order, row.draws) = (ties, order, draws);
                }
                let mut batch = Batch::of(Stored::narrow(&values, dtype), vocab);
                batch.params = OwnedParams::from_rows(&params);
                let batch = batch.laid_out(start, vocab + padding, padding, &[f32::INFINITY, f32::NAN]);
                match index {
                    Some(index) => batch.indexed(&index),
                    None => batch,
                }
            },
        )
    })
}

fn any_logit() -> impl Strategy<Value = f32> {
    let special = [0.0, -0.0, f32::from_bits(1), -f32::from_bits(1), f32::MAX, f32::MIN, -1e30, 29.112, 1e-10];
    prop_oneof![
        8 => (-4i8..=4).prop_map(f32::from),
        8 => -20.0f32..20.0,
        2 => proptest::sample::select(special.to_vec()),
        1 => proptest::sample::select(vec![f32::NEG_INFINITY, f32::INFINITY, f32::NAN]),
        1 => any::<u32>().prop_map(f32::from_bits),
    ]
}

fn any_params(vocab: u32) -> impl Strategy<Value = RowParams> {
    let temperature = prop_oneof![6 => Just(1.0f32), 1 => Just(0.0f32), 3 => 1e-3f32..3.0, 1 => Just(f32::MAX)];
    let top_k = prop_oneof![2 => Just(0), 4 => 1..=vocab, 1 => any::<u32>()];
    let top_p = prop_oneof![2 => Just(1.0f32), 6 => 0.0f32..1.0, 1 => Just(0.0f32)];
    let min_p = prop_oneof![4 => Just(0.0f32), 2 => 0.0f32..=1.0];
    (temperature, top_k, top_p, min_p, any::<u64>(), any::<u64>(), any::<u32>()).prop_map(
        |(temperature, top_k, top_p, min_p, seed, position, stream)| RowParams {
            temperature,
            top_k,
            top_p,
            min_p,
            seed,
            position,
            stream,
            draws: 1,
            ties: Ties::default(),
            order: Order::default(),
        },
    )
}

fn any_policies() -> impl Strategy<Value = (Ties, Order, u32)> {
    (
        proptest::sample::select(vec![Ties::LowestId, Ties::KeepAll]),
        proptest::sample::select(vec![Order::TopKThenTopP, Order::Joint]),
        1..4u32,
    )
}

fn any_dtype() -> impl Strategy<Value = Dtype> {
    proptest::sample::select(vec![Dtype::F32, Dtype::F16, Dtype::Bf16])
}

#[cfg(test)]
mod tests {
    use super::{Random, RowKind, Size, batch, batch_of, row};

    #[test]
    fn a_seed_names_a_batch() {
        for seed in 0..200 {
            let size = Size { rows: 8, vocab: 100 };
            // NaN is not equal to itself: the text is.
            assert_eq!(format!("{:?}", batch(seed, size)), format!("{:?}", batch(seed, size)));
        }
    }

    #[test]
    fn every_kind_has_every_length() {
        for kind in RowKind::ALL {
            for vocab in [1, 2, 3, 31, 1000] {
                assert_eq!(row(kind, vocab, 5).len(), vocab);
                batch_of(&[kind], vocab, &mut Random::new(vocab as u64));
            }
        }
    }
}
