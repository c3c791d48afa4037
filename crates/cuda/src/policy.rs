//! Launch shapes, apart from the code that launches.

use qrita_kernels::{MOST_CHUNKS, SPLIT_ROWS, Split};

/// Threads of a block that has a wide row to itself, without autotune: more would leave too few registers for one block.
pub(crate) const WIDE_THREADS: u32 = 512;

/// Threads of a block otherwise: two fit into a multiprocessor, so that one streams while the other waits at a barrier.
pub(crate) const NARROW_THREADS: u32 = 256;

/// Threads of a block that streams: three fit into a multiprocessor.
pub(crate) const STREAM_THREADS: u32 = 256;

/// Rows below this are run by one kernel: the launch of a second takes longer than their second read.
const STREAM_VOCAB: usize = 1 << 12;

/// The least logits that a block of a split row streams, or masks: below, starting it takes longer than its share of the row.
const STREAM_LOGITS: usize = 1 << 12;
const MASK_LOGITS: usize = 1 << 11;

/// Blocks for each multiprocessor that a split launch aims at.
const STREAM_BLOCKS: usize = 3;
const MASK_BLOCKS: usize = 16;

/// Blocks of a launch of one kernel for each multiprocessor.
const BLOCKS_PER_MULTIPROCESSOR: u32 = 2;

/// Threads of a block for rows of `vocab` logits.
pub(crate) fn threads(autotune: bool) -> u32 {
    if autotune { NARROW_THREADS } else { WIDE_THREADS }
}

/// The most blocks that a launch of one kernel should have.
pub(crate) fn blocks(multiprocessors: u32) -> u32 {
    multiprocessors.saturating_mul(BLOCKS_PER_MULTIPROCESSOR).max(1)
}

/// How a streamed launch is divided, if in two kernels: enough blocks to fill the device.
pub(crate) fn split(rows: usize, vocab: usize, autotune: bool, multiprocessors: u32) -> Option<Split> {
    if vocab < STREAM_VOCAB {
        return None;
    }
    if !autotune {
        return Some(Split { threads: STREAM_THREADS, chunks: 1, mask_chunks: 1 });
    }
    let parts = |blocks: usize, least: usize| {
        let wanted = (blocks * multiprocessors as usize).div_ceil(rows.max(1));
        // At most 2^21 logits.
        wanted.min(vocab / least).max(1) as u32
    };
    let chunks = if rows > SPLIT_ROWS { 1 } else { parts(STREAM_BLOCKS, STREAM_LOGITS).min(MOST_CHUNKS as u32) };
    Some(Split { threads: STREAM_THREADS, chunks, mask_chunks: parts(MASK_BLOCKS, MASK_LOGITS) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_batches_are_split_and_large_ones_are_not() {
        let chunks = |rows| split(rows, 128_256, true, 132).unwrap().chunks;
        assert_eq!([1, 8, 32, 128, 1024].map(chunks), [31, 31, 13, 4, 1]);
        assert_eq!(split(1, 4095, true, 132), None);
        let fixed = split(1, 128_256, false, 132).unwrap();
        assert_eq!((fixed.chunks, fixed.mask_chunks), (1, 1));
        // Any number of rows, and of multiprocessors.
        assert_eq!(split(usize::MAX, 1 << 21, true, u32::MAX).unwrap().chunks, 1);
        assert!(split(0, 1 << 21, true, 1).is_some());
    }
}
