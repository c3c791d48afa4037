//! The weight of every non-positive f32 is within one unit of `2^42 · e^d`, and monotone.
//!
//! All 2^31 bit patterns of a non-positive number are visited. Between the distance below which the weight is still 2^42
//! and the one from which on it is 0, each is compared with the reference; outside, the weight is constant.
#![allow(clippy::print_stderr, reason = "the largest error is a result")]

use qrita_core::weight::{EXP2_TABLE, INV_LN2_64TH, LAST_DISTANCE_BITS, LN2_64TH, ONE, TAYLOR, weight};
use qrita_testkit::reference::{RUN, exponentials, fixed, nearest, real};
use rayon::prelude::*;

/// Bits of 2^-44: `2^42 · e^d` is within a quarter of 2^42 up to there.
const FIRST: u32 = (127 - 44) << 23;

fn at(magnitude: u32) -> u64 {
    weight(f32::from_bits(magnitude | 0x8000_0000))
}

#[test]
fn within_one_unit_and_monotone() {
    let runs = FIRST / RUN..LAST_DISTANCE_BITS.div_ceil(RUN);
    let worst = runs.into_par_iter().map(|run| {
        let mut worst = (0, 0);
        let mut previous = at(run * RUN - 1);
        exponentials(run * RUN, |bits, exact| {
            let found = at(bits);
            assert!(found <= previous, "weight rises at {bits:#x}");
            previous = found;
            // Q127 of e^d is Q85 of 2^42·e^d.
            let error = (u128::from(found) << 85).abs_diff(exact);
            assert!(error < 1 << 85, "a unit or more at {bits:#x}");
            if bits <= LAST_DISTANCE_BITS {
                worst = worst.max((error, bits));
            }
        });
        worst
    });
    let (error, bits) = worst.max().unwrap();
    let error = error as f64 / (1u128 << 85) as f64;
    eprintln!("largest error of a weight: {error:.4} units at -{:e}", f32::from_bits(bits));
    // Behind the last distance the weight is 0 and the error all that is left: less than a unit.
    assert!(error < 0.75, "{error} units at {bits:#x}");
}

#[test]
fn constant_outside() {
    (0..FIRST).into_par_iter().with_min_len(1 << 20).for_each(|bits| assert_eq!(at(bits), ONE, "{bits:#x}"));
    let infinity = f32::INFINITY.to_bits();
    let behind = LAST_DISTANCE_BITS + 1..infinity + 1;
    behind.into_par_iter().with_min_len(1 << 20).for_each(|bits| assert_eq!(at(bits), 0, "{bits:#x}"));
    assert_eq!((weight(0.0), at(LAST_DISTANCE_BITS)), (ONE, 1));
    // The quantum lies between the last distance and the next.
    let exact = |bits: u32| qrita_testkit::reference::real_f32(-f32::from_bits(bits)).exp() << 42;
    assert!(exact(LAST_DISTANCE_BITS) > real(1, 0) && exact(LAST_DISTANCE_BITS + 1) < real(1, 0));
}

#[test]
fn tables() {
    let ln2 = real(2, 0).ln();
    for (j, &entry) in EXP2_TABLE.iter().enumerate() {
        let exact = (-ln2.clone() * real(j as u64, -6)).exp();
        assert_eq!(u128::from(entry), fixed(&exact, 62), "EXP2_TABLE[{j}]");
    }
    let floor = |value: qrita_testkit::reference::Real| nearest(&value.floor(), 0);
    assert_eq!(floor(ln2.clone() << 52), LN2_64TH.into());
    assert_eq!(floor(real(64, 25) / ln2), INV_LN2_64TH.into());
    for (entry, factorial) in TAYLOR.into_iter().zip([2u64, 6, 24, 120]) {
        assert_eq!(u128::from(entry), fixed(&(real(1, 0) / real(factorial, 0)), 32), "1/{factorial}");
    }
}
