//! The functions that decide, as a device computes them, against core's: weight, logarithm, log-probability, top-p's need,
//! random bits, probability, and the wide integers that decide about draft tokens.
//!
//! A device compiles its source and [`SOURCE`] as one text and lends itself as [`Evaluate`]. Where it is fast enough
//! `step` is 1, and the comparison of weights and log-probabilities visits every non-positive f32. Core's own functions are
//! held to references of more than a hundred bits by other tests.

use qrita_core::logarithm::{Logprob, ln_mass};
use qrita_core::philox;
use qrita_core::probability::probability;
use qrita_core::verify::{Share, accepts, excess, upper};
use qrita_core::weight::{self, ONE, need, weight};
use rayon::prelude::*;

use crate::rows::Random;

/// What follows the device source: a kernel of one argument, a [`Call`].
pub const SOURCE: &str = include_str!("functions.cpp");

/// The kernel's name.
pub const ENTRY: &str = "functions";

/// Values of a launch at most.
const CHUNK: u64 = 1 << 22;

/// The largest mass: 2^21 logits at the maximum.
const LARGEST_MASS: u64 = 1 << 63;

/// Masses of laws: of a single token, the least beyond that, a small excess, a usual one, the largest.
const LAWS: [u64; 5] = [ONE, ONE + 1, ONE + (1 << 20), 37 * ONE / 10, LARGEST_MASS];

/// The argument of the kernel. Addresses are the device's; `inputs` of 0 is "none".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Call {
    pub function: u32,
    pub count: u32,
    pub first: u64,
    pub step: u64,
    pub second: u64,
    pub inputs: u64,
    pub outputs: u64,
}

/// A device that runs the kernel.
pub trait Evaluate: Sync {
    /// Launches with at least `call.count` threads, one a value; fills `outputs`, which has as many elements, with what
    /// they wrote. Where `inputs` is empty, `call.inputs` is 0, else the address of these in the device's memory.
    fn evaluate(&self, call: Call, inputs: &[[u64; 3]], outputs: &mut [u64]);
}

/// The functions, as `functions.cpp` numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Weight,
    Logprob,
    LnMass,
    Need,
    RandomBits,
    QuickWeight,
    RestHolds,
    Probability,
    Accepts,
    Excess,
    Upper,
}

/// Compares the values at `first`, `first + step`, … below `end`.
fn sweep(
    device: &impl Evaluate,
    function: Function,
    (first, end, step): (u64, u64, u64),
    second: u64,
    right: impl Fn(u64) -> u64 + Sync,
) {
    let count = (end - first).div_ceil(step);
    (0..count.div_ceil(CHUNK)).into_par_iter().for_each_init(Vec::new, |outputs, chunk| {
        let (first, count) = (first + chunk * CHUNK * step, CHUNK.min(count - chunk * CHUNK));
        outputs.resize(count as usize, 0);
        let call = Call { function: function as u32, count: count as u32, first, step, second, ..Call::default() };
        device.evaluate(call, &[], outputs);
        for (i, &found) in (0..).zip(&*outputs) {
            let a = first + i * step;
            let right = right(a);
            assert!(found == right, "{function:?} of {a:#x} and {second:#x} is {found:#x} and must be {right:#x}");
        }
    });
}

/// Compares the values at these arguments.
fn listed(device: &impl Evaluate, function: Function, inputs: &[[u64; 3]], right: impl Fn([u64; 3]) -> u64 + Sync) {
    for inputs in inputs.chunks(CHUNK as usize) {
        let mut outputs = vec![0; inputs.len()];
        let call = Call { function: function as u32, count: inputs.len() as u32, ..Call::default() };
        device.evaluate(call, inputs, &mut outputs);
        for (&input, &found) in inputs.iter().zip(&outputs) {
            let right = right(input);
            assert!(found == right, "{function:?} of {input:#x?} is {found:#x} and must be {right:#x}");
        }
    }
}

