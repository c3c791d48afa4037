//! The CUDA backend against the contract, on a real device. Needs one: `--features gpu-tests`.

use std::sync::OnceLock;

use qrita_cuda::{Context, CudaBackend, CudaDevice};

/// A backend on the first device. All share a context, so that a kernel is compiled once.
fn backend() -> CudaBackend {
    static CONTEXT: OnceLock<Context> = OnceLock::new();
    let context =
        CONTEXT.get_or_init(|| Context::new(0).expect("the feature `gpu-tests` is for machines with a device"));
    CudaBackend::new(CudaDevice::new(context).expect("a stream"))
}

qrita_testkit::conformance!(backend());
