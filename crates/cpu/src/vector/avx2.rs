//! The loops with AVX2, FMA and F16C.

use std::arch::x86_64::*;

use super::generic::{LIMIT, Lanes, push_lanes, scan_each, scan_range as scan_range_each, weigh, weight_lanes};

super::kernels!(
    #[target_feature(enable = "avx2,fma,f16c")]
    scan: scan_lanes, range: scan_range_lanes, sum: sum, each: each, f16: widen, fma: true
);

// SAFETY: every method is one AVX2 instruction or a gather within the table.
unsafe impl Lanes for __m256i {
    #[inline(always)]
    unsafe fn splat(value: u64) -> Self {
        // SAFETY: AVX2 is enabled, the trait's promise; so in every method here.
        unsafe { _mm256_set1_epi64x(value as i64) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_add_epi64(self, other) }
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_sub_epi64(self, other) }
    }
    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_and_si256(self, other) }
    }
    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_or_si256(self, other) }
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_mul_epu32(self, other) }
    }
    #[inline(always)]
    unsafe fn shl<const N: u32>(self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_sll_epi64(self, _mm_cvtsi32_si128(N as i32)) }
    }
    #[inline(always)]
    unsafe fn shr<const N: u32>(self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_srl_epi64(self, _mm_cvtsi32_si128(N as i32)) }
    }
    #[inline(always)]
    unsafe fn shl_each(self, count: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_sllv_epi64(self, count) }
    }
    #[inline(always)]
    unsafe fn shr_each(self, count: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_srlv_epi64(self, count) }
    }
    #[inline(always)]
    unsafe fn lookup(table: &'static [u64; 64], index: Self) -> Self {
        // SAFETY: as above; the index is reduced to 0 .. 64, so the gather stays within the table.
        unsafe {
            let index = _mm256_and_si256(index, _mm256_set1_epi64x(63));
            _mm256_i64gather_epi64::<8>(table.as_ptr().cast(), index)
        }
    }
}

