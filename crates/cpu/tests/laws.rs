//! The law of the draws is the exact filtered one, and draws are independent, by statistics that planted faults fail: those are
//! in the testkit's own tests.

use qrita_cpu::CpuBackend;

qrita_testkit::laws!(CpuBackend::with_threads(1).unwrap());
