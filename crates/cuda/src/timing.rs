//! What a launch costs: batches in device memory, and the replay of CUDA graphs.
//!
//! A time is that of a graph's replay, measured by events, so that no launch waits for the host. The graph has the launch once
//! for each copy of the batch, and the time is divided by them. There are as many copies as fill the L2 cache twice, so that
//! each launch meets logits that are not in it, as after a large matrix product; a batch that is as large as that needs no
//! second one. Masks are undone by a copy before each replay, outside the events: it also keeps the device busy until the
//! replay is queued. Where nothing is masked, a read of other memory does so.
//!
//! [`tune`](crate::tune()) measures with this, and so do the repository's benchmarks.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys::{CUdevice_attribute, CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaFunction, CudaSlice, CudaStream, DevicePtr, DeviceRepr, DriverError, result};
use cudarc::nvrtc::Ptx;
use qrita_core::{Dtype, Error, Params, Shape};
use qrita_kernels::batch_rows;

use crate::context::{Context, driver};
use crate::sampler::{CudaSampler, DeviceBatch, DeviceCandidates, DeviceOutputs, DeviceWorkspace, LaunchParams};
use crate::{failed, nvrtc, read};

/// Replays that are not counted.
const WARM_UPS: usize = 3;

/// Copies of a batch at most, so that the graphs of tiny rows stay of a size.
const MOST_COPIES: usize = 1024;

/// Copies of the batch start at multiples of this many bytes.
const ALIGNMENT: usize = 256;

/// A device to measure on.
#[derive(Debug)]
pub struct Timer {
    context: Context,
    stream: Arc<CudaStream>,
    read: CudaFunction,
    sink: CudaSlice<u32>,
    cache: usize,
    most_launches: usize,
}

impl Timer {
    /// A timer on this device, with a stream of its own.
    ///
    /// # Errors
    /// [`Error::Device`]; so in all methods of this module, but for parameters out of range.
    pub fn new(context: &Context) -> Result<Timer, Error> {
        let stream = context.cuda().new_stream().map_err(failure)?;
        let (major, minor) = context.capability();
        let cubin = nvrtc::compile(read::SOURCE, &[format!("--gpu-architecture=sm_{}", 10 * major + minor)])?.cubin;
        let module = context.cuda().load_module(Ptx::from_binary(cubin)).map_err(failure)?;
        let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE;
        let cache = context.cuda().attribute(attribute).map_err(failure)?;
        Ok(Timer {
            context: context.clone(),
            read: module.load_function(read::ENTRY).map_err(failure)?,
            sink: stream.alloc_zeros(1).map_err(failure)?,
            cache: usize::try_from(cache).unwrap_or_default(),
            most_launches: usize::MAX,
            stream,
        })
    }

    /// The same timer with at most this many launches in a replay, at least one: quicker, and less exact.
    #[must_use]
    pub fn with_most_launches(mut self, most: usize) -> Timer {
        self.most_launches = most.max(1);
        self
    }

    /// The device.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Uploads batches of `count` rows, cut from the endless repetition of these `rows` of `vocab` logits, in the machine's
    /// order of bytes.
    ///
    /// # Errors
    /// [`Error::Shape`] for numbers outside the contract, and for rows that are not whole, or none; [`Error::Device`] when
    /// memory does not suffice.
    pub fn batches(&self, rows: &[u8], dtype: Dtype, vocab: usize, count: usize) -> Result<Batches<'_>, Error> {
        Shape { rows: count, vocab, stride: vocab }.validate(usize::MAX)?;
        let row = vocab * dtype.size();
        if rows.is_empty() || !rows.len().is_multiple_of(row) {
            return Err(Error::Shape { what: "bytes of rows", value: rows.len(), expected: "those of whole rows" });
        }
        if batch_rows(count)? == 0 {
            return Err(Error::Shape { what: "rows", value: count, expected: "at least 1" });
        }
        let different = rows.len() / row;
        let bytes = count * row;
        let pitch = bytes.next_multiple_of(ALIGNMENT);
        let copies = (2 * self.cache).div_ceil(bytes).clamp(1, MOST_COPIES);
        let pristine = self.stream.alloc_zeros(copies * pitch).map_err(failure)?;
        let work = self.stream.alloc_zeros(copies * pitch).map_err(failure)?;
        let batches = Batches { timer: self, dtype, vocab, count, copies, pitch, pristine, work };

