//! The zero-copy way in, against the backend that copies. Passes with a word where there is no device.
#![allow(clippy::print_stderr, reason = "a test that is left out says so")]

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr};
use qrita_core::{Backend, Candidates, Dtype, Error, LogitsMut, Outputs, Params, Plan, Shape, Status, bf16};
use qrita_cuda::{
    Context, CudaBackend, CudaDevice, CudaSampler, DeviceAdjustments, DeviceBatch, DeviceCandidates, DeviceOutputs,
    DeviceWorkspace, LaunchParams, LaunchShape, Operation, RowArgs, TunedCase, TunedDevice, TunedEntry, TunedFilter,
    Tuning, TuningError, ViewCandidates, ViewInput, ViewOutputs, cudarc,
};
use std::sync::Arc;

const ROWS: usize = 7;
const VOCAB: usize = 32_003;
const STRIDE: usize = VOCAB + 2;
const CAPACITY: usize = 64;

/// The first device, if there is one.
fn context() -> Option<Context> {
    Context::new(0).inspect_err(|error| eprintln!("left out: {error}")).ok()
}

/// Logits without a pattern that a sample could miss.
fn logits() -> Vec<bf16> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32
    };
    (0..ROWS * STRIDE).map(|_| bf16::from_f32(20.0 * next() * next() * next())).collect()
}

fn params(seeds: &[u64]) -> Params<'_> {
    Params::default().top_k(50).top_p(0.9).temperature(0.8).seed(seeds)
}

/// The outputs of a call, in host memory.
#[derive(Debug, Default, PartialEq)]
struct Found {
    masked: Vec<bf16>,
    status: Vec<u32>,
    kept: Vec<u32>,
    token: Vec<u32>,
    logprob: Vec<f32>,
    ids: Vec<u32>,
    candidate_logits: Vec<f32>,
    logprobs: Vec<f32>,
}

fn by_backend(context: &Context, params: &Params<'_>) -> Found {
    by_device(CudaDevice::new(context).unwrap(), params)
}

fn by_device(device: CudaDevice, params: &Params<'_>) -> Found {
    let backend = CudaBackend::new(device);
    let mut status = [Status::OK; ROWS];
    let room = ROWS * CAPACITY;
    let mut found = Found {
        masked: logits(),
        kept: vec![0; ROWS],
        token: vec![0; ROWS],
        logprob: vec![0.0; ROWS],
        ids: vec![0; room],
        candidate_logits: vec![0.0; room],
        logprobs: vec![0.0; room],
        ..Found::default()
    };
    let mut outputs = Outputs {
        status: Some(&mut status),
        kept: Some(&mut found.kept),
        token: Some(&mut found.token),
        logprob: Some(&mut found.logprob),
        candidates: Some(Candidates {
            capacity: CAPACITY,
            ids: &mut found.ids,
            logits: &mut found.candidate_logits,
            logprobs: &mut found.logprobs,
        }),
        ..Outputs::default()
    };
    let input = LogitsMut::strided(&mut found.masked, ROWS, VOCAB, STRIDE).unwrap();
    backend.run(input.into(), params, &Plan::default(), &mut outputs, &mut ()).unwrap();
    found.status = status.iter().map(|status| status.bits()).collect();
    found
}

/// An engine's memory.
struct Memory {
    stream: Arc<CudaStream>,
    logits: CudaSlice<bf16>,
    status: CudaSlice<u32>,
    kept: CudaSlice<u32>,
    token: CudaSlice<u32>,
    logprob: CudaSlice<f32>,
    ids: CudaSlice<u32>,
    candidate_logits: CudaSlice<f32>,
    logprobs: CudaSlice<f32>,
    row_args: CudaSlice<u8>,
    workspace: CudaSlice<u8>,
}

