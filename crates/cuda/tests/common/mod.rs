//! What the tests share that launch kernels of their own.

use std::ffi::c_void;

use qrita_cuda::cudarc::driver::{CudaFunction, CudaSlice, CudaStream, DevicePtr, result};
use qrita_cuda::cudarc::nvrtc::Ptx;
use qrita_cuda::{Context, nvrtc};

/// The first device.
pub(crate) fn context() -> Context {
    Context::new(0).expect("the feature `gpu-tests` is for machines with a device")
}

/// A kernel of this source, compiled with these options.
pub(crate) fn load(context: &Context, source: &str, options: &[String], entry: &str) -> CudaFunction {
    let cubin = nvrtc::compile(source, options).expect("the source compiles").cubin;
    let module = context.cuda().load_module(Ptx::from_binary(cubin)).unwrap();
    module.load_function(entry).unwrap()
}

/// The address of memory of this stream.
pub(crate) fn address<T>(slice: &CudaSlice<T>, stream: &CudaStream) -> u64 {
    slice.device_ptr(stream).0
}

/// Launches blocks of 256 threads.
///
/// # Safety
/// The arguments are pointers to what the kernel takes, and the addresses among that are of memory of the device that
/// lives until the launch is done.
pub(crate) unsafe fn launch(kernel: &CudaFunction, stream: &CudaStream, blocks: u32, arguments: &mut [*mut c_void]) {
    // SAFETY: what this function asks for.
    unsafe {
        result::launch_kernel(kernel.cu_function(), (blocks, 1, 1), (256, 1, 1), 0, stream.cu_stream(), arguments)
    }
    .unwrap();
}
