//! The device source of Qrita: one copy for CUDA, HIP and the SIMT shim, embedded as text.
//!
//! The files lie by scope of cooperation: `thread` (keys, weights, logarithm, Philox, effective logits), `block` (reductions
//! over warps and blocks, sort), `row` (the stages). `policy.h` has the constants apart from the
//! algorithm, `portability.h` all that differs between vendors. There is one kernel, `qrita`, which a build specialises by
//! macros: see [`Specialization`]. What the host needs to know to launch it is here too: [`Call`], [`Workspace`].
//!
//! The Cargo features `truncation`, `quaternary`, `duplicates` and `autotune`, all on by default, are
//! [`Features`](qrita_core::Features). The text is the same in every build; a plan that names what is not compiled in is
//! refused, so that no kernel with it is made. **Without `duplicates` outputs differ**: all values equal to a cut are kept.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod call;
mod device;
mod host;
mod row_args;
mod source;
mod workspace;

pub use call::{Call, ChainCall, DELTA_SIGMAS, JOINT, KEEP_ALL, LAW_BYTES, RowArgs, StageRow};
pub use device::Device;
pub use host::{
    HostBackend, Launch, batch_rows, decay_launch, decay_specialization, split_launches, split_specializations,
};
pub use row_args::row_args;
pub use source::{
    ENTRY, MOST_CHUNKS, Specialization, Stage, capacities, is_streamed, row_blocks, search_index, source,
    truncation_index,
};
pub use workspace::{SLOT_BYTES, SPLIT_ROWS, SlotHead, Split, Workspace};
