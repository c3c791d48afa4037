//! Exponentials and logarithms with more than a hundred bits, for the proofs by exhaustion of weight and logarithm.
//!
//! `dashu-float` computes with any precision, but takes microseconds a value; a proof visits hundreds of millions. So the
//! values between two anchors come from a recurrence in 128-bit integers, `e^-(x + u) = e^-x · e^-u` for neighbouring
//! `f32` numbers and `ln(n + 1) = ln n + 2·artanh(1 / (2n + 1))` for neighbouring significands, and at the end of each
//! run of [`RUN`] values the recurrence must meet the next anchor. An error in a step, in an anchor or in `dashu` itself
//! would not: the two ways to the value have nothing in common.

use dashu_float::FBig;
use dashu_float::round::mode::HalfEven;
use dashu_int::IBig;

/// A real number, to nearly [`PRECISION`] bits.
pub type Real = FBig<HalfEven, 2>;

/// Bits of the significand of every [`Real`] made here.
pub const PRECISION: usize = 160;

/// Values between two anchors of a recurrence.
pub const RUN: u32 = 4096;

/// How far a recurrence may be from the next anchor: 2^-110, which is more than its truncations add up to.
const DRIFT: u32 = 110;

/// `significand · 2^exponent`.
pub fn real(significand: impl Into<IBig>, exponent: isize) -> Real {
    Real::from_parts(significand.into(), exponent).with_precision(PRECISION).value()
}

/// The number that a finite f32 is.
pub fn real_f32(value: f32) -> Real {
    Real::try_from(value).expect("a finite number").with_precision(PRECISION).value()
}

/// `ln(mass / 2^42)`.
pub fn ln_mass(mass: u64) -> Real {
    real(mass, -42).ln()
}

/// The integer nearest to `value · 2^fraction_bits`, and at most half off.
pub fn nearest(value: &Real, fraction_bits: isize) -> IBig {
    (value.clone() << fraction_bits).round().to_int().value()
}

/// `value`, which is not negative, as a fixed-point number.
pub fn fixed(value: &Real, fraction_bits: isize) -> u128 {
    nearest(value, fraction_bits).try_into().expect("the number fits 128 bits")
}

/// Visits `e^-x` in Q127 for the [`RUN`] positive f32 numbers `x` whose bits follow `first`, which starts a run.
///
/// # Panics
/// If the recurrence misses the next anchor, or `first` does not start a run of normal numbers.
pub fn exponentials(first: u32, mut visit: impl FnMut(u32, u128)) {
    assert!(first.is_multiple_of(RUN) && first >= 0x0080_0000);
    let exponential = |x: &Real| fixed(&(-x.clone()).exp(), 127);
    let ulp = real(1, (first >> 23) as isize - 150);
    let start = real_f32(f32::from_bits(first));
    let step = exponential(&ulp);
    let mut value = exponential(&start);
    for bits in first..first + RUN {
        visit(bits, value);
        value = multiply_q127(value, step);
    }
    // The value behind the run, also where it is the first of the next binade.
    let end = exponential(&(start + ulp * Real::from(RUN)));
    assert!(value.abs_diff(end) < 1 << (127 - DRIFT), "e^-x drifts from {first:#x} on");
}

/// Visits `ln(n / 2^23)` in Q126 for the [`RUN`] integers `n` that follow `first`, from 2^23 on.
///
/// # Panics
/// If the recurrence misses the next anchor.
pub fn logarithms(first: u32, mut visit: impl FnMut(u32, u128)) {
    assert!((1 << 23..1 << 24).contains(&first));
    let logarithm = |n: u32| fixed(&real(n, -23).ln(), 126);
    let mut value = logarithm(first);
    for n in first..first + RUN {
        visit(n, value);
        // 2·artanh(t) = 2t + 2t³/3 + 2t⁵/5 + …; with t < 2^-24 the next term is below 2^-169.
        let odd = 2 * u128::from(n) + 1;
        let linear = (1u128 << 127) / odd;
        let cubic = linear / (odd * odd);
        value += linear + cubic / 3 + cubic / (odd * odd) / 5;
    }
    assert!(value.abs_diff(logarithm(first + RUN)) < 1 << (126 - DRIFT), "ln drifts from {first} on");
}

/// The product of two Q127 numbers of at most 1, rounded down.
fn multiply_q127(a: u128, b: u128) -> u128 {
    let low = |x: u128| x & u128::from(u64::MAX);
    let (a_high, a_low, b_high, b_low) = (a >> 64, low(a), b >> 64, low(b));
    let (cross, other) = (a_high * b_low, a_low * b_high);
    let carry = (low(cross) + low(other) + ((a_low * b_low) >> 64)) >> 64;
    let high = a_high * b_high + (cross >> 64) + (other >> 64) + carry;
    let next = low(cross).wrapping_add(low(other)).wrapping_add((a_low * b_low) >> 64) << 64;
    (high << 1) | (next >> 127)
}

#[cfg(test)]
mod tests {
    use dashu_int::UBig;

    use super::{fixed, multiply_q127, real};

    #[test]
    fn products_are_those_of_dashu() {
        let one = 1u128 << 127;
        assert_eq!(multiply_q127(one, one), one);
        let mut random = crate::rows::Random::new(1);
        for _ in 0..1000 {
            let mut draw = || (u128::from(random.bits()) << 63) | u128::from(random.bits() >> 1);
            let (a, b) = (draw(), draw());
            let exact = (UBig::from(a) * UBig::from(b)) >> 127;
            assert_eq!(UBig::from(multiply_q127(a, b)), exact);
        }
    }

    #[test]
    fn constants() {
        // e^-1 and ln 2 to 120 bits, from their published digits.
        assert_eq!(fixed(&real(-1, 0).exp(), 120) >> 8, 0x5E2D_58D8_B3BC_DF1A_BADE_C782_9054);
        assert_eq!(fixed(&real(2, 0).ln(), 120) >> 8, 0xB172_17F7_D1CF_79AB_C9E3_B398_03F2);
    }
}