/// Compares the values at `count` random arguments.
fn drawn(
    device: &impl Evaluate,
    function: Function,
    count: usize,
    draw: impl Fn(&mut Random) -> [u64; 3] + Sync,
    right: impl Fn([u64; 3]) -> u64 + Sync,
) {
    const BATCH: usize = 1 << 20;
    (0..count.div_ceil(BATCH)).into_par_iter().for_each(|batch| {
        let mut random = Random::new(batch as u64);
        let inputs: Vec<_> = (0..BATCH.min(count - batch * BATCH)).map(|_| draw(&mut random)).collect();
        listed(device, function, &inputs, &right);
    });
}

/// The weights of every `step`-th non-positive f32. NaN is never a distance, but its weight is an integer like any other,
/// and 0 on both sides.
///
/// # Panics
/// With the first that differs; so in all functions of this module.
pub fn weights(device: &impl Evaluate, step: u64) {
    sweep(device, Function::Weight, (0, 1 << 31, step), 0, |bits| weight(distance(bits)));
}

/// The log-probabilities of every `step`-th non-positive f32 and of infinity, in five laws, from that of a single token to
/// that of the largest mass.
pub fn logprobs(device: &impl Evaluate, step: u64) {
    let infinity = u64::from(f32::INFINITY.to_bits());
    for mass in LAWS {
        let (law, ln) = (Logprob::new(mass), ln_mass(mass));
        let right = |bits| u64::from(law.of(distance(bits)).to_bits());
        sweep(device, Function::Logprob, (0, infinity + 1, step), ln, right);
        listed(device, Function::Logprob, &[[infinity, ln, 0]], |[bits, ..]| right(bits));
    }
}

/// The logarithms of every mass that is a power of two times every `step`-th significand of an f32, of masses at both ends,
/// and of `random` others.
pub fn logarithms(device: &impl Evaluate, step: u64, random: usize) {
    for shift in 19..40 {
        let range = (1 << (23 + shift), 1 << (24 + shift), step << shift);
        sweep(device, Function::LnMass, range, 0, ln_mass);
    }
    // Below 2^42, which no mass of a row is, the logarithm is that of 2^42.
    let ends = [0, 1, ONE - 1, ONE, ONE + 1, LARGEST_MASS - 1, LARGEST_MASS].map(|mass| [mass, 0, 0]);
    let right = |[mass, ..]: [u64; 3]| ln_mass(mass);
    listed(device, Function::LnMass, &ends, right);
    drawn(device, Function::LnMass, random, |random| [mass(random, 42), 0, 0], right);
}

/// What top-p must gather: every exponent of p, at its ends and in between, with masses around every power of two, and
/// `random` others.
pub fn needs(device: &impl Evaluate, random: usize) {
    let one = 1f32.to_bits();
    let significands = [0, 1, 0x0040_0000, 0x004C_CCCD, 0x007F_FFFF];
    let mut ps: Vec<u32> = (0..one >> 23).flat_map(|field| significands.map(|bits| field << 23 | bits)).collect();
    ps.extend([one, (-0f32).to_bits()]);
    let around = |power: u64| [power - 1, power, power + 1];
    let mut masses: Vec<u64> = (0..63).flat_map(|shift| around(1 << shift)).collect();
    masses.extend([LARGEST_MASS - 1, LARGEST_MASS]);
    let pairs = ps.iter().flat_map(|&p| masses.iter().map(move |&mass| [u64::from(p), mass, 0]));
    let right = |[p, mass, _]: [u64; 3]| need(f32::from_bits(p as u32), mass);
    listed(device, Function::Need, &pairs.collect::<Vec<_>>(), right);
    let draw = |random: &mut Random| {
        let any = random.below(one as usize + 1) as u32;
        let p = if random.once_in(2) { any } else { (random.unit() as f32).to_bits() };
        [p.into(), mass(random, 0), 0]
    };
    drawn(device, Function::Need, random, draw, right);
}

/// The random bits: the published vector that has no later draw, all combinations of numbers at the ends of their words,
/// and `random` others.
pub fn random_bits(device: &impl Evaluate, random: usize) {
    listed(device, Function::RandomBits, &[[0; 3]], |_| 0xE169_C58D_6627_E8D5);
    // Stream and draw share a word.
    let right = |[seed, position, last]: [u64; 3]| philox::random(seed, position, last as u32, (last >> 32) as u32);
    let ends = [0, 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 63, u64::MAX];
    let last = [0, 1, 1 << 31, u64::from(u32::MAX), 1 << 32, 3 << 32 | 7, 0xFFFF_FFFE << 32, u64::MAX];
    let pairs = ends.iter().flat_map(|&seed| ends.map(|position| (seed, position)));
    let all = pairs.flat_map(|(seed, position)| last.map(|last| [seed, position, last]));
    listed(device, Function::RandomBits, &all.collect::<Vec<_>>(), right);
    let draw = |random: &mut Random| [random.bits(), random.bits(), random.bits()];
    drawn(device, Function::RandomBits, random, draw, right);
}

