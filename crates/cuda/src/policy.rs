//! Launch shapes, apart from the code that launches: which ones there are, and the built-in choice.
//!
//! The constants were measured on an H200 (compute capability 9.0). Elsewhere they are a guess by a model, **not measured**:
//!
//! * A launch that streams is best where its blocks fill the device once: fewer leave memory requests unasked, more start
//!   while others end. So it aims at `multiprocessors × resident blocks`. How many are resident follows from their registers
//!   and their shared memory, whichever is short first. Registers: the threads that the device source has the compiler make
//!   room for on a multiprocessor (`STREAM_THREADS` in `device/policy.h`), over those of a block: 1024 on 9.0; 768 below,
//!   where the compiler needs more registers for a thread; from 10.0 on 1024 for f32 and 512 for 16-bit logits. Shared
//!   memory: what a multiprocessor has, which the driver tells, over what a block takes. That makes four blocks on 9.0 and
//!   three on 8.0 and 8.9.
//! * What a block costs to start, and what a mask is divided into, is taken to be what it is on 9.0 for each multiprocessor:
//!   both compare a fixed latency with a multiprocessor's share of the memory's bandwidth. On 8.9 (RTX 4090) that share is
//!   about a fifth, so that the same parts take longer there and smaller ones might do; nobody has looked.
//!
//! [`tune`](crate::tune()) measures instead.

use std::collections::BTreeSet;
use std::fmt;

use qrita_core::{Dtype, Plan};
use qrita_kernels::{Call, MOST_CHUNKS, SPLIT_ROWS, Specialization, Split, Stage, is_streamed};
use serde::{Deserialize, Serialize};

use crate::tuning::{TunedCase, Tuning};

/// How a launch deals rows to threads. It changes times, never an output bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchShape {
    /// Threads of a block; of two kernels, of the first's.
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

    /// Whether a [tuned](is_tuned) launch may have it: kernels are compiled for its threads, and it is a power of two in every
    /// respect, so that there are few enough to test.
    pub(crate) fn is_tunable(self) -> bool {
        let is_part = |parts: u32| parts.is_power_of_two() && parts as usize <= MOST_CHUNKS;
        match self.split() {
            None => self == LaunchShape::whole(NARROW_THREADS),
            Some(split) => {
                STREAM_THREADS.contains(&split.threads) && is_part(split.chunks) && is_part(split.mask_chunks)
            }
        }
    }

    /// The shapes that differ in one respect, by a step, from this one: what a search goes on to. With blocks that mask only
    /// where there is a mask, with several blocks a row only where a launch of so many rows has them.
    pub(crate) fn neighbours(self, rows: usize, masks: bool) -> Vec<LaunchShape> {
        let simplest = LaunchShape { threads: STREAM_DEFAULT, chunks: 1, mask_chunks: 1 };
        if self.split().is_none() {
            return vec![simplest];
        }
        let steps = |value: u32| [value / 2, value * 2];
        let threads = steps(self.threads).map(|threads| LaunchShape { threads, ..self });
        let chunks = steps(self.chunks).map(|chunks| LaunchShape { chunks, ..self });
        let mask_chunks = steps(self.mask_chunks).map(|mask_chunks| LaunchShape { mask_chunks, ..self });
        let mut found = threads.to_vec();
        found.extend(chunks.into_iter().filter(|_| rows <= SPLIT_ROWS));
        found.extend(mask_chunks.into_iter().filter(|_| masks));
        // Half of one is none: one kernel, which is no neighbour.
        found.retain(|shape| shape.chunks > 0 && shape.is_tunable());
        if self == simplest {
            found.push(LaunchShape::whole(NARROW_THREADS));
        }
        found
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

/// Threads of a block that streams, unless a tuning says otherwise.
const STREAM_DEFAULT: u32 = 256;

/// Bytes of shared memory that a block takes which streams, as the compiler reports, with what the driver takes for itself.
const STREAM_SHARED: u32 = 31 << 10;

/// Threads that a block that streams may have.
pub(crate) const STREAM_THREADS: [u32; 3] = [128, 256, 512];

/// Every number of threads that this stage is launched with, and so compiled for.
pub fn block_threads(stage: Stage) -> &'static [u32] {
    if stage == Stage::Stream { &STREAM_THREADS } else { &[NARROW_THREADS, WIDE_THREADS] }
}

/// Rows below this are run by one kernel: the launch of a second takes longer than their second read.
const STREAM_VOCAB: usize = 1 << 12;

/// The least logits that a block of a split row streams, or masks: below, starting it takes longer than its share of the row.
const LEAST_LOGITS: usize = 1 << 11;

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

