//! A CUDA device as what [`HostBackend`](qrita_kernels::HostBackend) runs on.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, DevicePtr};
use qrita_core::Error;
use qrita_kernels::{Call, ChainCall, Device, Specialization, Split};

use crate::context::{Context, driver};
use crate::launch::{Start, launch_kernel};
use crate::tuning::{Tuning, TuningError};
use crate::{NAME, policy};

/// A device with a stream of its own, on which everything happens in order.
#[derive(Clone, Debug)]
pub struct CudaDevice {
    context: Context,
    stream: Arc<CudaStream>,
    tuning: Option<Arc<Tuning>>,
}

/// Memory of a [`CudaDevice`].
#[derive(Debug)]
pub struct CudaMemory {
    slice: CudaSlice<u8>,
    address: u64,
}

impl CudaDevice {
    /// A device of this context, with a new stream.
    ///
    /// # Errors
    /// [`Error::Device`] when no stream can be made.
    pub fn new(context: &Context) -> Result<CudaDevice, Error> {
        let stream = context.cuda().new_stream().map_err(driver("cannot make a stream"))?;
        Ok(CudaDevice { context: context.clone(), stream, tuning: None })
    }

    /// The same device with measured launch shapes.
    ///
    /// # Errors
    /// [`TuningError::Device`] for a tuning of another device.
    pub fn with_tuning(mut self, tuning: Tuning) -> Result<CudaDevice, TuningError> {
        tuning.check_device(&self.context.tuned_device())?;
        self.tuning = Some(Arc::new(tuning));
        Ok(self)
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Its stream.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }
}

impl CudaDevice {
    /// Launches a kernel on the device's stream.
    ///
    /// # Safety
    /// As in [`launch_kernel`].
    unsafe fn run<T: Copy>(&self, specialization: &Specialization, blocks: u32, argument: &T) -> Result<(), Error> {
        let kernel = self.context.kernel(specialization)?;
        self.context.cuda().bind_to_thread().map_err(driver("cannot bind the context"))?;
        let stream = self.stream.cu_stream();
        // SAFETY: the caller's promise; nothing starts early.
        unsafe { launch_kernel(&kernel, stream, blocks, specialization.threads, argument, Start::InOrder) }
    }
}

impl Device for CudaDevice {
    type Memory = CudaMemory;

    fn name(&self) -> &'static str {
        NAME
    }

    fn description(&self) -> String {
        let (major, minor) = self.context.capability();
        let multiprocessors = self.context.multiprocessors();
        format!("{}, compute capability {major}.{minor}, {multiprocessors} multiprocessors", self.context.name())
    }

    fn warp(&self) -> u32 {
        32
    }

    fn threads(&self, _vocab: usize, autotune: bool) -> u32 {
        policy::threads(autotune)
    }

    fn blocks(&self) -> u32 {
        policy::blocks(self.context.multiprocessors())
    }

    fn split(&self, whole: &Specialization, call: &Call) -> Option<Split> {
        policy::choose(self.tuning.as_deref(), whole, call, self.context.machine(whole.dtype)).split()
    }

    fn upload(&self, bytes: &[u8]) -> Result<CudaMemory, Error> {
        let mut memory = self.allocate(bytes.len())?;
        if !bytes.is_empty() {
            self.stream.memcpy_htod(bytes, &mut memory.slice).map_err(driver("cannot copy to the device"))?;
        }
        Ok(memory)
    }

    fn allocate(&self, bytes: usize) -> Result<CudaMemory, Error> {
        let bytes = bytes.max(1);
        let what = || format!("cannot allocate {bytes} bytes");
        // SAFETY: the memory is not initialised; every bit pattern is a `u8`, and whoever reads it wrote it before.
        let slice = unsafe { self.stream.alloc::<u8>(bytes) }.map_err(|error| driver(&what())(error))?;
        let address = slice.device_ptr(&self.stream).0;
        Ok(CudaMemory { slice, address })
    }

    fn download(&self, memory: &CudaMemory, bytes: &mut [u8]) -> Result<(), Error> {
        let failed = driver("cannot copy from the device");
        if !bytes.is_empty() {
            let Some(view) = memory.slice.try_slice(..bytes.len()) else {
                return Err(Error::Length { what: "device memory", found: memory.slice.len(), expected: bytes.len() });
            };
            self.stream.memcpy_dtoh(&view, bytes).map_err(&failed)?;
        }
        self.stream.synchronize().map_err(&failed)
    }

    fn address(&self, memory: &CudaMemory) -> u64 {
        memory.address
    }

    fn launch(&self, specialization: &Specialization, blocks: u32, call: &Call) -> Result<(), Error> {
        // SAFETY: the call is `HostBackend`'s, whose addresses are of memory of this device that holds what the kernel
        // reads and writes, and which is freed in the order of the stream.
        unsafe { self.run(specialization, blocks, call) }
    }

    fn launch_chains(&self, specialization: &Specialization, call: &ChainCall) -> Result<(), Error> {
        // SAFETY: as above.
        unsafe { self.run(specialization, call.requests, call) }
    }
}
