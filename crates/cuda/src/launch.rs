//! How a kernel gets onto a stream.

use std::ffi::c_void;
use std::mem;
use std::ptr;

use cudarc::driver::sys::{self, CUstream};
use cudarc::driver::{CudaFunction, result};
use qrita_core::Error;

use crate::context::driver;

/// When a kernel starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// When all that was launched on the stream before it is done.
    InOrder,
    /// When every block of the kernel before it has started, and a multiprocessor has room (programmatic dependent launch).
    /// The kernel waits itself for what it reads: `await_first` in the device source.
    Early,
}

/// Launches a kernel of this crate on a stream of the context that is bound to the thread.
///
/// # Safety
/// `T` is the kernel's argument: it describes memory of the device, as the kernel reads and writes it. The stream lives. Only one that waits
/// itself for the kernel before it starts early.
pub(crate) unsafe fn launch_kernel<T: Copy>(
    kernel: &CudaFunction,
    stream: CUstream,
    blocks: u32,
    threads: u32,
    argument: &T,
    start: Start,
) -> Result<(), Error> {
    // The launch copies the argument and writes to none, though the interface asks for a mutable pointer.
    let mut argument = *argument;
    let mut arguments = [(&raw mut argument).cast::<c_void>()];
    let function = kernel.cu_function();
    let launched = match start {
        // SAFETY: the kernel takes one argument, a `T`, which lives through the call; the rest is the caller's promise.
        Start::InOrder => unsafe {
            result::launch_kernel(function, (blocks, 1, 1), (threads, 1, 1), 0, stream, &mut arguments)
        },
        Start::Early => {
            // SAFETY: integers and unions of such, for which all zeros are a value.
            let mut attribute: sys::CUlaunchAttribute = unsafe { mem::zeroed() };
            attribute.id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
            attribute.value.programmaticStreamSerializationAllowed = 1;
            let config = sys::CUlaunchConfig {
                gridDimX: blocks,
                gridDimY: 1,
                gridDimZ: 1,
                blockDimX: threads,
                blockDimY: 1,
                blockDimZ: 1,
                sharedMemBytes: 0,
                hStream: stream,
                attrs: &raw mut attribute,
                numAttrs: 1,
            };
            // SAFETY: as above; the configuration and its attribute live through the call, too.
            unsafe { sys::cuLaunchKernelEx(&raw const config, function, arguments.as_mut_ptr(), ptr::null_mut()) }
                .result()
        }
    };
    launched.map_err(driver("cannot launch the kernel"))
}