/// What the choice of a shape goes by of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    multiprocessors: usize,
    /// Blocks of a launch that streams, in each multiprocessor.
    stream_blocks: usize,
}

impl Machine {
    /// For logits of this type, on multiprocessors with this many bytes of shared memory: see the module's model.
    pub(crate) fn new(multiprocessors: u32, capability: (u32, u32), shared: u32, dtype: Dtype) -> Machine {
        let threads = match (capability.0, dtype) {
            (0..=8, _) => 768,
            (9, _) | (_, Dtype::F32) => 1024,
            (_, Dtype::F16 | Dtype::Bf16) => 512,
        };
        let stream_blocks = (threads / STREAM_DEFAULT).min(shared / STREAM_SHARED).max(1);
        Machine { multiprocessors: multiprocessors as usize, stream_blocks: stream_blocks as usize }
    }
}

/// Whether a tuning has a say in launches of this sampler: it was measured without adjustments, and under plans that compile to
/// the same.
pub(crate) fn is_tuned(whole: &Specialization) -> bool {
    cfg!(feature = "autotune") && is_streamed(&whole.plan) && whole.plan.autotune && !whole.adjusted
}

/// The shape of a launch: the tuning's, where there is one and it knows such launches, else the built-in one.
pub(crate) fn choose(tuning: Option<&Tuning>, whole: &Specialization, call: &Call, machine: Machine) -> LaunchShape {
    let tuned = tuning.filter(|_| is_tuned(whole)).and_then(|tuning| tuning.shape(&TunedCase::of(whole.dtype, call)));
    tuned.unwrap_or_else(|| shape(call.rows as usize, call.vocab as usize, &whole.plan, machine))
}

/// The built-in shape for `rows` of `vocab` logits under a plan: enough blocks to fill the device.
pub(crate) fn shape(rows: usize, vocab: usize, plan: &Plan, machine: Machine) -> LaunchShape {
    let (streamed, autotune) = (is_streamed(plan), cfg!(feature = "autotune") && plan.autotune);
    if vocab < STREAM_VOCAB {
        return LaunchShape::whole(threads(autotune));
    }
    let threads = if streamed { STREAM_DEFAULT } else { threads(autotune) };
    if !autotune {
        return LaunchShape { threads, chunks: 1, mask_chunks: 1 };
    }
    let Machine { multiprocessors, stream_blocks } = machine;
    let (rows, most) = (rows.max(1), (vocab / LEAST_LOGITS).clamp(1, MOST_CHUNKS));
    // Powers of two: so that the shapes are few enough to check each of them.
    let parts = |wanted: usize| 1 << wanted.clamp(1, most).ilog2();
    let chunks =
        if rows > SPLIT_ROWS || !streamed { 1 } else { parts((stream_blocks * multiprocessors).div_ceil(rows)) };
    let mask_chunks = parts((MASK_BLOCKS * multiprocessors / 2).div_ceil(rows).max(LEAST_MASK_CHUNKS));
    LaunchShape { threads, chunks, mask_chunks }
}

