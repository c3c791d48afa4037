//! The CUDA backend against the contract, on a real device. Needs one: `--features gpu-tests`.

use std::sync::OnceLock;

use qrita_core::{Dtype, Plan};
use qrita_cuda::{Context, CudaBackend, CudaDevice, CudaSampler};
use rayon::prelude::*;

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
    jobs.par_iter().for_each(|&(plan, dtype, adjusted)| {
        CudaSampler::new(context, dtype, plan, adjusted).expect("the kernels compile");
    });
}

qrita_testkit::conformance!(backend());
