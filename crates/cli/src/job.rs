//! The rows of a run, in chunks, and the sampler that works on them.

use std::io::{self, IsTerminal};
use std::ops::Range;
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
#[cfg(feature = "cuda")]
use qrita::cuda::Tuning;
use qrita::{Builder, Plan, Sampler};
use qrita_cli::{Contents, Tensor};

use crate::args::{EngineArgs, InputArgs, RowRange};
use crate::failure::Failure;
use crate::source::Source;

/// Rows at a time: enough to keep many cores busy, few enough for their candidates to fit memory.
const CHUNK_ROWS: usize = 64;
/// Bytes of logits at a time.
const CHUNK_BYTES: usize = 64 << 20;

/// The rows of one tensor that are asked for.
#[derive(Clone, Debug)]
pub(crate) struct Batch<'a> {
    pub(crate) tensor: &'a Tensor<'a>,
    pub(crate) rows: Range<usize>,
}

impl Batch<'_> {
    /// The rows in parts that fit memory, whatever is kept of them.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        self.chunks_for(0)
    }

    /// The rows in parts that fit memory, with answers of `answer` bytes a row.
    pub(crate) fn chunks_for(&self, answer: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let row = (self.tensor.vocab() * self.tensor.dtype().size()).max(answer);
        let step = (CHUNK_BYTES / row).clamp(1, CHUNK_ROWS);
        let end = self.rows.end;
        self.rows.clone().step_by(step).map(move |start| start..end.min(start + step))
    }
}

/// The rows of every tensor that is asked for.
pub(crate) fn batches<'a>(
    source: &Source,
    contents: &'a Contents<'a>,
    input: &InputArgs,
) -> Result<Vec<Batch<'a>>, Failure> {
    // A tensor named twice is used once.
    let mut names: Vec<String> = Vec::new();
    for name in &input.tensor {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    let tensors = contents
        .select(&names)
        .map_err(|source_error| Failure::Select { path: source.path().to_owned(), source: source_error })?;
    let batch = |tensor: &'a Tensor<'a>| {
        let rows = tensor.rows();
        match input.rows {
            None => Ok(Batch { tensor, rows: 0..rows }),
            Some(RowRange::First(first)) => Ok(Batch { tensor, rows: 0..first.min(rows) }),
            Some(RowRange::Between(start, end)) if end <= rows => Ok(Batch { tensor, rows: start..end }),
            Some(range) => Err(Failure::Rows { range: range.to_string(), tensor: tensor.name().to_owned(), rows }),
        }
    };
    tensors.into_iter().map(batch).collect()
}

/// The sampler that the arguments ask for.
pub(crate) fn sampler(args: &EngineArgs, plan: Plan) -> Result<Sampler, Failure> {
    let mut builder = Sampler::builder().backend(args.backend).threads(args.threads).plan(plan);
    #[cfg(feature = "cuda")]
    {
        builder = builder.device(args.device);
    }
    #[cfg(feature = "cuda")]
    if let Some(path) = &args.tuning {
        builder = builder.tuning(Tuning::load(path)?);
    }
    if let Some(path) = &args.tables {
        builder = with_tables(builder, path)?;
    }
    builder.build().map_err(Failure::Build)
}

#[cfg(feature = "truncation")]
fn with_tables(builder: Builder, path: &Path) -> Result<Builder, Failure> {
    Ok(builder.tables(qrita::DeltaTables::load(path)?))
}

#[cfg(not(feature = "truncation"))]
fn with_tables(_: Builder, _: &Path) -> Result<Builder, Failure> {
    let why = "--tables: this build does not truncate: enable the Cargo feature `truncation`";
    Err(Failure::Usage(why.to_owned()))
}

/// A bar on a terminal, when the work is long enough to wonder about.
#[derive(Debug)]
pub(crate) struct Progress(Option<ProgressBar>);

impl Progress {
    /// For `passes` over all rows. Shown only when nothing else is written to the terminal.
    pub(crate) fn new(batches: &[Batch<'_>], passes: u64, to_file: bool) -> Progress {
        const LONG: u64 = 1 << 28;
        let logits = |batch: &Batch<'_>| batch.rows.len() as u64 * batch.tensor.vocab() as u64;
        let long = passes * batches.iter().map(logits).sum::<u64>() >= LONG;
        if !long || !io::stderr().is_terminal() || (!to_file && io::stdout().is_terminal()) {
            return Progress(None);
        }
        let rows = batches.iter().map(|batch| batch.rows.len() as u64).sum::<u64>() * passes;
        Progress::bar(rows, "rows")
    }

    /// For measurements, which take a while and print nothing before their end.
    pub(crate) fn of_measurements(count: usize) -> Progress {
        if !io::stderr().is_terminal() {
            return Progress(None);
        }
        Progress::bar(count as u64, "measurements")
    }

    fn bar(count: u64, what: &str) -> Progress {
        let bar = ProgressBar::new(count);
        let template = format!("{{bar:40}} {{human_pos}} of {{human_len}} {what}, {{eta}} left");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        Progress(Some(bar))
    }

    /// So many more are done.
    pub(crate) fn advance(&self, count: usize) {
        if let Some(bar) = &self.0 {
            bar.inc(count as u64);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