/// The weights of whole rows, where the division by the temperature is another: logits near and far below a maximum, with
/// temperatures of every magnitude, infinite logits among them.
pub fn quick_weights(device: &impl Evaluate, random: usize) {
    let right = |[a, b, _]: [u64; 3]| {
        let [y, max, temperature] = [a, a >> 32, b].map(|bits| f32::from_bits(bits as u32));
        weight(weight::distance(y, max, temperature))
    };
    let pack = |y: f32, max: f32, temperature: f32| [pair(y, max), temperature.to_bits().into(), 0];
    let ends = [f32::NEG_INFINITY, f32::MIN, -1.0, -1e-45, 0.0, 1e-45, f32::MIN_POSITIVE, 1.0, f32::MAX, f32::INFINITY];
    // The quick division is for temperatures from 2^-30 to 2^30.
    let (least, most) = (2f32.powi(-30), 2f32.powi(30));
    let temperatures = [1e-45, f32::MIN_POSITIVE, least.next_down(), least, 0.7, 1.0, most, most.next_up(), f32::MAX];
    let pairs = ends.iter().enumerate().flat_map(|(i, &max)| ends[..=i].iter().map(move |&y| (y, max)));
    let all = pairs.flat_map(|(y, max)| temperatures.map(|temperature| pack(y, max, temperature)));
    // A row whose maximum is −∞ is empty: nothing is weighed.
    let all: Vec<_> = all.filter(|&[a, ..]| a >> 32 != u64::from(f32::NEG_INFINITY.to_bits())).collect();
    listed(device, Function::QuickWeight, &all, right);
    let draw = |random: &mut Random| {
        let temperature = any_temperature(random);
        let max = any_logit(random);
        pack(below(random, max, temperature), max, temperature)
    };
    drawn(device, Function::QuickWeight, random, draw, right);
}

/// The bound of a mass that was summed in floating point, for one logit at a time: its weight is within. The sample's greatest
/// logit, which terms refer to, lies at or below the row's, and above the logit.
pub fn rest_bounds(device: &impl Evaluate, random: usize) {
    let draw = |random: &mut Random| {
        // Those that the bound is for.
        let temperature = any_temperature(random).clamp(1.000_001e-30, 9.999_99e36);
        let max = any_logit(random);
        let greatest = below(random, max, temperature);
        let y = below(random, greatest, temperature);
        let weight = weight(weight::distance(y, max, temperature));
        [pair(y, greatest), pair(max, temperature), weight]
    };
    drawn(device, Function::RestHolds, random, draw, |_| 3);
}

/// The probabilities of weights at both ends and at simple shares of masses around every power of two, and of `random` others,
/// of which every second lies next to the middle of two floats.
pub fn probabilities(device: &impl Evaluate, random: usize) {
    let right = |[weight, mass, _]: [u64; 3]| probability(weight, mass).to_bits().into();
    listed(device, Function::Probability, &simple_shares(), right);
    drawn(device, Function::Probability, random, any_share, right);
}

fn simple_shares() -> Vec<[u64; 3]> {
    let around = |power: u64| [power, power + 1, 2 * power - 1];
    let masses = (0..63).flat_map(|shift| around(1 << shift)).chain([LARGEST_MASS]);
    let of_mass = |mass: u64| {
        [0, 1, 2, 3, mass / 3, mass / 2, mass / 2 + 1, mass - mass / 4, mass - 1, mass]
            .map(|weight| [weight.min(mass), mass, 0])
    };
    // The last two are weights beyond the mass.
    masses.flat_map(of_mass).chain([[5, 4, 0], [1, 0, 0]]).collect()
}

