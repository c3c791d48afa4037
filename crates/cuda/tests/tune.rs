//! Tunings of the first device, as `qrita tune` makes them: in the time that is promised, and of use afterwards. Needs a device:
//! `--features gpu-tests`.
//!
//! Where the environment variable `QRITA_TUNING` names a file that is not there, the tuning becomes that file: `repeats` then
//! launches in all of its shapes.
#![allow(clippy::print_stdout, reason = "what was measured is the point")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use qrita_core::{Dtype, Plan};
use qrita_cpu::CpuBackend;
use qrita_cuda::{Context, CudaSampler, TuneRequest, TunedEntry, Tuning, tune};

/// One test: two at a time would measure each other.
#[test]
fn tunings_are_made_in_time_and_used() {
    let context = Context::new(0).expect("the feature `gpu-tests` is for machines with a device");
    let make = |request: &TuneRequest, limit: u64| {
        let (start, mut told) = (Instant::now(), 0);
        let tuning = tune(&context, request, &CpuBackend::new(), |_| told += 1).unwrap();
        let took = start.elapsed();
        println!("{told} classes in {:.1} s", took.as_secs_f64());
        assert_eq!((told, tuning.entries().len()), (request.cases(), request.cases()));
        assert!(took < Duration::from_secs(limit), "{took:?}");
        tuning
    };
    make(&TuneRequest::quick(), 15);
    let tuning = make(&TuneRequest::default(), 60);
    println!("{}", tuning.device());
    for TunedEntry { case, shape, us, default_us } in tuning.entries() {
        println!("{case}: {default_us:.1} us by default, {us:.1} us tuned, {shape}");
        assert!(*us > 0.0 && us <= default_us);
    }

    let mut file = Vec::new();
    tuning.to_writer(&mut file).unwrap();
    assert_eq!(Tuning::from_slice(&file).unwrap(), tuning);
    for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
        let sampler = CudaSampler::new(&context, dtype, Plan::default(), false).unwrap();
        let (built_in, tuned) = (sampler.shapes(), sampler.with_tuning(&tuning).unwrap().shapes());
        println!("{}: {} shapes, {} of them built in", dtype.name(), tuned.len(), built_in.len());
        assert!(built_in.iter().all(|shape| tuned.contains(shape)));
    }
    if let Some(path) = std::env::var_os("QRITA_TUNING").map(PathBuf::from)
        && !path.exists()
    {
        std::fs::write(&path, &file).unwrap();
        println!("written to {}", path.display());
    }
}
