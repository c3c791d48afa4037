//! The same launch again and again: in every shape, alone, beside another stream and in a replayed CUDA graph, each byte of
//! each output is the CPU backend's. Needs a device: `--features gpu-tests`.
//!
//! What a seed of the simulator's schedule is to `qrita-simt`, chance is to a device: a race, a stale read or an output that
//! depends on which block came first shows in some launches only. So each is repeated, and all are compared, on the device,
//! lest the comparison take longer than the launch.
//!
//! Also in shapes that a tuning names: unusual ones, and the ones that [`tune`] finds on this device, or those of the file
//! that the environment variable `QRITA_TUNING` names.

mod common;

use std::path::Path;
use std::sync::Arc;

use qrita_core::{Backend, Candidates, Dtype, Outputs, Plan, RowParams, Status};
use qrita_cpu::CpuBackend;
use qrita_cuda::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use qrita_cuda::cudarc::driver::{CudaFunction, CudaSlice, CudaStream, result};
use qrita_cuda::{
    Context, CudaSampler, DeviceBatch, DeviceCandidates, DeviceOutputs, DeviceWorkspace, LaunchParams, LaunchShape,
    Operation, RowArgs, TuneRequest, TunedCase, TunedEntry, TunedFilter, Tuning, tune,
};
use qrita_testkit::batch::{Batch, OwnedParams, Stored};
use qrita_testkit::rows::{self, RowKind};
use rayon::prelude::*;

/// Launches in each mode.
const REPEATS: u32 = 200;

/// Candidates that each row has room for: some keep fewer, some more.
const CAPACITY: usize = 64;

/// The byte that outputs and workspace are filled with.
const UNTOUCHED: u8 = 0xA5;

/// Rows around what a launch has blocks for, one and two to a multiprocessor among them on an H200.
const BATCHES: [usize; 8] = [1, 7, 8, 64, 65, 132, 133, 1024];

/// Their number has no divisor in common with that of [`FILTERS`], so that every kind meets every filter.
const KINDS: [RowKind; 11] = [
    RowKind::LanguageModel,
    RowKind::Plateaus,
    RowKind::Flat,
    RowKind::LanguageModel,
    RowKind::Equal,
    RowKind::Standard,
    RowKind::LanguageModel,
    RowKind::FewValues,
    RowKind::Infinities,
    RowKind::Nans,
    RowKind::HiddenOutliers,
];

/// Temperature, top-k, top-p and min-p: both, k, p, min-p, greedy, all, none.
const FILTERS: [(f32, u32, f32, f32); 7] = [
    (0.7, 50, 0.9, 0.0),
    (1.0, 50, 1.0, 0.0),
    (0.8, 0, 0.9, 0.0),
    (1.0, 0, 1.0, 0.05),
    (0.0, 0, 1.0, 0.0),
    (1.3, 1000, 0.95, 0.01),
    (1.0, 0, 1.0, 0.0),
];

/// Shapes that the built-in policy does not choose: fewest and most threads, blocks that stream and blocks that mask.
const UNUSUAL: [LaunchShape; 6] = [
    LaunchShape { threads: 128, chunks: 64, mask_chunks: 1 },
    LaunchShape { threads: 128, chunks: 1, mask_chunks: 64 },
    LaunchShape { threads: 128, chunks: 8, mask_chunks: 8 },
    LaunchShape { threads: 512, chunks: 64, mask_chunks: 64 },
    LaunchShape { threads: 512, chunks: 2, mask_chunks: 1 },
    LaunchShape { threads: 256, chunks: 64, mask_chunks: 2 },
];

/// Counts a comparison, and sets `bit` if there is a difference.
const DIFFER: &str = r#"
extern "C" __global__ void differ(
    const unsigned *found, const unsigned *right, unsigned long long bytes, unsigned bit, unsigned *flags, unsigned *count
) {
    unsigned long long words = bytes / 4, first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    bool differs = false;
    for (unsigned long long at = first; at < words; at += step) differs |= found[at] != right[at];
    if (first == 0) {
        for (unsigned long long at = 4 * words; at < bytes; at++) {
            differs |= ((const unsigned char *)found)[at] != ((const unsigned char *)right)[at];
        }
        atomicAdd(count, 1u);
    }
    if (differs) atomicOr(flags, bit);
}
"#;

