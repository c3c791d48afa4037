//! The zero-copy way in: device memory and a stream of the caller's.

use std::sync::Arc;

use cudarc::driver::CudaFunction;
use cudarc::driver::sys::CUstream;
use qrita_core::{Adjustments, Decay, Dtype, Error, Logits, Params, Penalties, Plan, Shape, Sparse, Top};
use qrita_delta_tables::DeltaTables;
use qrita_kernels::{
    Call, Launch, RowArgs, Specialization, Stage, Workspace, batch_rows, decay_launch, decay_specialization, row_args,
    row_blocks, split_launches, split_specializations,
};

use crate::context::{Context, driver};
use crate::launch::{Start, launch_kernel};
use crate::policy::{LaunchShape, Machine};
use crate::tuning::{Tuning, TuningError};
use crate::{NAME, failed, policy};

/// Filters and samples logits that lie in device memory.
///
/// It is made for one dtype and one [`Plan`], and compiles for them. [`launch`](CudaSampler::launch) takes addresses and
/// any stream; [`run`](CudaSampler::run) takes views and streams of cudarc's. Neither allocates, synchronises or compiles,
/// and a stream that captures a CUDA graph captures the launch. Where the parameters of all rows are the same they travel
/// in the launch itself, and a graph keeps those of its capture; to change them between replays, keep them in device memory
/// ([`LaunchParams::per_row`]).
///
/// ```no_run
/// use qrita_core::{Dtype, Params, Plan};
/// use qrita_cuda::{Context, CudaSampler, DeviceBatch, DeviceOutputs, DeviceWorkspace, LaunchParams};
///
/// # struct Engine { logits: u64, token: u64, workspace: u64, stream: cudarc::driver::sys::CUstream }
/// # fn engine_with_workspace_of(_bytes: usize) -> Engine { unimplemented!() }
/// let context = Context::new(0)?;
/// let sampler = CudaSampler::new(&context, Dtype::Bf16, Plan::default(), false)?;
/// let (rows, vocab) = (32, 128_256);
/// let bytes = sampler.workspace_bytes(rows, vocab);
/// // The workspace is zeroed once, when it is allocated.
/// let Engine { logits, token, workspace, stream } = engine_with_workspace_of(bytes);
///
/// let args = sampler.row_args(&Params::default().top_k(50).top_p(0.9).seed(7), 0, vocab)?;
/// let batch = DeviceBatch { logits, index: 0, rows, vocab, stride: vocab };
/// let outputs = DeviceOutputs { token, ..DeviceOutputs::default() };
/// let workspace = DeviceWorkspace { address: workspace, bytes };
/// // SAFETY: the engine's memory has the batch's shape and a token for each row.
/// unsafe { sampler.launch(stream, &batch, &LaunchParams::all(args), &outputs, workspace) }?;
/// # Ok::<(), qrita_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CudaSampler {
    context: Context,
    tables: Arc<DeltaTables>,
    /// The whole algorithm in one kernel.
    whole: CudaFunction,
    whole_is: Specialization,
    /// The first of two kernels, for each number of threads that a launch may have.
    first: Vec<(u32, CudaFunction)>,
    second: CudaFunction,
    /// What a step leaves of standing penalties; of a sampler with adjustments.
    decay: Option<CudaFunction>,
    /// Measured shapes; where there are none the policy chooses.
    tuning: Option<Arc<Tuning>>,
    /// The shape of every launch, whatever would be chosen.
    shape: Option<LaunchShape>,
}

/// Rows of logits in device memory: of the sampler's dtype, aligned as one logit is.
///
/// Of logits of shape (B, T, V) the last positions start at element `(T − 1)·V`, with stride `T·V`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceBatch {
    /// The first logit's address.
    pub logits: u64,
    /// Where rows share logits: the address of one `u32` a row, the number of the stored row that it reads, as in
    /// [`Logits::indexed`]. 0 for one stored row each. A mask in place goes without.
    pub index: u64,
    /// Rows: B.
    pub rows: usize,
    /// Logits in a row: V.
    pub vocab: usize,
    /// Elements from one row's first logit to the next row's.
    pub stride: usize,
}