/// Every shape that [`choose`] may choose on this device.
pub(crate) fn shapes(tuning: Option<&Tuning>, whole: &Specialization, machine: Machine) -> BTreeSet<LaunchShape> {
    let plan = &whole.plan;
    // Beyond this many rows nothing is divided further.
    let most_rows = machine.stream_blocks.max(MASK_BLOCKS) * machine.multiprocessors + 1;
    let vocabs = (0..=21).map(|shift| 1usize << shift);
    let built_in = vocabs.flat_map(|vocab| (1..=most_rows).map(move |rows| shape(rows, vocab, plan, machine)));
    let tuned = tuning.filter(|_| is_tuned(whole)).into_iter().flat_map(|tuning| tuning.shapes(whole.dtype));
    built_in.chain(tuned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: fn() -> Plan = Plan::default;

    fn h200() -> Machine {
        Machine::new(132, (9, 0), 228 << 10, Dtype::F32)
    }

    fn whole(plan: Plan) -> Specialization {
        let threads = threads(plan.autotune);
        Specialization { dtype: Dtype::F32, plan, stage: Stage::Run, adjusted: false, threads, warp: 32 }
    }

    #[cfg(all(feature = "truncation", feature = "autotune"))]
    #[test]
    fn small_batches_are_split_and_large_ones_are_not() {
        let shape_of = |rows| shape(rows, 128_256, &DEFAULT(), h200());
        assert_eq!([1, 8, 32, 128, 1024].map(|rows| shape_of(rows).chunks), [32, 32, 16, 4, 1]);
        assert_eq!([1, 8, 32, 128, 1024].map(|rows| shape_of(rows).mask_chunks), [32, 16, 4, 4, 4]);
        assert_eq!(shape(1, 4095, &DEFAULT(), h200()), LaunchShape::whole(256));
        assert_eq!(shape(1, 128_256, &Plan::paper(), h200()).chunks, 1);
        let fixed = Plan { autotune: false, ..DEFAULT() };
        assert_eq!(shape(1, 128_256, &fixed, h200()), LaunchShape { threads: 256, chunks: 1, mask_chunks: 1 });
        // Any number of rows, and of multiprocessors.
        let endless = Machine::new(u32::MAX, (9, 0), 228 << 10, Dtype::F32);
        assert_eq!(shape(usize::MAX, 1 << 21, &DEFAULT(), endless).chunks, 1);
        assert!(shape(0, 1 << 21, &DEFAULT(), Machine::new(1, (9, 0), 0, Dtype::F32)).split().is_some());
    }

    #[test]
    fn other_devices_are_filled_by_the_blocks_that_are_resident() {
        let blocks = |capability, kib: u32, dtype| Machine::new(128, capability, kib << 10, dtype).stream_blocks;
        assert_eq!(blocks((9, 0), 228, Dtype::F32), 4);
        assert_eq!(
            [(8, 0, 164), (8, 6, 100), (8, 9, 100)].map(|(a, b, kib)| blocks((a, b), kib, Dtype::Bf16)),
            [3, 3, 3]
        );
        assert_eq!([Dtype::F32, Dtype::F16, Dtype::Bf16].map(|dtype| blocks((10, 0), 228, dtype)), [4, 2, 2]);
        // Shared memory is what is short.
        assert_eq!(blocks((12, 0), 100, Dtype::F32), 3);
        assert_eq!(blocks((12, 0), 64, Dtype::F32), 2);
        // Three for each of 128 multiprocessors, for 64 rows.
        assert_eq!(shape(64, 128_256, &DEFAULT(), Machine::new(128, (8, 9), 100 << 10, Dtype::F32)).chunks, 4);
    }

    #[test]
    fn shapes_are_what_is_chosen() {
        for plan in [DEFAULT(), Plan::paper(), Plan { autotune: false, ..Plan::paper() }] {
            let whole = whole(plan);
            let all = shapes(None, &whole, h200());
            for rows in [1, 2, 3, 100, 264, 1000, 3000, 1 << 20] {
                for vocab in [1, 4096, 5000, 32_003, 128_256, 262_144, 2_000_000] {
                    let call = Call { rows, vocab, ..Call::default() };
                    let shape = choose(None, &whole, &call, h200());
                    assert!(all.contains(&shape), "{shape} of {rows} rows of {vocab} is not listed");
                    let stage = if is_streamed(&plan) && shape.split().is_some() { Stage::Stream } else { Stage::Cut };
                    assert!(block_threads(stage).contains(&shape.threads));
                    assert!(!is_tuned(&whole) || shape.is_tunable(), "{shape}");
                }
            }
            assert!(all.len() < 60, "{}", all.len());
        }
    }

    #[test]
    fn shapes_that_a_tuning_may_name() {
        let split = |threads, chunks, mask_chunks| LaunchShape { threads, chunks, mask_chunks };
        for good in [split(128, 1, 64), split(256, 64, 1), split(512, 8, 8), LaunchShape::whole(256)] {
            assert!(good.is_tunable(), "{good}");
        }
        // No kernel has these threads; parts of no power of two; more parts than there is room for; none.
        for bad in [
            split(64, 1, 1),
            split(1024, 1, 1),
            split(256, 3, 1),
            split(256, 1, 3),
            split(256, 128, 1),
            split(256, 1, 128),
            split(256, 1, 0),
            LaunchShape::whole(512),
            LaunchShape { mask_chunks: 1, ..LaunchShape::whole(256) },
        ] {
            assert!(!bad.is_tunable(), "{bad}");
        }
    }

    #[test]
    fn neighbours_lead_to_every_shape_that_matters() {
        let reached = |rows, masks| {
            let mut found = BTreeSet::from([LaunchShape::whole(256)]);
            loop {
                let next: BTreeSet<_> = found.iter().flat_map(|shape| shape.neighbours(rows, masks)).collect();
                let before = found.len();
                found.extend(next);
                if found.len() == before {
                    return found;
                }
            }
        };
        assert!(reached(1, true).iter().all(|shape| shape.is_tunable()));
        assert_eq!(reached(1, true).len(), 1 + 3 * 7 * 7);
        assert_eq!(reached(SPLIT_ROWS, false).len(), 1 + 3 * 7);
        assert_eq!(reached(SPLIT_ROWS + 1, false).len(), 1 + 3);
    }
}
