//! Batches in device memory, and what a launch on them costs.
//!
//! A time is that of a CUDA graph's replay, measured by events, so that no launch waits for the host. The graph has the
//! launch once for each copy of the batch, and the time is divided by them. There are as many copies as fill the L2 cache
//! twice, so that each launch meets logits that are not in it, as after a large matrix product; a batch that is as large
//! as that needs no second one. Masks are undone by a copy before each replay, outside the events: it also keeps the
//! device busy until the replay is queued. Where nothing is masked, a read of other memory does so.
#![allow(unsafe_code, reason = "launches on device memory, whose sizes are known here")]

use std::error::Error;
use std::ffi::c_void;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use qrita_core::{Dtype, Params, Plan};
use qrita_cuda::cudarc::driver::sys::{
    CUdevice_attribute, CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode,
};
use qrita_cuda::cudarc::driver::{CudaFunction, CudaSlice, CudaStream, DevicePtr, DeviceRepr, result};
use qrita_cuda::cudarc::nvrtc::Ptx;
use qrita_cuda::{
    Context, CudaSampler, DeviceBatch, DeviceCandidates, DeviceOutputs, DeviceWorkspace, LaunchParams, nvrtc,
};

use crate::{Rows, median, read};

/// What can fail: the device, or a check.
pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The exit code of a program that ended so; says on stderr what went wrong.
pub fn exit_code(ended: Result<()>) -> ExitCode {
    let Err(error) = ended else { return ExitCode::SUCCESS };
    // Where stderr is closed the exit code has to do.
    let _ = writeln!(io::stderr(), "error: {error}");
    ExitCode::FAILURE
}

/// Replays that are not counted.
const WARM_UPS: usize = 3;

/// Copies of a batch at most, so that the graphs of tiny rows stay of a size.
const MOST_COPIES: usize = 1024;

/// Copies of the batch start at multiples of this many bytes.
const ALIGNMENT: usize = 256;

/// Parses `f32`, `f16` and `bf16` on a command line.
pub fn dtype_parser() -> impl TypedValueParser<Value = Dtype> {
    const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];
    PossibleValuesParser::new(DTYPES.map(Dtype::name))
        .try_map(|name| DTYPES.into_iter().find(|dtype| dtype.name() == name).ok_or("no such dtype"))
}

/// A device to measure on.
pub struct Bench {
    context: Context,
    stream: Arc<CudaStream>,
    read: CudaFunction,
    sink: CudaSlice<u32>,
    cache: usize,
    replays: usize,
}

impl Bench {
    /// The device of this number. A time is the median of `replays`, at least one.
    ///
    /// # Errors
    /// What is missing: the driver, NVRTC, the device.
    pub fn new(ordinal: usize, replays: usize) -> Result<Bench> {
        let context = Context::new(ordinal)?;
        let stream = context.cuda().new_stream()?;
        let (major, minor) = context.capability();
        let cubin = nvrtc::compile(read::SOURCE, &[format!("--gpu-architecture=sm_{}", 10 * major + minor)])?.cubin;
        let read = context.cuda().load_module(Ptx::from_binary(cubin))?.load_function(read::ENTRY)?;
        let cache = context.cuda().attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?;
        let sink = stream.alloc_zeros(1)?;
        Ok(Bench { context, stream, read, sink, cache: usize::try_from(cache)?, replays: replays.max(1) })
    }

    /// The device's name.
    pub fn device(&self) -> &str {
        self.context.name()
    }

    /// Bytes of its L2 cache.
    pub fn cache(&self) -> usize {
        self.cache
    }