/// The parameters of a launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaunchParams {
    pub(crate) args: RowArgs,
    pub(crate) row_args: u64,
    /// How many tokens to draw from each row, with replacement: at least 1.
    pub draws: u32,
    /// Bitmask, bias and penalties of all kinds; for samplers that were made for them.
    pub adjustments: DeviceAdjustments,
}

impl LaunchParams {
    /// The same for all rows, by value.
    pub fn all(args: RowArgs) -> LaunchParams {
        LaunchParams { args, row_args: 0, draws: 1, adjustments: DeviceAdjustments::default() }
    }

    /// One [`RowArgs`] a row, at this address of device memory, aligned to 8 bytes.
    pub fn per_row(address: u64) -> LaunchParams {
        LaunchParams { row_args: address, ..LaunchParams::all(RowArgs::default()) }
    }

    /// The same with as many draws.
    #[must_use]
    pub fn draws(mut self, draws: u32) -> LaunchParams {
        self.draws = draws;
        self
    }

    /// The same with adjustments.
    #[must_use]
    pub fn adjustments(mut self, adjustments: DeviceAdjustments) -> LaunchParams {
        self.adjustments = adjustments;
        self
    }
}

/// [`Adjustments`] in device memory. Addresses of 0 are "none".
///
/// The penalties' factors are in [`RowArgs`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceAdjustments {
    /// Ids from here on are padding of the vocabulary, and disallowed.
    pub valid_vocab: Option<usize>,
    /// Words of the allowed-token bitmask.
    pub bitmask: u64,
    /// How many ids a row's bits cover.
    pub bitmask_ids: usize,
    /// Words from one row's first to the next row's; 0 = one mask for all rows.
    pub bitmask_stride: usize,
    /// Logit bias, with `f32` values.
    pub bias: DeviceSparse,
    /// Tokens seen before, with `u32` counts.
    pub penalties: DeviceSparse,
    /// Standing penalties, `f32`: one for every token of every row.
    pub standing: u64,
    /// Elements from one row's first standing penalty to the next row's.
    pub standing_stride: usize,
}

/// [`Sparse`] in device memory: `u64` offsets, `u32` ids, values of 4 bytes. All addresses of 0 are "none".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct DeviceSparse {
    pub offsets: u64,
    pub ids: u64,
    pub values: u64,
}

/// The outputs of a launch, as [`Outputs`](qrita_core::Outputs) in device memory: one element a row at each address, of the
/// drawn tokens [`LaunchParams::draws`] a row. What is 0 is not asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct DeviceOutputs {
    /// Whether logits that are not kept become −∞, in place.
    pub mask: bool,
    /// `u32`: the bits of a [`Status`](qrita_core::Status).
    pub status: u64,
    /// `u32`.
    pub kept: u64,
    pub candidates: Option<DeviceCandidates>,
    /// `u32`.
    pub token: u64,
    /// `f32`.
    pub logprob: u64,
    /// `f32`.
    pub raw_logprob: u64,
    /// `u32`.
    pub rank: u64,
    pub top: Option<DeviceTop>,
    /// `f32`, `vocab` elements a row.
    pub probabilities: u64,
}

/// Room for the first candidates of every row, as [`Top`](qrita_core::Top) in device memory: `n` elements a row at each address,
/// none of which is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct DeviceTop {
    /// At most [`MAX_TOP`](qrita_core::MAX_TOP).
    pub n: u32,
    /// `u32`.
    pub ids: u64,
    /// `f32`.
    pub logprobs: u64,
}

