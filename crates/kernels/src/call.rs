//! The one argument of a kernel, as it lies in memory on both sides: `device/call.h` declares the same.

use bytemuck::{Pod, Zeroable};
use qrita_core::{Error, RowDecay};

/// A call: the batch, its parameters, its outputs and the scratch memory. Addresses are the device's; 0 is "none".
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Call {
    pub logits: u64,
    /// The stored row of each row, as `u32`; 0 where it is the row's own number.
    pub index: u64,
    pub stride: u64,
    pub rows: u32,
    pub vocab: u32,
    /// Parameters of all rows, where `row_args` is 0.
    pub args: RowArgs,
    /// One [`RowArgs`] a row.
    pub row_args: u64,

    pub bitmask: u64,
    /// Words from row to row.
    pub bitmask_stride: u64,
    pub bias_offsets: u64,
    pub bias_ids: u64,
    pub bias_values: u64,
    pub penalty_offsets: u64,
    pub penalty_ids: u64,
    pub penalty_counts: u64,
    pub bitmask_ids: u32,
    pub valid_vocab: u32,
    /// A penalty for every token of every row, `standing_stride` elements from row to row.
    pub standing: u64,
    pub standing_stride: u64,

    /// 1 to store −∞ over what is not kept, in `logits`.
    pub mask: u32,
    /// Candidates that each row has room for.
    pub capacity: u32,
    pub candidate_ids: u64,
    pub candidate_logits: u64,
    pub candidate_logprobs: u64,
    pub status: u64,
    pub kept: u64,
    pub token: u64,
    pub logprob: u64,
    pub raw_logprob: u64,
    pub rank: u64,
    /// Of the row's first candidates, [`top`](Call::top) a row.
    pub top_ids: u64,
    pub top_logprobs: u64,
    pub probabilities: u64,
    /// One law a row, of [`LAW_BYTES`], for a verification of chains.
    pub laws: u64,

    /// One [`StageRow`] a row, for a stage that runs alone.
    pub stage_rows: u64,
    /// Gathered candidates of stage 1, `gathered_stride` a row: written by truncate, read by search.
    pub gathered: u64,
    pub gathered_stride: u64,

    /// Scratch memory: `scratch_stride` bytes a block, as [`Workspace`](crate::Workspace) lays it out.
    pub scratch: u64,
    pub scratch_stride: u64,

    /// Of a launch in two kernels, as [`Workspace`](crate::Workspace) lays them out: one slot a row, which the first kernel writes
    /// for the second; counts of arrived blocks, zero between launches; what the blocks that share a row have gathered.
    pub slots: u64,
    pub arrivals: u64,
    pub split_rows: u64,
    /// Blocks that share a row while it streams, or while its standing penalties are taken on; and while it is masked.
    pub chunks: u32,
    pub mask_chunks: u32,

    /// 1 to treat every truncation as a miss.
    pub force_fallback: u32,
    /// How many tokens are drawn from a row: elements a row of `token`, `logprob`, `raw_logprob` and `rank`.
    pub draws: u32,
    /// How many of a row's first candidates are listed.
    pub top: u32,
    pub unused: u32,
}

/// The argument of the kernel that verifies chains ([`Stage::Verify`](crate::Stage::Verify)): both sides, whose rows were run with
/// [`Call::laws`], and what they are run for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
#[allow(missing_docs)]
pub struct ChainCall {
    pub draft: Call,
    pub target: Call,
    /// Of `u64`: where each request's draft tokens start, and where the last one's end.
    pub offsets: u64,
    /// The draft tokens.
    pub tokens: u64,
    /// One number a request.
    pub accepted: u64,
    /// One token a target row.
    pub emitted: u64,
    /// One a request.
    pub status: u64,
    pub requests: u32,
    pub unused: u32,
}

/// The bytes of a law: `Law` of `device/call.h`.
pub const LAW_BYTES: usize = 24;

/// The parameters of a row, with what the host makes of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RowArgs {
    pub seed: u64,
    pub position: u64,
    pub stream: u32,
    pub temperature: f32,
    pub top_k: u32,
    /// Top-p, below 1, or 1 for off.
    pub top_p: f32,
    /// Bits of the greatest distance that min-p keeps; all ones for off.
    pub farthest: u32,
    /// Bit 0: keep all ties. Bit 1: joint order.
    pub flags: u32,
    pub repetition: f32,
    pub frequency: f32,
    pub presence: f32,
    /// δ for top-k, or for top-p at [`DELTA_SIGMAS`] deviations 0, ½, 1, … of the row in units of temperature.
    pub delta: [f32; DELTA_SIGMAS],
    /// The number of candidates that an order statistic aims at.
    pub wanted: u32,
    /// What a step multiplies standing penalties by, and adds to that of a token at its first time and at each further one.
    pub decay: f32,
    pub standing_presence: f32,
    pub standing_repetition: f32,
    pub unused: u32,
}

impl RowArgs {
    /// The same for a step, in which the row's standing penalties go on so.
    ///
    /// # Errors
    /// [`Error::Param`] names the value that is out of range.
    pub fn decaying(self, values: RowDecay) -> Result<RowArgs, Error> {
        values.validate()?;
        let RowDecay { decay, presence, repetition } = values;
        Ok(RowArgs { decay, standing_presence: presence, standing_repetition: repetition, ..self })
    }
}

/// Deviations that a row's δ are given at, half a unit apart.
pub const DELTA_SIGMAS: usize = 32;

/// [`RowArgs::flags`]: keep all ties.
pub const KEEP_ALL: u32 = 1;
/// [`RowArgs::flags`]: top-p over the mass before top-k.
pub const JOINT: u32 = 2;

/// What one stage hands to another, for a row. Each stage reads and writes the fields that it needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
#[allow(missing_docs)]
pub struct StageRow {
    pub status: u32,
    /// Bits of the key of the row's maximum.
    pub max: u32,
    /// Every candidate with a greater key was gathered.
    pub covered_above: u32,
    pub gathered: u32,
    pub hit: u32,
    /// Bits of the key of the last token kept.
    pub key: u32,
    pub above: u32,
    pub tied: u32,
    pub quota: u32,
    pub id: u32,
    pub kept: u32,
    pub unused: u32,
}
