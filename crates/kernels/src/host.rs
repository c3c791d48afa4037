//! A device as a backend for callers whose logits lie in host memory: upload, launch, download.
//!
//! Every vendor's backend is this, over its [`Device`]. The caller's memory is written only after everything was
//! downloaded, so that a device that fails half-way leaves it as it was.

use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use qrita_core::{
    Backend, Boundary, Candidate, ChainOutputs, Chains, Cut, Decay, Dtype, Error, Features, Gathering, Input, Key,
    Logits, Outputs, Param, Params, Plan, Shape, Side, Sparse, Status, Truncated, with_dtype,
};
use qrita_delta_tables::DeltaTables;

use crate::call::{Call, ChainCall, LAW_BYTES, RowArgs, StageRow};
use crate::device::Device;
use crate::row_args::row_args;
use crate::source::{MOST_CHUNKS, Specialization, Stage, is_streamed, row_blocks};
use crate::workspace::{SPLIT_ROWS, Split, Workspace};

/// What this crate was compiled with.
const FEATURES: Features = qrita_core::features!();

/// Qrita on a device, for callers with host memory.
///
/// Memory of the device is allocated in each call: who wants none of that, nor the copies, uses the device's own entry
/// points.
#[derive(Debug)]
pub struct HostBackend<D> {
    device: D,
    tables: Arc<DeltaTables>,
}

impl<D: Device> HostBackend<D> {
    /// A backend on this device, with the δ tables of the normal law.
    pub fn new(device: D) -> HostBackend<D> {
        HostBackend { device, tables: Arc::default() }
    }

    /// The same backend with δ tables fitted to a model, for the plans that use them.
    #[cfg(feature = "truncation")]
    #[must_use]
    pub fn with_tables(mut self, tables: DeltaTables) -> HostBackend<D> {
        self.tables = Arc::new(tables);
        self
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Uploads a batch that was validated and is not empty, and prepares the call of one stage, or of a step with `decay`.
    fn prepare(
        &self,
        logits: &Logits<'_>,
        params: &Params<'_>,
        decay: Option<&Decay<'_>>,
        plan: &Plan,
        stage: Stage,
    ) -> Result<Job<'_, D>, Error> {
        let Shape { vocab, stride, .. } = logits.shape();
        let rows = logits.rows();
        let batch_rows = batch_rows(rows)?;
        let (device, tables) = (&self.device, &*self.tables);
        let mut params = *params;
        if let Some(decay) = decay {
            params.adjustments.standing = Some(decay.standing());
        }
        let params = &params;
        let adjusted = !(0..rows).all(|row| params.adjustments.row(row).is_identity(vocab));
        let blocks = row_blocks(plan, batch_rows, device.blocks().max(1));

        let data = with_dtype!(Row, logits.data(), |data| device.upload(bytemuck::cast_slice(&data[..span(logits)])))?;
        let mut job = Job {
            device,
            specialization: Specialization {
                dtype: logits.dtype(),
                plan: *plan,
                stage,
                adjusted,
                threads: device.threads(vocab, plan.autotune),
                warp: device.warp(),
            },
            blocks,
            call: Call {
                logits: device.address(&data),
                stride: stride as u64,
                rows: batch_rows,
                // At most 2^21.
                vocab: vocab as u32,
                valid_vocab: vocab as u32,
                force_fallback: u32::from(plan.force_fallback),
                draws: params.draws,
                ..Call::default()
            },
            logits: data,
            standing: None,
            held: Vec::new(),
        };
        if let Some(index) = logits.index() {
            job.call.index = job.upload(index)?;
        }
        let workspace = Workspace::new(plan, rows, vocab, blocks);
        let zeroed = job.upload(&vec![0u8; workspace.zeroed_bytes()])?;
        let rest = job.allocate(workspace.bytes() - workspace.zeroed_bytes())?;
        workspace.place(zeroed, rest, &mut job.call);
        let args = |row| {
            let args = row_args(params, row, vocab, tables, plan);
            decay.map_or(Ok(args), |decay| args.decaying(decay.row(row)))
        };
        if is_uniform(params, decay) {
            job.call.args = args(0)?;
        } else {
            job.call.row_args = job.upload(&(0..rows).map(args).collect::<Result<Vec<RowArgs>, _>>()?)?;
        }
        if adjusted {
            job.upload_adjustments(params, rows, vocab)?;
        }
        Ok(job)
    }

