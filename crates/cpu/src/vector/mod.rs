//! The loops over effective logits, once as an algorithm and once per instruction set as a thin wrapper.
//!
//! [`generic`] has every loop; what differs between instruction sets is small: finding the lanes above a threshold, and
//! the 64-bit lanes that the integer weight is made of ([`generic::Lanes`]). Each wrapper module compiles the same
//! loops with its features enabled and fills in one [`Kernels`] table; [`Isa::best`] chooses among the tables once,
//! when a backend is built. Integer results do not depend on the choice, and the floating-point operations that decide are
//! single IEEE ones, so neither do the bits; only the bounds that `estimate` gives do, and whatever they are, the cut that
//! they certify is the same.
//!
//! On AArch64 the portable table is the NEON one: NEON is part of the baseline, so the compiler vectorises the portable
//! loops with it.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod estimate;
mod generic;
mod portable;

use half::{bf16, f16};
use qrita_core::Candidate;

/// An instruction set that the loops are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Isa {
    /// What the target guarantees: SSE2 on x86-64, NEON on AArch64.
    Portable,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
}

impl Isa {
    /// All that this processor has, slowest first.
    pub fn available() -> impl Iterator<Item = Isa> {
        [Isa::Portable, Isa::Avx2, Isa::Avx512].into_iter().filter(|isa| isa.kernels().is_some())
    }

    /// The best that this processor has.
    pub fn best() -> Isa {
        Isa::available().last().unwrap_or(Isa::Portable)
    }

    /// Its name: `portable`, `avx2`, `avx512`.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        }
    }

    /// The table of an instruction set, where the processor has it.
    pub(crate) fn kernels(self) -> Option<&'static Kernels> {
        match self {
            Isa::Portable => Some(&portable::KERNELS),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => (is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c"))
            .then_some(&avx2::KERNELS),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => (is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl"))
            .then_some(&avx512::KERNELS),
            #[cfg(not(target_arch = "x86_64"))]
            _ => None,
        }
    }
}

/// What a scan saw besides the candidates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// The largest logit so far that is no NaN; −∞ at first.
    pub(crate) max: f32,
    /// Whether any logit was NaN.
    pub(crate) nan: bool,
}

impl Seen {
    pub(crate) const NOTHING: Seen = Seen { max: f32::NEG_INFINITY, nan: false };
}

/// The least and the greatest logit that a scan takes.
pub(crate) type Span = (f32, f32);

/// The law that weights are taken under.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Law {
    /// The row's largest effective logit.
    pub(crate) max: f32,
    /// The row's temperature.
    pub(crate) temperature: f32,
    /// Only logits from here on have a weight; at least −f32::MAX, so that −∞ and NaN have none.
    pub(crate) floor: f32,
}

/// The loops of one instruction set. Tables are handed out by [`Isa::kernels`] alone, after it has seen the features:
/// that is what makes calling the functions in them sound.
pub(crate) struct Kernels {
    scan: unsafe fn(&[f32], u32, f32, &mut Vec<Candidate>, &mut Seen),
    mass: unsafe fn(&[f32], &Law) -> u64,
    weights: unsafe fn(&[f32], &Law, &mut [u64]),
    estimate: unsafe fn(&[f32], &Law) -> f64,
    /// The relative error of an estimate.
    pub(crate) relative: f64,
    scan_range: unsafe fn(&[f32], u32, Span, &mut Vec<Candidate>),
    buckets: unsafe fn(&[f32], u32, u32, u32, u32, &mut [u32]),
    count_above: unsafe fn(&[f32], f32) -> usize,
    count_equal: unsafe fn(&[f32], f32) -> usize,
    least_from: unsafe fn(&[f32], f32, f32) -> (f32, f32),
    widen_f16: unsafe fn(&[f16], &mut [f32]),
    widen_bf16: unsafe fn(&[bf16], &mut [f32]),
    allow: unsafe fn(&mut [f32], &[u32]),
    mask_f32: unsafe fn(&mut [f32], f32),
    mask_bf16: unsafe fn(&mut [bf16], f32),
}

