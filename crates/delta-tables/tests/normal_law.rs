//! The normal tables against the law computed by other means: quantile, safe side, monotone lookups, cost of rounding.

use proptest::prelude::*;
use qrita_delta_tables::{DeltaTables, normal};

/// The density of the standard normal.
fn density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// `1 − Φ(x)` for `x ≥ 0`: the Taylor series of Φ near 0, the continued fraction of Laplace in the tail.
fn upper_tail(x: f64) -> f64 {
    if x < 3.0 {
        let (mut term, mut sum) = (x, 0.0);
        for n in 1..200 {
            sum += term;
            term *= x * x / f64::from(2 * n + 1);
        }
        0.5 - density(x) * sum
    } else {
        let fraction = (1..=200).rev().fold(x, |below, n| x + f64::from(n) / below);
        density(x) / fraction
    }
}

/// Φ⁻¹(1 − tail) by bisection, for `0 < tail < 1`.
fn reference(tail: f64) -> f64 {
    if tail > 0.5 {
        return -reference(1.0 - tail);
    }
    let (mut low, mut high) = (0.0, 40.0);
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if upper_tail(middle) > tail {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// The share of a normal row above δ.
fn share_above(delta: f64) -> f64 {
    if delta < 0.0 { 1.0 - upper_tail(-delta) } else { upper_tail(delta) }
}

#[test]
fn the_reference_agrees_with_published_quantiles() {
    // Wichura, Algorithm AS 241, gives these as its check values.
    for (p, z) in [(0.25, -0.674_489_750_196_081_7), (1e-3, -3.090_232_306_167_813_5), (1e-20, -9.262_340_089_798_408)]
    {
        assert!((-reference(p) - z).abs() < 1e-12, "p = {p}");
    }
}

#[test]
fn the_quantile_is_right_to_a_billionth() {
    let mut tails = vec![0.5, 0.25, 0.1, 0.02425];
    tails.extend((0..=700).map(|i| 10_f64.powf(-f64::from(i) / 100.0) * 0.999));
    for tail in tails.into_iter().filter(|&tail| tail >= 1e-7) {
        let low = normal::quantile(tail) + reference(tail);
        assert!(low.abs() < 1e-9, "Φ⁻¹({tail:e}) is off by {low:e}");
        let high = normal::quantile(1.0 - tail) - reference(1.0 - (1.0 - tail));
        assert!(high.abs() < 1e-9, "Φ⁻¹(1 − {tail:e}) is off by {high:e}");
        // The smallest ratio, one token of 2^21, and below.
        let small = normal::delta_k(tail * 1e-7) - reference(tail * 1e-7);
        assert!(small.abs() < 1e-9, "δ_k({:e}) off by {small:e}", tail * 1e-7);
    }
}

#[test]
fn the_law_is_total() {
    assert_eq!(normal::delta_k(0.0), f64::INFINITY);
    assert_eq!(normal::delta_k(-1.0), f64::INFINITY);
    assert_eq!(normal::delta_k(1.0), f64::NEG_INFINITY);
    assert_eq!(normal::delta_k(7.0), f64::NEG_INFINITY);
    assert!(normal::delta_k(f64::NAN).is_nan());
    assert_eq!(normal::delta_p(1.0, 3.0), f64::NEG_INFINITY);
    assert!((normal::delta_p(0.5, 3.0) - 3.0).abs() < 1e-12);
}

#[test]
fn the_mass_law_agrees_with_an_integral() {
    // Mass above the law's δ of a normal row of scale σ, by the trapezoid rule over e^(σz)·density(z).
    for (p, sigma) in [(0.5, 1.0), (0.9, 2.5), (0.99, 4.0)] {
        let delta = normal::delta_p(p, sigma);
        let step = 1e-4;
        let (mut above, mut total) = (0.0, 0.0);
        for i in -100_000..=150_000 {
            let z = f64::from(i) * step;
            let mass = (sigma * z - 0.5 * sigma * sigma).exp() * density(z) * step;
            total += mass;
            if z > delta {
                above += mass;
            }
        }
        assert!((above / total - p).abs() < 1e-4, "{} for {p}", above / total);
    }
}

#[test]
fn a_filter_that_is_off_gathers_everything() {
    let tables = DeltaTables::normal();
    for (k, vocab) in [(0, 1000), (1000, 1000), (1001, 1000), (u32::MAX, 1), (1, 0), (0, 0)] {
        assert_eq!(tables.top_k(k, vocab), f32::NEG_INFINITY, "{k} of {vocab}");
    }
    for (p, sigma) in [
        (1.0, 3.0),
        (2.0, 3.0),
        (f32::INFINITY, 3.0),
        (f32::NAN, 3.0),
        (0.9, f32::NAN),
        (0.9, -0.5),
        (0.9, f32::NEG_INFINITY),
        (1.0_f32.next_down(), 3.0),
    ] {
        assert_eq!(tables.top_p(p, sigma), f32::NEG_INFINITY, "p = {p}, σ = {sigma}");
    }
}

#[test]
fn extreme_arguments_still_get_a_threshold() {
    let tables = DeltaTables::normal();
    // One token of more than the largest vocabulary: the first grid point, 2^-21, is on the safe side.
    let first = tables.top_k(1, 1 << 21);
    assert!((f64::from(first) - reference(2_f64.powi(-21))).abs() < 1e-4);
    assert_eq!(tables.top_k(1, usize::MAX), first);
    // p at or below 0 keeps one token.
    assert!(tables.top_p(0.0, 0.5).is_finite());
    assert_eq!(tables.top_p(-1.0, 0.5), tables.top_p(0.0, 0.5));
    assert_eq!(tables.top_p(0.9, f32::INFINITY), normal::TOP_P_CEILING);
    assert!((tables.top_p(0.5, 0.0)).abs() < 0.03);
}

#[test]
fn rounding_the_ratio_adds_under_five_percent() {
    let tables = DeltaTables::normal();
    let mut worst: f64 = 1.0;
    for vocab in [1000, 32_000, 49_152, 128_256, 151_936, 262_144, 1 << 21] {
        let mut k = 1;
        while k < vocab {
            let delta = f64::from(tables.top_k(k, vocab as usize));
            let gathered = if delta.is_finite() { share_above(delta) } else { 1.0 };
            worst = worst.max(gathered * f64::from(vocab) / f64::from(k));
            k += 1 + k / 64;
        }
    }
    // Above 4 %: a finer grid would make the bound, and the comments that quote it, stale.
    assert!((1.04..1.05).contains(&worst), "worst growth {worst}");
}

#[test]
fn rounding_p_adds_under_ten_percent() {
    let tables = DeltaTables::normal();
    let mut worst: f64 = 1.0;
    for p in (2..1000).map(|i| i as f32 / 1000.0).chain([0.9999, 0.99999]) {
        for sigma in (0..160).map(|i| i as f32 / 20.0) {
            let law = (f64::from(sigma) + reference(f64::from(p))).min(3.0);
            let gathered = share_above(f64::from(tables.top_p(p, sigma)));
            worst = worst.max(gathered / share_above(law));
        }
    }
    assert!((1.05..1.10).contains(&worst), "worst growth {worst}");
}

proptest! {
    #[test]
    fn top_k_is_safe_and_falls_with_k(k in 1_u32..1 << 21, vocab in 1_usize..1 << 22, more in 0_u32..1000) {
        let tables = DeltaTables::normal();
        let delta = tables.top_k(k, vocab);
        let ratio = f64::from(k) / vocab as f64;
        if ratio < 1.0 {
            prop_assert!(f64::from(delta) < reference(ratio));
        } else {
            prop_assert_eq!(delta, f32::NEG_INFINITY);
        }
        prop_assert!(tables.top_k(k + more, vocab) <= delta);
        prop_assert!(tables.top_k(k, vocab + more as usize) >= delta);
    }

    #[test]
    fn top_p_is_safe_and_monotone(p in 1e-6_f32..1.0, sigma in 0_f32..12.0, more_p in 0_f32..0.1, more_sigma in 0_f32..1.0) {
        let tables = DeltaTables::normal();
        let delta = tables.top_p(p, sigma);
        prop_assert!(f64::from(delta) < f64::from(sigma) + reference(f64::from(p)));
        prop_assert!(tables.top_p(p + more_p, sigma) <= delta);
        prop_assert!(tables.top_p(p, sigma + more_sigma) >= delta);
    }

    #[test]
    fn no_arguments_panic(k: u32, vocab: usize, p: u32, sigma: u32) {
        let tables = DeltaTables::normal();
        let (p, sigma) = (f32::from_bits(p), f32::from_bits(sigma));
        prop_assert!(!tables.top_k(k, vocab).is_nan());
        prop_assert!(!tables.top_p(p, sigma).is_nan());
    }
}
