//! A device and the kernels that were compiled for it.

use std::collections::HashMap;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use cudarc::driver::{CudaContext, CudaFunction, DriverError, sys};
use cudarc::nvrtc::Ptx;
use qrita_core::{Dtype, Error};
use qrita_kernels::{ENTRY, Specialization};

use crate::cache::Cache;
use crate::policy::Machine;
use crate::tuning::TunedDevice;
use crate::{failed, nvrtc, present};

/// A device, ready to compile and launch. Clones share the compiled kernels.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

struct Inner {
    context: Arc<CudaContext>,
    name: String,
    multiprocessors: u32,
    capability: (u32, u32),
    starts_early: bool,
    /// Bytes of shared memory of a multiprocessor.
    shared: u32,
    cache: Cache,
    /// By specialisation, as its macros: two that differ in nothing compiled share a kernel.
    kernels: Mutex<HashMap<Vec<(&'static str, u32)>, CudaFunction>>,
}

impl Context {
    /// The device's primary context, shared with all else that uses the device in this process. Devices count from 0.
    ///
    /// # Errors
    /// [`Error::Device`] when the driver, NVRTC or the device is missing: the message says which. An ordinal beyond `i32` is
    /// a device that no driver has.
    pub fn new(ordinal: usize) -> Result<Context, Error> {
        // The driver counts in i32, and cudarc casts: it would take 2^32 for device 0.
        if i32::try_from(ordinal).is_err() {
            return Err(failed(format!("cannot use device {ordinal}: the driver's numbers end at {}", i32::MAX)));
        }
        probe_driver()?;
        let context = CudaContext::new(ordinal).map_err(driver(&format!("cannot use device {ordinal}")))?;
        Context::on(context)
    }