    /// Runs one stage alone: hands `stage_rows` to it, and gets back what it makes of them. `more` completes the call.
    fn run_stage(
        &self,
        logits: &Logits<'_>,
        params: &Params<'_>,
        plan: &Plan,
        stage: Stage,
        stage_rows: &[StageRow],
        more: impl FnOnce(&mut Job<'_, D>) -> Result<(), Error>,
    ) -> Result<Vec<StageRow>, Error> {
        let mut job = self.prepare(logits, params, None, plan, stage)?;
        let memory = self.device.upload(bytemuck::cast_slice(stage_rows))?;
        job.call.stage_rows = self.device.address(&memory);
        more(&mut job)?;
        job.launch()?;
        download(&self.device, &memory, stage_rows.len())
    }

    /// Runs the stages that end in outputs: all of them, or the last with the boundaries in `stage_rows`; as a step with `decay`.
    fn run_with_outputs(
        &self,
        mut input: Input<'_>,
        params: &Params<'_>,
        decay: Option<&mut Decay<'_>>,
        plan: &Plan,
        stage_rows: Option<&[StageRow]>,
        outputs: &mut Outputs<'_>,
    ) -> Result<(), Error> {
        let logits = input.logits();
        let (rows, vocab) = (logits.rows(), logits.vocab());
        params.validate(&logits)?;
        if let Some(decay) = &decay {
            decay.validate(&logits, params)?;
        }
        plan.validate(FEATURES)?;
        outputs.validate(&logits, params)?;
        if rows == 0 {
            return Ok(());
        }
        let stage = if stage_rows.is_some() { Stage::Emit } else { Stage::Run };
        let mut job = self.prepare(&logits, params, decay.as_deref(), plan, stage)?;
        if let Some(stage_rows) = stage_rows {
            job.call.stage_rows = job.upload(stage_rows)?;
        }
        job.call.mask = u32::from(matches!(input, Input::Mask(_)));
        let memory = OutputMemory::new(&mut job, outputs, vocab, decay.is_some())?;
        job.launch()?;
        if decay.is_some() {
            job.launch_decay()?;
        }

        let found = memory.download(job.device, &job.call)?;
        let penalties = match (&decay, &job.standing) {
            (Some(decay), Some(standing)) => download(job.device, standing, (rows - 1) * decay.stride + vocab)?,
            _ => Vec::<f32>::new(),
        };
        if let Input::Mask(masked) = &mut input {
            let Shape { stride, .. } = masked.shape();
            with_dtype!(RowMut, masked.data_mut(), |data| {
                let span: Vec<_> = download(job.device, &job.logits, (rows - 1) * stride + vocab)?;
                // The padding between rows is the caller's, who may have written it meanwhile.
                for (row, masked) in data.chunks_mut(stride).zip(span.chunks(stride)).take(rows) {
                    row[..vocab].copy_from_slice(&masked[..vocab]);
                }
            });
        }
        if let Some(decay) = decay {
            let found = penalties.chunks(decay.stride);
            decay.penalties.chunks_mut(decay.stride).zip(found).for_each(|(row, found)| {
                row[..vocab].copy_from_slice(&found[..vocab]);
            });
        }
        found.write(outputs);
        Ok(())
    }
}

/// Chains on a device.
impl<D: Device> HostBackend<D> {
    /// Runs the rows of one side, for the law of each. `None` if there are none.
    fn run_side(&self, side: &Side<'_>, plan: &Plan) -> Result<Option<Job<'_, D>>, Error> {
        let rows = side.logits.rows();
        if rows == 0 {
            return Ok(None);
        }
        let mut job = self.prepare(&side.logits, &side.params, None, plan, Stage::Run)?;
        job.call.laws = job.allocate(rows.saturating_mul(LAW_BYTES))?;
        job.launch()?;
        Ok(Some(job))
    }

    /// Verifies chains that were validated, of at least one request.
    fn verify_chains(&self, chains: &Chains<'_>, plan: &Plan, outputs: &mut ChainOutputs<'_>) -> Result<(), Error> {
        let (device, requests) = (&self.device, chains.requests());
        let target_rows = chains.target.logits.rows();
        batch_rows(chains.draft.logits.rows()).map_err(|error| Error::Draft(Box::new(error)))?;
        batch_rows(target_rows)?;
        let draft = self.run_side(&chains.draft, plan)?;
        // The kernel reads what both jobs own: they stay to the end of this function. There is a target row a request.
        let Some(mut target) = self.run_side(&chains.target, plan)? else { return Ok(()) };
        let offsets: Vec<u64> = chains.offsets.iter().map(|&offset| offset as u64).collect();
        let [offsets, tokens] = [target.upload(&offsets)?, target.upload(chains.tokens)?];
        let [accepted, emitted, status] =
            [requests, target_rows, requests].map(|count| device.allocate(count.saturating_mul(size_of::<u32>())));
        let (accepted, emitted, status) = (accepted?, emitted?, status?);
        let call = ChainCall {
            draft: draft.as_ref().map(|draft| draft.call).unwrap_or_default(),
            target: target.call,
            offsets,
            tokens,
            accepted: device.address(&accepted),
            emitted: device.address(&emitted),
            status: device.address(&status),
            // No more than target rows.
            requests: requests as u32,
            unused: 0,
        };
        let specialization = Specialization {
            stage: Stage::Verify,
            // What a plan has of its own is done.
            plan: Plan::default(),
            adjusted: target.specialization.adjusted
                || draft.as_ref().is_some_and(|draft| draft.specialization.adjusted),
            ..target.specialization
        };
        device.launch_chains(&specialization, &call)?;

        let accepted: Vec<u32> = download(device, &accepted, requests)?;
        let emitted: Vec<u32> = download(device, &emitted, target_rows)?;
        let status: Vec<u32> = download(device, &status, requests)?;
        copy(&Some(accepted), &mut outputs.accepted);
        copy(&Some(emitted), &mut outputs.tokens);
        copy_status(&Some(status), &mut outputs.status);
        Ok(())
    }
}

/// A grid has at most as many.
const MOST_BLOCKS: u32 = i32::MAX as u32;

/// The rows of a batch, each of which a launch has a block for.
///
/// ```
/// use qrita_core::Error;
/// use qrita_kernels::batch_rows;
///
/// assert_eq!(batch_rows(7), Ok(7));
/// assert_eq!(batch_rows((1 << 31) - 1), Ok(i32::MAX as u32));
/// assert!(matches!(batch_rows(1 << 31), Err(Error::Shape { what: "rows", .. })));
/// ```
///
/// # Errors
/// [`Error::Shape`] from 2^31 rows on.
pub fn batch_rows(rows: usize) -> Result<u32, Error> {
    let expected = "below 2^31";
    let refused = Error::Shape { what: "rows", value: rows, expected };
    u32::try_from(rows).ok().filter(|&rows| rows <= MOST_BLOCKS).ok_or(refused)
}

/// Elements from the first stored logit to the last.
fn span(logits: &Logits<'_>) -> usize {
    let Shape { rows, vocab, stride } = logits.shape();
    rows.saturating_sub(1) * stride + vocab
}

/// Whether all rows have the same parameters.
fn is_uniform(params: &Params<'_>, decay: Option<&Decay<'_>>) -> bool {
    fn all<T>(param: &Param<'_, T>) -> bool {
        matches!(param, Param::All(_))
    }
    let Params { temperature, top_k, top_p, min_p, seed, position, stream, .. } = params;
    let penalties = params.adjustments.penalties.as_ref();
    all(temperature)
        && all(top_k)
        && all(top_p)
        && all(min_p)
        && all(seed)
        && all(position)
        && all(stream)
        && penalties.is_none_or(|p| all(&p.repetition) && all(&p.frequency) && all(&p.presence))
        && decay.is_none_or(|d| all(&d.decay) && all(&d.presence) && all(&d.repetition))
}

/// Reads `len` elements from the start of a memory.
fn download<D: Device, T: Pod>(device: &D, memory: &D::Memory, len: usize) -> Result<Vec<T>, Error> {
    let mut items = vec![T::zeroed(); len];
    device.download(memory, bytemuck::cast_slice_mut(&mut items))?;
    Ok(items)
}

/// A call in preparation.
struct Job<'d, D: Device> {
    device: &'d D,
    specialization: Specialization,
    blocks: u32,
    call: Call,
    logits: D::Memory,
    standing: Option<D::Memory>,
    /// Memory that the call has the address of and nobody reads afterwards.
    held: Vec<D::Memory>,
}

impl<D: Device> Job<'_, D> {
    fn hold(&mut self, memory: D::Memory) -> u64 {
        let address = self.device.address(&memory);
        self.held.push(memory);
        address
    }

