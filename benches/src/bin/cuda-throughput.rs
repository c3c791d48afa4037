//! The default plan on a CUDA device: batches, kinds of rows, filters, dtypes, and whether logits are masked or read.
//!
//! `cargo run --release -p qrita-benches --bin cuda-throughput [-- --help]`. Microseconds, also in copies of the batch
//! (device to device) and in reads of it. Some rows of every case are compared with the CPU backend's before it is timed.
//! Then, for each batch, the device memory that a mask takes beside its logits, measured (the paper's Figure 4).
//!
//! `--dump FILE` writes the rows themselves, for the programs of `benches/peers`, and measures nothing.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, ValueEnum};
use qrita_benches::cuda::{Batches, Bench, Output, Result, dtype_parser, exit_code};
use qrita_benches::{Filter, Kind, Rows};
use qrita_core::{Dtype, Plan};
use serde::Serialize;

/// Rows of a case that are compared with the CPU backend's.
const SAMPLE: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// The logits masked in place
    Mask,
    /// The kept tokens in order; the logits are only read
    Candidates,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            What::Mask => "mask",
            What::Candidates => "candidates",
        }
    }
}

/// Time the default plan on a CUDA device
///
/// Every list takes commas. Exit code: 0 if done, 1 if a row is not what the CPU backend makes of it or if there is no
/// device, 2 for wrong arguments.
#[derive(Parser)]
#[command(name = "cuda-throughput")]
struct Cli {
    /// Rows of a batch
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 32, 128, 1024],
          value_parser = clap::value_parser!(u32).range(1..))]
    batches: Vec<u32>,
    /// What the rows look like
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Kind::ALL)]
    kinds: Vec<Kind>,
    /// k = 50, p = 0.9 or both
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Filter::ALL)]
    filters: Vec<Filter>,
    /// Types of the logits
    #[arg(long, value_delimiter = ',', default_values = ["f32", "bf16"], value_parser = dtype_parser())]
    dtypes: Vec<Dtype>,
    /// What is asked for
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [What::Mask, What::Candidates])]
    outputs: Vec<What>,
    /// Logits of a row
    #[arg(long, default_value_t = 128_256, value_parser = clap::value_parser!(u32).range(1..=1 << 21))]
    vocab: u32,
    /// How many rows differ; batches repeat them
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    different: u32,
    /// Replays that a median is of
    #[arg(long, default_value_t = 21, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// The device's number
    #[arg(long, default_value_t = 0)]
    device: usize,
    /// Write the figures here, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the different rows of the one kind in --kinds here, as f32, little-endian, without a header, and stop
    #[arg(long, value_name = "FILE")]
    dump: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    device: String,
    vocab: u32,
    different: u32,
    repeats: u32,
    cases: Vec<Case>,
    memory: Vec<Memory>,
}

/// What a call under the default plan that masks takes of the device's memory. It depends on no row.
#[derive(Serialize)]
struct Memory {
    batch: u32,
    dtype: &'static str,
    /// Measured: workspace and kept counts.
    bytes: u64,
    /// B × V × 4, as much as a second copy of the logits would take in f32.
    copy_bytes: u64,
}

#[derive(Serialize)]
struct Case {
    batch: u32,
    kind: &'static str,
    filter: &'static str,
    dtype: &'static str,
    output: &'static str,
    us: f64,
    copies: f64,
    reads: f64,
    copy_us: f64,
    read_us: f64,
}

fn measure(batches: &Batches<'_>, filter: Filter, what: What) -> Result<f64> {
    let output = match what {
        What::Mask => Output::Mask,
        // Room for all that can be kept.
        What::Candidates => Output::Candidates { capacity: if filter == Filter::TopP { usize::MAX } else { 50 } },
    };
    let params = filter.params();
    let call = batches.call(Plan::default(), &params, output)?;
    call.check(&params, SAMPLE)?;
    call.time()
}

