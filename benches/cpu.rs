//! The CPU backend on one thread, beside a copy of the row, a full sort, a selection and a sampler in the manner
//! of candle's, in the same run.
//!
//! `cargo bench -p qrita-benches --bench cpu [-- FILTER]`. Throughput is that of the row's bytes; one row is one iteration.
#![allow(missing_docs)]

use std::hint::black_box;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use qrita_benches::candle_like::Indices;
use qrita_benches::{COLD, Filter, Kind, Pipeline, Ring, Room, VOCABS};
use qrita_core::{Backend, Candidate, Dtype, Key, Logits, LogitsMut, Outputs, Params, Plan, Row};
use qrita_cpu::CpuBackend;

fn group<'c>(c: &'c mut Criterion, name: &str, bytes: usize) -> BenchmarkGroup<'c, WallTime> {
    let mut group = c.benchmark_group(name);
    group.warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_millis(800)).sample_size(20);
    group.throughput(Throughput::Bytes(bytes as u64));
    group
}

fn one_thread() -> CpuBackend {
    CpuBackend::with_threads(1).expect("the calling thread needs no pool")
}

fn f32_row<'a>(logits: &Logits<'a>) -> &'a [f32] {
    match logits.row(0) {
        Row::F32(row) => row,
        _ => unreachable!("these rings hold f32"),
    }
}

fn filters(c: &mut Criterion) {
    let backend = one_thread();
    for vocab in VOCABS {
        for kind in Kind::ALL {
            let mut ring = Ring::new(kind, vocab, Dtype::F32, COLD);
            bench_filters(c, &backend, &format!("{}/{vocab}", kind.name()), &mut ring);
        }
    }
    for model in ["gemma3_270m", "qwen25_coder_05b", "smollm2_135m"] {
        if let Some(mut ring) = Ring::real(model, COLD) {
            bench_filters(c, &backend, &format!("real/{model}"), &mut ring);
        }
    }
}

fn bench_filters(c: &mut Criterion, backend: &CpuBackend, name: &str, ring: &mut Ring) {
    let mut workspace = backend.workspace();
    let mut group = group(c, name, ring.vocab() * 4);
    let mut copy = vec![0f32; ring.vocab()];
    group.bench_function("copy", |b| {
        b.iter(|| {
            copy.copy_from_slice(f32_row(&ring.next_row()));
            black_box(&mut copy);
        });
    });
    for filter in Filter::ALL {
        let mut room = Room::new(1, ring.vocab());
        group.bench_function(format!("{} candidates", filter.name()), |b| {
            b.iter(|| {
                let (params, plan) = (filter.params(), Plan::default());
                backend.run(ring.next_row().into(), &params, &plan, &mut room.outputs(), &mut workspace)
            });
        });
        group.bench_function(format!("{} token", filter.name()), |b| {
            let (mut token, mut logprob) = ([0], [0.0]);
            b.iter(|| {
                let mut outputs =
                    Outputs { token: Some(&mut token), logprob: Some(&mut logprob), ..Outputs::default() };
                let (params, plan) = (filter.params(), Plan::default());
                backend.run(ring.next_row().into(), &params, &plan, &mut outputs, &mut workspace)
            });
        });
        group.bench_function(format!("{} mask after copy", filter.name()), |b| {
            b.iter(|| {
                copy.copy_from_slice(f32_row(&ring.next_row()));
                let logits = LogitsMut::new(&mut copy, ring.vocab()).expect("a row of its length");
                let (params, plan) = (filter.params(), Plan::default());
                backend.run(logits.into(), &params, &plan, &mut Outputs::default(), &mut workspace)
            });
        });
    }
    group.finish();
}

/// What a row costs elsewhere: sorted whole, and partitioned.
fn peers(c: &mut Criterion) {
    for vocab in VOCABS {
        let mut ring = Ring::new(Kind::LanguageModel, vocab, Dtype::F32, COLD);
        let mut group = group(c, &format!("peers/{vocab}"), vocab * 4);
        let mut pairs = Vec::with_capacity(vocab);
        let collect = |ring: &mut Ring, pairs: &mut Vec<Candidate>| {
            pairs.clear();
            let row = ring.next_row();
            pairs.extend((0..).zip(f32_row(&row)).map(|(id, &y)| Candidate::new(Key::new(y), id)));
        };
        group.bench_function("sort", |b| {
            b.iter(|| {
                collect(&mut ring, &mut pairs);
                pairs.sort_unstable_by(|a, b| b.cmp(a));
                black_box(&mut pairs);
            });
        });
        group.bench_function("select_nth_unstable(50)", |b| {
            b.iter(|| {
                collect(&mut ring, &mut pairs);
                pairs.select_nth_unstable_by(49, |a, b| b.cmp(a));
                black_box(&mut pairs);
            });
        });
        group.finish();
    }
}

/// From raw logits to a token with its log-probability, beside a sampler in the manner of candle's.
fn pipeline(c: &mut Criterion) {
    let (backend, vocab) = (one_thread(), 151_936);
    let mut ring = Ring::new(Kind::LanguageModel, vocab, Dtype::F32, COLD);
    let mut workspace = backend.workspace();
    for adjusted in [false, true] {
        let pipeline = Pipeline::new(vocab, adjusted);
        let mut group = group(c, &format!("pipeline/{}", pipeline.name()), vocab * 4);
        let mut position = 0;
        group.bench_function("token", |b| {
            b.iter(|| {
                position += 1;
                pipeline.run(&backend, ring.next_row(), position, &mut workspace)
            });
        });
        for indices in Indices::ALL {
            group.bench_function(indices.name(), |b| {
                b.iter(|| {
                    position += 1;
                    pipeline.run_candle_like(ring.next_row(), position, indices)
                });
            });
        }
        group.finish();
    }
}

fn dtypes(c: &mut Criterion) {
    let backend = one_thread();
    let vocab = 128_256;
    for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
        let mut ring = Ring::new(Kind::LanguageModel, vocab, dtype, COLD);
        let mut workspace = backend.workspace();
        let mut group = group(c, &format!("dtype/{}", dtype.name()), vocab * dtype.size());
        for filter in Filter::ALL {
            let mut room = Room::new(1, vocab);
            group.bench_function(filter.name(), |b| {
                b.iter(|| {
                    let (params, plan) = (filter.params(), Plan::default());
                    backend.run(ring.next_row().into(), &params, &plan, &mut room.outputs(), &mut workspace)
                });
            });
        }
        group.finish();
    }
}

/// 64 rows on one, two and all threads.
fn threads(c: &mut Criterion) {
    let (vocab, rows) = (128_256, 64);
    let ring = Ring::new(Kind::LanguageModel, vocab, Dtype::F32, rows * vocab * 4);
    let mut group = group(c, "threads/64 rows", rows * vocab * 4);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // On two cores, all of them are two.
    for threads in [1, 2, cores].into_iter().take(if cores > 2 { 3 } else { 2 }) {
        let backend = CpuBackend::with_threads(threads).expect("threads");
        let mut workspace = backend.workspace();
        for filter in Filter::ALL {
            let mut room = Room::new(rows, 4096);
            group.bench_function(format!("{} on {}", filter.name(), backend.threads()), |b| {
                b.iter(|| {
                    let (params, plan): (Params<'_>, _) = (filter.params(), Plan::default());
                    backend.run(ring.all().into(), &params, &plan, &mut room.outputs(), &mut workspace)
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, filters, peers, pipeline, dtypes, threads);
criterion_main!(benches);
