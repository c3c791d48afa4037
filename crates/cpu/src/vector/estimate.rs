//! A floating-point estimate of a row's mass, with a proven bound.
//!
//! Top-p needs the mass of the whole vocabulary, and integer weights for all of it are the most expensive thing that a
//! row can be asked for. Most of the time nobody needs them: the cut among the candidates is the same for every mass in
//! a narrow interval. So the row is summed in floating point, the interval that surely holds the integer mass is made of
//! the sum, and the cut is *certified* by exact integer sums of the candidates at both ends of the interval. Only a row
//! whose cut differs between the ends is summed again in integers. The decision is exact either way.
//!
//! # The bound
//!
//! Let `d` be a logit's scaled distance: the same two IEEE operations as the contract's, so without error. With
//! `u = 2^-24` the relative error of one f32 operation:
//!
//! - `n` is an integer near `d·log2 e`, exactly represented. With FMA, `r = d·log2 e − n` comes of two fused operations
//!   on a constant split in two; each rounds a number of at most 0.51, the constants' own error is below `2^-47·|d|`:
//!   `|δr| ≤ 2·0.51·u`. Without, `d·log2 e` is rounded first: `|δr| ≤ 43·u` more, since `|d| ≤ 29.9`. A difference
//!   `δr` changes `2^r` by the relative `0.7·δr`.
//! - The polynomial of degree six is within `2^-25` of `2^r` on `|r| ≤ 0.51`; its Horner steps add at most `2.5·u`
//!   (`4·u` without FMA), as the sum's leading term is the coefficient 1 and the factors are below 0.51. Multiplying by
//!   `2^n` is exact.
//! - Eight terms are added in f32: `7·u`. From there on f64 adds nothing that counts.
//!
//! Together below `13·u` with FMA and `45·u` without; [`RELATIVE`] and [`RELATIVE_WITHOUT_FMA`] leave room beyond that.
//! A weight differs from `2^42·e^d` by at most one unit, and so does the estimate of what lies below the quantum, where
//! `d` is clamped to [`FARTHEST`] and the weight is 0: one more unit a logit, in all.

use super::{Kernels, Law};

/// The relative error of the sum, with fused multiply-add.
pub(crate) const RELATIVE: f64 = 16.0 / (1 << 24) as f64;
/// The relative error of the sum, without.
pub(crate) const RELATIVE_WITHOUT_FMA: f64 = 64.0 / (1 << 24) as f64;

/// Distances are clamped here: below the quantum, so that the weight is 0 and the estimate less than a unit.
pub(super) const FARTHEST: f32 = -29.9;

/// Adding and subtracting it rounds to an integer, which its lower bits then hold: 1.5·2^23.
pub(super) const ROUND: f32 = 12_582_912.0;

pub(super) const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// `log2 e` as a sum of two f32.
pub(super) const LOG2_E_HIGH: f32 = LOG2_E;
pub(super) const LOG2_E_LOW: f32 = (std::f64::consts::LOG2_E - LOG2_E as f64) as f32;

/// `2^r = Σ (r·ln 2)^i / i!`.
pub(super) const POLYNOMIAL: [f32; 7] = {
    let ln2 = std::f64::consts::LN_2;
    let mut coefficients = [0f32; 7];
    let mut term = 1.0;
    let mut i = 0;
    while i < 7 {
        coefficients[i] = term as f32;
        i += 1;
        term *= ln2 / i as f64;
    }
    coefficients
};

/// An interval that holds a mass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) low: u64,
    pub(crate) high: u64,
}

impl Bounds {
    /// The interval of a mass that is known.
    pub(crate) fn exact(mass: u64) -> Bounds {
        Bounds { low: mass, high: mass }
    }

    /// The interval around the estimate of the mass of at most `vocab` logits, of which one is the maximum.
    pub(crate) fn around(sum: f64, relative: f64, vocab: usize) -> Bounds {
        let one = qrita_core::weight::ONE;
        let mass = sum * one as f64;
        // Two units for each logit: see the bound. The casts saturate.
        let margin = (mass * relative) as u64 + 2 * vocab as u64 + 2;
        let mass = mass as u64;
        Bounds { low: mass.saturating_sub(margin).max(one), high: mass.saturating_add(margin) }
    }
}

impl Kernels {
    /// The estimated sum of `e^d`; its relative error is [`Kernels::relative`].
    pub(crate) fn estimate(&self, y: &[f32], law: &Law) -> f64 {
        debug_assert!(law.max.is_finite());
        // SAFETY: a table exists for a caller only after `Isa::kernels` detected its features.
        unsafe { (self.estimate)(y, law) }
    }
}

#[cfg(test)]
mod tests {
    use qrita_core::weight::{ONE, weight};

    use super::super::generic::exp_estimate;
    use super::*;

    /// One term against the integer weight, densely over all distances: the error is within the bound less the additions.
    #[test]
    fn one_term_is_within_its_share_of_the_bound() {
        let law = Law { max: 0.0, temperature: 1.0, floor: -f32::MAX };
        let share = |relative: f64| relative - 7.0 / (1 << 24) as f64;
        let mut bits = 0x3000_0000u32;
        while f32::from_bits(bits) < 35.0 {
            let d = -f32::from_bits(bits);
            let exact = weight(d) as f64;
            let within = |estimate: f32, relative: f64| {
                (f64::from(estimate) * ONE as f64 - exact).abs() <= share(relative) * exact + 2.0
            };
            assert!(within(exp_estimate::<true>(d, &law), RELATIVE), "{d}");
            assert!(within(exp_estimate::<false>(d, &law), RELATIVE_WITHOUT_FMA), "{d}");
            bits += 37;
        }
    }

    /// Rows made to err as much as they can: every term at the same distance, so that all errors have one sign.
    #[test]
    fn sums_are_within_the_bound() {
        for isa in super::super::Isa::available() {
            let kernels = isa.kernels().unwrap();
            for step in 0..3000 {
                let y = vec![-29.5 * step as f32 / 3000.0; 1000];
                let law = Law { max: 0.0, temperature: 1.0, floor: -f32::MAX };
                let bounds = Bounds::around(1.0 + kernels.estimate(&y, &law), kernels.relative, 1001);
                let mass = ONE + kernels.mass(&y, &law);
                assert!((bounds.low..=bounds.high).contains(&mass), "{isa:?} {step}: {mass} in {bounds:?}");
            }
        }
    }
}
