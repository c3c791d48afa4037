//! `qrita ablate`: the paper's Table 4, runs A to J, on every backend that is there.
//!
//! Each run masks a batch in place. Before it is timed, what it keeps of every different row is compared with the oracle's.

use std::io::{self, Write};
use std::time::Instant;

use qrita::{BackendKind, Dtype, Outputs, Params, Plan, Sampler};
use qrita_study::ablation::{PAPER_A, Run, first_wrong, masked, runs};
use qrita_study::{HostBatch, Rows};
use serde::Serialize;

use crate::args::{AblateArgs, InputArgs, RowRange};
use crate::failure::Failure;
use crate::job::{Progress, batches};
use crate::output::sink::Sink;
use crate::parameters::check;
use crate::source::Source;

/// Rows of a batch by default: the paper's, and as many as the caches of a CPU do not hold.
#[cfg(feature = "cuda")]
const CUDA_ROWS: u32 = 1024;
const CPU_ROWS: u32 = 256;

/// Times that a median is of by default.
#[cfg(feature = "cuda")]
const CUDA_REPEATS: u32 = 21;
const CPU_REPEATS: u32 = 5;

/// A run on the CPU is not repeated beyond this.
const CPU_SECONDS: f64 = 6.0;

/// Rows that differ at most; a batch repeats them.
const MOST_DIFFERENT: usize = 64;

