//! The sampler: a backend, its workspace and a plan behind one type.

use std::fmt;

use qrita_core::{
    Backend, ChainOutputs, Chains, Decay, Error, Filtered, Gathering, Input, Logits, Outputs, Params, Plan, Sampled,
    Truncated,
};

use crate::kind::BackendKind;

/// Filters and samples batches of logits. Built once: it keeps its backend, its threads and its scratch memory.
///
/// Its methods take `&mut self` because they share the scratch memory; give each thread that works on batches of its
/// own a sampler of its own. The answer never depends on which one is used.
pub struct Sampler {
    engine: Box<dyn Engine>,
    plan: Plan,
}

/// Why no [`Sampler`] could be built. A call's [`Error`] converts into it, so that a function that does both
/// needs one type of error.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The backend asked for was not compiled in.
    #[error("the {0} backend is not part of this build: enable the feature `{0}` of the crate qrita")]
    NotBuilt(BackendKind),
    /// The build has no backend at all.
    #[error("this build has no backend: enable the feature `cpu` or `cuda` of the crate qrita")]
    NoBackend,
    /// The backend could not start, or refused a call; the backend's own error.
    #[error(transparent)]
    Backend(#[from] Error),
    /// The tuning is not of the CUDA device.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Tuning(#[from] qrita_cuda::TuningError),
}

/// How a [`Sampler`] is built: see [`Sampler::builder`].
#[derive(Clone, Debug, Default)]
pub struct Builder {
    backend: BackendKind,
    threads: usize,
    #[cfg(feature = "cuda")]
    device: usize,
    #[cfg(feature = "cuda")]
    tuning: Option<qrita_cuda::Tuning>,
    plan: Plan,
    #[cfg(all(feature = "truncation", any(feature = "cpu", feature = "cuda")))]
    tables: Option<qrita_delta_tables::DeltaTables>,
}

impl Builder {
    /// Chooses the backend; the default is [`BackendKind::Auto`].
    #[must_use]
    pub fn backend(mut self, backend: BackendKind) -> Self {
        self.backend = backend;
        self
    }

    /// Limits the CPU backend to this many threads: 0 (the default) is all cores, 1 the calling thread alone. The other
    /// backends have no use for it.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Chooses among the CUDA devices, which count from 0 (the default) as `CUDA_VISIBLE_DEVICES` lets them through. The
    /// CPU backend has no use for it.
    #[cfg(feature = "cuda")]
    #[must_use]
    pub fn device(mut self, ordinal: usize) -> Self {
        self.device = ordinal;
        self
    }

    /// Takes the launch shapes of the CUDA device from this tuning, where it has them. It must be of this very device, also
    /// under [`BackendKind::Auto`]; the CPU backend has no use for it.
    #[cfg(feature = "cuda")]
    #[must_use]
    pub fn tuning(mut self, tuning: qrita_cuda::Tuning) -> Self {
        self.tuning = Some(tuning);
        self
    }

    /// Sets the plan: the paper's ablation switches.
    #[must_use]
    pub fn plan(mut self, plan: Plan) -> Self {
        self.plan = plan;
        self
    }

    /// Truncates by these delta tables, for example by ones that were fitted to a model's own logits.
    #[cfg(all(feature = "truncation", any(feature = "cpu", feature = "cuda")))]
    #[must_use]
    pub fn tables(mut self, tables: qrita_delta_tables::DeltaTables) -> Self {
        self.tables = Some(tables);
        self
    }

    /// Builds the sampler. [`BackendKind::Auto`] is CUDA where this build has it and the device can be used, else the
    /// CPU.
    ///
    /// # Errors
    /// The plan or the backend is not part of this build, or the backend could not start.
    pub fn build(self) -> Result<Sampler, BuildError> {
        self.plan.validate(qrita_core::features!())?;
        match self.backend {
            BackendKind::Auto => self.auto(),
            BackendKind::Cpu => self.cpu(),
            BackendKind::Cuda => self.cuda(),
        }
    }

    fn auto(&self) -> Result<Sampler, BuildError> {
        let no_cuda = match self.cuda() {
            Ok(sampler) => return Ok(sampler),
            // The device is there: what is wrong is what was asked.
            #[cfg(feature = "cuda")]
            Err(error @ BuildError::Tuning(_)) => return Err(error),
            Err(error) => error,
        };
        match (self.cpu(), no_cuda) {
            (Err(BuildError::NotBuilt(_)), BuildError::NotBuilt(_)) => Err(BuildError::NoBackend),
            // Of the one backend that there is, why it could not start.
            (Err(BuildError::NotBuilt(_)), no_cuda) => Err(no_cuda),
            (cpu, _) => cpu,
        }
    }

