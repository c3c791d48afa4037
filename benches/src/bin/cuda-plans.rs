//! Every plan on a CUDA device: microseconds to mask LLM-like f32 rows in place, k = 50 and p = 0.9.
//!
//! `cargo run --release -p qrita-benches --bin cuda-plans [-- ROWS]`. Each figure is the median over launches that are timed
//! by events; between two the logits are restored. The first line is a copy of the same bytes, device to device. The kept
//! sets of all plans are compared with each other's before anything is timed.

use std::error::Error;
use std::io::{self, Write};

use qrita_benches::{Filter, Kind, Ring};
use qrita_core::{Dtype, Params, Plan, Row, Search, Truncation};
use qrita_cuda::cudarc::driver::{CudaSlice, CudaStream, DevicePtr, sys};
use qrita_cuda::{Context, CudaSampler, DeviceBatch, DeviceOutputs, DeviceWorkspace, LaunchParams};

const VOCAB: usize = 128_256;
const LAUNCHES: usize = 21;

fn plans() -> Vec<(&'static str, Plan)> {
    let plan = |truncation, force_fallback, search| Plan { truncation, force_fallback, search, ..Plan::default() };
    let mut plans = vec![("default", Plan::default())];
    for (name, truncation, fallback) in
        [("hit", Truncation::Paper, false), ("fallback", Truncation::Paper, true), ("off", Truncation::Off, false)]
    {
        for search in [Search::Quaternary, Search::Binary, Search::Sort, Search::Select] {
            plans.push((name, plan(truncation, fallback, search)));
        }
    }
    plans.push(("no dedup", Plan { duplicates: false, ..Plan::paper() }));
    plans.push(("no autotune", Plan { autotune: false, ..Plan::paper() }));
    plans
}

fn median(mut times: Vec<f32>) -> f32 {
    times.sort_by(f32::total_cmp);
    times[times.len() / 2]
}

/// Median microseconds of `work` on the stream, after `prepare` each time.
fn timed(
    stream: &CudaStream,
    mut prepare: impl FnMut() -> Result<(), Box<dyn Error>>,
    mut work: impl FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<f32, Box<dyn Error>> {
    let event = || stream.context().new_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT));
    let mut times = Vec::new();
    for _ in 0..LAUNCHES {
        prepare()?;
        let (start, end) = (event()?, event()?);
        start.record(stream)?;
        work()?;
        end.record(stream)?;
        times.push(start.elapsed_ms(&end)? * 1e3);
    }
    Ok(median(times))
}

fn address<T>(memory: &CudaSlice<T>, stream: &CudaStream) -> u64 {
    memory.device_ptr(stream).0
}

fn main() -> Result<(), Box<dyn Error>> {
    let rows: usize = std::env::args().nth(1).map_or(Ok(1024), |rows| rows.parse())?;
    let mut out = io::stdout().lock();
    let context = Context::new(0)?;
    let stream = context.cuda().new_stream()?;
    let ring = Ring::new(Kind::LanguageModel, VOCAB, Dtype::F32, rows * VOCAB * 4);
    let Row::F32(host) = ring.all().data() else { unreachable!("the ring holds f32") };
    let pristine = stream.clone_htod(host)?;
    let mut logits = stream.clone_htod(host)?;
    let mut other: CudaSlice<f32> = stream.alloc_zeros(rows * VOCAB)?;
    let kept: CudaSlice<u32> = stream.alloc_zeros(rows)?;

    let copy = timed(&stream, || Ok(()), || Ok(stream.memcpy_dtod(&pristine, &mut other)?))?;
    writeln!(out, "{rows} rows of {VOCAB}, f32, k=50 and p=0.9, masked in place; a copy takes {copy:.1} µs")?;
    writeln!(out, "{:12} {:10} {:>9} {:>7}", "truncation", "search", "µs", "copies")?;
    let params: Params<'_> = Filter::Both.params();
    let mut expected: Option<Vec<f32>> = None;
    for (name, plan) in plans() {
        let sampler = CudaSampler::new(&context, Dtype::F32, plan, false)?;
        let bytes = sampler.workspace_bytes(rows, VOCAB);
        let scratch: CudaSlice<u8> = stream.alloc_zeros(bytes)?;
        let launch_params = LaunchParams::all(sampler.row_args(&params, 0, VOCAB)?);
        let batch = DeviceBatch { logits: address(&logits, &stream), rows, vocab: VOCAB, stride: VOCAB };
        let outputs = DeviceOutputs { mask: true, kept: address(&kept, &stream), ..DeviceOutputs::default() };
        let workspace = DeviceWorkspace { address: address(&scratch, &stream), bytes };
        let launch = || {
            // SAFETY: the batch, the outputs and the workspace are allocations of these sizes that live to the end.
            Ok(unsafe { sampler.launch(stream.cu_stream(), &batch, &launch_params, &outputs, workspace) }?)
        };
        stream.memcpy_dtod(&pristine, &mut logits)?;
        launch()?;
        let masked = stream.clone_dtoh(&logits)?;
        if plan.duplicates {
            let same = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits());
            if !same(expected.get_or_insert_with(|| masked.clone()), &masked) {
                return Err(format!("{name}, {plan:?}: another kept set").into());
            }
        }
        let time = timed(&stream, || Ok(stream.memcpy_dtod(&pristine, &mut logits)?), launch)?;
        writeln!(out, "{name:12} {:10} {time:9.1} {:7.2}", format!("{:?}", plan.search), time / copy)?;
        out.flush()?;
    }
    Ok(())
}