/// Blocks of a comparison: enough to read at the speed of memory, few enough to leave room for the kernel of another stream.
const DIFFER_BLOCKS: u32 = 256;

const LOGITS: u32 = 1;
const OUTPUTS: u32 = 2;

/// Rows of every kind, under every filter.
fn rows(dtype: Dtype, vocab: usize, count: usize) -> Batch {
    let values: Vec<Vec<f32>> =
        (0..count).into_par_iter().map(|row| rows::row(KINDS[row % KINDS.len()], vocab, row as u64)).collect();
    let params = |row: usize| {
        let (temperature, top_k, top_p, min_p) = FILTERS[row % FILTERS.len()];
        let (seed, position) = (1000 + row as u64, row as u64 % 5);
        RowParams { temperature, top_k, top_p, min_p, seed, position, ..qrita_core::Params::default().row(0) }
    };
    let params: Vec<RowParams> = (0..count).map(params).collect();
    Batch::narrow(&values, dtype).with(|of_batch| *of_batch = OwnedParams::from_rows(&params))
}

fn bytes(stored: &Stored) -> &[u8] {
    match stored {
        Stored::F32(values) => bytemuck::cast_slice(values),
        Stored::F16(values) => bytemuck::cast_slice(values),
        Stored::Bf16(values) => bytemuck::cast_slice(values),
    }
}

/// The outputs with one word a row, as they lie one behind the other; ids, logits and log-probabilities of candidates follow.
const ONE_A_ROW: [&str; 6] = ["status", "kept", "token", "logprob", "raw_logprob", "rank"];
const ONE_A_CANDIDATE: [&str; 3] = ["candidate ids", "candidate logits", "candidate logprobs"];

/// What a launch must make of a batch, padding and unused room included.
struct Right {
    logits: Stored,
    outputs: Vec<u32>,
}

impl Right {
    fn of(batch: &Batch, with_raw: bool) -> Right {
        let (rows, room) = (batch.rows, batch.rows * CAPACITY);
        let untouched = u32::from_ne_bytes([UNTOUCHED; 4]);
        let mut status = vec![Status::OK; rows];
        let [mut kept, mut token, mut rank] = [(); 3].map(|()| vec![untouched; rows]);
        let [mut logprob, mut raw_logprob] = [(); 2].map(|()| vec![f32::from_bits(untouched); rows]);
        let mut ids = vec![untouched; room];
        let [mut logits, mut logprobs] = [(); 2].map(|()| vec![f32::from_bits(untouched); room]);
        let mut outputs = Outputs {
            status: Some(&mut status),
            kept: Some(&mut kept),
            candidates: Some(Candidates {
                capacity: CAPACITY,
                ids: &mut ids,
                logits: &mut logits,
                logprobs: &mut logprobs,
            }),
            token: Some(&mut token),
            logprob: Some(&mut logprob),
            raw_logprob: with_raw.then_some(&mut raw_logprob[..]),
            rank: Some(&mut rank),
            ..Outputs::default()
        };
        let backend = CpuBackend::new();
        let mut masked = batch.stored.clone();
        let input = batch.logits_mut(&mut masked).into();
        backend.run(input, &batch.params(), &Plan::default(), &mut outputs, &mut backend.workspace()).unwrap();
        let status = status.iter().map(|status| status.bits()).collect();
        let floats = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
        let one_a_row: [Vec<u32>; 6] = [status, kept, token, floats(logprob), floats(raw_logprob), rank];
        let one_a_candidate = [ids, floats(logits), floats(logprobs)];
        Right { logits: masked, outputs: [one_a_row.concat(), one_a_candidate.concat()].concat() }
    }
}

/// A stream with a batch of its own.
struct Engine {
    stream: Arc<CudaStream>,
    differ: CudaFunction,
    batch: DeviceBatch,
    params: LaunchParams,
    outputs: DeviceOutputs,
    workspace: DeviceWorkspace,
    right: Right,
    /// Addresses of the logits as they come, of the logits and the outputs as they must become, and of the outputs.
    originals: u64,
    right_logits: u64,
    right_outputs: u64,
    first_output: u64,
    /// Differences, and how many comparisons there were.
    flags: CudaSlice<u32>,
    flags_address: u64,
    /// What the addresses are of; freed in the order of the stream.
    _memory: Vec<CudaSlice<u8>>,
}

