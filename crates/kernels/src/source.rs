//! The text of the kernel and the macros that specialise it.

use qrita_core::{Dtype, Plan, Search, Truncation, logarithm, weight};

/// The name of the kernel.
pub const ENTRY: &str = "qrita";

/// Candidates that a block gathers in shared memory: 32 KiB, which with a histogram stays below the 48 KiB that every device
/// gives a block without asking. More of them go to scratch memory, where the plan has it; else the row is searched whole.
pub(crate) const GATHER_CAPACITY: usize = 4096;

/// Candidates that a block gathers as it streams, beside their weights.
pub(crate) const STREAM_CAPACITY: usize = 3072;

/// Tokens that the first of two kernels lists for the second at most.
pub(crate) const KEPT_CAPACITY: usize = 1536;

/// Blocks that share a row at most.
pub const MOST_CHUNKS: usize = 64;

/// Files in the order in which they are compiled, as one text.
const FILES: &[(&str, &str)] = &[
    ("portability.h", include_str!("device/portability.h")),
    ("policy.h", include_str!("device/policy.h")),
    ("call.h", include_str!("device/call.h")),
    ("thread/key.h", include_str!("device/thread/key.h")),
    ("thread/weight.h", include_str!("device/thread/weight.h")),
    ("thread/logarithm.h", include_str!("device/thread/logarithm.h")),
    ("thread/probability.h", include_str!("device/thread/probability.h")),
    ("thread/philox.h", include_str!("device/thread/philox.h")),
    ("thread/verify.h", include_str!("device/thread/verify.h")),
    ("thread/effective.h", include_str!("device/thread/effective.h")),
    ("block/reduce.h", include_str!("device/block/reduce.h")),
    ("block/sort.h", include_str!("device/block/sort.h")),
    ("row/state.h", include_str!("device/row/state.h")),
    ("row/passes.h", include_str!("device/row/passes.h")),
    ("row/rest.h", include_str!("device/row/rest.h")),
    ("row/threshold.h", include_str!("device/row/threshold.h")),
    ("row/gather.h", include_str!("device/row/gather.h")),
    ("row/mask.h", include_str!("device/row/mask.h")),
    ("row/truncate.h", include_str!("device/row/truncate.h")),
    ("row/ranges.h", include_str!("device/row/ranges.h")),
    ("row/narrow.h", include_str!("device/row/narrow.h")),
    ("row/histogram.h", include_str!("device/row/histogram.h")),
    ("row/find.h", include_str!("device/row/find.h")),
    ("row/search.h", include_str!("device/row/search.h")),
    ("row/dedup.h", include_str!("device/row/dedup.h")),
    ("row/top.h", include_str!("device/row/top.h")),
    ("row/probabilities.h", include_str!("device/row/probabilities.h")),
    ("row/draw.h", include_str!("device/row/draw.h")),
    ("row/emit.h", include_str!("device/row/emit.h")),
    ("row/slot.h", include_str!("device/row/slot.h")),
    ("row/select.h", include_str!("device/row/select.h")),
    ("row/stream.h", include_str!("device/row/stream.h")),
    ("row/decay.h", include_str!("device/row/decay.h")),
    ("row/chain.h", include_str!("device/row/chain.h")),
    ("entry.h", include_str!("device/entry.h")),
];

/// The whole device source, with `#line` directives that name the files.
///
/// Tables and constants of weight and logarithm are not written there a second time: they are made of qrita-core's.
pub fn source() -> String {
    let mut source = String::new();
    for (name, text) in FILES {
        if *name == "thread/weight.h" {
            source += &tables();
        }
        source += &format!("#line 1 \"{name}\"\n{text}\n");
    }
    source
}

fn tables() -> String {
    let array = |name: &str, values: &[u64]| {
        let values: Vec<String> = values.iter().map(|value| format!("{value:#x}ull")).collect();
        format!("CONSTANT u64 {name}[{}] = {{ {} }};\n", values.len(), values.join(", "))
    };
    let constant = |name: &str, value: u64| format!("#define {name} {value:#x}ull\n");
    [
        "#line 1 \"tables\"\n".to_owned(),
        array("EXP2_TABLE", &weight::EXP2_TABLE),
        array("TAYLOR", &weight::TAYLOR),
        constant("INV_LN2_64TH", weight::INV_LN2_64TH),
        constant("LN2_64TH", weight::LN2_64TH),
        array("RECIPROCAL_TABLE", &logarithm::RECIPROCAL_TABLE),
        array("LN_TABLE", &logarithm::LN_TABLE),
        array("INVERSES", &logarithm::INVERSES),
        constant("LN2", logarithm::LN2),
    ]
    .concat()
}

