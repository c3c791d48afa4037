//! The loops with AVX-512 F, BW, DQ and VL.

use std::arch::x86_64::*;

use super::generic::{LIMIT, Lanes, push_lanes, scan_each, scan_range as scan_range_each, weigh, weight_lanes};

super::kernels!(
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
    scan: scan_lanes, range: scan_range_lanes, sum: sum, each: each, f16: widen, fma: true
);

// SAFETY: every method is AVX-512 F instructions on registers, or loads within the table.
unsafe impl Lanes for __m512i {
    #[inline(always)]
    unsafe fn splat(value: u64) -> Self {
        // SAFETY: AVX-512 F is enabled, the trait's promise; so in every method here.
        unsafe { _mm512_set1_epi64(value as i64) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_add_epi64(self, other) }
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_sub_epi64(self, other) }
    }
    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_and_si512(self, other) }
    }
    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_or_si512(self, other) }
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_mul_epu32(self, other) }
    }
    #[inline(always)]
    unsafe fn shl<const N: u32>(self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_slli_epi64::<N>(self) }
    }
    #[inline(always)]
    unsafe fn shr<const N: u32>(self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_srli_epi64::<N>(self) }
    }
    #[inline(always)]
    unsafe fn shl_each(self, count: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_sllv_epi64(self, count) }
    }
    #[inline(always)]
    unsafe fn shr_each(self, count: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_srlv_epi64(self, count) }
    }
    /// Four permutes of sixteen entries and a choice among them: the table lives in registers across the loop, where a
    /// gather would cost a load a lane.
    #[inline(always)]
    unsafe fn lookup(table: &'static [u64; 64], index: Self) -> Self {
        // SAFETY: as above; the loads cover the 64 entries of the table.
        unsafe {
            let load = |at: usize| _mm512_loadu_si512(table.as_ptr().add(at).cast());
            let pick = |at: usize| _mm512_permutex2var_epi64(load(at), index, load(at + 8));
            let bit4 = _mm512_test_epi64_mask(index, _mm512_set1_epi64(16));
            let bit5 = _mm512_test_epi64_mask(index, _mm512_set1_epi64(32));
            let low = _mm512_mask_blend_epi64(bit4, pick(0), pick(16));
            let high = _mm512_mask_blend_epi64(bit4, pick(32), pick(48));
            _mm512_mask_blend_epi64(bit5, low, high)
        }
    }
}

