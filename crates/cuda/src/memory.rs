//! How much of the device's memory is in use, as the driver counts it.

use cudarc::driver::result;
use cudarc::driver::sys::CUmemPool_attribute;
use qrita_core::Error;

use crate::context::{Context, driver};

/// Bytes of a device's memory that are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// By what this process has allocated on streams from the device's pool, which is how cudarc allocates. A device without
    /// pools counts `taken`.
    pub allocated: u64,
    /// By anyone for anything: the code of kernels, the pool with what is free in it, other processes.
    pub taken: u64,
}

impl Context {
    /// The memory in use when all that was queued before is done. For measurements: it waits for the device.
    ///
    /// # Errors
    /// [`Error::Device`] when the device does not answer.
    pub fn memory_use(&self) -> Result<MemoryUse, Error> {
        let failed = driver("cannot ask for the memory in use");
        let context = self.cuda();
        context.synchronize().map_err(&failed)?;
        let (free, total) = context.mem_get_info().map_err(&failed)?;
        let taken = total.saturating_sub(free) as u64;
        let mut allocated = taken;
        if context.has_async_alloc() {
            let attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT;
            // SAFETY: the device is the context's, its current pool lives as long as it is set, and the attribute is 64 bits.
            unsafe {
                let pool = result::device::get_mem_pool(context.cu_device()).map_err(&failed)?;
                result::mem_pool::get_attribute(pool, attribute, (&raw mut allocated).cast()).map_err(&failed)?;
            }
        }
        Ok(MemoryUse { allocated, taken })
    }
}