/// One safe method for each function of the table.
macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        impl Kernels {$(
            $(#[$doc])*
            #[inline]
            pub(crate) fn $name(&self, $($arg: $type),*) $(-> $result)? {
                // SAFETY: a table exists for a caller only after `Isa::kernels` detected its features.
                unsafe { (self.$name)($($arg),*) }
            }
        )*}
    };
}

methods! {
    /// Appends the logits above `threshold` to `out`, by ascending id from `first_id` on, and notes maximum and NaN.
    scan(y: &[f32], first_id: u32, threshold: f32, out: &mut Vec<Candidate>, seen: &mut Seen);
    /// The sum of weights.
    mass(y: &[f32], law: &Law) -> u64;
    /// The weights one by one; `out` is as long as `y`.
    weights(y: &[f32], law: &Law, out: &mut [u64]);
    /// Appends the logits within `low ..= high` to `out`, by ascending id from `first_id` on.
    scan_range(y: &[f32], first_id: u32, range: Span, out: &mut Vec<Candidate>);
    /// The bucket of each logit: `(key − low) >> shift`, or `none` for a key not in `low ..= low + span`, where `low` is the
    /// key of a candidate.
    buckets(y: &[f32], low: u32, span: u32, shift: u32, none: u32, out: &mut [u32]);
    /// How many logits are greater than `value`.
    count_above(y: &[f32], value: f32) -> usize;
    /// How many logits are equal to `value`.
    count_equal(y: &[f32], value: f32) -> usize;
    /// The least and the greatest logit within `low ..= high`; `(+∞, −∞)` when there is none.
    least_from(y: &[f32], low: f32, high: f32) -> (f32, f32);
    /// Widens a run of f16.
    widen_f16(stored: &[f16], out: &mut [f32]);
    /// Widens a run of bf16.
    widen_bf16(stored: &[bf16], out: &mut [f32]);
    /// Makes −∞ of the logits whose bit is 0: there are words for all of them, the least significant bit first.
    allow(y: &mut [f32], words: &[u32]);
    /// Stores −∞ over every logit that is not at least `cut`.
    mask_f32(stored: &mut [f32], cut: f32);
    /// Stores −∞ over every logit that is not at least `cut`.
    mask_bf16(stored: &mut [bf16], cut: f32);
}

/// Bytes that come from memory at once.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Asks for what will soon be read.
#[inline]
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
pub(crate) fn prefetch<T>(soon: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for part in soon.chunks(LINE / size_of::<T>()) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 processor has the instruction, which accesses no memory.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(part.as_ptr().cast()) };
    }
}

impl Kernels {
    /// The weight of one logit.
    #[inline]
    pub(crate) fn weight(&self, y: f32, law: &Law) -> u64 {
        generic::weigh(y, law)
    }
}