/// The weights of sixteen logits, as two times eight lanes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
fn weigh_block(y: &[f32; 16], law: &Law) -> [__m512i; 2] {
    // SAFETY: the load reads the sixteen floats of `y`; the lanes' instruction set is enabled here.
    unsafe {
        let y = _mm512_loadu_ps(y.as_ptr());
        let max = _mm512_set1_ps(law.max);
        // Where y is the maximum, d is 0: also for ∞ − ∞ and 0 / 0.
        let below = _mm512_cmp_ps_mask::<_CMP_NEQ_UQ>(y, max);
        let d = _mm512_maskz_div_ps(below, _mm512_sub_ps(y, max), _mm512_set1_ps(law.temperature));
        let magnitude = _mm512_and_si512(_mm512_castps_si512(d), _mm512_set1_epi32(0x7FFF_FFFF));
        let counted = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(y, _mm512_set1_ps(law.floor))
            & _mm512_cmple_epi32_mask(magnitude, _mm512_set1_epi32(LIMIT));
        let low = weight_lanes(_mm512_cvtepu32_epi64(_mm512_castsi512_si256(magnitude)));
        let high = weight_lanes(_mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64::<1>(magnitude)));
        [_mm512_maskz_mov_epi64(counted as u8, low), _mm512_maskz_mov_epi64((counted >> 8) as u8, high)]
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
fn sum(y: &[f32], law: &Law) -> u64 {
    let (blocks, tail) = y.as_chunks::<16>();
    let mut sums = [_mm512_setzero_si512(); 2];
    for block in blocks {
        let [low, high] = weigh_block(block, law);
        sums = [_mm512_add_epi64(sums[0], low), _mm512_add_epi64(sums[1], high)];
    }
    let sum = _mm512_reduce_add_epi64(_mm512_add_epi64(sums[0], sums[1])) as u64;
    sum + tail.iter().map(|&y| weigh(y, law)).sum::<u64>()
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
fn each(y: &[f32], law: &Law, out: &mut [u64]) {
    let (blocks, tail) = y.as_chunks::<16>();
    let (out_blocks, out_tail) = out.as_chunks_mut::<16>();
    for (block, out) in blocks.iter().zip(out_blocks) {
        let [low, high] = weigh_block(block, law);
        // SAFETY: the stores fill the sixteen elements of `out`.
        unsafe {
            _mm512_storeu_si512(out.as_mut_ptr().cast(), low);
            _mm512_storeu_si512(out.as_mut_ptr().add(8).cast(), high);
        }
    }
    for (out, &y) in out_tail.iter_mut().zip(tail) {
        *out = weigh(y, law);
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
fn scan_lanes(y: &[f32], first_id: u32, threshold: f32, out: &mut Vec<Candidate>, seen: &mut Seen) {
    let (blocks, tail) = y.as_chunks::<64>();
    let limit = _mm512_set1_ps(threshold);
    let mut maximum = _mm512_set1_ps(seen.max);
    let mut id = first_id;
    for block in blocks {
        // SAFETY: the four loads cover the 64 floats of `block`.
        let [a, b, c, d] = unsafe { [0, 16, 32, 48].map(|at| _mm512_loadu_ps(block.as_ptr().add(at))) };
        // Without NaN, one comparison of the lanewise maximum tells whether any of the 64 is above.
        let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, b) | _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(c, d);
        let greatest = _mm512_max_ps(_mm512_max_ps(a, b), _mm512_max_ps(c, d));
        if nan | _mm512_cmp_ps_mask::<_CMP_GT_OQ>(greatest, limit) != 0 {
            if nan != 0 {
                scan_each(block, id, threshold, out, seen);
            } else {
                let above = [d, c, b, a].map(|lanes| u64::from(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(lanes, limit)));
                push_lanes(block, id, above.iter().fold(0, |mask, lanes| mask << 16 | lanes), out);
            }
        }
        // The second operand is what a NaN in the first one gives.
        maximum = _mm512_max_ps(greatest, maximum);
        id += 64;
    }
    let max = _mm512_reduce_max_ps(maximum);
    seen.max = if max > seen.max { max } else { seen.max };
    scan_each(tail, id, threshold, out, seen);
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
fn widen(stored: &[f16], out: &mut [f32]) {
    let (blocks, tail) = stored.as_chunks::<16>();
    let (out_blocks, out_tail) = out.as_chunks_mut::<16>();
    for (block, out) in blocks.iter().zip(out_blocks) {
        // SAFETY: sixteen halves are read and sixteen floats written; f16 is a transparent u16.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), _mm512_cvtph_ps(_mm256_loadu_si256(block.as_ptr().cast()))) };
    }
    for (out, stored) in out_tail.iter_mut().zip(tail) {
        *out = stored.to_f32();
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
fn scan_range_lanes(y: &[f32], first_id: u32, (low, high): (f32, f32), out: &mut Vec<Candidate>) {
    let (blocks, tail) = y.as_chunks::<64>();
    let (least, greatest) = (_mm512_set1_ps(low), _mm512_set1_ps(high));
    let mut id = first_id;
    for block in blocks {
        // SAFETY: the four loads cover the 64 floats of `block`.
        let lanes = unsafe { [48, 32, 16, 0].map(|at| _mm512_loadu_ps(block.as_ptr().add(at))) };
        let within = lanes.map(|lanes| {
            let above = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(lanes, least);
            u64::from(_mm512_mask_cmp_ps_mask::<_CMP_LE_OQ>(above, lanes, greatest))
        });
        push_lanes(block, id, within.iter().fold(0, |mask, lanes| mask << 16 | lanes), out);
        id += 64;
    }
    scan_range_each(tail, id, (low, high), out);
}
