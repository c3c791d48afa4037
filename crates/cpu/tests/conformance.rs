//! The CPU backend against the contract: on one thread, on several, and on each instruction set that the machine has.

use qrita_cpu::{CpuBackend, Isa};

/// The backend on `isa`, or on the best there is below it.
fn on(isa: Isa, threads: usize) -> CpuBackend {
    let backend = CpuBackend::with_threads(threads).unwrap();
    backend.clone().with_isa(isa).unwrap_or(backend)
}

qrita_testkit::conformance!(one_thread, on(Isa::best(), 1));
qrita_testkit::conformance!(three_threads, on(Isa::best(), 3));
qrita_testkit::conformance!(avx2, on(Isa::Avx2, 1));
qrita_testkit::conformance!(portable, on(Isa::Portable, 2));