/// Room for candidates in device memory: `capacity` elements a row at each address, none of which is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct DeviceCandidates {
    pub capacity: u32,
    /// `u32`.
    pub ids: u64,
    /// `f32`.
    pub logits: u64,
    /// `f32`.
    pub logprobs: u64,
}

/// Memory that launches work in, aligned to 16 bytes, of one launch at a time.
///
/// Zero it, or its first [`CudaSampler::zeroed_bytes`], once before the first launch: launches of any sampler and shape leave
/// those zero. Where they are not, rows that several blocks share are never finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct DeviceWorkspace {
    pub address: u64,
    /// At least [`CudaSampler::workspace_bytes`].
    pub bytes: usize,
}

impl CudaSampler {
    /// A sampler of these logits under this plan: compiles, or loads from the cache. `adjusted` for one that takes
    /// [`DeviceAdjustments`]; the other is faster.
    ///
    /// # Errors
    /// [`Error::NotCompiled`] for a plan that this build does not have, [`Error::Device`] when the kernels cannot be compiled
    /// or loaded.
    pub fn new(context: &Context, dtype: Dtype, plan: Plan, adjusted: bool) -> Result<CudaSampler, Error> {
        plan.validate(qrita_core::features!())?;
        // Any built-in shape of two kernels has these threads.
        let split = policy::shape(1, usize::MAX, &plan, context.machine(dtype));
        CudaSampler::with_threads(context, dtype, plan, adjusted, &[split.threads])
    }

    /// A sampler that can launch the first of two kernels with these numbers of threads in a block. All kernels are compiled
    /// side by side.
    pub(crate) fn with_threads(
        context: &Context,
        dtype: Dtype,
        plan: Plan,
        adjusted: bool,
        of_first: &[u32],
    ) -> Result<CudaSampler, Error> {
        let mut specializations = specializations(dtype, plan, adjusted, of_first);
        let whole = specializations[0];
        specializations.extend(adjusted.then(|| decay_specialization(&whole)));
        let mut kernels = context.kernels(&specializations)?.into_iter();
        let (Some(whole_kernel), Some(second)) = (kernels.next(), kernels.next()) else {
            return Err(failed("two kernels were compiled, and are not there"));
        };
        Ok(CudaSampler {
            context: context.clone(),
            tables: Arc::default(),
            whole: whole_kernel,
            whole_is: whole,
            first: of_first.iter().copied().zip(&mut kernels).collect(),
            second,
            decay: kernels.next(),
            tuning: None,
            shape: None,
        })
    }

    /// The same sampler with measured launch shapes: compiles, or loads from the cache, what they need. A launch that the tuning
    /// has no shape for is as it was; so are all launches of a sampler that it has no say in: of another plan than the default
    /// one or such as compile to the same, of one without `autotune`, and with adjustments.
    ///
    /// The outputs of a launch are the same bits in every shape.
    ///
    /// # Errors
    /// [`TuningError::Device`] for a tuning of another device, [`TuningError::Backend`] when a kernel cannot be compiled.
    pub fn with_tuning(mut self, tuning: &Tuning) -> Result<CudaSampler, TuningError> {
        tuning.check_device(&self.context.tuned_device())?;
        self.tuning = Some(Arc::new(tuning.clone()));
        let shapes = self.shapes();
        self.compile_for(&shapes)?;
        Ok(self)
    }

    /// Every shape that a launch may have on this device: which one is chosen by the batch and what is asked for.
    pub fn shapes(&self) -> Vec<LaunchShape> {
        policy::shapes(self.tuning.as_deref(), &self.whole_is, self.machine()).into_iter().collect()
    }

    /// The same sampler with this shape in every launch, for measurements and tests: one of its
    /// [`shapes`](CudaSampler::shapes), or one that a tuning might choose. Compiles, or loads from the cache, what it needs.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for any other, [`Error::Device`] when the kernel cannot be compiled.
    pub fn with_shape(mut self, shape: LaunchShape) -> Result<CudaSampler, Error> {
        let is_tunable = policy::is_tuned(&self.whole_is) && shape.is_tunable();
        if !is_tunable && !self.shapes().contains(&shape) {
            return Err(Error::Unsupported { backend: NAME, what: format!("launches of {shape} under this plan") });
        }
        self.compile_for(&[shape])?;
        self.shape = Some(shape);
        Ok(self)
    }

