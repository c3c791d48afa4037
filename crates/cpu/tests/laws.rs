//! The law of the draws is the exact filtered one, and draws are independent, by statistics that planted faults fail: those are
//! in the testkit's own tests.

use qrita_cpu::CpuBackend;
use qrita_testkit::laws::{self, Apart, of_backend};

fn backend() -> CpuBackend {
    CpuBackend::with_threads(1).unwrap()
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
