//! The law of the draws on a real device, by statistics. Needs one: `--features gpu-tests`.

use qrita_cuda::{Context, CudaBackend, CudaDevice};

fn backend() -> CudaBackend {
    let context = Context::new(0).expect("the feature `gpu-tests` is for machines with a device");
    CudaBackend::new(CudaDevice::new(&context).expect("a stream"))
}

qrita_testkit::laws!(backend());