pub(crate) fn run(args: AblateArgs) -> Result<(), Failure> {
    let params = Params::default().top_k(args.top_k).top_p(args.top_p);
    check(&params)?;
    let mut json = args.json.as_deref().map(|path| Sink::open(Some(path))).transpose()?;
    let mut csv = args.csv.as_deref().map(|path| Sink::open(Some(path))).transpose()?;
    let (rows, input, dtype) = rows(&args)?;
    let setting = Setting { rows, dtype, params, right: Vec::new() }.with_right()?;
    let (mut benches, mut missing) = (Vec::new(), Vec::new());
    if args.backend != BackendKind::Cuda {
        benches.push(Bench::cpu(&args, &setting)?);
    }
    if args.backend != BackendKind::Cpu {
        match Bench::cuda(&args, &setting) {
            Ok(bench) => benches.push(bench),
            // Only what was asked for by name must be there.
            Err(Failure::Build(error)) if args.backend == BackendKind::Auto => missing.push(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    let progress = Progress::of_measurements(benches.len() * runs().len());
    let mut report = Report {
        version: env!("CARGO_PKG_VERSION"),
        input,
        vocab: setting.rows.vocab(),
        dtype: setting.dtype.name(),
        top_k: args.top_k,
        top_p: args.top_p,
        different: setting.rows.count(),
        paper_a_us: PAPER_A,
        missing,
        backends: Vec::new(),
    };
    for bench in &mut benches {
        report.backends.push(bench.measure(&setting, &progress)?);
    }
    drop(progress);

    if let Some(mut sink) = json.take() {
        sink.write(|out| {
            serde_json::to_writer_pretty(&mut *out, &report)?;
            out.write_all(b"\n")
        })?;
        sink.finish()?;
    }
    if let Some(mut sink) = csv.take() {
        sink.write(|out| write_csv(out, &report))?;
        sink.finish()?;
    }
    let mut sink = Sink::open(None)?;
    sink.write(|out| table(out, &report))?;
    sink.finish()
}

/// The different rows, what they are, and their dtype.
fn rows(args: &AblateArgs) -> Result<(Rows, String, Dtype), Failure> {
    let chosen = args.dtype.map(Dtype::from);
    let Some(file) = &args.input else {
        let different = args.rows.map_or(MOST_DIFFERENT, |rows| MOST_DIFFERENT.min(rows as usize));
        let rows = Rows::new(args.kind, args.vocab as usize, different);
        return Ok((rows, format!("{} rows", args.kind.name()), chosen.unwrap_or(Dtype::F32)));
    };
    let most = Some(RowRange::First(args.rows.map_or(MOST_DIFFERENT, |rows| MOST_DIFFERENT.min(rows as usize))));
    let selection = InputArgs { file: file.clone(), tensor: args.tensor.iter().cloned().collect(), rows: most };
    let source = Source::open(file)?;
    let contents = source.contents()?;
    let batches = batches(&source, &contents, &selection)?;
    let [batch] = &batches[..] else {
        let names: Vec<_> = batches.iter().map(|batch| format!("`{}`", batch.tensor.name())).collect();
        let why = format!("{} has {}: choose one with --tensor", file.display(), names.join(", "));
        return Err(Failure::Usage(why));
    };
    let read = batch.tensor.read(batch.rows.clone());
    let logits = read.logits()?;
    let values = (0..logits.rows()).flat_map(|row| (0..logits.vocab()).map(move |id| logits.row(row).get(id)));
    let rows = Rows::from_values(values.collect(), logits.vocab())?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let what = format!("rows of {name}, `{}`", batch.tensor.name());
    Ok((rows, what, chosen.unwrap_or(batch.tensor.dtype())))
}

/// What all runs have in common.
struct Setting {
    rows: Rows,
    dtype: Dtype,
    params: Params<'static>,
    /// With duplication handling or without: the different rows as the oracle masks them, in bytes.
    right: Vec<(bool, Vec<u8>)>,
}

impl Setting {
    fn with_right(mut self) -> Result<Setting, Failure> {
        for Run { plan, .. } in runs() {
            if self.right.iter().all(|(duplicates, _)| *duplicates != plan.duplicates) {
                let right = masked(&self.rows, self.dtype, &self.params, &plan)?;
                self.right.push((plan.duplicates, right));
            }
        }
        Ok(self)
    }

    /// Refuses rows that are not as the run must leave them.
    fn check(&self, run: &Run, backend: &str, found: &[u8]) -> Result<(), Failure> {
        let right = self.right.iter().find(|(duplicates, _)| *duplicates == run.plan.duplicates);
        let row_bytes = self.rows.vocab() * self.dtype.size();
        match right.map(|(_, right)| first_wrong(found, right, row_bytes)) {
            Some(None) => Ok(()),
            Some(Some(row)) => Err(Failure::Ablation { run: run.name, backend: backend.to_owned(), row }),
            None => Ok(()),
        }
    }
}

/// Names and order of the fields are the JSON form.
#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    input: String,
    vocab: usize,
    dtype: &'static str,
    top_k: u32,
    top_p: f32,
    /// Rows that differ; a batch repeats them.
    different: usize,
    /// Run A in the paper: 1024 rows of 128256 f32 logits, k = 50 and p = 0.9, on an H100.
    paper_a_us: f64,
    /// Backends that are not there, and why.
    missing: Vec<String>,
    backends: Vec<OfBackend>,
}

#[derive(Debug, Serialize)]
struct OfBackend {
    backend: &'static str,
    device: String,
    rows: usize,
    /// Times that a median is of, at most.
    repeats: u32,
    /// A copy of the batch.
    copy_us: f64,
    runs: Vec<Line>,
}

#[derive(Debug, Serialize)]
struct Line {
    run: &'static str,
    off: &'static str,
    plan: Plan,
    us: f64,
    us_a_row: f64,
    /// In run A's time; none where this build has no run A.
    times_a: Option<f64>,
    copies: f64,
}

/// Where runs are measured.
struct Bench<'a> {
    backend: &'static str,
    device: String,
    rows: usize,
    repeats: u32,
    engine: Box<dyn Engine + 'a>,
}

/// A backend with a batch.
trait Engine {
    /// The batch, or the rows of it that differ, as a run masks it, in bytes.
    fn masked(&mut self, plan: Plan) -> Result<Vec<u8>, Failure>;
    /// Microseconds of a run: the median of `repeats`.
    fn time(&mut self, plan: Plan, repeats: u32) -> Result<f64, Failure>;
    /// Microseconds of a copy of the batch.
    fn time_copy(&mut self, repeats: u32) -> Result<f64, Failure>;
}

impl<'a> Bench<'a> {
    fn cpu(args: &AblateArgs, setting: &Setting) -> Result<Bench<'a>, Failure> {
        let sampler = Sampler::builder().backend(BackendKind::Cpu).threads(args.threads).build();
        let sampler = sampler.map_err(Failure::Build)?;
        let rows = args.rows.unwrap_or(CPU_ROWS) as usize;
        Ok(Bench {
            backend: sampler.backend_name(),
            device: sampler.description(),
            rows,
            repeats: args.repeats.unwrap_or(CPU_REPEATS),
            engine: Box::new(Host {
                sampler,
                batch: HostBatch::new(&setting.rows, setting.dtype, rows),
                params: setting.params,
            }),
        })
    }

    #[cfg(feature = "cuda")]
    fn cuda(args: &AblateArgs, setting: &Setting) -> Result<Bench<'a>, Failure> {
        let rows = args.rows.unwrap_or(CUDA_ROWS) as usize;
        let engine = cuda::Device::new(args.device, setting, rows)?;
        Ok(Bench {
            backend: "cuda",
            device: engine.name(),
            rows,
            repeats: args.repeats.unwrap_or(CUDA_REPEATS),
            engine: Box::new(engine),
        })
    }

    #[cfg(not(feature = "cuda"))]
    fn cuda(_: &AblateArgs, _: &Setting) -> Result<Bench<'a>, Failure> {
        Err(Failure::Build(qrita::BuildError::NotBuilt(BackendKind::Cuda)))
    }

    fn measure(&mut self, setting: &Setting, progress: &Progress) -> Result<OfBackend, Failure> {
        let Bench { backend, device, rows, repeats, engine } = self;
        let copy_us = engine.time_copy(*repeats)?;
        let mut lines: Vec<Line> = Vec::new();
        let mut a = None;
        for run in runs() {
            setting.check(&run, backend, &engine.masked(run.plan)?)?;
            let us = engine.time(run.plan, *repeats)?;
            if run.name == "A" {
                a = Some(us);
            }
            lines.push(Line {
                run: run.name,
                off: run.off,
                plan: run.plan,
                us,
                us_a_row: us / *rows as f64,
                times_a: a.map(|a| us / a),
                copies: us / copy_us,
            });
            progress.advance(1);
        }
        let (rows, repeats) = (*rows, *repeats);
        Ok(OfBackend { backend, device: device.clone(), rows, repeats, copy_us, runs: lines })
    }
}

