//! Launch shapes, apart from the code that launches.

use std::collections::BTreeSet;
use std::fmt;

use qrita_kernels::{MOST_CHUNKS, SPLIT_ROWS, Split};

/// How a launch deals rows to threads. It changes times, never an output bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaunchShape {
    /// Threads of a block.
    pub threads: u32,
    /// Blocks that share a row while it streams. 0: one kernel does everything, with one block for a row.
    pub chunks: u32,
    /// Blocks that share a row while it is masked; as many in one kernel as above.
    pub mask_chunks: u32,
}

impl LaunchShape {
    const fn whole(threads: u32) -> LaunchShape {
        LaunchShape { threads, chunks: 0, mask_chunks: 0 }
    }

    /// How a streamed launch is divided, if it is one.
    pub(crate) fn split(self) -> Option<Split> {
        let LaunchShape { threads, chunks, mask_chunks } = self;
        (chunks > 0).then_some(Split { threads, chunks, mask_chunks })
    }
}

impl fmt::Display for LaunchShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.split() {
            None => write!(f, "{} threads, one kernel", self.threads),
            Some(split) => {
                write!(f, "{} threads x {} blocks a row, {} to mask", split.threads, split.chunks, split.mask_chunks)
            }
        }
    }
}

/// Threads of the one kernel without autotune: as many as leave each the registers that it needs.
const WIDE_THREADS: u32 = 512;

/// Threads of the one kernel otherwise: two blocks fit into a multiprocessor, so that one streams while the other waits at a
/// barrier.
const NARROW_THREADS: u32 = 256;

/// Threads of a block that streams: three fit into a multiprocessor.
pub(crate) const STREAM_THREADS: u32 = 256;

/// Every number of threads that a kernel is launched with, and so compiled for.
pub const BLOCK_THREADS: [u32; 2] = [NARROW_THREADS, WIDE_THREADS];

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

/// Threads of the one kernel.
pub(crate) fn threads(autotune: bool) -> u32 {
    if autotune { NARROW_THREADS } else { WIDE_THREADS }
}

/// The most blocks that a launch of one kernel should have.
pub(crate) fn blocks(multiprocessors: u32) -> u32 {
    multiprocessors.saturating_mul(BLOCKS_PER_MULTIPROCESSOR).max(1)
}

/// The shape for `rows` of `vocab` logits, under a plan that is streamed or not: enough blocks to fill the device.
pub(crate) fn shape(rows: usize, vocab: usize, streamed: bool, autotune: bool, multiprocessors: u32) -> LaunchShape {
    if !streamed || vocab < STREAM_VOCAB {
        return LaunchShape::whole(threads(autotune));
    }
    if !autotune {
        return LaunchShape { threads: STREAM_THREADS, chunks: 1, mask_chunks: 1 };
    }
    // Powers of two: so that the shapes are few enough to check each of them.
    let parts = |blocks: usize, least: usize| {
        let wanted = (blocks * multiprocessors as usize).div_ceil(rows.max(1));
        1 << wanted.min(vocab / least).clamp(1, MOST_CHUNKS).ilog2()
    };
    let chunks = if rows > SPLIT_ROWS { 1 } else { parts(STREAM_BLOCKS, STREAM_LOGITS) };
    LaunchShape { threads: STREAM_THREADS, chunks, mask_chunks: parts(MASK_BLOCKS, MASK_LOGITS) }
}

/// Every shape that [`shape`] may choose on this device.
pub(crate) fn shapes(streamed: bool, autotune: bool, multiprocessors: u32) -> BTreeSet<LaunchShape> {
    // Beyond this many rows nothing is divided.
    let most_rows = MASK_BLOCKS * multiprocessors as usize + 1;
    let vocabs = (0..=21).map(|shift| 1usize << shift);
    vocabs
        .flat_map(|vocab| (1..=most_rows).map(move |rows| shape(rows, vocab, streamed, autotune, multiprocessors)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_batches_are_split_and_large_ones_are_not() {
        let chunks = |rows| shape(rows, 128_256, true, true, 132).chunks;
        assert_eq!([1, 8, 32, 128, 1024].map(chunks), [16, 16, 8, 4, 1]);
        assert_eq!(shape(1, 4095, true, true, 132), LaunchShape::whole(256));
        assert_eq!(shape(1, 128_256, false, false, 132), LaunchShape::whole(512));
        let fixed = LaunchShape { threads: STREAM_THREADS, chunks: 1, mask_chunks: 1 };
        assert_eq!(shape(1, 128_256, true, false, 132), fixed);
        // Any number of rows, and of multiprocessors.
        assert_eq!(shape(usize::MAX, 1 << 21, true, true, u32::MAX).chunks, 1);
        assert!(shape(0, 1 << 21, true, true, 1).split().is_some());
    }

    #[test]
    fn shapes_are_what_is_chosen() {
        assert_eq!(shapes(false, true, 132), BTreeSet::from([LaunchShape::whole(256)]));
        assert_eq!(shapes(true, false, 132).len(), 2);
        let all = shapes(true, true, 132);
        for rows in [1, 2, 3, 100, 264, 1000, 3000, 1 << 20] {
            for vocab in [1, 4096, 5000, 32_003, 128_256, 262_144, 2_000_000] {
                let shape = shape(rows, vocab, true, true, 132);
                assert!(all.contains(&shape), "{shape} of {rows} rows of {vocab} is not listed");
                assert!(BLOCK_THREADS.contains(&shape.threads));
            }
        }
        assert!(all.len() < 60, "{}", all.len());
    }
}