/// Fills in the table of one instruction set: the generic loops compiled with `$features`.
macro_rules! kernels {
    ($(#[target_feature(enable = $features:literal)])? scan: $scan:ident, range: $range:expr, sum: $sum:expr, each: $each:expr, f16: $f16:ident, fma: $fma:literal) => {
        use half::{bf16, f16};
        use qrita_core::Candidate;

        use super::{Kernels, Law, Seen, Span, generic};

        pub(super) static KERNELS: Kernels = Kernels {
            scan,
            mass,
            weights,
            estimate,
            relative: if $fma { super::estimate::RELATIVE } else { super::estimate::RELATIVE_WITHOUT_FMA },
            scan_range,
            buckets,
            count_above,
            count_equal,
            least_from,
            widen_f16,
            widen_bf16,
            allow,
            mask_f32,
            mask_bf16,
        };

        $(#[target_feature(enable = $features)])?
        fn scan(y: &[f32], first_id: u32, threshold: f32, out: &mut Vec<Candidate>, seen: &mut Seen) {
            $scan(y, first_id, threshold, out, seen);
        }
        $(#[target_feature(enable = $features)])?
        fn mass(y: &[f32], law: &Law) -> u64 {
            $sum(y, law)
        }
        $(#[target_feature(enable = $features)])?
        fn weights(y: &[f32], law: &Law, out: &mut [u64]) {
            $each(y, law, out);
        }
        $(#[target_feature(enable = $features)])?
        fn estimate(y: &[f32], law: &Law) -> f64 {
            generic::estimate::<$fma>(y, law)
        }
        $(#[target_feature(enable = $features)])?
        fn scan_range(y: &[f32], first_id: u32, range: Span, out: &mut Vec<Candidate>) {
            $range(y, first_id, range, out);
        }
        $(#[target_feature(enable = $features)])?
        fn buckets(y: &[f32], low: u32, span: u32, shift: u32, none: u32, out: &mut [u32]) {
            generic::buckets(y, low, span, shift, none, out);
        }
        $(#[target_feature(enable = $features)])?
        fn count_above(y: &[f32], value: f32) -> usize {
            generic::count(y, |y| y > value)
        }
        $(#[target_feature(enable = $features)])?
        fn count_equal(y: &[f32], value: f32) -> usize {
            generic::count(y, |y| y == value)
        }
        $(#[target_feature(enable = $features)])?
        fn least_from(y: &[f32], low: f32, high: f32) -> (f32, f32) {
            generic::least_from(y, low, high)
        }
        $(#[target_feature(enable = $features)])?
        fn widen_f16(stored: &[f16], out: &mut [f32]) {
            $f16(stored, out);
        }
        $(#[target_feature(enable = $features)])?
        fn widen_bf16(stored: &[bf16], out: &mut [f32]) {
            generic::widen_bf16(stored, out);
        }
        $(#[target_feature(enable = $features)])?
        fn allow(y: &mut [f32], words: &[u32]) {
            generic::allow(y, words);
        }
        $(#[target_feature(enable = $features)])?
        fn mask_f32(stored: &mut [f32], cut: f32) {
            generic::mask_f32(stored, cut);
        }
        $(#[target_feature(enable = $features)])?
        fn mask_bf16(stored: &mut [bf16], cut: f32) {
            generic::mask_bf16(stored, cut);
        }
    };
}
use kernels;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use qrita_core::weight::{distance, weight};

    use super::*;

    fn logit() -> impl Strategy<Value = f32> {
        prop_oneof![
            4 => -40.0f32..10.0,
            1 => proptest::num::f32::ANY,
            1 => prop::sample::select(vec![0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::MAX, 1e-40]),
        ]
    }

    proptest! {
        #[test]
        fn every_table_equals_the_definitions(
            y in prop::collection::vec(logit(), 0..150),
            threshold in logit(),
            temperature in prop_oneof![Just(1.0f32), Just(0.0), 1e-3f32..100.0],
            floor in prop_oneof![Just(-f32::MAX), -20.0f32..5.0],
        ) {
            let max = y.iter().copied().filter(|y| !y.is_nan()).fold(f32::NEG_INFINITY, f32::max);
            let law = Law { max, temperature, floor };
            let expected: Vec<u64> = y
                .iter()
                .map(|&y| if y >= floor { weight(distance(y, max, temperature)) } else { 0 })
                .collect();
            for isa in Isa::available() {
                let kernels = isa.kernels().unwrap();
                let (mut found, mut seen) = (Vec::new(), Seen::NOTHING);
                kernels.scan(&y, 7, threshold, &mut found, &mut seen);
                let candidates: Vec<Candidate> = (7..)
                    .zip(&y)
                    .filter(|(_, y)| **y > threshold)
                    .map(|(id, y)| Candidate::new(qrita_core::Key::new(*y), id))
                    .collect();
                prop_assert_eq!(&found, &candidates, "{:?}", isa);
                prop_assert_eq!(seen.max, max);
                prop_assert_eq!(seen.nan, y.iter().any(|y| y.is_nan()));

                let mut weights = vec![1; y.len()];
                kernels.weights(&y, &law, &mut weights);
                prop_assert_eq!(&weights, &expected, "{:?}", isa);
                prop_assert_eq!(kernels.mass(&y, &law), expected.iter().sum::<u64>());
                prop_assert_eq!(kernels.count_above(&y, threshold), y.iter().filter(|y| **y > threshold).count());
                prop_assert_eq!(kernels.count_equal(&y, threshold), y.iter().filter(|y| **y == threshold).count());
                let (low, high) = (floor, floor + 4.0);
                let within = || y.iter().copied().filter(|y| (low..=high).contains(y));
                let expected = (within().fold(f32::INFINITY, f32::min), within().fold(f32::NEG_INFINITY, f32::max));
                prop_assert_eq!(kernels.least_from(&y, low, high), expected);

                found.clear();
                kernels.scan_range(&y, 7, (low, high), &mut found);
                let inside = (7..).zip(&y).filter(|(_, y)| (low..=high).contains(*y));
                let inside: Vec<Candidate> =
                    inside.map(|(id, y)| Candidate::new(qrita_core::Key::new(*y), id)).collect();
                prop_assert_eq!(&found, &inside, "{:?}", isa);
                let (first, span) = (qrita_core::Key::new(low).bits(), 1 << 24);
                let mut buckets = vec![0; y.len()];
                kernels.buckets(&y, first, span, 20, 99, &mut buckets);
                for (bucket, y) in buckets.iter().zip(&y) {
                    let key = qrita_core::Key::new(*y).bits();
                    let within = key >= first && key - first <= span;
                    prop_assert_eq!(*bucket, if within { (key - first) >> 20 } else { 99 });
                }

                let words: Vec<u32> = y.chunks(32).map(|block| block[0].to_bits().wrapping_mul(0x9E37_79B9)).collect();
                let mut allowed = y.clone();
                kernels.allow(&mut allowed, &words);
                for (id, (allowed, y)) in allowed.iter().zip(&y).enumerate() {
                    let right = if words[id / 32] >> (id % 32) & 1 == 1 { *y } else { f32::NEG_INFINITY };
                    prop_assert_eq!(allowed.to_bits(), right.to_bits());
                }

                let mut masked = y.clone();
                kernels.mask_f32(&mut masked, floor);
                for (masked, y) in masked.iter().zip(&y) {
                    let kept = if *y >= floor { *y } else { f32::NEG_INFINITY };
                    prop_assert_eq!(masked.to_bits(), kept.to_bits());
                }
            }
        }

        #[test]
        fn every_table_widens_exactly(bits in prop::collection::vec(any::<u16>(), 0..100), cut in -3.0f32..3.0) {
            let halves: Vec<f16> = bits.iter().map(|&b| f16::from_bits(b)).collect();
            let brains: Vec<bf16> = bits.iter().map(|&b| bf16::from_bits(b)).collect();
            for isa in Isa::available() {
                let kernels = isa.kernels().unwrap();
                let mut out = vec![0.0; bits.len()];
                kernels.widen_f16(&halves, &mut out);
                for (out, half) in out.iter().zip(&halves) {
                    prop_assert!(*out == half.to_f32() || (out.is_nan() && half.is_nan()));
                }
                kernels.widen_bf16(&brains, &mut out);
                for (out, brain) in out.iter().zip(&brains) {
                    prop_assert!(*out == brain.to_f32() || (out.is_nan() && brain.is_nan()));
                }
                let mut masked = brains.clone();
                kernels.mask_bf16(&mut masked, cut);
                for (masked, brain) in masked.iter().zip(&brains) {
                    let kept = if brain.to_f32() >= cut { *brain } else { bf16::NEG_INFINITY };
                    prop_assert_eq!(masked.to_bits(), kept.to_bits());
                }
            }
        }
    }

    /// Every weight that is not 0 or 2^42 by range alone, at a stride; the scalar one is checked on all by the testkit.
    #[test]
    fn lanes_equal_the_scalar_weight() {
        let y: Vec<f32> = (0x2900_0000u32..0x4200_0000).step_by(997).map(|bits| -f32::from_bits(bits)).collect();
        let expected: Vec<u64> = y.iter().map(|&d| weight(d)).collect();
        for isa in Isa::available() {
            let mut weights = vec![0; y.len()];
            let law = Law { max: 0.0, temperature: 1.0, floor: -f32::MAX };
            isa.kernels().unwrap().weights(&y, &law, &mut weights);
            assert_eq!(weights, expected, "{isa:?}");
        }
    }
}