fn dump(cli: &Cli, path: &Path, out: &mut impl Write) -> Result<()> {
    let [kind] = cli.kinds[..] else {
        let message = "--dump takes one kind of rows: name it by --kinds";
        Cli::command().error(clap::error::ErrorKind::ArgumentConflict, message).exit();
    };
    let rows = Rows::new(kind, cli.vocab as usize, cli.different as usize);
    rows.dump(path)?;
    Ok(writeln!(out, "{}: {} {} rows of {} f32", path.display(), rows.count(), kind.name(), rows.vocab())?)
}

fn main() -> ExitCode {
    exit_code(run(&Cli::parse()))
}

fn run(cli: &Cli) -> Result<()> {
    let mut out = io::stdout().lock();
    if let Some(path) = &cli.dump {
        return dump(cli, path, &mut out);
    }
    let bench = Bench::new(cli.device, cli.repeats as usize)?;
    writeln!(out, "{}, rows of {}, default plan", bench.device(), cli.vocab)?;
    writeln!(
        out,
        "{:5} {:9} {:11} {:11} {:>6} {:>9} {:>7} {:>7}",
        "dtype", "rows", "filter", "output", "batch", "µs", "copies", "reads"
    )?;
    let (mut cases, mut memory): (Vec<Case>, Vec<Memory>) = (Vec::new(), Vec::new());
    for &kind in &cli.kinds {
        let rows = Rows::new(kind, cli.vocab as usize, cli.different as usize);
        for &dtype in &cli.dtypes {
            for &batch in &cli.batches {
                let batches = bench.batches(&rows, batch as usize, dtype)?;
                let (copy_us, read_us) = (batches.time_copy()?, batches.time_read()?);
                if !memory.iter().any(|known| (known.batch, known.dtype) == (batch, dtype.name())) {
                    let bytes = batches.call(Plan::default(), &Filter::Both.params(), Output::Mask)?.memory()?;
                    let copy_bytes = u64::from(batch) * u64::from(cli.vocab) * 4;
                    memory.push(Memory { batch, dtype: dtype.name(), bytes, copy_bytes });
                }
                for &filter in &cli.filters {
                    for &what in &cli.outputs {
                        let (kind, filter_name, dtype, output) =
                            (kind.name(), filter.name(), dtype.name(), what.name());
                        let us = measure(&batches, filter, what).map_err(|error| {
                            format!("{batch} {kind} rows, {dtype}, {filter_name}, {output}: {error}")
                        })?;
                        let (copies, reads) = (us / copy_us, us / read_us);
                        writeln!(
                            out,
                            "{dtype:5} {kind:9} {filter_name:11} {output:11} {batch:6} {us:9.1} {copies:7.2} {reads:7.2}"
                        )?;
                        out.flush()?;
                        cases.push(Case {
                            batch,
                            kind,
                            filter: filter_name,
                            dtype,
                            output,
                            us,
                            copies,
                            reads,
                            copy_us,
                            read_us,
                        });
                    }
                }
            }
        }
    }
    writeln!(
        out,
        "device memory that a mask takes beside the logits, measured, and B \u{d7} V \u{d7} 4 bytes, in MiB"
    )?;
    writeln!(out, "{:5} {:>6} {:>9} {:>9} {:>9}", "dtype", "batch", "taken", "B*V*4", "share")?;
    for Memory { batch, dtype, bytes, copy_bytes } in &memory {
        let [taken, copy] = [bytes, copy_bytes].map(|&bytes| bytes as f64 / f64::from(1 << 20));
        writeln!(out, "{dtype:5} {batch:6} {taken:9.2} {copy:9.2} {:8.1}%", 100.0 * taken / copy)?;
    }
    let Some(path) = &cli.json else { return Ok(()) };
    let &Cli { vocab, different, repeats, .. } = cli;
    let report = Report { device: bench.device().to_owned(), vocab, different, repeats, cases, memory };
    Ok(serde_json::to_writer_pretty(File::create(path)?, &report)?)
}
