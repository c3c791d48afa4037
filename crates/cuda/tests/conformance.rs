//! The CUDA backend against the contract, on a real device. Needs one: `--features gpu-tests`.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use qrita_core::{Dtype, Plan};
use qrita_cuda::{Context, CudaBackend, CudaDevice, CudaSampler};

/// A backend on the first device. All share a context, so that a kernel is compiled once.
fn backend() -> CudaBackend {
    static CONTEXT: OnceLock<Context> = OnceLock::new();
    let context = CONTEXT.get_or_init(|| {
        let context = Context::new(0).expect("the feature `gpu-tests` is for machines with a device");
        compile_all(&context);
        context
    });
    CudaBackend::new(CudaDevice::new(context).expect("a stream"))
}

/// Compiles, on all cores, what the tests would one after the other: most of the suite's time on a machine that has none of it
/// in its cache.
fn compile_all(context: &Context) {
    // The other switches change no code.
    let plans = Plan::all().filter(|plan| plan.duplicates == Plan::default().duplicates && !plan.force_fallback);
    let jobs: Vec<(Plan, Dtype, bool)> = plans
        .flat_map(|plan| [Dtype::F32, Dtype::F16, Dtype::Bf16].map(|dtype| (plan, dtype)))
        .flat_map(|(plan, dtype)| [false, true].map(|adjusted| (plan, dtype, adjusted)))
        .collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(&(plan, dtype, adjusted)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            CudaSampler::new(context, dtype, plan, adjusted).expect("the kernels compile");
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
}

qrita_testkit::conformance!(backend());