    fn upload<T: Pod>(&mut self, items: &[T]) -> Result<u64, Error> {
        let memory = self.device.upload(bytemuck::cast_slice(items))?;
        Ok(self.hold(memory))
    }

    fn allocate(&mut self, bytes: usize) -> Result<u64, Error> {
        let memory = self.device.allocate(bytes)?;
        Ok(self.hold(memory))
    }

    /// Offsets, ids and values of a sparse list.
    fn upload_sparse<T: Pod>(&mut self, sparse: &Sparse<'_, T>) -> Result<[u64; 3], Error> {
        let offsets: Vec<u64> = sparse.offsets.iter().map(|&offset| offset as u64).collect();
        Ok([self.upload(&offsets)?, self.upload(sparse.ids)?, self.upload(sparse.values)?])
    }

    fn upload_adjustments(&mut self, params: &Params<'_>, rows: usize, vocab: usize) -> Result<(), Error> {
        let adjustments = &params.adjustments;
        self.call.valid_vocab = adjustments.valid_vocab.unwrap_or(vocab).min(vocab) as u32;
        if let Some(mask) = &adjustments.bitmask {
            let words = (rows - 1) * mask.stride + mask.ids.div_ceil(32);
            self.call.bitmask = self.upload(&mask.words[..words])?;
            self.call.bitmask_stride = mask.stride as u64;
            self.call.bitmask_ids = mask.ids.min(vocab) as u32;
        }
        if let Some(bias) = &adjustments.bias {
            let [offsets, ids, values] = self.upload_sparse(bias)?;
            (self.call.bias_offsets, self.call.bias_ids, self.call.bias_values) = (offsets, ids, values);
        }
        if let Some(penalties) = &adjustments.penalties {
            let [offsets, ids, counts] = self.upload_sparse(&penalties.counts)?;
            (self.call.penalty_offsets, self.call.penalty_ids, self.call.penalty_counts) = (offsets, ids, counts);
        }
        if let Some(standing) = &adjustments.standing {
            let len = (rows - 1) * standing.stride + vocab;
            let memory = self.device.upload(bytemuck::cast_slice(&standing.penalties[..len]))?;
            (self.call.standing, self.call.standing_stride) = (self.device.address(&memory), standing.stride as u64);
            self.standing = Some(memory);
        }
        Ok(())
    }

