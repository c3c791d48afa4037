//! Scratch memory: one slot a thread, grown once and used again.

use qrita_core::Candidate;

use crate::effective::TILE;
use crate::pivot::{EachPivot, Tally};
use crate::vector::Seen;

/// Buckets of a histogram over a range of keys.
pub(crate) const BUCKETS: usize = 2048;

/// Scratch memory for calls of a [`CpuBackend`](crate::CpuBackend), one slot a thread.
///
/// A slot holds about 48 KiB and 8 bytes for each candidate that a call gathers or sorts. It grows to what the largest
/// call needed; no call after that allocates.
#[derive(Debug, Default)]
pub struct Workspace {
    pub(crate) slots: Vec<Slot>,
}

impl Workspace {
    pub(crate) fn slots(&mut self, threads: usize) -> &mut [Slot] {
        if self.slots.len() < threads {
            self.slots.resize_with(threads, Slot::default);
        }
        &mut self.slots[..threads]
    }

    /// Bytes that it holds.
    pub fn bytes(&self) -> usize {
        self.slots.iter().map(Slot::bytes).sum()
    }
}

/// The candidates in a range of keys.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bucket {
    pub(crate) mass: u64,
    pub(crate) count: u64,
}

impl Bucket {
    #[inline]
    pub(crate) fn add(&mut self, count: u64, mass: u64) {
        self.mass += mass;
        self.count += count;
    }
}

/// The scratch memory of one thread.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Effective logits of the tile in work.
    pub(crate) tile: Box<[f32; TILE]>,
    /// Their weights.
    pub(crate) weights: Box<[u64; TILE]>,
    /// Candidates by ascending id.
    pub(crate) gathered: Vec<Candidate>,
    /// Candidates in other orders: partitioned, sorted.
    pub(crate) ordered: Vec<Candidate>,
    /// Logits spread over the row.
    #[cfg(feature = "truncation")]
    pub(crate) sample: Vec<f32>,
    /// The bucket of each logit of the tile.
    pub(crate) buckets: Box<[u32; TILE]>,
    /// What each bucket of a range of keys holds, and in the last one what lies outside.
    pub(crate) histogram: Box<[Bucket; BUCKETS + 1]>,
    /// The kept mass of the slot's part of a row, or of the list, up to the end of each block.
    pub(crate) masses: Vec<u64>,
    /// What the slot's part of a pass came to.
    pub(crate) part: Part,
}

/// The result of one slot's part of a pass. Each pass uses the fields that it needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) seen: Seen,
    pub(crate) count: usize,
    pub(crate) mass: u64,
    pub(crate) sum: f64,
    pub(crate) least: f32,
    pub(crate) greatest: f32,
    pub(crate) tallies: EachPivot<Tally>,
}

impl Default for Part {
    fn default() -> Self {
        Part {
            seen: Seen::NOTHING,
            count: 0,
            mass: 0,
            sum: 0.0,
            least: f32::INFINITY,
            greatest: f32::NEG_INFINITY,
            tallies: Default::default(),
        }
    }
}

impl Default for Slot {
    fn default() -> Self {
        Slot {
            tile: Box::new([0.0; TILE]),
            weights: Box::new([0; TILE]),
            gathered: Vec::new(),
            ordered: Vec::new(),
            #[cfg(feature = "truncation")]
            sample: Vec::new(),
            buckets: Box::new([0; TILE]),
            histogram: Box::new([Bucket::default(); BUCKETS + 1]),
            masses: Vec::new(),
            part: Part::default(),
        }
    }
}

impl Slot {
    fn bytes(&self) -> usize {
        #[cfg(feature = "truncation")]
        let sample = self.sample.capacity() * size_of::<f32>();
        #[cfg(not(feature = "truncation"))]
        let sample = 0;
        size_of::<Slot>()
            + TILE * (size_of::<f32>() + size_of::<u64>() + size_of::<u32>())
            + (BUCKETS + 1) * size_of::<Bucket>()
            + (self.gathered.capacity() + self.ordered.capacity()) * size_of::<Candidate>()
            + sample
            + self.masses.capacity() * size_of::<u64>()
    }
}