    #[cfg(feature = "cpu")]
    fn cpu(&self) -> Result<Sampler, BuildError> {
        let backend = qrita_cpu::CpuBackend::with_threads(self.threads)?;
        #[cfg(feature = "truncation")]
        let backend = match &self.tables {
            Some(tables) => backend.with_tables(tables.clone()),
            None => backend,
        };
        Ok(Sampler::with_backend(backend).plan(self.plan))
    }

    #[cfg(not(feature = "cpu"))]
    fn cpu(&self) -> Result<Sampler, BuildError> {
        Err(BuildError::NotBuilt(BackendKind::Cpu))
    }

    #[cfg(feature = "cuda")]
    fn cuda(&self) -> Result<Sampler, BuildError> {
        let mut device = qrita_cuda::CudaDevice::new(&qrita_cuda::Context::new(self.device)?)?;
        if let Some(tuning) = &self.tuning {
            device = device.with_tuning(tuning.clone())?;
        }
        let backend = qrita_cuda::CudaBackend::new(device);
        #[cfg(feature = "truncation")]
        let backend = match &self.tables {
            Some(tables) => backend.with_tables(tables.clone()),
            None => backend,
        };
        Ok(Sampler::with_backend(backend).plan(self.plan))
    }

    #[cfg(not(feature = "cuda"))]
    fn cuda(&self) -> Result<Sampler, BuildError> {
        Err(BuildError::NotBuilt(BackendKind::Cuda))
    }
}

