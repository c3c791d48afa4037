//! Launch shapes, apart from the code that launches.

use std::fmt;

/// How a launch deals rows to threads. It changes times, never an output bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaunchShape {
    /// Threads of a block.
    pub threads: u32,
    /// Blocks that share a row.
    pub chunks: u32,
}

impl fmt::Display for LaunchShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} threads x {} blocks a row", self.threads, self.chunks)
    }
}

/// For wide rows. One block has the whole row to stream, and of more threads than this the registers of a multiprocessor
/// would not hold two blocks.
const WIDE: LaunchShape = LaunchShape { threads: 512, chunks: 1 };

/// For narrow rows, where barriers cost more than the streaming.
const NARROW: LaunchShape = LaunchShape { threads: 256, chunks: 1 };

/// From here on a row is wide: 32 logits a thread of a wide block.
const WIDE_VOCAB: usize = 1 << 14;

/// Blocks of a launch for each multiprocessor: while one waits at a barrier the other streams.
const BLOCKS_PER_MULTIPROCESSOR: u32 = 2;

/// Every shape that [`shape`] may choose.
pub(crate) fn shapes(autotune: bool) -> &'static [LaunchShape] {
    if autotune { &[NARROW, WIDE] } else { &[WIDE] }
}

/// The shape for rows of `vocab` logits.
pub(crate) fn shape(vocab: usize, autotune: bool) -> LaunchShape {
    if autotune && vocab < WIDE_VOCAB { NARROW } else { WIDE }
}

/// The most blocks that a launch should have.
pub(crate) fn blocks(multiprocessors: u32) -> u32 {
    multiprocessors.saturating_mul(BLOCKS_PER_MULTIPROCESSOR).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_what_is_chosen() {
        for autotune in [false, true] {
            let chosen: Vec<LaunchShape> = (0..=21).map(|shift| shape(1 << shift, autotune)).collect();
            let shapes = shapes(autotune);
            assert!(chosen.iter().all(|shape| shapes.contains(shape)), "one that is not listed is chosen");
            assert!(shapes.iter().all(|shape| chosen.contains(shape)), "one that is listed is never chosen");
        }
    }
}