    fn launch_decay(&self) -> Result<(), Error> {
        let Launch { specialization, blocks, call } = decay_launch(&self.specialization, &self.call);
        self.device.launch(&specialization, blocks, &call)
    }

    fn launch(&self) -> Result<(), Error> {
        let Job { device, specialization: whole, blocks, call, .. } = self;
        let split = if whole.stage == Stage::Run { device.split(whole, call) } else { None };
        let Some(split) = split else { return device.launch(whole, *blocks, call) };
        for launch in split_launches(whole, split, *blocks, call) {
            device.launch(&launch.specialization, launch.blocks, &launch.call)?;
        }
        Ok(())
    }
}

/// Logits of a row whose penalties one thread takes on.
const DECAY_ITEMS: u32 = 8;

/// The launch that takes standing penalties on behind the tokens of a step, whose call this is: in the place of `whole`, which
/// ran it.
pub fn decay_launch(whole: &Specialization, call: &Call) -> Launch {
    let chunks = (call.vocab / (DECAY_ITEMS * whole.threads)).clamp(1, (MOST_BLOCKS / call.rows.max(1)).max(1));
    Launch {
        specialization: decay_specialization(whole),
        blocks: call.rows.saturating_mul(chunks),
        call: Call { chunks, ..*call },
    }
}

/// The kernel of [`decay_launch`]: neither plan nor dtype change it.
pub fn decay_specialization(whole: &Specialization) -> Specialization {
    Specialization { stage: Stage::Decay, plan: Plan::default(), dtype: Dtype::F32, adjusted: true, ..*whole }
}

