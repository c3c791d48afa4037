//! The logarithm of every mass that is an f32 times a power of two, and the rounding of log-probabilities.
#![allow(clippy::print_stderr, reason = "the largest error is a result")]

use qrita_core::logarithm::{INVERSES, LN_TABLE, LN2, RECIPROCAL_TABLE, ln_mass, logprob};
use qrita_core::weight::ONE;
use qrita_testkit::oracle;
use qrita_testkit::reference::{self, RUN, fixed, logarithms, real, real_f32};
use qrita_testkit::rows::Random;
use rayon::prelude::*;

/// The error in units of 2^-60 that the logarithm is allowed: 2^-57.
const BOUND: u128 = 8;

#[test]
fn every_significand_and_exponent() {
    let ln2 = fixed(&real(2, 0).ln(), 116);
    let worst = (1 << 23..1 << 24).into_par_iter().step_by(RUN as usize).map(|first| {
        let mut worst = (0, 0);
        logarithms(first, |n, ln_m| {
            for exponent in 0..21 {
                let mass = u64::from(n) << (42 - 23 + exponent);
                let exact = (ln_m >> 10) + exponent as u128 * ln2;
                let error = (u128::from(ln_mass(mass)) << 56).abs_diff(exact);
                worst = worst.max((error, mass));
            }
        });
        worst
    });
    let last = (u128::from(ln_mass(1 << 63)) << 56).abs_diff(21 * ln2);
    let (error, mass) = worst.max().unwrap().max((last, 1 << 63));
    let units = error as f64 / (1u64 << 56) as f64;
    eprintln!("largest error of a logarithm: {units:.3}·2^-60 = 2^{:.2} at mass {mass}", units.log2() - 60.0);
    assert!(error <= BOUND << 56, "{units}·2^-60 at mass {mass}");
    assert_eq!(ln_mass(ONE), 0);
}

/// A mass from 2^42 to 2^63, every magnitude as likely as the others; sometimes next to a power of two.
fn random_mass(random: &mut Random) -> u64 {
    let power = 1u64 << (42 + random.below(21));
    match random.below(4) {
        0 => power + random.below(1000) as u64,
        1 => 2 * power - random.below(1000) as u64,
        _ => power + random.below(power as usize) as u64,
    }
}

#[test]
fn random_masses() {
    let worst = (0..256u64).into_par_iter().map(|seed| {
        let mut random = Random::new(seed);
        let masses = (0..1000).map(|_| random_mass(&mut random));
        let error = |mass| (u128::from(ln_mass(mass)) << 56).abs_diff(fixed(&reference::ln_mass(mass), 116));
        masses.map(error).max().unwrap()
    });
    let units = worst.max().unwrap() as f64 / (1u64 << 56) as f64;
    eprintln!("largest error of a logarithm of random masses: {units:.3}·2^-60");
    assert!(units <= BOUND as f64);
}

/// A distance: of every magnitude, or so near to the logarithm's grid that the difference is at a rounding boundary.
fn random_distance(random: &mut Random) -> f32 {
    match random.below(6) {
        0 => -f32::from_bits(random.below(0x7F80_0000) as u32),
        1 => -(random.below(64) as f32),
        2 => -((random.below(1 << 24) as f32) * 2f32.powi(random.below(48) as i32 - 40)),
        3 => -f32::from_bits(((127 + random.below(40) as u32) << 23) + random.below(4) as u32),
        4 => 0.0,
        _ => -(40.0 * random.unit() as f32),
    }
}

#[test]
fn logprob_is_the_difference_rounded_once() {
    (0..512u64).into_par_iter().for_each(|seed| {
        let mut random = Random::new(seed);
        for _ in 0..4000 {
            let (d, mass) = (random_distance(&mut random), random_mass(&mut random));
            let (found, right) = (logprob(d, mass), oracle::logprob(d, mass));
            assert_eq!(found.to_bits(), right.to_bits(), "logprob({d:e}, {mass}): {found:e} and must be {right:e}");
        }
    });
    for mass in [ONE, ONE + 1, 2 * ONE, 1 << 63] {
        assert_eq!(logprob(f32::NEG_INFINITY, mass), f32::NEG_INFINITY);
        for bits in [0, 0x8000_0000, 0x8000_0001, 0x807F_FFFF, 0x8080_0000, 0xFF7F_FFFF] {
            let d = f32::from_bits(bits);
            assert_eq!(logprob(d, mass).to_bits(), oracle::logprob(d, mass).to_bits(), "logprob({d:e}, {mass})");
        }
    }
}

/// Distances that put the difference half way between two f32 numbers, exactly or as nearly as an f32 can.
#[test]
fn ties_are_rounded_to_even() {
    let mut random = Random::new(9);
    let mut exact = 0;
    for turn in 0..20_000 {
        // Small logarithms have ties that an f32 distance reaches exactly.
        let mass = if turn % 2 == 0 { random_mass(&mut random) } else { ONE + 64 + random.below(1 << 28) as u64 };
        let ln = u128::from(ln_mass(mass));
        if ln < 1 << 24 {
            continue;
        }
        let ulp = 1u128 << (ln.ilog2() - 23);
        let tie = (ln.div_ceil(ulp) + random.below(2) as u128) * ulp + ulp / 2;
        let magnitude = (tie - ln) as f32;
        exact += u32::from(magnitude as u128 == tie - ln);
        for units in [magnitude, magnitude.next_up(), magnitude.next_down()] {
            let d = -units * 2f32.powi(-60);
            let (found, right) = (logprob(d, mass), oracle::logprob(d, mass));
            assert_eq!(found.to_bits(), right.to_bits(), "logprob({d:e}, {mass}): {found:e} and must be {right:e}");
        }
    }
    assert!(exact > 5000, "{exact} exact ties");
}

/// Against the true logarithm: half a unit in the last place, and what the integer logarithm is off.
#[test]
fn logprob_is_near_the_truth() {
    let bound = real(1, -57);
    (0..128u64).into_par_iter().for_each(|seed| {
        let mut random = Random::new(!seed);
        for _ in 0..500 {
            let (d, mass) = (random_distance(&mut random), random_mass(&mut random));
            let found = logprob(d, mass);
            if !found.is_finite() {
                continue;
            }
            let truth = real_f32(d) - reference::ln_mass(mass);
            let off = real_f32(found) - &truth;
            let off = if off < real(0, 0) { -off } else { off };
            let half_ulp = (real_f32(found) - real_f32(found.next_down())) * real(1, -1);
            assert!(off <= half_ulp + &bound, "logprob({d:e}, {mass}) = {found:e}");
        }
    });
}

#[test]
fn tables() {
    let quotient = |a: u64, b: u64| real(a, 0) / real(b, 0);
    assert_eq!(u128::from(LN2), fixed(&real(2, 0).ln(), 60));
    for j in 0..64 {
        assert_eq!(u128::from(RECIPROCAL_TABLE[j as usize]), fixed(&quotient(64, 64 + j), 63), "RECIPROCAL_TABLE[{j}]");
        assert_eq!(u128::from(LN_TABLE[j as usize]), fixed(&quotient(64 + j, 64).ln(), 60), "LN_TABLE[{j}]");
    }
    for n in 1..=10 {
        assert_eq!(u128::from(INVERSES[n as usize - 1]), fixed(&quotient(1, n), 63), "1/{n}");
    }
}
