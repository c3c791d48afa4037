//! Compiles, without a GPU, the kernels that the tests on a device launch, into a cache that is then carried there: compiling
//! them takes some ten minutes of one core.
//!
//! ```text
//! LD_LIBRARY_PATH=DIR/nvidia/cu13/lib cargo run --release -p qrita-cuda --example fill-cache -- CACHE 90
//! XDG_CACHE_HOME=CACHE scripts/gpu_check --binaries DIR
//! ```
//!
//! NVRTC's version must be that of the machine with the device, as entries go by it.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a command")]

use std::collections::HashSet;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use qrita_core::{Dtype, Error, Plan};
use qrita_cuda::{Cache, block_threads, nvrtc};
use qrita_kernels::{Specialization, Stage, is_streamed};
use rayon::prelude::*;

const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];
const USAGE: &str = "\
Compiles the kernels that the tests on a device launch into the cache that $XDG_CACHE_HOME=CACHE has.

Usage: fill-cache CACHE ARCHITECTURE

  CACHE         the folder; it is made if there is none
  ARCHITECTURE  the device's compute capability without its point: 90 for an H100 or H200
  --help        this text";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag] = args.as_slice()
        && (flag == "--help" || flag == "-h")
    {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let parsed = match args.as_slice() {
        [folder, architecture] => architecture.parse().ok().map(|architecture| (Path::new(folder), architecture)),
        _ => None,
    };
    let Some((folder, architecture)) = parsed else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match fill(folder, architecture) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Compiles what is not there yet, on all cores, up to the first that fails.
fn fill(folder: &Path, architecture: u32) -> Result<(), Error> {
    let cache = Cache::in_folder(folder.join("qrita"));
    let kernels = kernels();
    let start = Instant::now();
    kernels.par_iter().try_for_each(|kernel| nvrtc::machine_code(&cache, kernel, architecture).map(drop))?;
    println!("{} kernels for sm_{architecture} in {:.0} s", kernels.len(), start.elapsed().as_secs_f64());
    Ok(())
}

/// What a sampler of any plan launches, and the stages alone. What differs in nothing compiled is there once.
fn kernels() -> Vec<Specialization> {
    let mut seen = HashSet::new();
    let mut kernels = Vec::new();
    let mut add = |plan: Plan, dtype, stage, adjusted| {
        for &threads in block_threads(stage) {
            let kernel = Specialization { dtype, plan, stage, adjusted, threads, warp: 32 };
            if seen.insert(kernel.defines()) {
                kernels.push(kernel);
            }
        }
    };
    for plan in Plan::all() {
        for dtype in DTYPES {
            let first = if is_streamed(&plan) { Stage::Stream } else { Stage::Cut };
            for adjusted in [false, true] {
                add(plan, dtype, Stage::Run, adjusted);
                add(plan, dtype, first, adjusted);
                add(Plan::default(), dtype, Stage::Finish, adjusted);
                add(Plan::default(), dtype, Stage::Dedup, adjusted);
                add(Plan::default(), dtype, Stage::Emit, adjusted);
                add(Plan::default(), dtype, Stage::Verify, adjusted);
            }
            add(Plan::default(), Dtype::F32, Stage::Decay, true);
            add(plan, dtype, Stage::Truncate, false);
            add(plan, dtype, Stage::Search, false);
        }
    }
    kernels
}