impl Engine {
    fn new(
        context: &Context,
        differ: &CudaFunction,
        samplers: &[CudaSampler],
        batch: &Batch,
        with_raw: bool,
    ) -> Engine {
        let stream = context.cuda().new_stream().unwrap();
        let Batch { rows, vocab, stride, .. } = *batch;
        let mut memory = Vec::new();
        let mut upload = |bytes: &[u8]| {
            let slice = stream.clone_htod(bytes).unwrap();
            let address = common::address(&slice, &stream);
            memory.push(slice);
            address
        };
        let right = Right::of(batch, with_raw);
        let args = |row| samplers[0].row_args(&batch.params(), row, vocab).unwrap();
        let args: Vec<RowArgs> = (0..rows).map(args).collect();
        let workspace_bytes = samplers.iter().map(|sampler| sampler.workspace_bytes(rows, vocab)).max().unwrap();
        // Zero where it must be, before the first launch of the first shape only.
        let mut workspace = vec![UNTOUCHED; workspace_bytes];
        workspace[..samplers[0].zeroed_bytes()].fill(0);
        let workspace = upload(&workspace);
        let first_output = upload(bytemuck::cast_slice(&right.outputs));
        let output = |index: usize| first_output + (index * rows * size_of::<u32>()) as u64;
        let of_candidates = |index: usize| output(ONE_A_ROW.len() + index * CAPACITY);
        let flags = stream.alloc_zeros(2).unwrap();
        let engine = Engine {
            differ: differ.clone(),
            batch: DeviceBatch { logits: upload(bytes(&batch.stored)), index: 0, rows, vocab, stride },
            params: LaunchParams::per_row(upload(bytemuck::cast_slice(&args))),
            outputs: DeviceOutputs {
                mask: true,
                status: output(0),
                kept: output(1),
                token: output(2),
                logprob: output(3),
                raw_logprob: if with_raw { output(4) } else { 0 },
                rank: output(5),
                candidates: Some(DeviceCandidates {
                    capacity: CAPACITY as u32,
                    ids: of_candidates(0),
                    logits: of_candidates(1),
                    logprobs: of_candidates(2),
                }),
                ..DeviceOutputs::default()
            },
            workspace: DeviceWorkspace { address: workspace, bytes: workspace_bytes },
            originals: upload(bytes(&batch.stored)),
            right_logits: upload(bytes(&right.logits)),
            right_outputs: upload(bytemuck::cast_slice(&right.outputs)),
            first_output,
            right,
            flags_address: common::address(&flags, &stream),
            flags,
            stream,
            _memory: memory,
        };
        engine.stream.synchronize().unwrap();
        engine
    }

    /// Queues a restoration of logits and outputs.
    fn restore(&self) {
        let (logits, outputs) = (bytes(&self.right.logits).len(), size_of_val(&*self.right.outputs));
        let stream = self.stream.cu_stream();
        // SAFETY: the addresses are of the engine's memory, with as many bytes each.
        unsafe {
            result::memcpy_dtod_async(self.batch.logits, self.originals, logits, stream).unwrap();
            result::memset_d8_async(self.first_output, UNTOUCHED, outputs, stream).unwrap();
        }
    }

    /// Queues a comparison of logits and outputs.
    fn compare(&self) {
        let logits = (self.batch.logits, self.right_logits, bytes(&self.right.logits).len(), LOGITS);
        let outputs = (self.first_output, self.right_outputs, size_of_val(&*self.right.outputs), OUTPUTS);
        for (mut found, mut right, bytes, mut bit) in [logits, outputs] {
            let (mut bytes, mut flags) = (bytes as u64, self.flags_address);
            let mut count = flags + size_of::<u32>() as u64;
            let mut arguments = [
                (&raw mut found).cast(),
                (&raw mut right).cast(),
                (&raw mut bytes).cast(),
                (&raw mut bit).cast(),
                (&raw mut flags).cast(),
                (&raw mut count).cast(),
            ];
            // SAFETY: these are the kernel's arguments, and the addresses are of memory of the engine with as many bytes.
            unsafe { common::launch(&self.differ, &self.stream, DIFFER_BLOCKS, &mut arguments) };
        }
    }

