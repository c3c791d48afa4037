//! The backend: threads, tables, and the trait's methods over rows in work.

use std::sync::{Arc, Mutex, PoisonError};

use qrita_core::{
    Backend, Boundary, ChainOutputs, Chains, Cut, Decay, Error, Features, Gathering, Input, Key, Logits, NO_TOKEN,
    Outcome, Outputs, Params, Plan, RowParams, Status, Truncated,
};
#[cfg(feature = "truncation")]
use qrita_delta_tables::DeltaTables;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::chain;
use crate::decay;
use crate::effective::Effective;
use crate::emit;
use crate::exec::{Exec, over_rows};
use crate::row::{Gathered, RowWork};
use crate::sink::{ChainSink, Penalties, Sink, Source};
use crate::vector::{Isa, Kernels, Seen};
use crate::workspace::{Slot, Workspace};

/// What this crate was compiled with.
const FEATURES: Features = qrita_core::features!();

/// Below this many logits in a batch, waking other threads costs more than they save.
#[cfg(feature = "autotune")]
const WORTH_WAKING: usize = 1 << 16;

/// Qrita on the CPU.
///
/// Threads take whole rows; when there are fewer rows than threads, each row's passes are divided among them. The
/// output bits do not depend on the number of threads or on the instruction set.
///
/// ```
/// use qrita_core::{Backend, Logits, Params, Plan};
/// use qrita_cpu::CpuBackend;
///
/// let backend = CpuBackend::new();
/// let mut workspace = backend.workspace();
/// let logits = Logits::new(&[3.0f32, 2.0, 1.0, 1.0, 0.5, 0.5], 6)?;
/// let rows = backend.filter(&logits, &Params::default().top_k(4), &Plan::default(), &mut workspace)?;
/// assert_eq!(rows[0].ids, [0, 1, 2, 3]);
/// # Ok::<(), qrita_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CpuBackend {
    pool: Option<Arc<ThreadPool>>,
    threads: usize,
    isa: Isa,
    #[cfg(feature = "truncation")]
    tables: Arc<DeltaTables>,
}

impl Default for CpuBackend {
    fn default() -> Self {
        CpuBackend::new()
    }
}

impl CpuBackend {
    /// A backend on all cores; on the calling thread alone where no threads can be started.
    pub fn new() -> CpuBackend {
        CpuBackend::with_threads(0).unwrap_or_else(|_| CpuBackend::on_calling_thread())
    }

    /// A backend on this many threads: 0 for one a core, 1 for the calling thread.
    ///
    /// # Errors
    /// [`Error::Device`] when the threads cannot be started.
    pub fn with_threads(threads: usize) -> Result<CpuBackend, Error> {
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let mut backend = CpuBackend::on_calling_thread();
        if threads > 1 {
            let name = |i| format!("qrita-{i}");
            // The calling thread works too.
            let pool = ThreadPoolBuilder::new().num_threads(threads - 1).thread_name(name).build();
            let failed = |error| Error::Device { backend: "cpu", message: format!("cannot start threads: {error}") };
            backend.pool = Some(Arc::new(pool.map_err(failed)?));
            backend.threads = threads;
        }
        Ok(backend)
    }

    fn on_calling_thread() -> CpuBackend {
        CpuBackend {
            pool: None,
            threads: 1,
            isa: Isa::best(),
            #[cfg(feature = "truncation")]
            tables: Arc::default(),
        }
    }

    /// The same backend with δ tables fitted to a model, for the plans that use them.
    #[cfg(feature = "truncation")]
    #[must_use]
    pub fn with_tables(mut self, tables: DeltaTables) -> CpuBackend {
        self.tables = Arc::new(tables);
        self
    }

    /// The same backend on another instruction set.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the processor does not have it.
    pub fn with_isa(mut self, isa: Isa) -> Result<CpuBackend, Error> {
        if isa.kernels().is_none() {
            return Err(Error::Unsupported { backend: "cpu", what: isa.name().to_owned() });
        }
        self.isa = isa;
        Ok(self)
    }