    /// Sees to the kernels that launches of these shapes need.
    fn compile_for(&mut self, shapes: &[LaunchShape]) -> Result<(), Error> {
        let mut missing: Vec<u32> = shapes.iter().filter_map(|shape| Some(shape.split()?.threads)).collect();
        missing.sort_unstable();
        missing.dedup();
        missing.retain(|&threads| self.first_kernel(threads).is_none());
        let first = |&threads: &u32| split_specializations(&self.whole_is, threads)[0];
        let specializations: Vec<Specialization> = missing.iter().map(first).collect();
        let kernels = self.context.kernels(&specializations)?;
        self.first.extend(missing.into_iter().zip(kernels));
        Ok(())
    }

    /// The first of two kernels with this many threads in a block, if it was compiled.
    fn first_kernel(&self, threads: u32) -> Option<&CudaFunction> {
        self.first.iter().find(|(compiled, _)| *compiled == threads).map(|(_, kernel)| kernel)
    }

    /// The same sampler with δ tables fitted to a model, for the plans that use them.
    #[cfg(feature = "truncation")]
    #[must_use]
    pub fn with_tables(mut self, tables: DeltaTables) -> CudaSampler {
        self.tables = Arc::new(tables);
        self
    }

    /// What its kernel of all stages is compiled for.
    pub(crate) fn specialization(&self) -> &Specialization {
        &self.whole_is
    }

    /// The device's context.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// The type of its logits.
    pub fn dtype(&self) -> Dtype {
        self.whole_is.dtype
    }

    /// Its plan.
    pub fn plan(&self) -> Plan {
        self.whole_is.plan
    }

    /// The workspace that a launch of this shape needs, in bytes. It does not fall with `rows` or `vocab`, so that one
    /// for the largest batch serves all.
    pub fn workspace_bytes(&self, rows: usize, vocab: usize) -> usize {
        self.workspace(rows, vocab).bytes()
    }

    /// How many bytes from a workspace's start on must be zero before its first launch, and are zero after each.
    pub fn zeroed_bytes(&self) -> usize {
        self.workspace(1, 1).zeroed_bytes()
    }

    fn workspace(&self, rows: usize, vocab: usize) -> Workspace {
        Workspace::new(&self.whole_is.plan, rows, vocab, policy::blocks(self.context.multiprocessors()))
    }

    /// What its launch shapes are chosen by.
    pub(crate) fn machine(&self) -> Machine {
        self.context.machine(self.dtype())
    }

    fn shape(&self, call: &Call) -> LaunchShape {
        self.shape.unwrap_or_else(|| policy::choose(self.tuning.as_deref(), &self.whole_is, call, self.machine()))
    }

    /// What a launch takes for one row, from parameters that are validated here. Bitmask, bias and counts among the
    /// adjustments are not looked at: they go by [`DeviceAdjustments`]. Panics if a list of parameters has no such row.
    ///
    /// # Errors
    /// The first of the row's parameters that is out of range.
    pub fn row_args(&self, params: &Params<'_>, row: usize, vocab: usize) -> Result<RowArgs, Error> {
        let values = params.row(row);
        let nothing_seen = Sparse { offsets: &[0], ids: &[], values: &[] };
        let penalties = params.adjustments.penalties.map(|penalties| Penalties {
            repetition: penalties.repetition.get(row).into(),
            frequency: penalties.frequency.get(row).into(),
            presence: penalties.presence.get(row).into(),
            counts: nothing_seen,
        });
        let of_row = Params {
            temperature: values.temperature.into(),
            top_k: values.top_k.into(),
            top_p: values.top_p.into(),
            min_p: values.min_p.into(),
            seed: values.seed.into(),
            position: values.position.into(),
            stream: values.stream.into(),
            adjustments: Adjustments { penalties, ..Adjustments::default() },
            ..*params
        };
        of_row.validate(&Logits::strided::<f32>(&[], 0, vocab, vocab)?).map_err(|error| match error {
            Error::Param { param, value, expected, .. } => Error::Param { row: Some(row), param, value, expected },
            other => other,
        })?;
        Ok(row_args(&of_row, 0, vocab, &self.tables, &self.whole_is.plan))
    }