    /// Queues a launch on logits and outputs as they were, and a comparison of what it makes of them.
    fn repeat(&self, sampler: &CudaSampler) {
        self.restore();
        let stream = self.stream.cu_stream();
        // SAFETY: addresses and lengths are of the engine's memory, which is freed in the order of the stream.
        unsafe { sampler.launch(stream, &self.batch, &self.params, &self.outputs, self.workspace) }.unwrap();
        self.compare();
    }

    /// Waits; hands out the differences and the number of comparisons since this was last asked.
    fn take(&mut self) -> [u32; 2] {
        let found = self.stream.clone_dtoh(&self.flags).unwrap();
        self.stream.memset_zeros(&mut self.flags).unwrap();
        self.stream.synchronize().unwrap();
        [found[0], found[1]]
    }

    /// Waits, and panics unless so many launches were all right.
    fn check(&mut self, launches: u32, what: &str) {
        let [differences, comparisons] = self.take();
        assert_eq!(comparisons, 2 * launches, "comparisons, {what}");
        assert!(differences == 0, "{what}: {} after {launches} launches", self.explain(differences));
    }

    /// What is wrong after the last launch, or which memory was after an earlier one.
    fn explain(&self, differences: u32) -> String {
        let DeviceBatch { rows, stride, .. } = self.batch;
        let read = |address: u64, len: usize| {
            let mut found = vec![0u8; len];
            // SAFETY: the address is of the engine's memory, with as many bytes; the stream has been waited for.
            unsafe { result::memcpy_dtoh_sync(&mut found, address) }.unwrap();
            found
        };
        let first = |found: &[u8], right: &[u8], size: usize| {
            found.chunks(size).zip(right.chunks(size)).position(|(found, right)| found != right)
        };
        let right = bytes(&self.right.logits);
        let size = self.right.logits.dtype().size();
        if let Some(at) = first(&read(self.batch.logits, right.len()), right, size) {
            return format!("row {}, masked logit {}", at / stride, at % stride);
        }
        let right = bytemuck::cast_slice(&self.right.outputs);
        if let Some(at) = first(&read(self.first_output, right.len()), right, size_of::<u32>()) {
            let Some(in_candidates) = at.checked_sub(ONE_A_ROW.len() * rows) else {
                return format!("row {}, {}", at % rows, ONE_A_ROW[at / rows]);
            };
            let (name, at) = (ONE_A_CANDIDATE[in_candidates / (rows * CAPACITY)], in_candidates % (rows * CAPACITY));
            return format!("row {}, {name} {}", at / CAPACITY, at % CAPACITY);
        }
        let area = |bit, name| if differences & bit != 0 { name } else { "" };
        format!("{}{}, not in the last launch", area(LOGITS, "masked logits "), area(OUTPUTS, "outputs"))
    }
}

/// A sampler whose tuning has this shape for every launch of its dtype.
fn tuned(sampler: &CudaSampler, context: &Context, shape: LaunchShape) -> CudaSampler {
    let mut entries = Vec::new();
    for operation in [Operation::Mask, Operation::Read] {
        for filter in [TunedFilter::TopK, TunedFilter::TopP] {
            for vocab in (0..=21).map(|shift| 1 << shift) {
                for rows in (0..=11).map(|shift| 1 << shift) {
                    let case = TunedCase::new(sampler.dtype(), operation, filter, vocab, rows);
                    entries.push(TunedEntry { case, shape, us: 1.0, default_us: 1.0 });
                }
            }
        }
    }
    let tuning = Tuning::new(context.tuned_device(), entries).unwrap();
    let tuned = sampler.clone().with_tuning(&tuning).unwrap();
    assert!(tuned.shapes().contains(&shape) && tuned.shapes().len() <= sampler.shapes().len() + 1);
    tuned
}

/// Built-in shapes, and unusual ones.
fn check(dtype: Dtype, vocab: usize, padding: usize, batches: &[usize], with_raw: bool) {
    let context = common::context();
    let sampler = CudaSampler::new(&context, dtype, Plan::default(), false).unwrap();
    let shapes = sampler.shapes();
    assert!(!shapes.is_empty());
    let fixed = shapes.iter().map(|&shape| (shape, sampler.clone().with_shape(shape).unwrap()));
    let unusual = UNUSUAL.iter().map(|&shape| (shape, tuned(&sampler, &context, shape)));
    check_samplers(&context, fixed.chain(unusual).collect(), vocab, padding, batches, with_raw);
}