    /// How many threads it runs on.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The instruction set that it runs with.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    pub(crate) fn kernels(&self) -> &'static Kernels {
        self.isa.kernels().expect("an instruction set is chosen only when the processor has it")
    }

    /// A row in work.
    pub(crate) fn row_work<'a, 'w>(
        &'a self,
        y: Effective<'a>,
        params: RowParams,
        plan: &Plan,
        exec: Exec<'w>,
    ) -> RowWork<'a, 'w> {
        RowWork::new(
            y,
            params,
            *plan,
            self.kernels(),
            #[cfg(feature = "truncation")]
            &self.tables,
            exec,
        )
    }

    /// Runs `work` for every row: on threads of its own or, as autotune has it, on this one or with every pass divided.
    #[cfg_attr(not(feature = "autotune"), allow(unused_variables))]
    fn each_row(
        &self,
        (rows, vocab): (usize, usize),
        plan: &Plan,
        workspace: &mut Workspace,
        work: impl Fn(Exec<'_>, usize) + Sync,
    ) {
        let slots = workspace.slots(self.threads);
        let on_this_thread = |slot: &mut Slot| (0..rows).for_each(|row| work(Exec::serial(slot), row));
        match &self.pool {
            None => on_this_thread(&mut slots[0]),
            #[cfg(feature = "autotune")]
            Some(_) if plan.autotune && rows.saturating_mul(vocab) < WORTH_WAKING => on_this_thread(&mut slots[0]),
            #[cfg(feature = "autotune")]
            Some(pool) if plan.autotune && rows < self.threads => {
                (0..rows).for_each(|row| work(Exec::divided(pool, slots), row));
            }
            Some(pool) => over_rows(pool, slots, rows, |slot, row| work(Exec::serial(slot), row)),
        }
    }

    /// Runs `stage` for every row that the batch has, and collects what it makes of them.
    fn collect<T: Send>(
        &self,
        logits: &Logits<'_>,
        params: &Params<'_>,
        plan: &Plan,
        workspace: &mut Workspace,
        stage: impl Fn(&mut RowWork<'_, '_>, usize) -> T + Sync,
    ) -> Result<Vec<T>, Error> {
        params.validate(logits)?;
        plan.validate(FEATURES)?;
        let results: Vec<Mutex<Option<T>>> = (0..logits.rows()).map(|_| Mutex::new(None)).collect();
        self.each_row((logits.rows(), logits.vocab()), plan, workspace, |exec, row| {
            let y = Effective::new(logits.row(row), params.adjustments.row(row), self.kernels());
            let mut work = self.row_work(y, params.row(row), plan, exec);
            let result = stage(&mut work, row);
            *results[row].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        });
        Ok(results.into_iter().filter_map(|result| result.into_inner().ok().flatten()).collect())
    }
}

impl Backend for CpuBackend {
    type Workspace = Workspace;

    fn name(&self) -> &'static str {
        "cpu"
    }

    fn description(&self) -> String {
        let threads = self.threads;
        format!("{}, {threads} thread{}", self.isa.name(), if threads == 1 { "" } else { "s" })
    }

    fn workspace(&self) -> Workspace {
        Workspace::default()
    }

    fn truncate(
        &self,
        logits: &Logits<'_>,
        params: &Params<'_>,
        plan: &Plan,
        workspace: &mut Workspace,
    ) -> Result<Vec<Truncated>, Error> {
        self.collect(logits, params, plan, workspace, |work, _| {
            work.truncate();
            let hit = !work.is_empty() && work.has_kept_set();
            Truncated {
                status: work.status(),
                max: Key::new(work.seen.max),
                threshold: work.gathered.covered_above.value(),
                gathered: work.exec.first().gathered.clone(),
                hit,
            }
        })
    }

    fn gather(
        &self,
        logits: &Logits<'_>,
        params: &Params<'_>,
        plan: &Plan,
        workspace: &mut Workspace,
    ) -> Result<Vec<Gathering>, Error> {
        self.collect(logits, params, plan, workspace, |work, _| {
            work.truncate();
            let outcome = match !work.is_empty() && work.has_kept_set() {
                true if work.straddles() => Outcome::Straddled,
                true => Outcome::Hit,
                false => Outcome::Missed,
            };
            Gathering { count: work.exec.first().gathered.len() as u32, outcome }
        })
    }

    fn search(
        &self,
        logits: &Logits<'_>,
        params: &Params<'_>,
        plan: &Plan,
        truncated: &[Truncated],
        workspace: &mut Workspace,
    ) -> Result<Vec<Cut>, Error> {
        Error::check_length("truncated", truncated.len(), logits.rows())?;
        self.collect(logits, params, plan, workspace, |work, row| {
            work.scan_only();
            if work.is_empty() {
                return Cut::EMPTY;
            }
            // What the caller says was gathered is looked at only if the row bears it out.
            let Truncated { threshold, gathered, hit, .. } = &truncated[row];
            work.plan.force_fallback |= !(*hit && work.has_gathered(gathered, *threshold));
            work.exec.first().gathered.clone_from(gathered);
            work.gathered = Gathered { covered_above: Key::new(*threshold) };
            let prefix = work.search();
            work.cut(prefix)
        })
    }

    fn dedup(
        &self,
        logits: &Logits<'_>,
        params: &Params<'_>,
        cuts: &[Cut],
        workspace: &mut Workspace,
    ) -> Result<Vec<Boundary>, Error> {
        Error::check_length("cuts", cuts.len(), logits.rows())?;
        self.collect(logits, params, &Plan::default(), workspace, |work, row| {
            let cut = cuts[row];
            if cut.quota == 0 {
                return Boundary::EMPTY;
            }
            work.seen = Seen { max: cut.max.value(), nan: false };
            work.dedup_cut(cut)
        })
    }

    fn emit(
        &self,
        input: Input<'_>,
        params: &Params<'_>,
        boundaries: &[Boundary],
        outputs: &mut Outputs<'_>,
        workspace: &mut Workspace,
    ) -> Result<(), Error> {
        Error::check_length("boundaries", boundaries.len(), input.logits().rows())?;
        self.run_rows(input, params, None, &Plan::default(), outputs, workspace, |work, row| {
            work.seen = Seen { max: boundaries[row].max.value(), nan: false };
            (boundaries[row], Status::OK)
        })
    }

    fn run(
        &self,
        input: Input<'_>,
        params: &Params<'_>,
        plan: &Plan,
        outputs: &mut Outputs<'_>,
        workspace: &mut Workspace,
    ) -> Result<(), Error> {
        self.run_rows(input, params, None, plan, outputs, workspace, |work, _| work.run())
    }

    fn step(
        &self,
        input: Input<'_>,
        params: &Params<'_>,
        decay: &mut Decay<'_>,
        plan: &Plan,
        outputs: &mut Outputs<'_>,
        workspace: &mut Workspace,
    ) -> Result<(), Error> {
        self.run_rows(input, params, Some(decay), plan, outputs, workspace, |work, _| work.run())
    }

    fn verify(
        &self,
        chains: &Chains<'_>,
        plan: &Plan,
        outputs: &mut ChainOutputs<'_>,
        workspace: &mut Workspace,
    ) -> Result<(), Error> {
        chains.validate()?;
        plan.validate(FEATURES)?;
        outputs.validate(chains)?;
        let sink = ChainSink::new(outputs, chains);
        let logits = chains.draft.logits.rows() * chains.draft.logits.vocab()
            + chains.target.logits.rows() * chains.target.logits.vocab();
        let each = logits / chains.requests().max(1);
        self.each_row((chains.requests(), each), plan, workspace, |mut exec, request| {
            let walked = chain::walk(self, chains, request, plan, &mut exec, |row, token| {
                // SAFETY: `each_row` calls this once for each request, whose target rows are no other's.
                unsafe { sink.write_token(row, token) };
            });
            // SAFETY: as above.
            unsafe { sink.write_end(request, walked) };
        });
        Ok(())
    }
}