impl Sampler {
    /// A sampler on a backend, with every other setting at its default.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn new(backend: BackendKind) -> Result<Sampler, BuildError> {
        Sampler::builder().backend(backend).build()
    }

    /// The settings of a sampler to build.
    ///
    #[cfg_attr(feature = "cpu", doc = "```")]
    #[cfg_attr(not(feature = "cpu"), doc = "```no_run")]
    /// use qrita::{BackendKind, Plan, Sampler};
    /// let sampler = Sampler::builder().backend(BackendKind::Cpu).threads(1).plan(Plan::paper()).build()?;
    /// assert_eq!(sampler.backend_name(), "cpu");
    /// # Ok::<(), qrita::BuildError>(())
    /// ```
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A sampler on a backend of the caller's: one from another crate, or one that was set up by hand.
    pub fn with_backend<B>(backend: B) -> Sampler
    where
        B: Backend + Send + 'static,
        B::Workspace: Send,
    {
        let workspace = backend.workspace();
        Sampler { engine: Box::new(Bound { backend, workspace }), plan: Plan::default() }
    }

    /// The same sampler with another plan.
    #[must_use]
    pub fn plan(mut self, plan: Plan) -> Sampler {
        self.plan = plan;
        self
    }

    /// Changes the plan of the calls to come.
    pub fn set_plan(&mut self, plan: Plan) {
        self.plan = plan;
    }

    /// The backend's name: `cpu`, `cuda`.
    pub fn backend_name(&self) -> &'static str {
        self.engine.name()
    }

    /// What the backend runs on, for people.
    pub fn description(&self) -> String {
        self.engine.description()
    }

    /// The kept tokens of every row, in the contract's order.
    ///
    /// # Errors
    /// Parameters out of range, a plan that is not compiled in, or a device's failure.
    pub fn filter(&mut self, logits: &Logits<'_>, params: &Params<'_>) -> Result<Vec<Filtered>, Error> {
        self.engine.filter(logits, params, &self.plan)
    }

    /// The tokens drawn from every row: draw `j` of row `r` at `r·draws + j`.
    ///
    #[cfg_attr(feature = "cpu", doc = "```")]
    #[cfg_attr(not(feature = "cpu"), doc = "```no_run")]
    /// use qrita::{BackendKind, Logits, Params, Sampler};
    /// let mut sampler = Sampler::new(BackendKind::Auto)?;
    /// // Three tokens of each of two rows, with replacement.
    /// let data = [4.0f32, 1.0, 0.0, 0.0, 1.0, 4.0];
    /// let drawn = sampler.sample(&Logits::new(&data, 3)?, &Params::default().top_k(1).draws(3))?;
    /// let tokens: Vec<_> = drawn.iter().filter_map(|drawn| drawn.token).collect();
    /// assert_eq!(tokens, [0, 0, 0, 2, 2, 2]);
    /// # Ok::<(), qrita::BuildError>(())
    /// ```
    ///
    /// # Errors
    /// Parameters out of range, a plan that is not compiled in, or a device's failure.
    pub fn sample(&mut self, logits: &Logits<'_>, params: &Params<'_>) -> Result<Vec<Sampled>, Error> {
        self.engine.sample(logits, params, &self.plan)
    }

    /// Every output asked for, in memory of the caller's; masks the logits in place when `input` is [`Input::Mask`].
    ///
    /// # Errors
    /// Parameters out of range, a plan that is not compiled in, slices that do not fit the batch, or a device's failure.
    /// Nothing was written.
    pub fn run(&mut self, input: Input<'_>, params: &Params<'_>, outputs: &mut Outputs<'_>) -> Result<(), Error> {
        self.engine.run(input, params, &self.plan, outputs)
    }

    /// One step of decoding, with penalties that stand from one step to the next and decay: every output asked for, as
    /// [`run`](Sampler::run), of the logits less the penalties of `decay`; then those go on behind the tokens drawn. See the
    /// contract, section 12.
    ///
    #[cfg_attr(feature = "cpu", doc = "```")]
    #[cfg_attr(not(feature = "cpu"), doc = "```no_run")]
    /// use qrita::{BackendKind, Decay, Logits, Outputs, Params, Sampler};
    /// let mut sampler = Sampler::new(BackendKind::Auto)?;
    /// // Greedy, and the logits are always the same: the penalties see to it that the tokens are not.
    /// let (logits, params) = ([1.0f32, 1.5, 0.75], Params::default().temperature(0.0));
    /// let mut penalties = [0.0; 3];
    /// let tokens: Vec<u32> = (0..6)
    ///     .map(|_| {
    ///         let mut decay = Decay {
    ///             penalties: &mut penalties,
    ///             stride: 3,
    ///             decay: 0.5.into(),
    ///             presence: 1.0.into(),
    ///             repetition: 0.5.into(),
    ///         };
    ///         let mut token = [0];
    ///         let mut outputs = Outputs { token: Some(&mut token), ..Outputs::default() };
    ///         sampler.step(Logits::new(&logits, 3)?.into(), &params, &mut decay, &mut outputs)?;
    ///         Ok(token[0])
    ///     })
    ///     .collect::<Result<_, qrita::Error>>()?;
    /// assert_eq!(tokens, [1, 0, 1, 1, 0, 1]);
    /// # Ok::<(), qrita::BuildError>(())
    /// ```
    ///
    /// # Errors
    /// As [`run`](Sampler::run); penalties that do not hold the batch, values out of range, more than one draw. Nothing was
    /// written.
    pub fn step(
        &mut self,
        input: Input<'_>,
        params: &Params<'_>,
        decay: &mut Decay<'_>,
        outputs: &mut Outputs<'_>,
    ) -> Result<(), Error> {
        self.engine.step(input, params, decay, &self.plan, outputs)
    }

    /// Verifies draft tokens (speculative decoding): which of each request's are accepted, and the token behind them, exactly
    /// in the law of the target rows. See the contract, section 11, and the example `speculative`.
    ///
    #[cfg_attr(feature = "cpu", doc = "```")]
    #[cfg_attr(not(feature = "cpu"), doc = "```no_run")]
    /// use qrita::{BackendKind, ChainOutputs, Chains, Logits, NO_TOKEN, Params, Sampler, Side};
    ///
    /// // One request with two draft tokens, 2 and 1, under a greedy target: its rows have their maxima at 2, 0 and 1.
    /// let draft = [0.0f32, 1.0, 2.0, 0.0, 1.0, 0.5];
    /// let target = [0.0f32, 1.0, 3.0, 5.0, 1.0, 2.0, 0.0, 4.0, 0.0];
    /// let chains = Chains {
    ///     offsets: &[0, 2],
    ///     tokens: &[2, 1],
    ///     draft: Side { logits: Logits::new(&draft, 3)?, params: Params::default() },
    ///     target: Side { logits: Logits::new(&target, 3)?, params: Params::default().temperature(0.0) },
    /// };
    /// let (mut accepted, mut tokens) = ([0], [0; 3]);
    /// let mut outputs = ChainOutputs {
    ///     accepted: Some(&mut accepted),
    ///     tokens: Some(&mut tokens),
    ///     ..ChainOutputs::default()
    /// };
    /// Sampler::new(BackendKind::Auto)?.verify(&chains, &mut outputs)?;
    /// assert_eq!((accepted, tokens), ([1], [2, 0, NO_TOKEN]));
    /// # Ok::<(), qrita::BuildError>(())
    /// ```
    ///
    /// # Errors
    /// Offsets, rows or parameters out of range, a plan that is not compiled in, slices that do not fit the batch, or a
    /// device's failure. Nothing was written.
    pub fn verify(&mut self, chains: &Chains<'_>, outputs: &mut ChainOutputs<'_>) -> Result<(), Error> {
        self.engine.verify(chains, &self.plan, outputs)
    }

    /// The first stage alone: what the plan's truncation gathers of every row, and whether that is enough. For studies
    /// of the algorithm; the calls above do this themselves.
    ///
    /// # Errors
    /// Parameters out of range, a plan that is not compiled in, or a device's failure.
    pub fn truncate(&mut self, logits: &Logits<'_>, params: &Params<'_>) -> Result<Vec<Truncated>, Error> {
        self.engine.truncate(logits, params, &self.plan)
    }

    /// What a call of the plan gathers of every row, and whether that decides the row, as the backend's whole call does it. For
    /// studies of the algorithm.
    ///
    #[cfg_attr(all(feature = "cpu", feature = "truncation"), doc = "```")]
    #[cfg_attr(not(all(feature = "cpu", feature = "truncation")), doc = "```no_run")]
    /// use qrita::{BackendKind, Logits, Outcome, Params, Sampler};
    /// let mut sampler = Sampler::new(BackendKind::Cpu)?;
    /// let data = [4.0f32, 1.0, 0.0, 3.0, 1.0, 2.0];
    /// let row = sampler.gather(&Logits::new(&data, 6)?, &Params::default().top_k(3))?[0];
    /// assert_eq!((row.outcome, row.count), (Outcome::Hit, 3));
    /// # Ok::<(), qrita::BuildError>(())
    /// ```
    ///
    /// # Errors
    /// Parameters out of range, a plan that is not compiled in, or a device's failure.
    pub fn gather(&mut self, logits: &Logits<'_>, params: &Params<'_>) -> Result<Vec<Gathering>, Error> {
        self.engine.gather(logits, params, &self.plan)
    }
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampler").field("backend", &self.backend_name()).field("plan", &self.plan).finish()
    }
}