    /// Launches on a stream of the device, and returns before it is done. A batch of no rows is a no-op.
    ///
    /// # Errors
    /// A shape outside the contract, a number of draws that is out of range, more first candidates than
    /// [`MAX_TOP`](qrita_core::MAX_TOP), a mask in place of rows that share logits, a workspace that is too small,
    /// adjustments that the sampler was not made for, or a failure of the device's; in all of them nothing is launched.
    ///
    /// # Safety
    /// The workspace was zeroed as [`DeviceWorkspace`] says. Until the launch is done: every address is one of this
    /// device's memory with as many elements as its documentation says, the outputs, the workspace and (to be masked) the
    /// logits are nobody else's, and the stream lives. Every number of an index is that of a stored row. [`RowArgs`] in
    /// device memory are made by [`row_args`](CudaSampler::row_args) for this `vocab`, and adjustments are as
    /// [`Adjustments`] asks.
    pub unsafe fn launch(
        &self,
        stream: CUstream,
        batch: &DeviceBatch,
        params: &LaunchParams,
        outputs: &DeviceOutputs,
        workspace: DeviceWorkspace,
    ) -> Result<(), Error> {
        let Some(call) = self.call(batch, params, outputs, workspace)? else { return Ok(()) };
        // SAFETY: the caller's promise.
        unsafe { self.launch_call(stream, &call) }
    }

    /// Launches a step: as [`launch`](CudaSampler::launch) with the standing penalties of the adjustments, which it then takes on
    /// behind the tokens drawn, as [`Backend::step`](qrita_core::Backend::step) does. How, is in the [`RowArgs`]: see
    /// [`RowArgs::decaying`].
    ///
    /// ```no_run
    /// use qrita_core::{Dtype, Error, Params, Plan, RowDecay};
    /// use qrita_cuda::{
    ///     Context, CudaSampler, DeviceAdjustments, DeviceBatch, DeviceOutputs, DeviceWorkspace, LaunchParams,
    /// };
    ///
    /// # fn step(batch: DeviceBatch, token: u64, standing: u64, workspace: DeviceWorkspace,
    /// #     stream: cudarc::driver::sys::CUstream) -> Result<(), Error> {
    /// let sampler = CudaSampler::new(&Context::new(0)?, Dtype::Bf16, Plan::default(), true)?;
    /// let values = RowDecay { decay: 0.98, presence: 0.5, repetition: 0.2 };
    /// let args = sampler.row_args(&Params::default().top_k(50), 0, batch.vocab)?.decaying(values)?;
    /// let adjustments = DeviceAdjustments { standing, standing_stride: batch.vocab, ..DeviceAdjustments::default() };
    /// let outputs = DeviceOutputs { token, ..DeviceOutputs::default() };
    /// let params = LaunchParams::all(args).adjustments(adjustments);
    /// // SAFETY: the penalties are the engine's alone, and have the batch's shape, as the rest has.
    /// unsafe { sampler.step(stream, &batch, &params, &outputs, workspace) }?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`launch`](CudaSampler::launch); no standing penalties, no token asked for, or more than one draw.
    ///
    /// # Safety
    /// As in [`launch`](CudaSampler::launch); the penalties are nobody else's until the launch is done.
    pub unsafe fn step(
        &self,
        stream: CUstream,
        batch: &DeviceBatch,
        params: &LaunchParams,
        outputs: &DeviceOutputs,
        workspace: DeviceWorkspace,
    ) -> Result<(), Error> {
        let Some(call) = self.call(batch, params, outputs, workspace)? else { return Ok(()) };
        let without = |what: &str| Err(Error::Unsupported { backend: NAME, what: format!("step without {what}") });
        if call.standing == 0 {
            return without("standing penalties");
        }
        if call.token == 0 {
            return without("the tokens in memory of the caller's");
        }
        Decay::check_draws(call.draws)?;
        let Some(kernel) = &self.decay else { return without("adjustments in the sampler") };
        // SAFETY: the caller's promise.
        unsafe { self.launch_call(stream, &call) }?;
        let Launch { specialization, blocks, call } = decay_launch(&self.whole_is, &call);
        // SAFETY: as above; the launch waits for those before it.
        unsafe { launch_kernel(kernel, stream, blocks, specialization.threads, &call, Start::InOrder) }
    }