impl CpuBackend {
    /// Finds each row's boundary by `bound` and emits; with `decay` the rows have its penalties, which go on behind the tokens.
    #[allow(clippy::too_many_arguments, reason = "those of a step, and how a boundary is found")]
    fn run_rows(
        &self,
        mut input: Input<'_>,
        params: &Params<'_>,
        decay: Option<&mut Decay<'_>>,
        plan: &Plan,
        outputs: &mut Outputs<'_>,
        workspace: &mut Workspace,
        bound: impl Fn(&mut RowWork<'_, '_>, usize) -> (Boundary, Status) + Sync,
    ) -> Result<(), Error> {
        let (rows, vocab) = (input.logits().rows(), input.logits().vocab());
        params.validate(&input.logits())?;
        if let Some(decay) = &decay {
            decay.validate(&input.logits(), params)?;
        }
        plan.validate(FEATURES)?;
        outputs.validate(&input.logits(), params)?;
        let sink = Sink::new(outputs, (rows, vocab), params.draws as usize);
        let source = Source::new(&mut input);
        let kernels = self.kernels();
        let penalties = decay.map(|decay| Penalties::new(decay, vocab));
        self.each_row((rows, vocab), plan, workspace, |exec, row| {
            let mut adjustments = params.adjustments.row(row);
            if let Some(penalties) = &penalties {
                // SAFETY: `each_row` calls this once for each row, and the row's penalties are lent to write only below, when
                // this loan has ended.
                adjustments.standing = Some(unsafe { penalties.row(row) });
            }
            // SAFETY: as above, and so the row's logits.
            let (y, mut sink) = unsafe { (source.row(row), sink.row(row)) };
            let mut own = [NO_TOKEN];
            if penalties.is_some() {
                sink.token.get_or_insert(&mut own);
            }
            let y = Effective::new(y, adjustments, kernels);
            let mut work = self.row_work(y, params.row(row), plan, exec);
            let (boundary, status) = bound(&mut work, row);
            work.emit(boundary, status, &mut sink);
            let token = sink.token.as_deref().and_then(|drawn| drawn.first().copied());
            if !source.is_masked() && penalties.is_none() {
                return;
            }
            let (mut exec, listed) = work.into_list(boundary);
            // SAFETY: as above: the row's only loan now.
            if let Some(row) = unsafe { source.row_mut(row) } {
                emit::mask(row, &adjustments, boundary, kernels, &mut exec, listed);
            }
            if let Some(penalties) = &penalties {
                // SAFETY: as above: the adjustments are not looked at any more.
                decay::update(unsafe { penalties.row_mut(row) }, &penalties.values(row), token, &mut exec);
            }
        });
        Ok(())
    }
}
