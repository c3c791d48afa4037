//! Compiles the kernel for real, without a GPU: for every architecture that Qrita names, to machine code, by NVRTC.
//!
//! ```text
//! pip install --target DIR -r scripts/nvrtc-requirements.txt
//! LD_LIBRARY_PATH=DIR/nvidia/cu13/lib cargo run -p qrita-cuda --example nvrtc-check [-- --all]
//! ```
//!
//! Prints a line for each group of specialisations with the most that a kernel of it needs, and fails when one does not
//! compile, or when a kernel that runs more than one stage has local memory: a spill, or an array that is
//! indexed at run time. Stages that run alone serve to find faults, not speed: they need only compile.
//!
//! Thread counts are the library's ([`block_threads`]), and what differs in nothing compiled is compiled once. Without
//! `--all` the matrix is thinned: the default plan and the paper's on all architectures in all dtypes, and on one
//! architecture every truncation with every search, adjustments, and the stages alone.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a command")]

use std::collections::HashSet;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use qrita_core::{Dtype, Plan};
use qrita_cuda::{block_threads, nvrtc};
use qrita_kernels::{Specialization, Stage, is_streamed};
use rayon::prelude::*;

/// Ampere (A100; RTX 30), Ada (RTX 40), Hopper (H100, H200), Blackwell (B200; RTX 50).
const ARCHITECTURES: [u32; 6] = [80, 86, 89, 90, 100, 120];
/// Where every plan is compiled.
const EVERY_PLAN_ON: u32 = 90;
const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];
const STAGES: [Stage; 4] = [Stage::Truncate, Stage::Search, Stage::Dedup, Stage::Emit];
const USAGE: &str = "\
Compiles the kernel for every architecture, and fails on spills and on arrays in local memory.

Usage: nvrtc-check [--all]

  --all   every plan in every dtype on every architecture, with adjustments and without: about nine times as long
  --help  this text";

/// Specialisations that a line reports together.
struct Group {
    name: String,
    jobs: Vec<(Specialization, u32)>,
}

/// What the compiler reports of one kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Resources {
    registers: u32,
    shared: u32,
    stack: u32,
    spills: u32,
}

/// What came of one job.
struct Outcome {
    resources: Result<Resources, String>,
    took: Duration,
}

fn main() -> ExitCode {
    let all = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => false,
        [flag] if flag == "--all" => true,
        [flag] if flag == "--help" || flag == "-h" => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match nvrtc::version() {
        Ok((major, minor)) => println!("NVRTC {major}.{minor}"),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    let start = Instant::now();
    let groups = groups(all);
    let jobs: Vec<(Specialization, u32)> = groups.iter().flat_map(|group| group.jobs.iter().copied()).collect();
    let outcomes = compile_all(&jobs);
    let mut rest = outcomes.as_slice();
    let mut faults = Vec::new();
    for group in &groups {
        let (of_group, others) = rest.split_at(group.jobs.len());
        rest = others;
        println!("{}", report(group, of_group, &mut faults));
    }
    println!("{} kernels in {:.1} s", jobs.len(), start.elapsed().as_secs_f64());
    for fault in &faults {
        eprintln!("{fault}");
    }
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What is compiled.
fn groups(all: bool) -> Vec<Group> {
    let named = [("default plan", Plan::default()), ("paper's plan", Plan::paper())];
    let mut seen = HashSet::new();
    let mut groups = Vec::new();
    for architecture in ARCHITECTURES {
        // In all thread counts. What an earlier group has is left out.
        let mut group = |name: &str, dtypes: &[Dtype], plans: &[Plan], stages: &[Stage], adjusted: bool| {
            let mut jobs = Vec::new();
            for (&dtype, &plan, &stage) in product(dtypes, plans, stages) {
                for &threads in block_threads(stage) {
                    let job = Specialization { dtype, plan, stage, adjusted, threads, warp: 32 };
                    if seen.insert((architecture, job.defines())) {
                        jobs.push((job, architecture));
                    }
                }
            }
            groups.push(Group { name: format!("sm_{architecture} {name}"), jobs });
        };
        for (name, plan) in named {
            group(name, &DTYPES, &[plan], whole_or_streamed(&plan), false);
        }
        group("chains of draft tokens", &DTYPES, &[Plan::default()], &[Stage::Verify], false);
        group("chains, adjusted", &DTYPES, &[Plan::default()], &[Stage::Verify], true);
        group("standing penalties, after a step", &DTYPES[..1], &[Plan::default()], &[Stage::Decay], true);
        if all || architecture == EVERY_PLAN_ON {
            let every_plan: Vec<Plan> = Plan::all().collect();
            let dtypes = if all { &DTYPES[..] } else { &DTYPES[..1] };
            for (name, plan) in named {
                group(&format!("{name}, adjusted"), &DTYPES, &[plan], whole_or_streamed(&plan), true);
            }
            group("every truncation and search", dtypes, &every_plan, &[Stage::Run, Stage::Cut], false);
            group("every truncation and search, adjusted", dtypes, &every_plan, &[Stage::Run], true);
            group("stages alone", dtypes, &[Plan::default()], &STAGES, false);
        }
    }
    groups
}

/// The stages that launches under a plan may be.
fn whole_or_streamed(plan: &Plan) -> &'static [Stage] {
    if is_streamed(plan) { &[Stage::Run, Stage::Stream, Stage::Finish] } else { &[Stage::Run, Stage::Cut] }
}

/// Every triple of their elements.
fn product<'a, A, B, C>(a: &'a [A], b: &'a [B], c: &'a [C]) -> impl Iterator<Item = (&'a A, &'a B, &'a C)> {
    a.iter().flat_map(move |a| b.iter().flat_map(move |b| c.iter().map(move |c| (a, b, c))))
}