        let source = self.stream.clone_htod(rows).map_err(failure)?;
        for copy in 0..copies {
            let mut done = 0;
            while done < count {
                let first = (copy * count + done) % different;
                let run = (different - first).min(count - done);
                let from = self.address(&source) + (first * row) as u64;
                let to = self.address(&batches.pristine) + (copy * pitch + done * row) as u64;
                // SAFETY: `run` rows lie in both allocations from there on.
                unsafe { self.queue_copy(to, from, run * row) }?;
                done += run;
            }
        }
        self.stream.synchronize().map_err(failure)?;
        Ok(batches)
    }

    fn address<T>(&self, memory: &CudaSlice<T>) -> u64 {
        memory.device_ptr(&self.stream).0
    }

    /// Queues a copy, device to device.
    ///
    /// # Safety
    /// Both addresses have this many bytes, and they do not overlap.
    unsafe fn queue_copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        unsafe { result::memcpy_dtod_async(to, from, bytes, self.stream.cu_stream()) }.map_err(failure)
    }

    /// Queues a read, but for what does not fill the last 16 bytes.
    ///
    /// # Safety
    /// The address is a multiple of 16 and has this many bytes.
    unsafe fn queue_read(&self, address: u64, bytes: usize, sink: u64) -> Result<(), Error> {
        let mut count = (bytes / 16) as u64;
        let most = u64::from(8 * self.context.multiprocessors());
        let blocks = count.div_ceil(4 * u64::from(read::THREADS)).clamp(1, most.max(1));
        let (mut address, mut sink) = (address, sink);
        let mut arguments =
            [(&raw mut address).cast::<c_void>(), (&raw mut count).cast::<c_void>(), (&raw mut sink).cast::<c_void>()];
        // Eight for each multiprocessor at most.
        let (grid, block) = ((blocks as u32, 1, 1), (read::THREADS, 1, 1));
        let stream = self.stream.cu_stream();
        // SAFETY: the kernel takes an address, a count and the address of an integer, which is this timer's; the rest is the
        // caller's promise.
        unsafe { result::launch_kernel(self.read.cu_function(), grid, block, 0, stream, &mut arguments) }
            .map_err(failure)
    }

    /// Median microseconds of one of `launches`, replayed as one graph after `prepare`.
    fn time(
        &self,
        launches: usize,
        replays: usize,
        launch: impl Fn(usize) -> Result<(), Error>,
        prepare: impl Fn() -> Result<(), Error>,
    ) -> Result<f64, Error> {
        // Once without a graph: what the driver loads at a first launch, it can not load in a capture.
        launch(0)?;
        self.stream.synchronize().map_err(failure)?;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        self.stream.begin_capture(mode).map_err(failure)?;
        let launched = (0..launches).try_for_each(launch);
        let graph = self.stream.end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
        launched?;
        let graph = graph.map_err(failure)?.ok_or_else(|| failed("the capture has no graph"))?;
        graph.upload().map_err(failure)?;
        let event = || self.context.cuda().new_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).map_err(failure);
        let (start, end) = (event()?, event()?);
        let replays = replays.max(1);
        let mut times = Vec::with_capacity(replays);
        for replay in 0..WARM_UPS + replays {
            prepare()?;
            start.record(&self.stream).map_err(failure)?;
            graph.launch().map_err(failure)?;
            end.record(&self.stream).map_err(failure)?;
            let elapsed = start.elapsed_ms(&end).map_err(failure)?;
            if replay >= WARM_UPS {
                times.push(f64::from(elapsed) * 1e3 / launches as f64);
            }
        }
        Ok(median(times))
    }
}

/// The driver's error, as that of a measurement.
fn failure(error: DriverError) -> Error {
    driver("cannot measure")(error)
}