    /// Uploads batches of `count` rows, cut from the repetition of these.
    ///
    /// # Errors
    /// The device's, when memory does not suffice.
    pub fn batches<'b>(&'b self, rows: &'b Rows, count: usize, dtype: Dtype) -> Result<Batches<'b>> {
        let row = rows.vocab() * dtype.size();
        let bytes = count * row;
        let pitch = bytes.next_multiple_of(ALIGNMENT);
        let copies = (2 * self.cache).div_ceil(bytes.max(1)).clamp(1, MOST_COPIES);
        let pristine = self.stream.alloc_zeros(copies * pitch)?;
        let work = self.stream.alloc_zeros(copies * pitch)?;
        let batches = Batches { bench: self, rows, count, dtype, copies, pitch, pristine, work };

        let source = self.stream.clone_htod(&rows.bytes(dtype))?;
        for copy in 0..copies {
            let mut done = 0;
            while done < count {
                let first = (copy * count + done) % rows.count();
                let run = (rows.count() - first).min(count - done);
                let from = self.address(&source) + (first * row) as u64;
                let to = self.address(&batches.pristine) + (copy * pitch + done * row) as u64;
                // SAFETY: `run` rows lie in both allocations from there on.
                unsafe { self.queue_copy(to, from, run * row) }?;
                done += run;
            }
        }
        self.stream.synchronize()?;
        Ok(batches)
    }

    fn address<T>(&self, memory: &CudaSlice<T>) -> u64 {
        memory.device_ptr(&self.stream).0
    }

    /// Queues a copy, device to device.
    ///
    /// # Safety
    /// Both addresses have this many bytes, and they do not overlap.
    unsafe fn queue_copy(&self, to: u64, from: u64, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        Ok(unsafe { result::memcpy_dtod_async(to, from, bytes, self.stream.cu_stream()) }?)
    }

    /// Queues a read, but for what does not fill the last 16 bytes.
    ///
    /// # Safety
    /// The address is a multiple of 16 and has this many bytes.
    unsafe fn queue_read(&self, address: u64, bytes: usize, sink: u64) -> Result<()> {
        let mut count = (bytes / 16) as u64;
        let most = u64::from(8 * self.context.multiprocessors());
        let blocks = count.div_ceil(4 * u64::from(read::THREADS)).clamp(1, most);
        let (mut address, mut sink) = (address, sink);
        let mut arguments =
            [(&raw mut address).cast::<c_void>(), (&raw mut count).cast::<c_void>(), (&raw mut sink).cast::<c_void>()];
        let (grid, block) = ((u32::try_from(blocks)?, 1, 1), (read::THREADS, 1, 1));
        let stream = self.stream.cu_stream();
        // SAFETY: the kernel takes an address, a count and the address of an integer, which is this bench's; the rest is
        // the caller's promise.
        Ok(unsafe { result::launch_kernel(self.read.cu_function(), grid, block, 0, stream, &mut arguments) }?)
    }

    /// Median microseconds of one of `copies` launches, replayed as one graph after `prepare`.
    fn time(
        &self,
        copies: usize,
        launch: impl Fn(usize) -> Result<()>,
        prepare: impl Fn() -> Result<()>,
    ) -> Result<f64> {
        // Once without a graph: what the driver loads at a first launch, it can not load in a capture.
        launch(0)?;
        self.stream.synchronize()?;
        self.stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
        let launched = (0..copies).try_for_each(launch);
        let graph = self.stream.end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
        launched?;
        let graph = graph?.ok_or("the capture has no graph")?;
        graph.upload()?;
        let event = || self.context.cuda().new_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
        let (start, end) = (event()?, event()?);
        let mut times = Vec::with_capacity(self.replays);
        for replay in 0..WARM_UPS + self.replays {
            prepare()?;
            start.record(&self.stream)?;
            graph.launch()?;
            end.record(&self.stream)?;
            let micros = f64::from(start.elapsed_ms(&end)?) * 1e3 / copies as f64;
            if replay >= WARM_UPS {
                times.push(micros);
            }
        }
        Ok(median(times))
    }
}

/// Copies of a batch in device memory, each with its own rows: the ones to work on, and what they were.
pub struct Batches<'b> {
    bench: &'b Bench,
    rows: &'b Rows,
    count: usize,
    dtype: Dtype,
    copies: usize,
    pitch: usize,
    pristine: CudaSlice<u8>,
    work: CudaSlice<u8>,
}