/// Compiles on all cores; the outcomes are in the order of the jobs.
fn compile_all(jobs: &[(Specialization, u32)]) -> Vec<Outcome> {
    let source = qrita_kernels::source();
    jobs.par_iter().map(|(specialization, architecture)| compile(&source, specialization, *architecture)).collect()
}

fn compile(source: &str, specialization: &Specialization, architecture: u32) -> Outcome {
    let start = Instant::now();
    let mut options = nvrtc::options(specialization, architecture);
    options.push("--ptxas-options=-v".to_owned());
    let compiled = nvrtc::compile(source, &options).map_err(|error| error.to_string());
    let resources = compiled.and_then(|compiled| {
        resources(&compiled.log).ok_or_else(|| format!("no resource report in the compiler's log:\n{}", compiled.log))
    });
    Outcome { resources, took: start.elapsed() }
}

/// Reads ptxas' report: `0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads` of the kernel and of each function
/// that it calls, and `Used 64 registers, used 1 barriers, 47396 bytes smem` of the kernel.
fn resources(log: &str) -> Option<Resources> {
    let most = |mark: &str| {
        let before = |line: &str| {
            let (text, _) = line.split_once(mark)?;
            text.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok()
        };
        log.lines().filter_map(before).max()
    };
    Some(Resources {
        registers: most(" registers")?,
        shared: most(" bytes smem").unwrap_or(0),
        stack: most(" bytes stack frame")?,
        spills: most(" bytes spill stores")?.max(most(" bytes spill loads")?),
    })
}

/// A group's line; what is wrong with it goes to `faults`.
fn report(group: &Group, outcomes: &[Outcome], faults: &mut Vec<String>) -> String {
    let mut most = Resources::default();
    let mut took = Duration::ZERO;
    for ((specialization, _), outcome) in group.jobs.iter().zip(outcomes) {
        took += outcome.took;
        match &outcome.resources {
            Ok(found) => {
                if !STAGES.contains(&specialization.stage) && (found.stack > 0 || found.spills > 0) {
                    let Resources { stack, spills, .. } = found;
                    let name = &group.name;
                    faults.push(format!("{name}: {stack} bytes of stack, {spills} of spills in {specialization:?}"));
                }
                most.registers = most.registers.max(found.registers);
                most.shared = most.shared.max(found.shared);
                most.stack = most.stack.max(found.stack);
                most.spills = most.spills.max(found.spills);
            }
            Err(error) => faults.push(format!("{}: {specialization:?}\n{error}", group.name)),
        }
    }
    let Resources { registers, shared, stack, spills } = most;
    let kernels = group.jobs.len();
    let mut line = format!("{:<48} {kernels:>4} kernels {:>6.1} s", group.name, took.as_secs_f64());
    let _ = write!(line, "  {registers:>3} registers {shared:>6} B shared {stack:>5} B stack {spills:>5} B spilled");
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_read() {
        let log = "ptxas info    : Function properties for qrita\n\
                   ptxas         .     208 bytes stack frame, 276 bytes spill stores, 844 bytes spill loads\n\
                   ptxas info    : Used 64 registers, used 1 barriers, 208 bytes cumulative stack size, 47396 bytes smem\n\
                   ptxas info    : Function properties for called\n\
                   ptxas         .     216 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n";
        assert_eq!(resources(log), Some(Resources { registers: 64, shared: 47396, stack: 216, spills: 844 }));
        assert_eq!(resources("warning: nothing"), None);
    }
}
