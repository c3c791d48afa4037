//! The law of the draws on a real device, by statistics. Needs one: `--features gpu-tests`.

use qrita_cuda::{Context, CudaBackend, CudaDevice};
use qrita_testkit::laws::{self, Apart, of_backend};

fn backend() -> CudaBackend {
    let context = Context::new(0).expect("the feature `gpu-tests` is for machines with a device");
    CudaBackend::new(CudaDevice::new(&context).expect("a stream"))
}

#[test]
fn thirty_laws() {
    laws::thirty_laws(of_backend(&backend())).unwrap();
}

#[test]
fn four_million_draws() {
    laws::four_million_draws(of_backend(&backend())).unwrap();
}

#[test]
fn independence() {
    laws::independence(&Apart::ALL, of_backend(&backend())).unwrap();
}