impl Memory {
    fn new(context: &Context, sampler: &CudaSampler, params: &Params<'_>) -> Memory {
        let stream = context.cuda().new_stream().unwrap();
        let args: Vec<RowArgs> = (0..ROWS).map(|row| sampler.row_args(params, row, VOCAB).unwrap()).collect();
        let bytes = sampler.workspace_bytes(ROWS, VOCAB);
        let (words, floats) = (|len| stream.alloc_zeros(len).unwrap(), |len| stream.alloc_zeros(len).unwrap());
        Memory {
            logits: stream.clone_htod(&logits()).unwrap(),
            status: words(ROWS),
            kept: words(ROWS),
            token: words(ROWS),
            logprob: floats(ROWS),
            ids: words(ROWS * CAPACITY),
            candidate_logits: floats(ROWS * CAPACITY),
            logprobs: floats(ROWS * CAPACITY),
            row_args: stream.clone_htod(bytemuck::cast_slice::<RowArgs, u8>(&args)).unwrap(),
            workspace: stream.alloc_zeros(bytes).unwrap(),
            stream,
        }
    }

    fn address<T>(&self, slice: &CudaSlice<T>) -> u64 {
        slice.device_ptr(&self.stream).0
    }

    fn batch(&self) -> DeviceBatch {
        DeviceBatch { logits: self.address(&self.logits), index: 0, rows: ROWS, vocab: VOCAB, stride: STRIDE }
    }

    fn outputs(&self) -> DeviceOutputs {
        DeviceOutputs {
            mask: true,
            status: self.address(&self.status),
            kept: self.address(&self.kept),
            token: self.address(&self.token),
            logprob: self.address(&self.logprob),
            candidates: Some(DeviceCandidates {
                capacity: CAPACITY as u32,
                ids: self.address(&self.ids),
                logits: self.address(&self.candidate_logits),
                logprobs: self.address(&self.logprobs),
            }),
            ..DeviceOutputs::default()
        }
    }

    fn workspace(&self) -> DeviceWorkspace {
        DeviceWorkspace { address: self.address(&self.workspace), bytes: self.workspace.len() }
    }

    fn params(&self) -> LaunchParams {
        LaunchParams::per_row(self.address(&self.row_args))
    }

    /// What a launch made of it; the logits are unmasked again.
    fn take(&mut self) -> Found {
        let stream = self.stream.clone();
        let found = Found {
            masked: stream.clone_dtoh(&self.logits).unwrap(),
            status: stream.clone_dtoh(&self.status).unwrap(),
            kept: stream.clone_dtoh(&self.kept).unwrap(),
            token: stream.clone_dtoh(&self.token).unwrap(),
            logprob: stream.clone_dtoh(&self.logprob).unwrap(),
            ids: stream.clone_dtoh(&self.ids).unwrap(),
            candidate_logits: stream.clone_dtoh(&self.candidate_logits).unwrap(),
            logprobs: stream.clone_dtoh(&self.logprobs).unwrap(),
        };
        stream.memcpy_htod(&logits(), &mut self.logits).unwrap();
        stream.memset_zeros(&mut self.token).unwrap();
        stream.synchronize().unwrap();
        found
    }
}

#[test]
fn launch_run_and_graph_agree_with_the_backend() {
    let Some(context) = context() else { return };
    let seeds: Vec<u64> = (100..100 + ROWS as u64).collect();
    let params = params(&seeds);
    let right = by_backend(&context, &params);
    let sampler = CudaSampler::new(&context, Dtype::Bf16, Plan::default(), false).unwrap();
    let mut memory = Memory::new(&context, &sampler, &params);
    let (batch, launch_params, outputs, workspace) =
        (memory.batch(), memory.params(), memory.outputs(), memory.workspace());
    let stream = memory.stream.clone();
    // SAFETY: here and below, addresses and lengths are of `memory`, which outlives every launch.
    let launch = || unsafe { sampler.launch(stream.cu_stream(), &batch, &launch_params, &outputs, workspace) }.unwrap();

    launch();
    assert_eq!(memory.take(), right, "by addresses");

    let view_outputs = ViewOutputs {
        status: Some(memory.status.as_view_mut()),
        kept: Some(memory.kept.as_view_mut()),
        token: Some(memory.token.as_view_mut()),
        logprob: Some(memory.logprob.as_view_mut()),
        candidates: Some(ViewCandidates {
            capacity: CAPACITY as u32,
            ids: memory.ids.as_view_mut(),
            logits: memory.candidate_logits.as_view_mut(),
            logprobs: memory.logprobs.as_view_mut(),
        }),
        ..ViewOutputs::default()
    };
    let shape = Shape { rows: ROWS, vocab: VOCAB, stride: STRIDE };
    let input = ViewInput::Mask(memory.logits.as_view_mut());
    // SAFETY: as above; the address is that of the parameters of each row.
    unsafe { sampler.run(&stream, input, shape, &launch_params, view_outputs, memory.workspace.as_view_mut()) }
        .unwrap();
    assert_eq!(memory.take(), right, "by views");

    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    launch();
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags).unwrap().expect("a graph");
    assert_ne!(memory.take().token, right.token, "a capture must not launch");
    for _ in 0..3 {
        graph.launch().unwrap();
        assert_eq!(memory.take(), right, "by replay");
    }
}