/// A launch of one kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Launch {
    /// The kernel.
    pub specialization: Specialization,
    /// Its blocks.
    pub blocks: u32,
    /// Its argument.
    pub call: Call,
}

/// The two launches, one after the other on a stream, that a call is in the place of `whole`, which runs all of it in one
/// kernel. Where blocks have scratch memory, there are at most `most_blocks` of them.
pub fn split_launches(whole: &Specialization, split: Split, most_blocks: u32, call: &Call) -> [Launch; 2] {
    let is_many = call.rows as usize > SPLIT_ROWS;
    // The device divides by them with a shift.
    let parts = |wanted: u32, most: u32| 1 << wanted.clamp(1, most.max(1)).ilog2();
    let call = Call {
        chunks: if is_many { 1 } else { parts(split.chunks, split.threads.min(MOST_CHUNKS as u32)) },
        // What is of the whole row is read by one block, and must be before another masks.
        mask_chunks: if call.mask == 0 || call.raw_logprob != 0 || call.top_ids != 0 {
            1
        } else {
            parts(split.mask_chunks, MOST_BLOCKS / call.rows.max(1))
        },
        ..*call
    };
    let blocks = |parts: u32| call.rows.saturating_mul(parts);
    let [first, second] = split_specializations(whole, split.threads);
    let first_blocks = if first.stage == Stage::Stream {
        blocks(call.chunks)
    } else {
        row_blocks(&whole.plan, call.rows, most_blocks)
    };
    [
        Launch { specialization: first, blocks: first_blocks, call },
        Launch { specialization: second, blocks: blocks(call.mask_chunks), call },
    ]
}

/// The kernels of [`split_launches`], the first with this many threads in a block.
pub fn split_specializations(whole: &Specialization, threads: u32) -> [Specialization; 2] {
    let stage = if is_streamed(&whole.plan) { Stage::Stream } else { Stage::Cut };
    let first = Specialization { stage, threads, ..*whole };
    // What a plan may have of its own is done.
    let second = Specialization { stage: Stage::Finish, plan: Plan::default(), ..*whole };
    [first, second]
}

/// The device's memory of the outputs that are asked for.
struct OutputMemory<M> {
    status: Option<M>,
    kept: Option<M>,
    /// Ids, logits and logprobs.
    candidates: Option<[M; 3]>,
    token: Option<M>,
    logprob: Option<M>,
    raw_logprob: Option<M>,
    rank: Option<M>,
    /// Ids and logprobs.
    top: Option<[M; 2]>,
    probabilities: Option<M>,
}

impl<M> OutputMemory<M> {
    fn new<D: Device<Memory = M>>(
        job: &mut Job<'_, D>,
        outputs: &Outputs<'_>,
        vocab: usize,
        needs_token: bool,
    ) -> Result<OutputMemory<M>, Error> {
        let device = job.device;
        let rows = job.call.rows as usize;
        let draws = rows * job.call.draws as usize;
        let words = |address: &mut u64, wanted: bool, len: usize| -> Result<Option<M>, Error> {
            if !wanted {
                return Ok(None);
            }
            let memory = device.allocate(len * size_of::<u32>())?;
            *address = device.address(&memory);
            Ok(Some(memory))
        };
        let call = &mut job.call;
        Ok(OutputMemory {
            status: words(&mut call.status, outputs.status.is_some(), rows)?,
            kept: words(&mut call.kept, outputs.kept.is_some(), rows)?,
            token: words(&mut call.token, needs_token || outputs.token.is_some(), draws)?,
            logprob: words(&mut call.logprob, outputs.logprob.is_some(), draws)?,
            raw_logprob: words(&mut call.raw_logprob, outputs.raw_logprob.is_some(), draws)?,
            rank: words(&mut call.rank, outputs.rank.is_some(), draws)?,
            probabilities: words(&mut call.probabilities, outputs.probabilities.is_some(), rows * vocab)?,
            top: match &outputs.top {
                None => None,
                Some(top) => {
                    // At most `MAX_TOP`.
                    call.top = top.n as u32;
                    let ids = words(&mut call.top_ids, true, rows * top.n)?;
                    let logprobs = words(&mut call.top_logprobs, true, rows * top.n)?;
                    ids.zip(logprobs).map(|(ids, logprobs)| [ids, logprobs])
                }
            },
            candidates: match &outputs.candidates {
                None => None,
                Some(candidates) => {
                    // No row keeps more than its logits.
                    let (given, room) = (candidates.capacity, candidates.capacity.min(vocab));
                    call.capacity = room as u32;
                    // Room that a row does not use is to come back as it was.
                    let ids = device.upload(bytemuck::cast_slice(&heads(candidates.ids, given, room)))?;
                    let logits = device.upload(bytemuck::cast_slice(&heads(candidates.logits, given, room)))?;
                    let logprobs = device.upload(bytemuck::cast_slice(&heads(candidates.logprobs, given, room)))?;
                    call.candidate_ids = device.address(&ids);
                    call.candidate_logits = device.address(&logits);
                    call.candidate_logprobs = device.address(&logprobs);
                    Some([ids, logits, logprobs])
                }
            },
        })
    }

