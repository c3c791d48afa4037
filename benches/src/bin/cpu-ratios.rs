//! The CPU backend in row copies: what it costs on one thread, relative to copying the row, in one run.
//!
//! `cargo run --release -p qrita-benches --bin cpu-ratios [-- --check]`. Times on shared machines drift; ratios within a
//! run hold. Each figure is the median of calls that alternate with copies of the same rows. Then come a sampler in the
//! manner of candle's and two threads, in times as fast, and many draws in times one. With `--check` the exit status says whether every ratio is within
//! its bound.

use std::hint::black_box;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

use qrita_benches::candle_like::Indices;
use qrita_benches::{COLD, Filter, Kind, Pipeline, Ring, Room, median};
use qrita_core::{Backend, Dtype, Outputs, Params, Plan, Row};
use qrita_cpu::CpuBackend;

const VOCAB: usize = 128_256;
const CALLS: usize = 151;

/// Row kind, dtype, filter, and the most copies that a call may cost.
const CASES: [(Kind, Dtype, Filter, f64); 11] = [
    (Kind::LanguageModel, Dtype::F32, Filter::TopK, 3.0),
    (Kind::LanguageModel, Dtype::F32, Filter::Both, 3.5),
    (Kind::LanguageModel, Dtype::F32, Filter::TopP, 8.0),
    (Kind::Flat, Dtype::F32, Filter::TopP, 40.0),
    (Kind::Equal, Dtype::F32, Filter::TopP, 40.0),
    (Kind::Equal, Dtype::F32, Filter::TopK, 40.0),
    (Kind::Normal, Dtype::F32, Filter::TopP, 40.0),
    // Not slower than f32, whose copy they are measured in.
    (Kind::LanguageModel, Dtype::F16, Filter::TopK, 3.0),
    (Kind::LanguageModel, Dtype::F16, Filter::TopP, 8.0),
    (Kind::LanguageModel, Dtype::Bf16, Filter::TopK, 3.0),
    (Kind::LanguageModel, Dtype::Bf16, Filter::TopP, 8.0),
];

/// Of the rows that go the whole way from raw logits to a token: the one of Qwen 2.5.
const PIPELINE_VOCAB: usize = 151_936;

/// With bitmask and penalties or not, and how many times as fast as the candle-like sampler it must be at least, where that
/// sorts and where it selects.
const PIPELINES: [(bool, [f64; 2]); 2] = [(false, [40.0, 8.0]), (true, [30.0, 8.0])];

/// Tokens drawn from one row at once.
const DRAWS: u32 = 1000;

/// Rows that keep much or little: kind, top-p, top-k, and how many times as long as one draw all of them may take, without
/// their ranks and with them.
const DRAWN: [(Kind, f32, u32, [f64; 2]); 4] = [
    (Kind::Normal, 1.0, 0, [6.0, 40.0]),
    (Kind::Normal, 0.9, 0, [5.0, 15.0]),
    (Kind::LanguageModel, 1.0, 0, [6.0, 40.0]),
    (Kind::LanguageModel, 0.9, 50, [5.0, 6.0]),
];

fn timed(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e6
}

/// Microseconds.
struct Times {
    copy: f64,
    mask: f64,
    token: f64,
}