/// Which part of the algorithm a build runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// All of it.
    Run,
    /// Stage 1 alone.
    Truncate,
    /// Stage 2 alone.
    Search,
    /// Stage 3 alone.
    Dedup,
    /// Stage 4 alone.
    Emit,
    /// All of it in two kernels, under a [streamed](is_streamed) plan: the first streams the rows and selects.
    Stream,
    /// The second kernel writes the outputs, and runs the rows that the first one missed.
    Finish,
    /// The first kernel of two under any other plan: stages 1 to 3.
    Cut,
    /// Chains of draft tokens, whose rows have been run: it takes a [`ChainCall`](crate::ChainCall).
    Verify,
    /// What a step leaves of standing penalties, when its rows have been run.
    Decay,
}

/// What a build of the kernel is specialised for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Specialization {
    /// The stored logits' type.
    pub dtype: Dtype,
    /// The switches; `autotune` chooses launch shapes and changes no code.
    pub plan: Plan,
    /// The part of the algorithm.
    pub stage: Stage,
    /// Whether rows have a bitmask, a bias, penalties, or padding of the vocabulary.
    pub adjusted: bool,
    /// Threads of a block: a power of two, at least two warps, at most 1024.
    pub threads: u32,
    /// Lanes of a warp: 32 or 64.
    pub warp: u32,
}

impl Specialization {
    /// The macros, as name and value, with the [`capacities`]. Forced fallback and duplication handling are read from the call and the row: they
    /// choose no code.
    pub fn defines(&self) -> Vec<(&'static str, u32)> {
        vec![
            ("DTYPE", self.dtype as u32),
            ("TRUNCATION", truncation_index(self.plan.truncation)),
            ("SEARCH", search_index(self.plan.search)),
            ("STAGE", self.stage as u32),
            ("ADJUSTED", u32::from(self.adjusted)),
            ("THREADS", self.threads),
            ("WARP", self.warp),
        ]
        .into_iter()
        .chain(capacities())
        .collect()
    }
}

/// The macros that every build has: lengths of arrays that both sides know.
pub fn capacities() -> [(&'static str, u32); 4] {
    [
        ("GATHER_CAPACITY", GATHER_CAPACITY as u32),
        ("STREAM_CAPACITY", STREAM_CAPACITY as u32),
        ("KEPT_CAPACITY", KEPT_CAPACITY as u32),
        ("MOST_CHUNKS", MOST_CHUNKS as u32),
    ]
}

/// The number that stands for a truncation in the source.
///
/// A device streams a row in no order, so that no threshold can rise: its adaptive one is the sample's order statistic.
pub fn truncation_index(truncation: Truncation) -> u32 {
    match truncation {
        Truncation::Off => 0,
        Truncation::Paper => 1,
        Truncation::Gaussian => 2,
        Truncation::Quantile | Truncation::Adaptive => 3,
    }
}

/// The number that stands for a search in the source.
pub fn search_index(search: Search) -> u32 {
    match search {
        Search::Quaternary => 0,
        Search::Binary => 1,
        Search::Sort => 2,
        Search::Select => 3,
    }
}

/// Whether the first of two kernels under `plan` is [`Stage::Stream`]: where nothing is to be shown of the paper's truncation
/// and search.
pub fn is_streamed(plan: &Plan) -> bool {
    cfg!(feature = "truncation")
        && matches!(plan.truncation, Truncation::Quantile | Truncation::Adaptive)
        && plan.search == Search::Select
        && !plan.force_fallback
}

/// Whether a block needs scratch memory under `plan`: where rows are sorted, or where the threshold follows the paper and may
/// leave any number of candidates. The device source has the same as `HAS_SCRATCH`.
fn has_scratch(plan: &Plan) -> bool {
    plan.search == Search::Sort || matches!(plan.truncation, Truncation::Paper | Truncation::Gaussian)
}

/// Bytes of scratch memory that a block needs for rows of `vocab` logits under `plan`: room for every candidate, or none.
pub(crate) fn scratch_bytes(vocab: usize, plan: &Plan) -> usize {
    if has_scratch(plan) { vocab * size_of::<u64>() } else { 0 }
}

/// Blocks of a launch with one block for a row: as many as rows, but `most_blocks` where each needs scratch memory, and takes
/// rows one after the other.
pub fn row_blocks(plan: &Plan, rows: u32, most_blocks: u32) -> u32 {
    if has_scratch(plan) { rows.min(most_blocks) } else { rows }
}