    /// Reads the outputs of this call.
    fn download<D: Device<Memory = M>>(&self, device: &D, call: &Call) -> Result<Found, Error> {
        fn words<D: Device, T: Pod>(
            device: &D,
            memory: &Option<D::Memory>,
            len: usize,
        ) -> Result<Option<Vec<T>>, Error> {
            memory.as_ref().map(|memory| download(device, memory, len)).transpose()
        }
        let (rows, room) = (call.rows as usize, call.capacity as usize);
        let draws = rows * call.draws as usize;
        Ok(Found {
            status: words(device, &self.status, rows)?,
            kept: words(device, &self.kept, rows)?,
            token: words(device, &self.token, draws)?,
            logprob: words(device, &self.logprob, draws)?,
            raw_logprob: words(device, &self.raw_logprob, draws)?,
            rank: words(device, &self.rank, draws)?,
            probabilities: words(device, &self.probabilities, rows * call.vocab as usize)?,
            top: match &self.top {
                None => None,
                Some([ids, logprobs]) => {
                    let len = rows * call.top as usize;
                    Some((download(device, ids, len)?, download(device, logprobs, len)?))
                }
            },
            room,
            candidates: match &self.candidates {
                None => None,
                Some([ids, logits, logprobs]) => Some((
                    download(device, ids, rows * room)?,
                    download(device, logits, rows * room)?,
                    download(device, logprobs, rows * room)?,
                )),
            },
        })
    }
}

/// The first `room` of each `capacity` elements.
fn heads<T: Pod>(rows: &[T], capacity: usize, room: usize) -> Vec<T> {
    rows.chunks(capacity.max(1)).flat_map(|row| &row[..room]).copied().collect()
}

/// Outputs on their way from the device to the caller.
struct Found {
    status: Option<Vec<u32>>,
    kept: Option<Vec<u32>>,
    /// Candidates that the device has of each row.
    room: usize,
    candidates: Option<(Vec<u32>, Vec<f32>, Vec<f32>)>,
    token: Option<Vec<u32>>,
    logprob: Option<Vec<f32>>,
    raw_logprob: Option<Vec<f32>>,
    rank: Option<Vec<u32>>,
    /// Ids and logprobs.
    top: Option<(Vec<u32>, Vec<f32>)>,
    probabilities: Option<Vec<f32>>,
}

impl Found {
    fn write(&self, outputs: &mut Outputs<'_>) {
        copy_status(&self.status, &mut outputs.status);
        copy(&self.kept, &mut outputs.kept);
        copy(&self.token, &mut outputs.token);
        copy(&self.logprob, &mut outputs.logprob);
        copy(&self.raw_logprob, &mut outputs.raw_logprob);
        copy(&self.rank, &mut outputs.rank);
        copy(&self.probabilities, &mut outputs.probabilities);
        if let (Some((ids, logprobs)), Some(top)) = (&self.top, &mut outputs.top) {
            top.ids.copy_from_slice(ids);
            top.logprobs.copy_from_slice(logprobs);
        }
        if let (Some((ids, logits, logprobs)), Some(candidates)) = (&self.candidates, &mut outputs.candidates) {
            let (capacity, room) = (candidates.capacity, self.room);
            copy_heads(ids, candidates.ids, capacity, room);
            copy_heads(logits, candidates.logits, capacity, room);
            copy_heads(logprobs, candidates.logprobs, capacity, room);
        }
    }
}