    /// The argument of a launch, checked; `None` for a batch of no rows.
    pub(crate) fn call(
        &self,
        batch: &DeviceBatch,
        params: &LaunchParams,
        outputs: &DeviceOutputs,
        workspace: DeviceWorkspace,
    ) -> Result<Option<Call>, Error> {
        let &DeviceBatch { logits, index, rows, vocab, stride } = batch;
        // Whether memory has the batch is the caller's to know.
        Shape { rows, vocab, stride }.validate(usize::MAX)?;
        let batch_rows = batch_rows(rows)?;
        if rows == 0 {
            return Ok(None);
        }
        is_aligned("logits' address", logits, self.whole_is.dtype.size())?;
        is_aligned("index's address", index, size_of::<u32>())?;
        is_aligned("parameters' address", params.row_args, 8)?;
        is_aligned("workspace's address", workspace.address, 16)?;
        let layout = self.workspace(rows, vocab);
        let needed = layout.bytes();
        if workspace.bytes < needed {
            return Err(Error::Length { what: "workspace", found: workspace.bytes, expected: needed });
        }
        let adjustments = &params.adjustments;
        if !self.whole_is.adjusted && *adjustments != DeviceAdjustments::default() {
            let what = "adjustments in a sampler that was made without them".to_owned();
            return Err(Error::Unsupported { backend: NAME, what });
        }
        if index != 0 && outputs.mask {
            // Two rows would mask one stored row.
            let what = "mask in place of rows that share logits by an index".to_owned();
            return Err(Error::Unsupported { backend: NAME, what });
        }
        Params::check_draws(params.draws)?;
        let valid_vocab = adjustments.valid_vocab.unwrap_or(vocab);
        if valid_vocab > vocab {
            return Err(Error::Shape { what: "valid_vocab", value: valid_vocab, expected: "at most the vocab" });
        }
        is_aligned("standing penalties' address", adjustments.standing, size_of::<f32>())?;
        if adjustments.standing != 0 && adjustments.standing_stride < vocab {
            let (what, expected) = ("standing stride", "at least the vocab");
            return Err(Error::Shape { what, value: adjustments.standing_stride, expected });
        }
        let (candidates, top) = (outputs.candidates, outputs.top);
        top.map_or(Ok(()), |top| Top::check(top.n as usize))?;
        let mut call = Call {
            logits,
            index,
            stride: stride as u64,
            rows: batch_rows,
            // At most 2^21, as all that is cast below.
            vocab: vocab as u32,
            args: params.args,
            row_args: params.row_args,
            bitmask: adjustments.bitmask,
            bitmask_stride: adjustments.bitmask_stride as u64,
            bias_offsets: adjustments.bias.offsets,
            bias_ids: adjustments.bias.ids,
            bias_values: adjustments.bias.values,
            penalty_offsets: adjustments.penalties.offsets,
            penalty_ids: adjustments.penalties.ids,
            penalty_counts: adjustments.penalties.values,
            standing: adjustments.standing,
            standing_stride: adjustments.standing_stride as u64,
            bitmask_ids: adjustments.bitmask_ids.min(vocab) as u32,
            valid_vocab: valid_vocab as u32,
            mask: u32::from(outputs.mask),
            capacity: candidates.map_or(0, |candidates| candidates.capacity),
            candidate_ids: candidates.map_or(0, |candidates| candidates.ids),
            candidate_logits: candidates.map_or(0, |candidates| candidates.logits),
            candidate_logprobs: candidates.map_or(0, |candidates| candidates.logprobs),
            status: outputs.status,
            kept: outputs.kept,
            token: outputs.token,
            logprob: outputs.logprob,
            raw_logprob: outputs.raw_logprob,
            rank: outputs.rank,
            probabilities: outputs.probabilities,
            top: top.map_or(0, |top| top.n),
            top_ids: top.map_or(0, |top| top.ids),
            top_logprobs: top.map_or(0, |top| top.logprobs),
            force_fallback: u32::from(self.whole_is.plan.force_fallback),
            draws: params.draws,
            ..Call::default()
        };
        layout.place(workspace.address, workspace.address + layout.zeroed_bytes() as u64, &mut call);
        Ok(Some(call))
    }

