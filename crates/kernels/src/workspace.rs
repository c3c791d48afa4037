//! What a launch works in, and where its parts lie.

use bytemuck::{Pod, Zeroable};
use qrita_core::Plan;

use crate::call::Call;
use crate::source::{KEPT_CAPACITY, MOST_CHUNKS, STREAM_CAPACITY, is_streamed, scratch_bytes};

/// How a launch of two kernels is divided among blocks. It never changes an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Split {
    /// Threads of a block of the first kernel: a power of two, at least two warps, at most 1024.
    pub threads: u32,
    /// Blocks that share a row while it streams, if the plan is [streamed](is_streamed): at most [`MOST_CHUNKS`]
    /// and `threads`, and 1 for batches of more than [`SPLIT_ROWS`] rows. Of this and the next the greatest power of two is
    /// taken that they have room for.
    pub chunks: u32,
    /// Blocks that share a row while it is masked, at least 1.
    pub mask_chunks: u32,
}

/// Batches of more rows fill a device with one block a row.
pub const SPLIT_ROWS: usize = 512;

/// The bytes of a row's slot, `Slot` of `device/call.h`: a [`SlotHead`], and the candidates.
pub const SLOT_BYTES: usize = size_of::<SlotHead>() + KEPT_CAPACITY * size_of::<u64>();

/// What a slot starts with: what the first of two kernels found of the row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
#[allow(missing_docs)]
pub struct SlotHead {
    /// 0 where the row is left to the second kernel.
    pub state: u32,
    pub status: u32,
    pub max: u32,
    pub key: u32,
    pub id: u32,
    pub kept: u32,
    /// How many candidates were above the threshold.
    pub gathered: u32,
    pub unused: u32,
}

/// `Arrivals` and `SplitRow`, in bytes.
const ARRIVALS_BYTES: usize = 8;
const SPLIT_ROW_BYTES: usize = 2 * (MOST_CHUNKS + STREAM_CAPACITY) * size_of::<u64>();

/// The layout of a launch's workspace: parts one behind the other, each aligned to 16 bytes.
///
/// The counts of arrived blocks come first, at the same place in every layout, also of plans that need none, so that launches of
/// any shape and plan can share memory: they are the only part that must be zero before a launch, and they are zero after it.
///
/// ```
/// use qrita_core::Plan;
/// use qrita_kernels::Workspace;
///
/// let bytes = Workspace::new(&Plan::default(), 32, 128_256, 264).bytes();
/// assert!(bytes / 32 < 64 << 10);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workspace {
    arrivals: usize,
    slots: usize,
    split_rows: usize,
    scratch: usize,
    scratch_stride: usize,
}

impl Workspace {
    /// The layout for up to `rows` of `vocab` logits in launches of up to `blocks` blocks, however they are split.
    pub fn new(plan: &Plan, rows: usize, vocab: usize, blocks: u32) -> Workspace {
        let scratch_stride = scratch_bytes(vocab, plan).next_multiple_of(16);
        let split_rows = if is_streamed(plan) { rows.min(SPLIT_ROWS) } else { 0 };
        Workspace {
            arrivals: SPLIT_ROWS * ARRIVALS_BYTES,
            slots: rows.saturating_mul(SLOT_BYTES),
            split_rows: split_rows * SPLIT_ROW_BYTES,
            scratch: scratch_stride.saturating_mul(rows.min(blocks as usize)),
            scratch_stride,
        }
    }

    /// All of it.
    pub fn bytes(&self) -> usize {
        [self.slots, self.split_rows, self.scratch].into_iter().fold(self.arrivals, usize::saturating_add)
    }

    /// How many bytes from the start on must be zero before the first launch: the same in every layout.
    pub fn zeroed_bytes(&self) -> usize {
        self.arrivals
    }

    /// Writes the addresses of the parts: `zeroed` is where [`zeroed_bytes`](Workspace::zeroed_bytes) lie, `rest` where all
    /// others do. A part without bytes has no address.
    pub fn place(&self, zeroed: u64, rest: u64, call: &mut Call) {
        call.arrivals = zeroed;
        let mut next = rest;
        let mut part = |bytes: usize| {
            let start = if bytes == 0 { 0 } else { next };
            next += bytes as u64;
            start
        };
        call.slots = part(self.slots);
        call.split_rows = part(self.split_rows);
        call.scratch = part(self.scratch);
        call.scratch_stride = self.scratch_stride as u64;
    }
}

// A build without truncation streams under no plan, and needs room for less.
#[cfg(all(test, feature = "truncation"))]
mod tests {
    use qrita_core::{Search, Truncation};

    use super::*;

    #[test]
    fn parts_lie_one_behind_the_other() {
        let workspace = Workspace::new(&Plan::default(), 3, 1000, 8);
        let mut call = Call::default();
        workspace.place(1 << 10, 1 << 20, &mut call);
        assert_eq!((call.arrivals, call.slots), (1 << 10, 1 << 20));
        assert_eq!(call.split_rows, call.slots + 3 * SLOT_BYTES as u64);
        let rest = call.split_rows - call.slots + 3 * SPLIT_ROW_BYTES as u64;
        assert_eq!(workspace.bytes() as u64, workspace.zeroed_bytes() as u64 + rest);
        assert_eq!((call.scratch, call.scratch_stride), (0, 0));
        assert_eq!(workspace.zeroed_bytes(), ARRIVALS_BYTES * SPLIT_ROWS);
    }

    #[test]
    fn only_what_is_used_has_room() {
        let of_many = Workspace::new(&Plan::default(), 2 * SPLIT_ROWS, 1000, 8);
        assert_eq!(of_many.bytes(), SPLIT_ROWS * (ARRIVALS_BYTES + SPLIT_ROW_BYTES) + 2 * SPLIT_ROWS * SLOT_BYTES);
        let plan = |truncation, search| Plan { truncation, search, ..Plan::default() };
        let bytes = |plan: Plan| Workspace::new(&plan, 300, 1000, 8).bytes();
        let least = SPLIT_ROWS * ARRIVALS_BYTES + 300 * SLOT_BYTES;
        assert_eq!(bytes(plan(Truncation::Off, Search::Quaternary)), least);
        assert_eq!(bytes(plan(Truncation::Paper, Search::Quaternary)), least + 8 * 8000);
        assert_eq!(bytes(plan(Truncation::Off, Search::Sort)), least + 8 * 8000);
    }
}