fn copy<T: Copy>(found: &Option<Vec<T>>, output: &mut Option<&mut [T]>) {
    if let (Some(found), Some(output)) = (found, output) {
        output.copy_from_slice(found);
    }
}

fn copy_status(found: &Option<Vec<u32>>, output: &mut Option<&mut [Status]>) {
    if let (Some(found), Some(output)) = (found, output) {
        output.iter_mut().zip(found).for_each(|(status, &bits)| *status = Status::from_bits(bits));
    }
}

/// Copies `room` elements a row into the first of each `capacity`.
fn copy_heads<T: Copy>(from: &[T], to: &mut [T], capacity: usize, room: usize) {
    for (to, from) in to.chunks_mut(capacity.max(1)).zip(from.chunks(room.max(1))) {
        to[..room].copy_from_slice(from);
    }
}

/// A row without a candidate, as it lies before a stage: one that has nothing to do leaves it so.
fn empty_row() -> StageRow {
    StageRow { max: Key::NEG_INFINITY.bits(), key: Key::NEG_INFINITY.bits(), ..StageRow::zeroed() }
}

impl<D: Device> Backend for HostBackend<D> {
    type Workspace = ();

    fn name(&self) -> &'static str {
        self.device.name()
    }

    fn description(&self) -> String {
        self.device.description()
    }

    fn workspace(&self) {}

    fn truncate(
        &self,
        logits: &Logits<'_>,
        params: &Params<'_>,
        plan: &Plan,
        (): &mut (),
    ) -> Result<Vec<Truncated>, Error> {
        let (rows, vocab) = (logits.rows(), logits.vocab());
        params.validate(logits)?;
        plan.validate(FEATURES)?;
        if rows == 0 {
            return Ok(Vec::new());
        }
        let memory = self.device.allocate(rows.saturating_mul(vocab).saturating_mul(size_of::<u64>()))?;
        let more = |job: &mut Job<'_, D>| {
            job.call.gathered = job.device.address(&memory);
            job.call.gathered_stride = vocab as u64;
            Ok(())
        };
        let stage_rows = vec![empty_row(); rows];
        let stage_rows = self.run_stage(logits, params, plan, Stage::Truncate, &stage_rows, more)?;
        let gathered: Vec<u64> = download(&self.device, &memory, rows * vocab)?;
        let truncated = |(row, gathered): (&StageRow, &[u64])| {
            let count = (row.gathered as usize).min(vocab);
            // Threads append in any order.
            let mut gathered: Vec<Candidate> = gathered[..count].iter().copied().map(Candidate::from_bits).collect();
            gathered.sort_unstable_by_key(|candidate| candidate.id());
            Truncated {
                status: Status::from_bits(row.status),
                max: Key::from_bits(row.max),
                threshold: Key::from_bits(row.covered_above).value(),
                gathered,
                hit: row.hit != 0,
            }
        };
        Ok(stage_rows.iter().zip(gathered.chunks(vocab)).map(truncated).collect())
    }

    fn gather(
        &self,
        logits: &Logits<'_>,
        params: &Params<'_>,
        plan: &Plan,
        (): &mut (),
    ) -> Result<Vec<Gathering>, Error> {
        if let Some(streamed) = self.gather_streaming(logits, params, plan)? {
            return Ok(streamed);
        }
        Ok(self.truncate(logits, params, plan, &mut ())?.iter().map(Gathering::from).collect())
    }

    fn search(
        &self,
        logits: &Logits<'_>,
        params: &Params<'_>,
        plan: &Plan,
        truncated: &[Truncated],
        (): &mut (),
    ) -> Result<Vec<Cut>, Error> {
        Error::check_length("truncated", truncated.len(), logits.rows())?;
        params.validate(logits)?;
        plan.validate(FEATURES)?;
        if truncated.is_empty() {
            return Ok(Vec::new());
        }
        // More candidates than logits are none of this row: the rest is not looked at.
        let vocab = logits.vocab();
        let count = |truncated: &Truncated| truncated.gathered.len().min(vocab);
        let stride = truncated.iter().map(count).max().unwrap_or(0);
        let mut gathered = vec![0u64; stride * truncated.len()];
        for (room, truncated) in gathered.chunks_mut(stride.max(1)).zip(truncated) {
            room.iter_mut().zip(&truncated.gathered).for_each(|(room, candidate)| *room = candidate.bits());
        }
        let stage_row = |truncated: &Truncated| StageRow {
            status: truncated.status.bits(),
            max: truncated.max.bits(),
            covered_above: Key::new(truncated.threshold).bits(),
            gathered: count(truncated) as u32,
            hit: u32::from(truncated.hit),
            ..empty_row()
        };
        let stage_rows: Vec<StageRow> = truncated.iter().map(stage_row).collect();
        let more = |job: &mut Job<'_, D>| {
            job.call.gathered = job.upload(&gathered)?;
            job.call.gathered_stride = stride as u64;
            Ok(())
        };
        let found = self.run_stage(logits, params, plan, Stage::Search, &stage_rows, more)?;
        let cut = |row: &StageRow| Cut {
            max: Key::from_bits(row.max),
            key: Key::from_bits(row.key),
            above: row.above,
            tied: row.tied,
            quota: row.quota,
        };
        Ok(found.iter().map(cut).collect())
    }

    fn dedup(
        &self,
        logits: &Logits<'_>,
        params: &Params<'_>,
        cuts: &[Cut],
        (): &mut (),
    ) -> Result<Vec<Boundary>, Error> {
        Error::check_length("cuts", cuts.len(), logits.rows())?;
        params.validate(logits)?;
        if cuts.is_empty() {
            return Ok(Vec::new());
        }
        let stage_row = |(row, cut): (usize, &Cut)| match cut.quota {
            0 => empty_row(),
            quota => StageRow {
                max: cut.max.bits(),
                key: cut.key.bits(),
                above: cut.above,
                tied: cut.tied,
                // Without duplication handling all that are tied are kept or, at temperature 0, the first.
                quota: match params.temperature.get(row) {
                    _ if FEATURES.duplicates => quota,
                    0.0 => 1,
                    _ => cut.tied,
                },
                ..empty_row()
            },
        };
        let stage_rows: Vec<StageRow> = cuts.iter().enumerate().map(stage_row).collect();
        let found = self.run_stage(logits, params, &Plan::default(), Stage::Dedup, &stage_rows, |_| Ok(()))?;
        let boundary = |row: &StageRow| Boundary {
            max: Key::from_bits(row.max),
            key: Key::from_bits(row.key),
            id: row.id,
            kept: row.kept,
        };
        Ok(found.iter().map(boundary).collect())
    }

    fn emit(
        &self,
        input: Input<'_>,
        params: &Params<'_>,
        boundaries: &[Boundary],
        outputs: &mut Outputs<'_>,
        (): &mut (),
    ) -> Result<(), Error> {
        Error::check_length("boundaries", boundaries.len(), input.logits().rows())?;
        let stage_row = |boundary: &Boundary| StageRow {
            max: boundary.max.bits(),
            key: boundary.key.bits(),
            id: boundary.id,
            kept: boundary.kept,
            ..empty_row()
        };
        let stage_rows: Vec<StageRow> = boundaries.iter().map(stage_row).collect();
        self.run_with_outputs(input, params, None, &Plan::default(), Some(&stage_rows), outputs)
    }

    fn run(
        &self,
        input: Input<'_>,
        params: &Params<'_>,
        plan: &Plan,
        outputs: &mut Outputs<'_>,
        (): &mut (),
    ) -> Result<(), Error> {
        self.run_with_outputs(input, params, None, plan, None, outputs)
    }

    fn step(
        &self,
        input: Input<'_>,
        params: &Params<'_>,
        decay: &mut Decay<'_>,
        plan: &Plan,
        outputs: &mut Outputs<'_>,
        (): &mut (),
    ) -> Result<(), Error> {
        self.run_with_outputs(input, params, Some(decay), plan, None, outputs)
    }

    fn verify(
        &self,
        chains: &Chains<'_>,
        plan: &Plan,
        outputs: &mut ChainOutputs<'_>,
        (): &mut (),
    ) -> Result<(), Error> {
        chains.validate()?;
        plan.validate(FEATURES)?;
        outputs.validate(chains)?;
        if chains.requests() == 0 {
            return Ok(());
        }
        self.verify_chains(chains, plan, outputs)
    }
}

mod gathering;
#[cfg(test)]
mod tests;