/// The CPU backend.
struct Host {
    sampler: Sampler,
    batch: HostBatch,
    params: Params<'static>,
}

impl Host {
    fn run(&mut self, plan: Plan) -> Result<(), Failure> {
        self.sampler.set_plan(plan);
        Ok(self.sampler.run(self.batch.logits_mut()?.into(), &self.params, &mut Outputs::default())?)
    }
}

impl Engine for Host {
    fn masked(&mut self, plan: Plan) -> Result<Vec<u8>, Failure> {
        self.batch.restore();
        self.run(plan)?;
        Ok(self.batch.bytes())
    }

    fn time(&mut self, plan: Plan, repeats: u32) -> Result<f64, Failure> {
        let (mut times, start) = (Vec::new(), Instant::now());
        for _ in 0..repeats {
            self.batch.restore();
            let before = Instant::now();
            self.run(plan)?;
            times.push(before.elapsed().as_secs_f64() * 1e6);
            if start.elapsed().as_secs_f64() > CPU_SECONDS {
                break;
            }
        }
        Ok(median(times))
    }

    fn time_copy(&mut self, repeats: u32) -> Result<f64, Failure> {
        let mut copy = || {
            let before = Instant::now();
            self.batch.restore();
            before.elapsed().as_secs_f64() * 1e6
        };
        Ok(median((0..repeats).map(|_| copy()).collect()))
    }
}

/// The middle one; 0 of none.
fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}

#[cfg(feature = "cuda")]
mod cuda {
    //! A CUDA device, timed as the repository's benchmarks time it.

    use qrita::cuda::timing::{Output, Timer};
    use qrita::cuda::{Context, CudaSampler};
    use qrita::{BuildError, Dtype, Params, Plan};

    use super::{Engine, Setting};
    use crate::failure::Failure;