impl Batches<'_> {
    /// How many there are.
    pub fn copies(&self) -> usize {
        self.copies
    }

    /// Bytes of one.
    pub fn bytes(&self) -> usize {
        self.count * self.rows.vocab() * self.dtype.size()
    }

    /// Microseconds to copy one, device to device.
    ///
    /// # Errors
    /// The device's.
    pub fn time_copy(&self) -> Result<f64> {
        let (pristine, work) = self.addresses();
        let copy = |copy: usize| {
            let offset = (copy * self.pitch) as u64;
            // SAFETY: every copy of the batch has this many bytes in both allocations.
            unsafe { self.bench.queue_copy(work + offset, pristine + offset, self.bytes()) }
        };
        self.bench.time(self.copies, copy, || self.restore())
    }

    /// Microseconds to read one.
    ///
    /// # Errors
    /// The device's.
    pub fn time_read(&self) -> Result<f64> {
        let (_, work) = self.addresses();
        let sink = self.bench.address(&self.bench.sink);
        let read = |copy: usize| {
            // SAFETY: every copy of the batch has this many bytes and starts at a multiple of 16.
            unsafe { self.bench.queue_read(work + (copy * self.pitch) as u64, self.bytes(), sink) }
        };
        self.bench.time(self.copies, read, || self.evict())
    }

    /// What is needed to launch the kernel on these batches: compiles it if it has to.
    ///
    /// # Errors
    /// A parameter that is out of range, or the device's.
    pub fn call(&self, plan: Plan, params: &Params<'_>, output: Output) -> Result<Call<'_>> {
        let stream = &self.bench.stream;
        let vocab = self.rows.vocab();
        let sampler = CudaSampler::new(&self.bench.context, self.dtype, plan, false)?;
        let capacity = match output {
            Output::Mask => 0,
            Output::Candidates { capacity } => capacity.min(vocab),
        };
        let room = self.count * capacity;
        let memory = Memory {
            workspace: stream.alloc_zeros(sampler.workspace_bytes(self.count, vocab))?,
            kept: stream.alloc_zeros(self.count)?,
            ids: stream.alloc_zeros(room.max(1))?,
            logits: stream.alloc_zeros(room.max(1))?,
            logprobs: stream.alloc_zeros(room.max(1))?,
        };
        let candidates = DeviceCandidates {
            capacity: u32::try_from(capacity)?,
            ids: self.bench.address(&memory.ids),
            logits: self.bench.address(&memory.logits),
            logprobs: self.bench.address(&memory.logprobs),
        };
        let outputs = DeviceOutputs {
            mask: output == Output::Mask,
            kept: self.bench.address(&memory.kept),
            candidates: (output != Output::Mask).then_some(candidates),
            ..DeviceOutputs::default()
        };
        let workspace =
            DeviceWorkspace { address: self.bench.address(&memory.workspace), bytes: memory.workspace.len() };
        let launch_params = LaunchParams::all(sampler.row_args(params, 0, vocab)?);
        // What was allocated is also cleared on this stream; a graph must not wait for it.
        stream.synchronize()?;
        let logits = self.bench.address(&self.work);
        Ok(Call { batches: self, sampler, launch_params, outputs, workspace, logits, capacity, memory })
    }

    /// The addresses of the first batch: what it was, and the one to work on.
    fn addresses(&self) -> (u64, u64) {
        (self.bench.address(&self.pristine), self.bench.address(&self.work))
    }

    /// Queues what undoes every mask.
    fn restore(&self) -> Result<()> {
        let (pristine, work) = self.addresses();
        // SAFETY: both allocations have this size.
        unsafe { self.bench.queue_copy(work, pristine, self.copies * self.pitch) }
    }

    /// Queues a read of other memory, as much as the batches to work on have.
    fn evict(&self) -> Result<()> {
        let (pristine, _) = self.addresses();
        let sink = self.bench.address(&self.bench.sink);
        // SAFETY: the allocation has this size, and allocations start at multiples of 256.
        unsafe { self.bench.queue_read(pristine, self.copies * self.pitch, sink) }
    }
}

/// What a launch is asked for, beside the number of kept tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// The logits masked in place.
    Mask,
    /// The kept tokens in order with logits and log-probabilities; the batch is only read.
    Candidates {
        /// Room for so many in each row.
        capacity: usize,
    },
}