/// These samplers, which launch in these shapes, in all modes.
///
/// Without `with_raw` nobody reads a row while it is masked, so that several blocks mask it while one draws.
fn check_samplers(
    context: &Context,
    of_shapes: Vec<(LaunchShape, CudaSampler)>,
    vocab: usize,
    padding: usize,
    batches: &[usize],
    with_raw: bool,
) {
    let (major, minor) = context.capability();
    let differ = common::load(context, DIFFER, &[format!("--gpu-architecture=sm_{}", 10 * major + minor)], "differ");
    let (shapes, samplers): (Vec<LaunchShape>, Vec<CudaSampler>) = of_shapes.into_iter().unzip();
    let dtype = samplers[0].dtype();

    let most = batches.iter().copied().max().unwrap();
    let all = rows(dtype, vocab, most);
    for &count in batches {
        // The second stream's rows are others, so that one stream's results in the other's memory are wrong.
        let ids = [(0..count).collect::<Vec<_>>(), (most - count..most).rev().collect()];
        let batches = ids.map(|ids| all.select(&ids).laid_out(0, vocab + padding, 0, &[1e30, f32::NAN]));
        let mut engines = batches.each_ref().map(|batch| Engine::new(context, &differ, &samplers, batch, with_raw));
        for engine in &mut engines {
            engine.restore();
            engine.compare();
            assert_eq!(engine.take(), [LOGITS | OUTPUTS, 2], "without a launch all is wrong");
        }
        for (sampler, shape) in samplers.iter().zip(&shapes) {
            let what = |mode| format!("{count} rows of {vocab} {}, {shape}, {mode}", dtype.name());

            (0..REPEATS).for_each(|_| engines[0].repeat(sampler));
            engines[0].check(REPEATS, &what("alone"));

            for _ in 0..REPEATS {
                engines.iter().for_each(|engine| engine.repeat(sampler));
            }
            engines.iter_mut().for_each(|engine| engine.check(REPEATS, &what("two streams")));

            let stream = engines[1].stream.clone();
            stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
            engines[1].repeat(sampler);
            let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
            let graph = stream.end_capture(flags).unwrap().expect("a graph");
            (0..REPEATS).for_each(|_| graph.launch().unwrap());
            engines[1].check(REPEATS, &what("graph"));
        }
    }
}

#[test]
fn f32_rows() {
    // The stride is odd as well: rows start at every alignment.
    check(Dtype::F32, 32_003, 2, &BATCHES, true);
}

#[test]
fn bf16_rows() {
    check(Dtype::Bf16, 32_003, 2, &BATCHES, false);
}

/// Rows that the built-in policy would not divide, some parts of which have no logit.
#[test]
fn narrow_rows() {
    check(Dtype::F16, 257, 2, &[1, 64, 513], false);
}

#[test]
fn wide_rows() {
    check(Dtype::F32, 128_256, 0, &[1, 132], false);
}

/// Every shape of the tuning in `QRITA_TUNING`, or of one that is made here where there is no such file.
#[test]
fn tuned_rows() {
    let context = common::context();
    let tuning = match std::env::var_os("QRITA_TUNING").filter(|path| Path::new(path).exists()) {
        Some(path) => Tuning::load(path).unwrap(),
        None => tune(&context, &TuneRequest::quick(), &CpuBackend::new(), |_| ()).unwrap(),
    };
    for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
        let sampler = CudaSampler::new(&context, dtype, Plan::default(), false).unwrap();
        let built_in = sampler.shapes();
        let mut shapes = sampler.clone().with_tuning(&tuning).unwrap().shapes();
        // The built-in ones are repeated above.
        shapes.retain(|shape| !built_in.contains(shape));
        let fixed = shapes.into_iter().map(|shape| (shape, sampler.clone().with_shape(shape).unwrap()));
        let fixed: Vec<(LaunchShape, CudaSampler)> = fixed.collect();
        if !fixed.is_empty() {
            check_samplers(&context, fixed, 32_003, 2, &BATCHES, false);
        }
    }
}