/// The weights of eight logits, as two times four lanes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn weigh_block(y: &[f32; 8], law: &Law) -> [__m256i; 2] {
    // SAFETY: the load reads the eight floats of `y`; the lanes' instruction set is enabled here.
    unsafe {
        let y = _mm256_loadu_ps(y.as_ptr());
        let max = _mm256_set1_ps(law.max);
        let below = _mm256_cmp_ps::<_CMP_NEQ_UQ>(y, max);
        let d = _mm256_div_ps(_mm256_sub_ps(y, max), _mm256_set1_ps(law.temperature));
        // Where y is the maximum, d is 0: also for ∞ − ∞ and 0 / 0.
        let magnitude = _mm256_castps_si256(_mm256_andnot_ps(_mm256_set1_ps(-0.0), _mm256_and_ps(d, below)));
        let counted = _mm256_andnot_si256(
            _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(LIMIT)),
            _mm256_castps_si256(_mm256_cmp_ps::<_CMP_GE_OQ>(y, _mm256_set1_ps(law.floor))),
        );
        let half = |magnitude: __m128i, counted: __m128i| {
            let weight = weight_lanes(_mm256_cvtepu32_epi64(magnitude));
            _mm256_and_si256(weight, _mm256_cvtepi32_epi64(counted))
        };
        [
            half(_mm256_castsi256_si128(magnitude), _mm256_castsi256_si128(counted)),
            half(_mm256_extracti128_si256::<1>(magnitude), _mm256_extracti128_si256::<1>(counted)),
        ]
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn sum(y: &[f32], law: &Law) -> u64 {
    let (blocks, tail) = y.as_chunks::<8>();
    let mut sums = [_mm256_setzero_si256(); 2];
    for block in blocks {
        let [low, high] = weigh_block(block, law);
        sums = [_mm256_add_epi64(sums[0], low), _mm256_add_epi64(sums[1], high)];
    }
    let mut lanes = [0u64; 4];
    // SAFETY: the store fills the four lanes.
    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), _mm256_add_epi64(sums[0], sums[1])) };
    lanes.iter().sum::<u64>() + tail.iter().map(|&y| weigh(y, law)).sum::<u64>()
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn each(y: &[f32], law: &Law, out: &mut [u64]) {
    let (blocks, tail) = y.as_chunks::<8>();
    let (out_blocks, out_tail) = out.as_chunks_mut::<8>();
    for (block, out) in blocks.iter().zip(out_blocks) {
        let [low, high] = weigh_block(block, law);
        // SAFETY: the stores fill the eight elements of `out`.
        unsafe {
            _mm256_storeu_si256(out.as_mut_ptr().cast(), low);
            _mm256_storeu_si256(out.as_mut_ptr().add(4).cast(), high);
        }
    }
    for (out, &y) in out_tail.iter_mut().zip(tail) {
        *out = weigh(y, law);
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn scan_lanes(y: &[f32], first_id: u32, threshold: f32, out: &mut Vec<Candidate>, seen: &mut Seen) {
    let (blocks, tail) = y.as_chunks::<32>();
    let limit = _mm256_set1_ps(threshold);
    let mut maximum = _mm256_set1_ps(seen.max);
    let mut id = first_id;
    for block in blocks {
        // SAFETY: the four loads cover the 32 floats of `block`.
        let [a, b, c, d] = unsafe { [0, 8, 16, 24].map(|at| _mm256_loadu_ps(block.as_ptr().add(at))) };
        // Without NaN, one comparison of the lanewise maximum tells whether any of the 32 is above.
        let nan = _mm256_or_ps(_mm256_cmp_ps::<_CMP_UNORD_Q>(a, b), _mm256_cmp_ps::<_CMP_UNORD_Q>(c, d));
        let greatest = _mm256_max_ps(_mm256_max_ps(a, b), _mm256_max_ps(c, d));
        if _mm256_movemask_ps(_mm256_or_ps(nan, _mm256_cmp_ps::<_CMP_GT_OQ>(greatest, limit))) != 0 {
            if _mm256_movemask_ps(nan) != 0 {
                scan_each(block, id, threshold, out, seen);
            } else {
                let above = |lanes| _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(lanes, limit)) as u64;
                push_lanes(block, id, above(d) << 24 | above(c) << 16 | above(b) << 8 | above(a), out);
            }
        }
        // The second operand is what a NaN in the first one gives.
        maximum = _mm256_max_ps(greatest, maximum);
        id += 32;
    }
    let mut lanes = [0f32; 8];
    // SAFETY: the store fills the eight lanes.
    unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), maximum) };
    seen.max = lanes.iter().fold(seen.max, |max, &lane| if lane > max { lane } else { max });
    scan_each(tail, id, threshold, out, seen);
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn widen(stored: &[f16], out: &mut [f32]) {
    let (blocks, tail) = stored.as_chunks::<8>();
    let (out_blocks, out_tail) = out.as_chunks_mut::<8>();
    for (block, out) in blocks.iter().zip(out_blocks) {
        // SAFETY: eight halves are read and eight floats written; f16 is a transparent u16.
        unsafe { _mm256_storeu_ps(out.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(block.as_ptr().cast()))) };
    }
    for (out, stored) in out_tail.iter_mut().zip(tail) {
        *out = stored.to_f32();
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn scan_range_lanes(y: &[f32], first_id: u32, (low, high): (f32, f32), out: &mut Vec<Candidate>) {
    let (blocks, tail) = y.as_chunks::<32>();
    let (least, greatest) = (_mm256_set1_ps(low), _mm256_set1_ps(high));
    let mut id = first_id;
    for block in blocks {
        // SAFETY: the four loads cover the 32 floats of `block`.
        let lanes = unsafe { [24, 16, 8, 0].map(|at| _mm256_loadu_ps(block.as_ptr().add(at))) };
        let within = lanes.map(|lanes| {
            let above = _mm256_cmp_ps::<_CMP_GE_OQ>(lanes, least);
            _mm256_movemask_ps(_mm256_and_ps(above, _mm256_cmp_ps::<_CMP_LE_OQ>(lanes, greatest))) as u64
        });
        push_lanes(block, id, within.iter().fold(0, |mask, lanes| mask << 8 | lanes), out);
        id += 32;
    }
    scan_range_each(tail, id, (low, high), out);
}