    /// On a context of cudarc's that the caller has.
    ///
    /// # Errors
    /// [`Error::Device`] when NVRTC is missing, or the device does not answer.
    pub fn on(context: Arc<CudaContext>) -> Result<Context, Error> {
        nvrtc::probe()?;
        let fact = |attribute| {
            let value = context.attribute(attribute).map_err(driver("cannot ask the device what it has"))?;
            Ok(u32::try_from(value).unwrap_or_default())
        };
        let capability = (
            fact(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            fact(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        let inner = Inner {
            name: context.name().map_err(driver("cannot ask the device its name"))?,
            multiprocessors: fact(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            starts_early: capability.0 >= 9 && driver_version()? >= EARLY_START_DRIVER,
            capability,
            shared: fact(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?,
            context,
            cache: Cache::from_env(),
            kernels: Mutex::default(),
        };
        Ok(Context { inner: Arc::new(inner) })
    }

    /// The same device with another cache on disk, and no kernel compiled yet.
    #[must_use]
    pub fn with_cache(&self, cache: Cache) -> Context {
        let Inner { context, name, multiprocessors, capability, starts_early, shared, .. } = &*self.inner;
        let inner = Inner {
            context: context.clone(),
            name: name.clone(),
            multiprocessors: *multiprocessors,
            capability: *capability,
            starts_early: *starts_early,
            shared: *shared,
            cache,
            kernels: Mutex::default(),
        };
        Context { inner: Arc::new(inner) }
    }

    /// cudarc's context: the one to make streams and memory on.
    pub fn cuda(&self) -> &Arc<CudaContext> {
        &self.inner.context
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// How many multiprocessors it has.
    pub fn multiprocessors(&self) -> u32 {
        self.inner.multiprocessors
    }

    /// Its compute capability, major and minor.
    pub fn capability(&self) -> (u32, u32) {
        self.inner.capability
    }

    /// Whether a kernel can start before the one in front of it has ended, also in a graph.
    pub(crate) fn starts_early(&self) -> bool {
        self.inner.starts_early
    }

    /// The cache of compiled kernels.
    pub fn cache(&self) -> &Cache {
        &self.inner.cache
    }

    /// What a tuning of this device says of it.
    pub fn tuned_device(&self) -> TunedDevice {
        let (capability, multiprocessors) = (self.capability(), self.multiprocessors());
        TunedDevice { name: self.name().to_owned(), capability, multiprocessors }
    }

    /// What launch shapes are chosen by.
    pub(crate) fn machine(&self, dtype: Dtype) -> Machine {
        Machine::new(self.multiprocessors(), self.capability(), self.inner.shared, dtype)
    }

    /// The kernels of specialisations, compiled side by side where they have to be.
    pub(crate) fn kernels(&self, specializations: &[Specialization]) -> Result<Vec<CudaFunction>, Error> {
        thread::scope(|scope| {
            let compile = |specialization| scope.spawn(move || self.kernel(specialization));
            let jobs: Vec<_> = specializations.iter().map(compile).collect();
            jobs.into_iter().map(|job| job.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
        })
    }

    /// The kernel of a specialisation: compiled once, and loaded.
    pub(crate) fn kernel(&self, specialization: &Specialization) -> Result<CudaFunction, Error> {
        let defines = specialization.defines();
        let kernels = || self.inner.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = kernels().get(&defines) {
            return Ok(kernel.clone());
        }
        // Compiled without the lock, so that threads that want different kernels do not wait for each other. Of two that
        // want the same, the last one's stays.
        let (major, minor) = self.capability();
        let cubin = nvrtc::machine_code(self.cache(), specialization, 10 * major + minor)?;
        let module = self.cuda().load_module(Ptx::from_binary(cubin)).map_err(driver("cannot load the kernel"))?;
        let kernel = module.load_function(ENTRY).map_err(driver("the compiled kernel has no entry"))?;
        kernels().insert(defines, kernel.clone());
        Ok(kernel)
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("name", &self.name())
            .field("multiprocessors", &self.multiprocessors())
            .field("capability", &self.capability())
            .field("cache", self.cache())
            .finish_non_exhaustive()
    }
}

/// The first driver that has early starts in graphs: 12.3.
const EARLY_START_DRIVER: i32 = 12030;

fn driver_version() -> Result<i32, Error> {
    let mut version = 0;
    // SAFETY: the driver is loaded, and writes one integer.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }.result().map_err(driver("cannot ask the driver's version"))?;
    Ok(version)
}

/// Says what is missing where the driver cannot be loaded.
fn probe_driver() -> Result<(), Error> {
    if present::driver() {
        Ok(())
    } else {
        Err(failed("the driver (libcuda.so) is not found: install NVIDIA's driver"))
    }
}

/// An error of the driver's as one that callers match on, with what was tried.
pub(crate) fn driver(what: &str) -> impl Fn(DriverError) -> Error {
    move |error| {
        let text = error.error_string().map(|text| text.to_string_lossy().into_owned());
        failed(format!("{what}: {}", text.unwrap_or_else(|_| format!("{:?}", error.0))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        match Context::new(0) {
            // On a machine with a device, the next one that it does not have.
            Ok(_) => {
                let Err(Error::Device { backend: "cuda", message }) = Context::new(4096) else {
                    panic!("there is no device 4096");
                };
                assert!(message.contains("4096"), "{message}");
            }
            Err(Error::Device { backend: "cuda", message }) => {
                let named = ["libcuda", "libnvrtc", "device 0"].iter().any(|what| message.contains(what));
                assert!(named, "{message}");
            }
            Err(other) => panic!("{other:?}"),
        }
        assert_eq!(Context::new(0).is_ok(), crate::backend(0).is_ok());
    }

    /// Cast to `i32`, the first and the last would be device 0 and device 1, and the second a negative one.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn ordinals_do_not_wrap_around() {
        for ordinal in [1 << 32, 1 << 31, (1 << 32) + 1] {
            let Err(Error::Device { backend: "cuda", message }) = Context::new(ordinal) else {
                panic!("there is no device {ordinal}");
            };
            // Also where the driver is missing: the ordinal is wrong on every machine.
            assert!(message.contains(&format!("device {ordinal}:")), "{message}");
        }
    }
}
