//! Launch shapes, apart from the code that launches.

use std::collections::BTreeSet;
use std::fmt;

use qrita_core::Plan;
use qrita_kernels::{MOST_CHUNKS, SPLIT_ROWS, Split, is_streamed};

/// How a launch deals rows to threads. It changes times, never an output bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaunchShape {
    /// Threads of a block.
    pub threads: u32,
    /// Blocks that share a row until its cut is known. 0: one kernel does everything, with one block for a row.
    pub chunks: u32,
    /// Blocks that share a row while it is masked. 0 where `chunks` is.
    pub mask_chunks: u32,
}

impl LaunchShape {
    const fn whole(threads: u32) -> LaunchShape {
        LaunchShape { threads, chunks: 0, mask_chunks: 0 }
    }

    /// How a launch of two kernels is divided, if it is one.
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

/// Threads of a block that streams: four fit into a multiprocessor.
const STREAM_THREADS: u32 = 256;

/// Every number of threads that a kernel is launched with, and so compiled for.
pub const BLOCK_THREADS: [u32; 2] = [NARROW_THREADS, WIDE_THREADS];

/// Rows below this are run by one kernel: the launch of a second takes longer than their second read.
const STREAM_VOCAB: usize = 1 << 12;

/// The least logits that a block of a split row streams, or masks: below, starting it takes longer than its share of the row.
const LEAST_LOGITS: usize = 1 << 11;

/// Blocks for each multiprocessor that a streaming launch aims at: as many as are resident.
const STREAM_BLOCKS: usize = 4;

/// Blocks for each two multiprocessors that a masking launch aims at, and the least for a row: a mask is divided also where
/// rows are many, so that the last ones to end are short. Measured on an H200, as the others.
const MASK_BLOCKS: usize = 3;
const LEAST_MASK_CHUNKS: usize = 4;

/// Blocks of a launch that takes rows one after the other, for each multiprocessor.
const BLOCKS_PER_MULTIPROCESSOR: u32 = 3;

/// Threads of a block that runs all of a plan's stages.
pub(crate) fn threads(autotune: bool) -> u32 {
    if autotune { NARROW_THREADS } else { WIDE_THREADS }
}

/// The most blocks that a launch should have which takes rows one after the other.
pub(crate) fn blocks(multiprocessors: u32) -> u32 {
    multiprocessors.saturating_mul(BLOCKS_PER_MULTIPROCESSOR).max(1)
}

/// The shape for `rows` of `vocab` logits under a plan: enough blocks to fill the device.
pub(crate) fn shape(rows: usize, vocab: usize, plan: &Plan, multiprocessors: u32) -> LaunchShape {
    let (streamed, autotune) = (is_streamed(plan), cfg!(feature = "autotune") && plan.autotune);
    if vocab < STREAM_VOCAB {
        return LaunchShape::whole(threads(autotune));
    }
    let threads = if streamed { STREAM_THREADS } else { threads(autotune) };
    if !autotune {
        return LaunchShape { threads, chunks: 1, mask_chunks: 1 };
    }
    let multiprocessors = multiprocessors as usize;
    let (rows, most) = (rows.max(1), (vocab / LEAST_LOGITS).clamp(1, MOST_CHUNKS));
    // Powers of two: so that the shapes are few enough to check each of them.
    let parts = |wanted: usize| 1 << wanted.clamp(1, most).ilog2();
    let chunks =
        if rows > SPLIT_ROWS || !streamed { 1 } else { parts((STREAM_BLOCKS * multiprocessors).div_ceil(rows)) };
    let mask_chunks = parts((MASK_BLOCKS * multiprocessors / 2).div_ceil(rows).max(LEAST_MASK_CHUNKS));
    LaunchShape { threads, chunks, mask_chunks }
}

/// Every shape that [`shape`] may choose on this device.
pub(crate) fn shapes(plan: &Plan, multiprocessors: u32) -> BTreeSet<LaunchShape> {
    // Beyond this many rows nothing is divided further.
    let most_rows = STREAM_BLOCKS * multiprocessors as usize + 1;
    let vocabs = (0..=21).map(|shift| 1usize << shift);
    vocabs.flat_map(|vocab| (1..=most_rows).map(move |rows| shape(rows, vocab, plan, multiprocessors))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: fn() -> Plan = Plan::default;

    #[cfg(all(feature = "truncation", feature = "autotune"))]
    #[test]
    fn small_batches_are_split_and_large_ones_are_not() {
        let shape_of = |rows| shape(rows, 128_256, &DEFAULT(), 132);
        assert_eq!([1, 8, 32, 128, 1024].map(|rows| shape_of(rows).chunks), [32, 32, 16, 4, 1]);
        assert_eq!([1, 8, 32, 128, 1024].map(|rows| shape_of(rows).mask_chunks), [32, 16, 4, 4, 4]);
        assert_eq!(shape(1, 4095, &DEFAULT(), 132), LaunchShape::whole(256));
        assert_eq!(shape(1, 128_256, &Plan::paper(), 132).chunks, 1);
        let fixed = Plan { autotune: false, ..DEFAULT() };
        assert_eq!(shape(1, 128_256, &fixed, 132), LaunchShape { threads: 256, chunks: 1, mask_chunks: 1 });
        // Any number of rows, and of multiprocessors.
        assert_eq!(shape(usize::MAX, 1 << 21, &DEFAULT(), u32::MAX).chunks, 1);
        assert!(shape(0, 1 << 21, &DEFAULT(), 1).split().is_some());
    }

    #[test]
    fn shapes_are_what_is_chosen() {
        for plan in [DEFAULT(), Plan::paper(), Plan { autotune: false, ..Plan::paper() }] {
            let all = shapes(&plan, 132);
            for rows in [1, 2, 3, 100, 264, 1000, 3000, 1 << 20] {
                for vocab in [1, 4096, 5000, 32_003, 128_256, 262_144, 2_000_000] {
                    let shape = shape(rows, vocab, &plan, 132);
                    assert!(all.contains(&shape), "{shape} of {rows} rows of {vocab} is not listed");
                    assert!(BLOCK_THREADS.contains(&shape.threads));
                }
            }
            assert!(all.len() < 60, "{}", all.len());
        }
    }
}