/// A weight and a mass that is not less.
fn any_share(random: &mut Random) -> [u64; 3] {
    let mass = mass(random, 0);
    let any = random.bits() % (mass + 1);
    // The middle of two floats is an odd number of 25 bits, times a power of two.
    let middle = u128::from((1 << 24) | random.bits() & 0xFF_FFFF | 1);
    let at_middle = (u128::from(mass) * middle) >> (25 + random.below(40));
    let weight = if random.once_in(2) { any } else { at_middle as u64 + random.below(2) as u64 };
    [weight.min(mass), mass, 0]
}

/// What decides about draft tokens: acceptance, excess, and the upper half of a product of 64 by 128 bits, at the ends of
/// every word and at `random` others, of any length.
pub fn draft_decisions(device: &impl Evaluate, random: usize) {
    let ends = [0, 1, (1 << 32) - 1, 1 << 32, 1 << 42, (1 << 63) - 1, 1 << 63, u64::MAX];
    let all: Vec<[u64; 3]> =
        ends.iter().flat_map(|&a| ends.iter().flat_map(move |&b| ends.map(|c| [a, b, c]))).collect();
    let draw = |random: &mut Random| [0; 3].map(|_| random.bits() >> random.below(64));
    for (function, right) in DRAFT_DECISIONS {
        listed(device, function, &all, right);
        drawn(device, function, random, draw, right);
    }
}

/// The right value for three arguments.
type Right = fn([u64; 3]) -> u64;

/// As `functions.cpp` has them.
const DRAFT_DECISIONS: [(Function, Right); 3] = [
    (Function::Accepts, |[a, b, c]| accepts(a, Share { weight: b, mass: c }, Share { weight: c >> 7, mass: b }).into()),
    (Function::Excess, |[a, b, c]| fold(excess(Share { weight: a, mass: b }, Share { weight: b, mass: c }))),
    (Function::Upper, |[a, b, c]| {
        let wide = |low, high| u128::from(high) << 64 | u128::from(low);
        fold(upper(a, wide(b, c).wrapping_add(wide(c, b))))
    }),
];

/// Both halves in one.
fn fold(wide: u128) -> u64 {
    (wide as u64).wrapping_add(((wide >> 64) as u64).wrapping_mul(3))
}

/// A logit of any magnitude, or of a usual one.
fn any_logit(random: &mut Random) -> f32 {
    loop {
        let any = f32::from_bits(random.bits() as u32);
        let usual = (random.unit() as f32 - 0.5) * 60.0;
        let logit = if random.once_in(4) { any } else { usual };
        // Differences of these do not overflow.
        if logit.abs() < 1e38 {
            return logit;
        }
    }
}

/// A temperature of any magnitude, or of a usual one.
fn any_temperature(random: &mut Random) -> f32 {
    loop {
        let any = f32::from_bits(random.bits() as u32 >> 1);
        let usual = random.unit() as f32 * 3.0;
        let temperature = if random.once_in(4) { any } else { usual };
        if temperature > 0.0 && temperature.is_finite() {
            return temperature;
        }
    }
}

/// A logit at most 40 temperatures below one, most often where weights are not 0.
fn below(random: &mut Random, logit: f32, temperature: f32) -> f32 {
    let distance = if random.once_in(3) { 40.0 } else { 4.0 } * random.unit() as f32;
    let lower = logit - distance * temperature;
    if lower.is_finite() { lower.min(logit) } else { logit }
}

/// Two floats in one argument, the first below.
fn pair(low: f32, high: f32) -> u64 {
    u64::from(high.to_bits()) << 32 | u64::from(low.to_bits())
}

/// The distance with this magnitude.
fn distance(bits: u64) -> f32 {
    f32::from_bits(bits as u32 | 0x8000_0000)
}

