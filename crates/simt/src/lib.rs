//! A SIMT machine on the host: it runs the device source of Qrita, compiled as C++, without a GPU.
//!
//! Why. The kernel is one text for every vendor's devices. A compiler can be asked on any machine whether the text is
//! well-formed, but only running it tells whether it is right, and the machines that test every change have no GPU. So
//! the same text, not a translation of it, is compiled for the host once for every (warp, dtype, stage), and
//! [`SimtDevice`] is a [`Device`](qrita_kernels::Device) like any other: the conformance suite runs on it.
//!
//! How. Each thread of a block is a fibre with a stack of its own. It runs until it must wait for others: at `block_sync`
//! for all threads of the block, at `warp_ballot` and `warp_shuffle` for all lanes of its warp. Then any fibre that can run
//! goes on, drawn from a seeded generator, so that every seed is another schedule and every schedule can be repeated.
//! Some blocks draw evenly, some let one warp run as far ahead of the others as it can.
//!
//! What it finds that a GPU would hide, or show once a month:
//! - a missing barrier: some schedules give other results (see `tests/planted.rs` for how many it takes);
//! - divergence: threads that meet at different collectives, or at one collective at different places in the source;
//! - threads that wait for others that have ended or wait elsewhere, with the place where each one waits;
//! - loops without an end, as long as there is a collective in them;
//! - writes outside an allocation ([`SimtMemory`] is fenced), and reads there, which yield a huge number;
//! - reads of memory that nothing was written to: allocations start as `A5` bytes, and so does the shared memory of every
//!   block;
//! - blocks that rely on the order in which they run: it is drawn as well;
//! - indices outside an array of known size, in shared memory too, shifts as wide as their operand, misaligned accesses,
//!   divisions by zero, floats that no integer can hold: what a host would do silently, and otherwise than a device.
//!
//! What it does not find. Between two collectives a thread is never interrupted, and blocks run one after the other:
//! atomics are plain operations, so one that should be atomic and is not goes unnoticed, and threads that spin until
//! another thread writes never end. A wild pointer ends the process, as it does on a host. Memory is
//! sequentially consistent. Collectives are told apart by file and line, not by call stack. Warps of real devices without lockstep can interleave between any two instructions; here lanes interleave
//! only at collectives.
//!
//! What it needs: a Unix with an ELF linker for all of it. x86-64 has a switch of its own (about 6 ns); others use
//! `ucontext`, as does a build with `QRITA_SIMT_UCONTEXT` set.
#![deny(missing_docs)]

#[cfg(not(unix))]
compile_error!("the SIMT machine needs Unix: leave this crate out with --exclude qrita-simt");

mod device;
mod grid;
mod memory;

pub use device::{MAX_THREADS, SimtDevice};
pub use grid::{Fault, Grid, Kernel, Report, Switches};
pub use memory::SimtMemory;