#[test]
fn streams_do_not_disturb_each_other() {
    let Some(context) = context() else { return };
    let sampler = CudaSampler::new(&context, Dtype::Bf16, Plan::default(), false).unwrap();
    let seeds = [[1; ROWS], [2; ROWS]];
    let params = seeds.each_ref().map(|seeds| params(seeds));
    let right = params.each_ref().map(|params| by_backend(&context, params));
    let mut memories = params.each_ref().map(|params| Memory::new(&context, &sampler, params));
    for _ in 0..10 {
        for memory in &memories {
            let (batch, params, outputs) = (memory.batch(), memory.params(), memory.outputs());
            let stream = memory.stream.cu_stream();
            // SAFETY: addresses and lengths are of `memory`, which outlives the launch.
            unsafe { sampler.launch(stream, &batch, &params, &outputs, memory.workspace()) }.unwrap();
        }
        for (memory, right) in memories.iter_mut().zip(&right) {
            assert_eq!(memory.take(), *right);
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let Some(context) = context() else { return };
    let sampler = CudaSampler::new(&context, Dtype::Bf16, Plan::default(), false).unwrap();
    let seeds = [1; ROWS];
    let memory = Memory::new(&context, &sampler, &params(&seeds));
    let refused = |batch: DeviceBatch, params: LaunchParams, workspace: DeviceWorkspace| {
        // SAFETY: addresses and lengths are of `memory`, but for what must be refused before it is used.
        unsafe { sampler.launch(memory.stream.cu_stream(), &batch, &params, &memory.outputs(), workspace) }
    };
    let (batch, params, workspace) = (memory.batch(), memory.params(), memory.workspace());
    let short = DeviceWorkspace { bytes: workspace.bytes - 1, ..workspace };
    assert!(matches!(refused(batch, params, short), Err(Error::Length { what: "workspace", .. })));
    let overlapping = DeviceBatch { stride: VOCAB - 1, ..batch };
    assert!(matches!(refused(overlapping, params, workspace), Err(Error::Shape { what: "row stride", .. })));
    let odd = DeviceBatch { logits: batch.logits + 1, ..batch };
    assert!(matches!(refused(odd, params, workspace), Err(Error::Shape { .. })));
    let adjusted = params.adjustments(DeviceAdjustments { valid_vocab: Some(5), ..DeviceAdjustments::default() });
    assert!(matches!(refused(batch, adjusted, workspace), Err(Error::Unsupported { .. })));
    let shared = DeviceBatch { index: batch.logits, ..batch };
    assert!(matches!(refused(shared, params, workspace), Err(Error::Unsupported { .. })), "a mask of shared rows");
    assert!(matches!(refused(batch, params.draws(0), workspace), Err(Error::Param { param: "draws", .. })));
    let none = DeviceBatch { rows: 0, ..batch };
    assert!(refused(none, params, DeviceWorkspace { address: 0, bytes: 0 }).is_ok());

    let wrong = Params::default().temperature(&[1.0, f32::NAN]);
    assert!(sampler.row_args(&wrong, 0, VOCAB).is_ok());
    let error = sampler.row_args(&wrong, 1, VOCAB).unwrap_err();
    assert!(matches!(error, Error::Param { row: Some(1), param: "temperature", .. }), "{error}");
}

#[test]
fn a_shape_is_fixed_or_refused() {
    let Some(context) = context() else { return };
    let seeds = [3; ROWS];
    let params = params(&seeds);
    let right = by_backend(&context, &params);
    for plan in [true, false].map(|autotune| Plan { autotune, ..Plan::default() }) {
        if Plan::all().all(|other| other != plan) {
            continue;
        }
        let sampler = CudaSampler::new(&context, Dtype::Bf16, plan, false).unwrap();
        let shapes = sampler.shapes();
        assert!(!shapes.is_empty());
        for &shape in &shapes {
            let sampler = sampler.clone().with_shape(shape).unwrap();
            assert_eq!(sampler.shapes(), shapes);
            let mut memory = Memory::new(&context, &sampler, &params);
            let (batch, params, outputs) = (memory.batch(), memory.params(), memory.outputs());
            let stream = memory.stream.cu_stream();
            // SAFETY: addresses and lengths are of `memory`, which outlives the launch.
            unsafe { sampler.launch(stream, &batch, &params, &outputs, memory.workspace()) }.unwrap();
            assert_eq!(memory.take(), right, "{shape}");
        }
        let odd = LaunchShape { threads: 96, chunks: 1, mask_chunks: 1 };
        assert!(matches!(sampler.with_shape(odd), Err(Error::Unsupported { .. })));
    }
}

#[test]
fn a_tuning_is_followed_or_refused() {
    let Some(context) = context() else { return };
    let seeds = [3; ROWS];
    let params = params(&seeds);
    let right = by_backend(&context, &params);
    let shape = LaunchShape { threads: 128, chunks: 64, mask_chunks: 32 };
    // Parameters are in device memory: see `TunedFilter`.
    let case = TunedCase::new(Dtype::Bf16, Operation::Mask, TunedFilter::TopP, VOCAB as u32, ROWS as u32);
    let entry = TunedEntry { case, shape, us: 1.0, default_us: 1.0 };
    let tuning = Tuning::new(context.tuned_device(), vec![entry]).unwrap();

    let sampler = CudaSampler::new(&context, Dtype::Bf16, Plan::default(), false).unwrap();
    let built_in = sampler.shapes();
    let tuned = sampler.clone().with_tuning(&tuning).unwrap();
    assert!(tuned.shapes().contains(&shape) && tuned.shapes().len() == built_in.len() + 1);
    let mut memory = Memory::new(&context, &tuned, &params);
    let (batch, launch_params, outputs) = (memory.batch(), memory.params(), memory.outputs());
    let stream = memory.stream.cu_stream();
    // SAFETY: addresses and lengths are of `memory`, which outlives the launch.
    unsafe { tuned.launch(stream, &batch, &launch_params, &outputs, memory.workspace()) }.unwrap();
    assert_eq!(memory.take(), right);
    let device = CudaDevice::new(&context).unwrap().with_tuning(tuning.clone()).unwrap();
    assert_eq!(by_device(device, &params), right);

    // Without autotune, with adjustments, or under another plan, it has no say.
    for (plan, adjusted) in
        [(Plan { autotune: false, ..Plan::default() }, false), (Plan::default(), true), (Plan::paper(), false)]
    {
        let sampler = CudaSampler::new(&context, Dtype::Bf16, plan, adjusted).unwrap();
        assert_eq!(sampler.clone().with_tuning(&tuning).unwrap().shapes(), sampler.shapes());
    }
    let other = TunedDevice { multiprocessors: 1, ..context.tuned_device() };
    let tuning = Tuning::new(other, vec![entry]).unwrap();
    assert!(matches!(sampler.with_tuning(&tuning), Err(TuningError::Device { .. })));
    assert!(matches!(CudaDevice::new(&context).unwrap().with_tuning(tuning), Err(TuningError::Device { .. })));
}