/// A backend with its workspace, so that the sampler's type does not name the backend.
trait Engine: Send {
    fn name(&self) -> &'static str;
    fn description(&self) -> String;
    fn filter(&mut self, logits: &Logits<'_>, params: &Params<'_>, plan: &Plan) -> Result<Vec<Filtered>, Error>;
    fn sample(&mut self, logits: &Logits<'_>, params: &Params<'_>, plan: &Plan) -> Result<Vec<Sampled>, Error>;
    fn truncate(&mut self, logits: &Logits<'_>, params: &Params<'_>, plan: &Plan) -> Result<Vec<Truncated>, Error>;
    fn gather(&mut self, logits: &Logits<'_>, params: &Params<'_>, plan: &Plan) -> Result<Vec<Gathering>, Error>;
    fn run(
        &mut self,
        input: Input<'_>,
        params: &Params<'_>,
        plan: &Plan,
        outputs: &mut Outputs<'_>,
    ) -> Result<(), Error>;
    fn step(
        &mut self,
        input: Input<'_>,
        params: &Params<'_>,
        decay: &mut Decay<'_>,
        plan: &Plan,
        outputs: &mut Outputs<'_>,
    ) -> Result<(), Error>;
    fn verify(&mut self, chains: &Chains<'_>, plan: &Plan, outputs: &mut ChainOutputs<'_>) -> Result<(), Error>;
}

struct Bound<B: Backend> {
    backend: B,
    workspace: B::Workspace,
}

impl<B> Engine for Bound<B>
where
    B: Backend + Send,
    B::Workspace: Send,
{
    fn name(&self) -> &'static str {
        self.backend.name()
    }

    fn description(&self) -> String {
        self.backend.description()
    }

    fn filter(&mut self, logits: &Logits<'_>, params: &Params<'_>, plan: &Plan) -> Result<Vec<Filtered>, Error> {
        self.backend.filter(logits, params, plan, &mut self.workspace)
    }

    fn sample(&mut self, logits: &Logits<'_>, params: &Params<'_>, plan: &Plan) -> Result<Vec<Sampled>, Error> {
        self.backend.sample(logits, params, plan, &mut self.workspace)
    }

    fn truncate(&mut self, logits: &Logits<'_>, params: &Params<'_>, plan: &Plan) -> Result<Vec<Truncated>, Error> {
        self.backend.truncate(logits, params, plan, &mut self.workspace)
    }

    fn gather(&mut self, logits: &Logits<'_>, params: &Params<'_>, plan: &Plan) -> Result<Vec<Gathering>, Error> {
        self.backend.gather(logits, params, plan, &mut self.workspace)
    }

    fn run(
        &mut self,
        input: Input<'_>,
        params: &Params<'_>,
        plan: &Plan,
        outputs: &mut Outputs<'_>,
    ) -> Result<(), Error> {
        self.backend.run(input, params, plan, outputs, &mut self.workspace)
    }

    fn step(
        &mut self,
        input: Input<'_>,
        params: &Params<'_>,
        decay: &mut Decay<'_>,
        plan: &Plan,
        outputs: &mut Outputs<'_>,
    ) -> Result<(), Error> {
        self.backend.step(input, params, decay, plan, outputs, &mut self.workspace)
    }

    fn verify(&mut self, chains: &Chains<'_>, plan: &Plan, outputs: &mut ChainOutputs<'_>) -> Result<(), Error> {
        self.backend.verify(chains, plan, outputs, &mut self.workspace)
    }
}