/// The middle one.
fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Copies of a batch in device memory, each with its own rows: the ones to work on, and what they were.
#[derive(Debug)]
pub struct Batches<'t> {
    timer: &'t Timer,
    dtype: Dtype,
    vocab: usize,
    count: usize,
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

    /// Rows of one.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of one.
    pub fn bytes(&self) -> usize {
        self.count * self.vocab * self.dtype.size()
    }

    /// Launches of a replay: on each copy, or on those that are restored first.
    fn launches(&self) -> usize {
        self.copies.min(self.timer.most_launches)
    }

    /// Microseconds to copy one, device to device: the median of `replays`, at least one.
    ///
    /// # Errors
    /// The device's.
    pub fn time_copy(&self, replays: usize) -> Result<f64, Error> {
        let (pristine, work) = self.addresses();
        let copy = |copy: usize| {
            let offset = (copy * self.pitch) as u64;
            // SAFETY: every copy of the batch has this many bytes in both allocations.
            unsafe { self.timer.queue_copy(work + offset, pristine + offset, self.bytes()) }
        };
        self.timer.time(self.launches(), replays, copy, || self.restore())
    }

    /// Microseconds to read one: the median of `replays`, at least one.
    ///
    /// # Errors
    /// The device's.
    pub fn time_read(&self, replays: usize) -> Result<f64, Error> {
        let (_, work) = self.addresses();
        let sink = self.timer.address(&self.timer.sink);
        let read = |copy: usize| {
            // SAFETY: every copy of the batch has this many bytes and starts at a multiple of 16.
            unsafe { self.timer.queue_read(work + (copy * self.pitch) as u64, self.bytes(), sink) }
        };
        self.timer.time(self.launches(), replays, read, || self.evict())
    }

    /// What is needed to launch a sampler of this device on these batches.
    ///
    /// # Errors
    /// A parameter that is out of range, or the device's. [`Error::Unsupported`] for a sampler of another dtype.
    pub fn launch(&self, sampler: CudaSampler, params: &Params<'_>, output: Output) -> Result<TimedLaunch<'_>, Error> {
        if sampler.dtype() != self.dtype {
            let what = format!("launches of a {} sampler on {} logits", sampler.dtype().name(), self.dtype.name());
            return Err(Error::Unsupported { backend: crate::NAME, what });
        }
        let (timer, stream, vocab) = (self.timer, &self.timer.stream, self.vocab);
        let capacity = match output {
            Output::Mask => 0,
            Output::Candidates { capacity } => capacity.min(vocab),
        };
        let room = (self.count * capacity).max(1);
        let memory = Memory {
            workspace: stream.alloc_zeros(sampler.workspace_bytes(self.count, vocab)).map_err(failure)?,
            kept: stream.alloc_zeros(self.count).map_err(failure)?,
            ids: stream.alloc_zeros(room).map_err(failure)?,
            logits: stream.alloc_zeros(room).map_err(failure)?,
            logprobs: stream.alloc_zeros(room).map_err(failure)?,
        };
        let candidates = DeviceCandidates {
            // At most the vocab.
            capacity: capacity as u32,
            ids: timer.address(&memory.ids),
            logits: timer.address(&memory.logits),
            logprobs: timer.address(&memory.logprobs),
        };
        let outputs = DeviceOutputs {
            mask: output == Output::Mask,
            kept: timer.address(&memory.kept),
            candidates: (output != Output::Mask).then_some(candidates),
            ..DeviceOutputs::default()
        };
        let workspace = DeviceWorkspace { address: timer.address(&memory.workspace), bytes: memory.workspace.len() };
        let params = LaunchParams::all(sampler.row_args(params, 0, vocab)?);
        // What was allocated is also cleared on this stream; a graph must not wait for it.
        stream.synchronize().map_err(failure)?;
        let logits = timer.address(&self.work);
        Ok(TimedLaunch { batches: self, sampler, params, outputs, workspace, logits, capacity, memory })
    }

    /// The addresses of the first batch: what it was, and the one to work on.
    fn addresses(&self) -> (u64, u64) {
        (self.timer.address(&self.pristine), self.timer.address(&self.work))
    }

    /// Queues what undoes every mask.
    fn restore(&self) -> Result<(), Error> {
        let (pristine, work) = self.addresses();
        // SAFETY: both allocations have this size.
        unsafe { self.timer.queue_copy(work, pristine, self.copies * self.pitch) }
    }

    /// Queues a read of other memory, as much as the batches to work on have.
    fn evict(&self) -> Result<(), Error> {
        let (pristine, _) = self.addresses();
        let sink = self.timer.address(&self.timer.sink);
        // SAFETY: the allocation has this size, and allocations start at multiples of 256.
        unsafe { self.timer.queue_read(pristine, self.copies * self.pitch, sink) }
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

#[derive(Debug)]
struct Memory {
    workspace: CudaSlice<u8>,
    kept: CudaSlice<u32>,
    ids: CudaSlice<u32>,
    logits: CudaSlice<f32>,
    logprobs: CudaSlice<f32>,
}

/// The candidates that a launch wrote of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundCandidates {
    /// Token ids.
    pub ids: Vec<u32>,
    /// Their logits.
    pub logits: Vec<f32>,
    /// Their log-probabilities among the kept tokens.
    pub logprobs: Vec<f32>,
}

/// A launch on batches, ready to be made, looked at and timed.
#[derive(Debug)]
pub struct TimedLaunch<'b> {
    batches: &'b Batches<'b>,
    sampler: CudaSampler,
    params: LaunchParams,
    outputs: DeviceOutputs,
    workspace: DeviceWorkspace,
    logits: u64,
    capacity: usize,
    memory: Memory,
}