/// A mass from 2^`least` to 2^63, every magnitude as likely as the others.
fn mass(random: &mut Random, least: usize) -> u64 {
    let power = 1u64 << (least + random.below(63 - least));
    power + random.below(power as usize) as u64
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// Core itself as the device, with one value spoilt: of a function, at a first argument.
    struct Host(Option<(Function, u64)>);

    impl Evaluate for Host {
        fn evaluate(&self, call: Call, inputs: &[[u64; 3]], outputs: &mut [u64]) {
            assert_eq!(call.count as usize, outputs.len());
            let functions = [
                Function::Weight,
                Function::Logprob,
                Function::LnMass,
                Function::Need,
                Function::RandomBits,
                Function::QuickWeight,
                Function::RestHolds,
                Function::Probability,
                Function::Accepts,
                Function::Excess,
                Function::Upper,
            ];
            let function = functions[call.function as usize];
            for (i, output) in outputs.iter_mut().enumerate() {
                let computed = || [call.first + i as u64 * call.step, call.second, 0];
                let [a, b, c] = inputs.get(i).copied().unwrap_or_else(computed);
                *output = match function {
                    Function::Weight => weight(distance(a)),
                    Function::Logprob => {
                        let mass = LAWS.into_iter().find(|&mass| ln_mass(mass) == b).expect("a law of the comparison");
                        Logprob::new(mass).of(distance(a)).to_bits().into()
                    }
                    Function::LnMass => ln_mass(a),
                    Function::Need => need(f32::from_bits(a as u32), b),
                    Function::RandomBits => philox::random(a, b, c as u32, (c >> 32) as u32),
                    Function::QuickWeight => {
                        let [y, max, temperature] = [a, a >> 32, b].map(|bits| f32::from_bits(bits as u32));
                        weight(weight::distance(y, max, temperature))
                    }
                    Function::RestHolds => 3,
                    Function::Probability => probability(a, b).to_bits().into(),
                    Function::Accepts => DRAFT_DECISIONS[0].1([a, b, c]),
                    Function::Excess => DRAFT_DECISIONS[1].1([a, b, c]),
                    Function::Upper => DRAFT_DECISIONS[2].1([a, b, c]),
                }
                .wrapping_add(u64::from(self.0 == Some((function, a))));
            }
        }
    }

    const STEP: u64 = 4099;
    const RANDOM: usize = 1000;

    fn all(device: &Host) {
        weights(device, STEP);
        logprobs(device, STEP);
        logarithms(device, STEP, RANDOM);
        needs(device, RANDOM);
        random_bits(device, RANDOM);
        quick_weights(device, RANDOM);
        rest_bounds(device, RANDOM);
        probabilities(device, RANDOM);
        draft_decisions(device, RANDOM);
    }

    #[test]
    fn core_passes() {
        all(&Host(None));
    }

    /// Core's own, by another way to the nearest float.
    #[test]
    fn probabilities_are_rounded_once() {
        let mut random = Random::new(9);
        let any = (0..200_000).map(|_| any_share(&mut random));
        for [weight, mass, _] in simple_shares().into_iter().chain(any).filter(|[weight, mass, _]| weight <= mass) {
            let right = crate::oracle::probability(weight, mass);
            assert_eq!(probability(weight, mass).to_bits(), right.to_bits(), "{weight} of {mass}");
        }
    }

    #[test]
    fn one_wrong_value_is_found() {
        let last = (1u64 << 31).div_ceil(STEP) * STEP - STEP;
        let infinity = u64::from(f32::INFINITY.to_bits());
        let wrong = [
            (Function::Weight, 0),
            (Function::Weight, STEP),
            (Function::Weight, last),
            (Function::Logprob, 0),
            (Function::Logprob, 200_000 * STEP),
            (Function::Logprob, infinity),
            (Function::LnMass, LARGEST_MASS),
            (Function::LnMass, ((1 << 23) + 7 * STEP) << 30),
            (Function::Need, 1f32.to_bits().into()),
            (Function::Need, 1),
            (Function::RandomBits, u64::MAX),
            (Function::RandomBits, 0),
            (Function::QuickWeight, pair(f32::MIN, 1.0)),
            (Function::Probability, 0),
            (Function::Probability, LARGEST_MASS),
            (Function::Accepts, 1 << 63),
            (Function::Excess, u64::MAX),
            (Function::Upper, 1),
        ];
        for wrong in wrong {
            let panic = catch_unwind(AssertUnwindSafe(|| all(&Host(Some(wrong))))).expect_err("it goes unnoticed");
            let text = panic.downcast_ref::<String>().expect("a message");
            assert!(text.starts_with(&format!("{:?} of ", wrong.0)), "{wrong:?}: {text}");
        }
    }
}