struct Memory {
    workspace: CudaSlice<u8>,
    kept: CudaSlice<u32>,
    ids: CudaSlice<u32>,
    logits: CudaSlice<f32>,
    logprobs: CudaSlice<f32>,
}

/// A launch on batches, ready to be made and timed.
pub struct Call<'b> {
    batches: &'b Batches<'b>,
    sampler: CudaSampler,
    launch_params: LaunchParams,
    outputs: DeviceOutputs,
    workspace: DeviceWorkspace,
    logits: u64,
    capacity: usize,
    memory: Memory,
}

impl Call<'_> {
    fn launch(&self, copy: usize) -> Result<()> {
        let Batches { bench, rows, count, pitch, .. } = self.batches;
        let logits = self.logits + (copy * pitch) as u64;
        let batch = DeviceBatch { logits, rows: *count, vocab: rows.vocab(), stride: rows.vocab() };
        let stream = bench.stream.cu_stream();
        // SAFETY: every copy of the batch has these rows, and outputs and workspace were allocated for them. All memory is
        // freed in the order of the stream, after the launch.
        Ok(unsafe { self.sampler.launch(stream, &batch, &self.launch_params, &self.outputs, self.workspace) }?)
    }

    /// Microseconds of a launch on one batch.
    ///
    /// # Errors
    /// The device's.
    pub fn time(&self) -> Result<f64> {
        let prepare = || if self.outputs.mask { self.batches.restore() } else { self.batches.evict() };
        self.batches.bench.time(self.batches.copies, |copy| self.launch(copy), prepare)
    }

    /// Launches on the first batch as it was.
    fn launch_fresh(&self) -> Result<()> {
        self.batches.restore()?;
        self.launch(0)?;
        Ok(self.batches.bench.stream.synchronize()?)
    }

    /// The first batch after a launch, in bytes.
    ///
    /// # Errors
    /// The device's.
    pub fn masked(&self) -> Result<Vec<u8>> {
        self.launch_fresh()?;
        self.download(&self.batches.work, 0, self.batches.bytes())
    }

    /// Compares `sample` rows of the first batch, spread over it, with what the CPU backend makes of them under the same
    /// plan: every byte of a mask, or ids, logits and log-probabilities in order.
    ///
    /// # Errors
    /// The first row that differs, or the device's.
    pub fn check(&self, params: &Params<'_>, sample: usize) -> Result<()> {
        let Batches { rows, count, dtype, .. } = self.batches;
        let plan = self.sampler.plan();
        self.launch_fresh()?;
        for at in 0..sample.min(*count) {
            let row = at * (count - 1) / (sample.min(*count) - 1).max(1);
            let same = if self.outputs.mask {
                let bytes = rows.vocab() * dtype.size();
                let masked: Vec<u8> = self.download(&self.batches.work, row * bytes, bytes)?;
                masked == rows.masked(row, *dtype, params, &plan)?
            } else {
                let right = rows.kept(row, *dtype, params, &plan)?;
                let kept = self.download(&self.memory.kept, row, 1)?[0] as usize;
                let (start, len) = (row * self.capacity, kept.min(self.capacity));
                let logprobs = self.download(&self.memory.logprobs, start, len)?;
                kept == right.ids.len()
                    && self.download(&self.memory.ids, start, len)? == right.ids[..len]
                    && self.download(&self.memory.logits, start, len)? == right.logits[..len]
                    && logprobs.iter().zip(&right.logprobs).all(|(a, b)| a.to_bits() == b.to_bits())
            };
            if !same {
                return Err(format!("row {row} of {count}, {plan:?}: not what the CPU backend makes of it").into());
            }
        }
        Ok(())
    }

    fn download<T: DeviceRepr>(&self, memory: &CudaSlice<T>, start: usize, len: usize) -> Result<Vec<T>> {
        let stream = &self.batches.bench.stream;
        let found = stream.clone_dtoh(&memory.slice(start..start + len))?;
        stream.synchronize()?;
        Ok(found)
    }
}