fn measure(backend: &CpuBackend, kind: Kind, dtype: Dtype, filter: Filter, bytes: usize) -> Times {
    let mut wide = Ring::new(kind, VOCAB, Dtype::F32, bytes);
    let mut ring = Ring::new(kind, VOCAB, dtype, bytes);
    let mut masked = ring.clone();
    let mut workspace = backend.workspace();
    let (params, plan) = (filter.params(), Plan::default());
    let mut copy = vec![1f32; VOCAB];
    let mut times = [const { Vec::new() }; 3];
    for call in 0..CALLS {
        if call % ring.rows() == 0 {
            masked.restore(&ring);
        }
        times[0].push(timed(|| {
            if let Row::F32(row) = wide.next_row().row(0) {
                copy.copy_from_slice(black_box(row));
            }
            black_box(&mut copy);
        }));
        times[1].push(timed(|| {
            let logits = masked.next_row_mut().into();
            let done = backend.run(logits, &params, &plan, &mut Outputs::default(), &mut workspace);
            done.expect("the parameters are valid");
        }));
        times[2].push(timed(|| {
            let (mut token, mut logprob) = ([0], [0.0]);
            let mut outputs = Outputs { token: Some(&mut token), logprob: Some(&mut logprob), ..Outputs::default() };
            let done = backend.run(ring.next_row().into(), &params, &plan, &mut outputs, &mut workspace);
            done.expect("the parameters are valid");
        }));
    }
    let [copy, mask, token] = times.map(median);
    Times { copy, mask, token }
}

/// How many times as fast a token with its log-probability is as by the candle-like sampler, which sorts or selects, on
/// rows that are not in cache; the calls alternate.
fn pipeline_ratios(backend: &CpuBackend, pipeline: &Pipeline, ring: &mut Ring) -> [f64; 2] {
    let mut workspace = backend.workspace();
    let mut times = [const { Vec::new() }; 3];
    for position in 0..41 {
        times[0].push(timed(|| {
            black_box(pipeline.run(backend, ring.next_row(), position, &mut workspace));
        }));
        for (indices, times) in Indices::ALL.into_iter().zip(&mut times[1..]) {
            times.push(timed(|| {
                black_box(pipeline.run_candle_like(ring.next_row(), position, indices));
            }));
        }
    }
    let [ours, sorted, selected] = times.map(median);
    [sorted / ours, selected / ours]
}

/// How many times as long as one draw [`DRAWS`] of them take, without their ranks and with them; the calls alternate.
fn draws_ratios(backend: &CpuBackend, kind: Kind, top_p: f32, top_k: u32) -> [f64; 2] {
    let mut ring = Ring::new(kind, VOCAB, Dtype::F32, COLD);
    let mut workspace = backend.workspace();
    let (mut token, mut rank) = (vec![0; DRAWS as usize], vec![0; DRAWS as usize]);
    let mut times = [const { [const { Vec::new() }; 2] }; 2];
    for _ in 0..21 {
        for (ranked, times) in times.iter_mut().enumerate() {
            for (draws, times) in [1, DRAWS].into_iter().zip(times) {
                let params = Params::default().top_p(top_p).top_k(top_k).draws(draws);
                let (token, rank) = (&mut token[..draws as usize], &mut rank[..draws as usize]);
                let rank = (ranked == 1).then_some(rank);
                times.push(timed(|| {
                    let mut outputs = Outputs { token: Some(token), rank, ..Outputs::default() };
                    let row = ring.next_row().into();
                    let done = backend.run(row, &params, &Plan::default(), &mut outputs, &mut workspace);
                    done.expect("the parameters are valid");
                }));
            }
        }
    }
    times.map(|times| {
        let [one, all] = times.map(median);
        all / one
    })
}

/// How many times as fast two threads are as one; the calls alternate.
fn threads_ratio(filter: Filter) -> f64 {
    let rows = 64;
    let ring = Ring::new(Kind::LanguageModel, VOCAB, Dtype::F32, rows * VOCAB * 4);
    let backends = [1, 2].map(|threads| CpuBackend::with_threads(threads).expect("threads"));
    let mut workspaces = [(); 2].map(|()| backends[0].workspace());
    let mut room = Room::new(rows, 4096);
    let mut times = [const { Vec::new() }; 2];
    for _ in 0..41 {
        for ((backend, workspace), times) in backends.iter().zip(&mut workspaces).zip(&mut times) {
            let (params, plan) = (filter.params(), Plan::default());
            times.push(timed(|| {
                let done = backend.run(ring.all().into(), &params, &plan, &mut room.outputs(), workspace);
                done.expect("the parameters are valid");
            }));
        }
    }
    let [one, two] = times.map(median);
    one / two
}

