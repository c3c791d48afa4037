//! What a backend that runs the kernel supplies: memory, and launches.

use qrita_core::Error;

use crate::call::{Call, ChainCall};
use crate::source::Specialization;
use crate::workspace::Split;

/// A device, as [`HostBackend`](crate::HostBackend) uses it: for callers whose logits lie in host memory.
pub trait Device {
    /// Memory of the device, freed when dropped.
    type Memory;

    /// The backend's name: `cuda`, `hip`, `simt`.
    fn name(&self) -> &'static str;

    /// What it is, for people.
    fn description(&self) -> String;

    /// Lanes of a warp: 32 or 64.
    fn warp(&self) -> u32;

    /// Threads of a block that suit rows of `vocab` logits: a power of two, at least two warps, at most 1024.
    fn threads(&self, vocab: usize, autotune: bool) -> u32;

    /// The most blocks that a launch of one kernel should have, or one that needs scratch memory; each takes rows until none is
    /// left.
    fn blocks(&self) -> u32;

    /// How a launch of all stages is divided into two kernels; `None` if one is faster. Of the call, all is known but where the
    /// blocks work.
    fn split(&self, whole: &Specialization, call: &Call) -> Option<Split>;

    /// Memory with these bytes in it; at least one byte.
    ///
    /// # Errors
    /// [`Error::Device`] when memory is short or the device fails; so in every method.
    fn upload(&self, bytes: &[u8]) -> Result<Self::Memory, Error>;

    /// Memory of this many bytes, not initialised; at least one byte.
    ///
    /// # Errors
    /// See [`upload`](Device::upload).
    fn allocate(&self, bytes: usize) -> Result<Self::Memory, Error>;

    /// Reads `bytes.len()` bytes from the start of a memory, after all launches before.
    ///
    /// # Errors
    /// See [`upload`](Device::upload).
    fn download(&self, memory: &Self::Memory, bytes: &mut [u8]) -> Result<(), Error>;

    /// The address that a [`Call`] holds.
    fn address(&self, memory: &Self::Memory) -> u64;

    /// Launches the kernel with this many blocks.
    ///
    /// # Errors
    /// See [`upload`](Device::upload).
    fn launch(&self, specialization: &Specialization, blocks: u32, call: &Call) -> Result<(), Error>;

    /// Launches the kernel of [`Stage::Verify`](crate::Stage::Verify), a block a request.
    ///
    /// # Errors
    /// See [`upload`](Device::upload).
    fn launch_chains(&self, specialization: &Specialization, call: &ChainCall) -> Result<(), Error>;
}
