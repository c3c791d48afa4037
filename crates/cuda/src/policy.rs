//! Launch shapes, apart from the code that launches.

/// Threads of a block for wide rows. One block has the whole row to stream, and of more threads than this the registers of
/// a multiprocessor would not hold two blocks.
pub(crate) const WIDE_THREADS: u32 = 512;

/// Threads of a block for narrow rows, where barriers cost more than the streaming.
pub(crate) const NARROW_THREADS: u32 = 256;

/// From here on a row is wide: 32 logits a thread of a wide block.
const WIDE_VOCAB: usize = 1 << 14;

/// Blocks of a launch for each multiprocessor: while one waits at a barrier the other streams.
const BLOCKS_PER_MULTIPROCESSOR: u32 = 2;

/// Threads of a block, for narrow rows and for wide ones: every thread count that a kernel is launched with, and so
/// compiled for.
pub const BLOCK_THREADS: [u32; 2] = [NARROW_THREADS, WIDE_THREADS];

/// Threads of a block for rows of `vocab` logits; one of [`BLOCK_THREADS`].
pub(crate) fn threads(vocab: usize, autotune: bool) -> u32 {
    if autotune && vocab < WIDE_VOCAB { NARROW_THREADS } else { WIDE_THREADS }
}

/// The most blocks that a launch should have.
pub(crate) fn blocks(multiprocessors: u32) -> u32 {
    multiprocessors.saturating_mul(BLOCKS_PER_MULTIPROCESSOR).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_gets_one_of_the_thread_counts() {
        let mut launched: Vec<u32> = [1, WIDE_VOCAB - 1, WIDE_VOCAB, usize::MAX]
            .into_iter()
            .flat_map(|vocab| [false, true].map(|autotune| threads(vocab, autotune)))
            .collect();
        launched.sort_unstable();
        launched.dedup();
        assert_eq!(launched, BLOCK_THREADS);
    }
}