/// The same of nothing but reading the rows: what the memory has to give.
fn read_ratio() -> f64 {
    let ring = Ring::new(Kind::LanguageModel, VOCAB, Dtype::F32, 64 * VOCAB * 4);
    let Row::F32(all) = ring.all().data() else { return f64::NAN };
    let read = |part: &[f32]| {
        let mut lanes = [f32::NEG_INFINITY; 64];
        for block in part.as_chunks::<64>().0 {
            lanes.iter_mut().zip(block).for_each(|(lane, &y)| *lane = if y > *lane { y } else { *lane });
        }
        black_box(lanes);
    };
    let (first, second) = all.split_at(all.len() / 2);
    let mut times = [const { Vec::new() }; 2];
    for _ in 0..41 {
        times[0].push(timed(|| read(all)));
        times[1].push(timed(|| {
            std::thread::scope(|scope| {
                scope.spawn(|| read(first));
                read(second);
            });
        }));
    }
    let [one, two] = times.map(median);
    one / two
}

fn main() -> io::Result<ExitCode> {
    let check = std::env::args().any(|argument| argument == "--check");
    let mut out = io::stdout().lock();
    let mut within = true;
    let backend = CpuBackend::with_threads(1).expect("the calling thread needs no pool");
    writeln!(out, "{}, V = {VOCAB}, in copies of an f32 row", backend.description())?;
    writeln!(out, "rows not in cache: masked in place, and a token with its logprob; the same with the row in cache")?;
    writeln!(out, "rows      dtype filter      copy µs |  mask  token | copy µs   mask  token | bound")?;
    for (kind, dtype, filter, bound) in CASES {
        let cold = measure(&backend, kind, dtype, filter, COLD);
        let warm = measure(&backend, kind, dtype, filter, 0);
        within &= cold.mask <= bound * cold.copy && cold.token <= bound * cold.copy;
        write!(out, "{:9} {:5} {:11} ", kind.name(), dtype.name(), filter.name())?;
        for Times { copy, mask, token } in [cold, warm] {
            write!(out, "{copy:7.1} {:6.2} {:6.2} | ", mask / copy, token / copy)?;
        }
        writeln!(out, "{bound}")?;
    }
    let mut ring = Ring::new(Kind::LanguageModel, PIPELINE_VOCAB, Dtype::F32, COLD);
    for (adjusted, bounds) in PIPELINES {
        let pipeline = Pipeline::new(PIPELINE_VOCAB, adjusted);
        let ratios = pipeline_ratios(&backend, &pipeline, &mut ring);
        for ((indices, ratio), bound) in Indices::ALL.into_iter().zip(ratios).zip(bounds) {
            within &= ratio >= bound;
            writeln!(
                out,
                "V = {PIPELINE_VOCAB}, T=0.7,k=50,p=0.9, {:21} {ratio:5.1} times as fast as {}; at least {bound}",
                pipeline.name(),
                indices.name()
            )?;
        }
    }
    for (kind, top_p, top_k, bounds) in DRAWN {
        for ((what, ratio), bound) in
            ["", ", ranked"].into_iter().zip(draws_ratios(&backend, kind, top_p, top_k)).zip(bounds)
        {
            within &= ratio <= bound;
            let name = kind.name();
            writeln!(
                out,
                "{name:9} k={top_k:<2} p={top_p:<3} {DRAWS} draws{what:8} {ratio:6.1} times one; at most {bound}"
            )?;
        }
    }
    for filter in Filter::ALL {
        let ratio = threads_ratio(filter);
        within &= ratio >= 1.8;
        writeln!(out, "64 rows, {:11} two threads are {ratio:.2} times as fast as one; at least 1.8", filter.name())?;
    }
    writeln!(out, "64 rows, only read: two threads are {:.2} times as fast as one", read_ratio())?;
    Ok(if check && !within { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