impl TimedLaunch<'_> {
    /// The sampler.
    pub fn sampler(&self) -> &CudaSampler {
        &self.sampler
    }

    /// Whether logits are masked.
    pub fn masks(&self) -> bool {
        self.outputs.mask
    }

    fn launch(&self, copy: usize) -> Result<(), Error> {
        let Batches { timer, vocab, count, pitch, .. } = self.batches;
        let logits = self.logits + (copy * pitch) as u64;
        let batch = DeviceBatch { logits, index: 0, rows: *count, vocab: *vocab, stride: *vocab };
        let stream = timer.stream.cu_stream();
        // SAFETY: every copy of the batch has these rows, and outputs and workspace were allocated for them. All memory is
        // freed in the order of the stream, after the launch.
        unsafe { self.sampler.launch(stream, &batch, &self.params, &self.outputs, self.workspace) }
    }

    /// Microseconds of a launch on one batch: the median of `replays`, at least one.
    ///
    /// # Errors
    /// The device's.
    pub fn time(&self, replays: usize) -> Result<f64, Error> {
        let batches = self.batches;
        let prepare = || {
            if self.masks() {
                batches.restore()?;
                // Where the rest does not push the first copies out of the cache.
                if batches.launches() == batches.copies {
                    return Ok(());
                }
            }
            batches.evict()
        };
        batches.timer.time(batches.launches(), replays, |copy| self.launch(copy), prepare)
    }

    /// Launches on the first batch as it was, and waits.
    ///
    /// # Errors
    /// The device's.
    pub fn run(&self) -> Result<(), Error> {
        self.batches.restore()?;
        self.launch(0)?;
        self.batches.timer.stream.synchronize().map_err(failure)
    }

    /// Rows of the first batch from `first` on, in bytes, as the last [`run`](TimedLaunch::run) left them. Panics beyond the
    /// batch's end, as slices do; so below.
    ///
    /// # Errors
    /// The device's.
    pub fn rows(&self, first: usize, count: usize) -> Result<Vec<u8>, Error> {
        let row = self.batches.vocab * self.batches.dtype.size();
        assert!(first + count <= self.batches.count, "rows of the batch");
        self.download(&self.batches.work, first * row, count * row)
    }

    /// How many tokens the last run kept of each row.
    ///
    /// # Errors
    /// The device's.
    pub fn kept(&self) -> Result<Vec<u32>, Error> {
        self.download(&self.memory.kept, 0, self.batches.count)
    }

    /// The first candidates that the last run wrote of a row: as many as it `kept` and had room for.
    ///
    /// # Errors
    /// The device's.
    pub fn candidates(&self, row: usize, kept: usize) -> Result<FoundCandidates, Error> {
        let (start, len) = (row * self.capacity, kept.min(self.capacity));
        Ok(FoundCandidates {
            ids: self.download(&self.memory.ids, start, len)?,
            logits: self.download(&self.memory.logits, start, len)?,
            logprobs: self.download(&self.memory.logprobs, start, len)?,
        })
    }

    fn download<T: DeviceRepr>(&self, memory: &CudaSlice<T>, start: usize, len: usize) -> Result<Vec<T>, Error> {
        let stream = &self.batches.timer.stream;
        let found = stream.clone_dtoh(&memory.slice(start..start + len)).map_err(failure)?;
        stream.synchronize().map_err(failure)?;
        Ok(found)
    }
}