    /// Launches a call that was checked.
    ///
    /// # Safety
    /// As in [`launch`](CudaSampler::launch).
    pub(crate) unsafe fn launch_call(&self, stream: CUstream, call: &Call) -> Result<(), Error> {
        let shape = self.shape(call);
        self.context.cuda().bind_to_thread().map_err(driver("cannot bind the context"))?;
        let launch = |kernel, Launch { specialization, blocks, call }: Launch, start| {
            // SAFETY: the caller vouches for the memory and the stream; the workspace has room for these blocks. What starts
            // early waits itself.
            unsafe { launch_kernel(kernel, stream, blocks, specialization.threads, &call, start) }
        };
        let most_blocks = policy::blocks(self.context.multiprocessors());
        if let Some(split) = shape.split() {
            let [first, second] = split_launches(&self.whole_is, split, most_blocks, call);
            // Every shape that may be chosen was compiled for: a launch does not compile.
            let Some(first_kernel) = self.first_kernel(split.threads) else {
                return Err(failed(format!("no kernel was compiled for launches of {shape}")));
            };
            launch(first_kernel, first, Start::InOrder)?;
            // Blocks that wait take room from those they wait for, where there are many: measured on an H200.
            let is_small = first.blocks <= 2 * self.context.multiprocessors();
            let start = if is_small && self.context.starts_early() { Start::Early } else { Start::InOrder };
            return launch(&self.second, second, start);
        }
        let blocks = row_blocks(&self.plan(), call.rows, most_blocks);
        launch(&self.whole, Launch { specialization: self.whole_is, blocks, call: *call }, Start::InOrder)
    }
}

/// What a sampler has kernels of: the whole algorithm, the second of two kernels, and the first with these numbers of threads.
pub(crate) fn specializations(dtype: Dtype, plan: Plan, adjusted: bool, of_first: &[u32]) -> Vec<Specialization> {
    let threads = policy::threads(plan.autotune);
    let whole = Specialization { dtype, plan, stage: Stage::Run, adjusted, threads, warp: 32 };
    let [_, second] = split_specializations(&whole, threads);
    let first = of_first.iter().map(|&threads| split_specializations(&whole, threads)[0]);
    [whole, second].into_iter().chain(first).collect()
}

/// Refuses an address that no element can lie at.
pub(crate) fn is_aligned(what: &'static str, address: u64, size: usize) -> Result<(), Error> {
    if address.is_multiple_of(size as u64) {
        return Ok(());
    }
    Err(Error::Shape { what, value: address as usize, expected: "a multiple of an element's size" })
}
