//! The loops, without an instruction set. All are `inline(always)`: they become code only inside a wrapper, compiled
//! with the wrapper's features.

use half::bf16;
use qrita_core::weight::{EXP2_TABLE, INV_LN2_64TH, LAST_DISTANCE_BITS, LN2_64TH, TAYLOR, distance, weight};
use qrita_core::{Candidate, Key};

use super::{Law, Seen};

/// Lanes of u64, as far as the weight needs them.
///
/// # Safety
/// The methods may only run where the implementing type's instruction set is enabled.
pub(super) unsafe trait Lanes: Copy {
    unsafe fn splat(value: u64) -> Self;
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn and(self, other: Self) -> Self;
    unsafe fn or(self, other: Self) -> Self;
    /// The product of the lower 32 bits of each lane.
    unsafe fn mul(self, other: Self) -> Self;
    unsafe fn shl<const N: u32>(self) -> Self;
    unsafe fn shr<const N: u32>(self) -> Self;
    /// Shifts each lane by its own count; counts from 64 on, "negative" ones among them, give 0.
    unsafe fn shl_each(self, count: Self) -> Self;
    /// As [`shl_each`](Lanes::shl_each), to the right.
    unsafe fn shr_each(self, count: Self) -> Self;
    /// The entries of a table of 64 at the lower six bits of each lane.
    unsafe fn lookup(table: &'static [u64; 64], index: Self) -> Self;
}

/// [`weight`] on lanes: `magnitude` has the bits of `|d|`, not above [`LAST_DISTANCE_BITS`] (else the result means nothing).
/// Step for step the scalar sequence; see there for the proof.
///
/// # Safety
/// As [`Lanes`].
#[inline(always)]
pub(super) unsafe fn weight_lanes<L: Lanes>(magnitude: L) -> L {
    // SAFETY: the caller's promise is handed on.
    unsafe {
        let exponent = magnitude.shr::<23>();
        let significand = magnitude.and(L::splat(0x007F_FFFF)).or(L::splat(0x0080_0000));
        let shift = L::splat(92);
        let x = significand.shl_each(exponent.sub(shift)).or(significand.shr_each(shift.sub(exponent)));

        let k = x.shr::<32>().mul(L::splat(INV_LN2_64TH)).shr::<51>();
        let product = k.mul(L::splat(LN2_64TH >> 32)).shl::<32>().add(k.mul(L::splat(LN2_64TH & 0xFFFF_FFFF)));
        let r = x.sub(product);
        let n = k.shr::<6>();

        let r38 = r.shr::<20>();
        let square = r38.mul(r38).shr::<31>();
        let poly = L::splat(TAYLOR[2]).sub(r38.mul(L::splat(TAYLOR[3])).shr::<38>());
        let poly = L::splat(TAYLOR[1]).sub(r38.mul(poly).shr::<38>());
        let poly = L::splat(TAYLOR[0]).sub(r38.mul(poly).shr::<38>());
        let u = r.sub(square.mul(poly).shr::<19>());

        let entry = L::lookup(&EXP2_TABLE, k);
        let (entry_hi, entry_lo) = (entry.shr::<31>(), entry.and(L::splat(0x7FFF_FFFF)));
        let (u_hi, u_lo) = (u.shr::<20>(), u.and(L::splat(0xF_FFFF)));
        let product =
            entry_hi.mul(u_hi).shr::<7>().add(entry_hi.mul(u_lo).shr::<27>()).add(entry_lo.mul(u_hi).shr::<38>());
        entry.sub(product).shr_each(n.add(L::splat(19))).add(L::splat(1)).shr::<1>()
    }
}

/// The weight of one logit under a law.
#[inline(always)]
pub(super) fn weigh(y: f32, law: &Law) -> u64 {
    if y >= law.floor { weight(distance(y, law.max, law.temperature)) } else { 0 }
}

/// Whether `|d|` is within the quantum, for callers that compare lanes.
pub(super) const LIMIT: i32 = LAST_DISTANCE_BITS as i32;

#[inline(always)]
pub(super) fn mass(y: &[f32], law: &Law) -> u64 {
    y.iter().map(|&y| weigh(y, law)).sum()
}

#[inline(always)]
pub(super) fn weights(y: &[f32], law: &Law, out: &mut [u64]) {
    for (out, &y) in out.iter_mut().zip(y) {
        *out = weigh(y, law);
    }
}

/// The scan one logit at a time: for tails, and for blocks that hold a candidate.
#[inline(always)]
pub(super) fn scan_each(y: &[f32], first_id: u32, threshold: f32, out: &mut Vec<Candidate>, seen: &mut Seen) {
    for (id, &y) in (first_id..).zip(y) {
        seen.max = if y > seen.max { y } else { seen.max };
        seen.nan |= y.is_nan();
        if y > threshold {
            out.push(Candidate::new(Key::new(y), id));
        }
    }
}

/// The scan in blocks whose "none above" is one vectorised reduction, where there is no instruction for a bitmask.
#[inline(always)]
pub(super) fn scan_blocks(y: &[f32], first_id: u32, threshold: f32, out: &mut Vec<Candidate>, seen: &mut Seen) {
    let (blocks, tail) = y.as_chunks::<32>();
    let mut id = first_id;
    let mut maxima = [seen.max; 8];
    for block in blocks {
        // Lane by lane: 1 where a logit is above the threshold or NaN.
        let mut hits = [0u32; 8];
        for row in block.as_chunks::<8>().0 {
            for lane in 0..8 {
                let y = row[lane];
                hits[lane] |= u32::from(y > threshold) | u32::from(y.is_nan());
                maxima[lane] = if y > maxima[lane] { y } else { maxima[lane] };
            }
        }
        if hits.iter().fold(0, |any, hit| any | hit) != 0 {
            scan_each(block, id, threshold, out, seen);
        }
        id += 32;
    }
    seen.max = maxima.iter().fold(seen.max, |max, &lane| if lane > max { lane } else { max });
    scan_each(tail, id, threshold, out, seen);
}

/// Appends the candidates with `low ≤ y ≤ high` to `out`.
#[inline(always)]
pub(super) fn scan_range(y: &[f32], first_id: u32, (low, high): (f32, f32), out: &mut Vec<Candidate>) {
    let mut id = first_id;
    for block in y.chunks(32) {
        let hits = block.iter().fold(0, |any, &y| any | (u32::from(y >= low) & u32::from(y <= high)));
        if hits != 0 {
            let within = (id..).zip(block).filter(|(_, y)| **y >= low && **y <= high);
            out.extend(within.map(|(id, &y)| Candidate::new(Key::new(y), id)));
        }
        id += block.len() as u32;
    }
}

/// The bucket of each logit: `(key − low) >> shift`, or `none` for a key not in `low ..= low + span`.
#[inline(always)]
pub(super) fn buckets(y: &[f32], low: u32, span: u32, shift: u32, none: u32, out: &mut [u32]) {
    for (out, &y) in out.iter_mut().zip(y) {
        // As `Key::new`, without a branch: NaN lands outside the range because `low` is at least the least candidate's.
        let bits = (y + 0.0).to_bits();
        let key = bits ^ (((bits as i32 >> 31) as u32) | 0x8000_0000);
        let key = if y.is_nan() { 0 } else { key };
        let offset = key.wrapping_sub(low);
        *out = if offset <= span { offset >> shift } else { none };
    }
}

/// The sum of `e^d` in floating point: see [`estimate`](super::estimate) for its error.
#[inline(always)]
pub(super) fn estimate<const FMA: bool>(y: &[f32], law: &Law) -> f64 {
    let mut sums = [0f64; 16];
    let (blocks, tail) = y.as_chunks::<128>();
    for block in blocks {
        // Eight terms a lane in f32, then on in f64.
        let mut lanes = [0f32; 16];
        for row in block.as_chunks::<16>().0 {
            for lane in 0..16 {
                lanes[lane] += exp_estimate::<FMA>(row[lane], law);
            }
        }
        for lane in 0..16 {
            sums[lane] += f64::from(lanes[lane]);
        }
    }
    sums.iter().sum::<f64>() + tail.iter().map(|&y| f64::from(exp_estimate::<FMA>(y, law))).sum::<f64>()
}

#[inline(always)]
pub(super) fn exp_estimate<const FMA: bool>(y: f32, law: &Law) -> f32 {
    use super::estimate::{FARTHEST, LOG2_E, LOG2_E_HIGH, LOG2_E_LOW, POLYNOMIAL, ROUND};
    let d = (y - law.max) / law.temperature;
    // Also what NaN, and a division of 0 by 0, becomes.
    let d = if d > FARTHEST { d } else { FARTHEST };
    let rounded = d * LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = if FMA { d.mul_add(LOG2_E_LOW, d.mul_add(LOG2_E_HIGH, -n)) } else { d * LOG2_E - n };
    let mut sum = POLYNOMIAL[6];
    for &coefficient in POLYNOMIAL[..6].iter().rev() {
        sum = if FMA { sum.mul_add(r, coefficient) } else { sum * r + coefficient };
    }
    // The lower bits of `rounded` are n; this is 2^n.
    let scale = f32::from_bits(rounded.to_bits().wrapping_add(127) << 23);
    if y >= law.floor { sum * scale } else { 0.0 }
}

/// Appends the candidates in the lanes that `mask` names.
#[inline(always)]
pub(super) fn push_lanes(block: &[f32], first_id: u32, mut mask: u64, out: &mut Vec<Candidate>) {
    out.reserve(64);
    while mask != 0 {
        let lane = mask.trailing_zeros();
        out.push(Candidate::new(Key::new(block[lane as usize]), first_id + lane));
        mask &= mask - 1;
    }
}

#[inline(always)]
pub(super) fn count(y: &[f32], matches: impl Fn(f32) -> bool) -> usize {
    // 32-bit partial counts vectorise as wide as the compare; a run is far shorter than 2^32.
    y.iter().map(|&y| u32::from(matches(y))).sum::<u32>() as usize
}

#[inline(always)]
pub(super) fn least_from(y: &[f32], low: f32, high: f32) -> (f32, f32) {
    let (mut least, mut greatest) = (f32::INFINITY, f32::NEG_INFINITY);
    for &y in y {
        let within = y >= low && y <= high;
        let (a, b) = if within { (y, y) } else { (f32::INFINITY, f32::NEG_INFINITY) };
        least = if a < least { a } else { least };
        greatest = if b > greatest { b } else { greatest };
    }
    (least, greatest)
}

#[inline(always)]
pub(super) fn widen_bf16(stored: &[bf16], out: &mut [f32]) {
    for (out, stored) in out.iter_mut().zip(stored) {
        *out = f32::from_bits(u32::from(stored.to_bits()) << 16);
    }
}

/// Makes −∞ of the logits whose bit is 0, 32 of them a word.
#[inline(always)]
pub(super) fn allow(y: &mut [f32], words: &[u32]) {
    let one = |y: &mut f32, bit: u32| *y = if bit & 1 == 1 { *y } else { f32::NEG_INFINITY };
    let (blocks, tail) = y.as_chunks_mut::<32>();
    for (block, &word) in blocks.iter_mut().zip(words) {
        for (lane, y) in block.iter_mut().enumerate() {
            one(y, word >> lane);
        }
    }
    let word = words.get(blocks.len()).copied().unwrap_or(0);
    for (lane, y) in tail.iter_mut().enumerate() {
        one(y, word >> lane);
    }
}

#[inline(always)]
pub(super) fn mask_f32(stored: &mut [f32], cut: f32) {
    for y in stored {
        *y = if *y >= cut { *y } else { f32::NEG_INFINITY };
    }
}

#[inline(always)]
pub(super) fn mask_bf16(stored: &mut [bf16], cut: f32) {
    for y in stored {
        let kept = f32::from_bits(u32::from(y.to_bits()) << 16) >= cut;
        *y = if kept { *y } else { bf16::NEG_INFINITY };
    }
}