    pub(super) struct Device {
        context: Context,
        timer: Timer,
        rows: Vec<u8>,
        dtype: Dtype,
        vocab: usize,
        count: usize,
        different: usize,
        params: Params<'static>,
    }

    impl Device {
        pub(super) fn new(ordinal: usize, setting: &Setting, count: usize) -> Result<Device, Failure> {
            let context = Context::new(ordinal).map_err(|error| Failure::Build(BuildError::Backend(error)))?;
            Ok(Device {
                timer: Timer::new(&context)?,
                context,
                rows: setting.rows.bytes(setting.dtype),
                dtype: setting.dtype,
                vocab: setting.rows.vocab(),
                count,
                different: setting.rows.count(),
                params: setting.params,
            })
        }

        pub(super) fn name(&self) -> String {
            let (major, minor) = self.context.capability();
            format!("{}, compute capability {major}.{minor}", self.context.name())
        }
    }

    impl Engine for Device {
        fn masked(&mut self, plan: Plan) -> Result<Vec<u8>, Failure> {
            let batches = self.timer.batches(&self.rows, self.dtype, self.vocab, self.count)?;
            let sampler = CudaSampler::new(&self.context, self.dtype, plan, false)?;
            let launch = batches.launch(sampler, &self.params, Output::Mask)?;
            launch.run()?;
            Ok(launch.rows(0, self.count.min(self.different))?)
        }

        fn time(&mut self, plan: Plan, repeats: u32) -> Result<f64, Failure> {
            let batches = self.timer.batches(&self.rows, self.dtype, self.vocab, self.count)?;
            let sampler = CudaSampler::new(&self.context, self.dtype, plan, false)?;
            Ok(batches.launch(sampler, &self.params, Output::Mask)?.time(repeats as usize)?)
        }

        fn time_copy(&mut self, repeats: u32) -> Result<f64, Failure> {
            let batches = self.timer.batches(&self.rows, self.dtype, self.vocab, self.count)?;
            Ok(batches.time_copy(repeats as usize)?)
        }
    }
}

fn table(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    let Report { input, vocab, dtype, top_k, top_p, different, .. } = report;
    writeln!(out, "{input}, {vocab} logits each, {dtype}, k={top_k} and p={top_p}, masked in place")?;
    writeln!(out, "{different} rows differ; every run keeps of each what the oracle keeps")?;
    for OfBackend { backend, device, rows, repeats, copy_us, runs } in &report.backends {
        writeln!(
            out,
            "\n{backend}: {device}; {rows} rows, medians of up to {repeats}; a copy takes {copy_us:.1} \u{b5}s"
        )?;
        let [us, a_row] = ["\u{b5}s", "\u{b5}s a row"];
        writeln!(out, "  {:8} {:36} {us:>11} {a_row:>9} {:>7} {:>7}", "run", "what is off", "times A", "copies")?;
        for Line { run, off, us, us_a_row, times_a, copies, .. } in runs {
            let times_a = times_a.map_or("-".to_owned(), |times| format!("{times:.2}"));
            writeln!(out, "  {run:8} {off:36} {us:11.1} {us_a_row:9.2} {times_a:>7} {copies:7.2}")?;
        }
    }
    writeln!(
        out,
        "\nthe paper's run A: {PAPER_A} \u{b5}s for 1024 rows of 128256 f32 logits, k=50 and p=0.9, on an H100"
    )?;
    report.missing.iter().try_for_each(|why| writeln!(out, "left out: {why}"))
}

fn write_csv(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    writeln!(out, "backend,rows,vocab,dtype,top_k,top_p,run,off,us,us_a_row,times_a,copies")?;
    let Report { vocab, dtype, top_k, top_p, .. } = report;
    for OfBackend { backend, rows, runs, .. } in &report.backends {
        for Line { run, off, us, us_a_row, times_a, copies, .. } in runs {
            let times_a = times_a.map_or(String::new(), |times| times.to_string());
            // No run's description has a quote.
            writeln!(
                out,
                "{backend},{rows},{vocab},{dtype},{top_k},{top_p},{run},\"{off}\",{us},{us_a_row},{times_a},{copies}"
            )?;
        }
    }
    Ok(())
}
