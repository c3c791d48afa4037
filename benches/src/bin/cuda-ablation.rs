//! The paper's ablation (its Table 4, runs A to J) on a CUDA device: logits masked in place under each plan.
//!
//! `cargo run --release -p qrita-benches --bin cuda-ablation [-- --help]`. The defaults are the paper's setting: 1024 rows
//! of 128256 `f32` logits, k = 50, p = 0.9.
//!
//! The runs are those of `qrita ablate` (`qrita_study::ablation`).
//!
//! Before anything is timed, the masked logits of all runs are compared byte for byte. The runs without duplication
//! handling must agree with each other, and keep all that A keeps. Some of A's rows are compared with the CPU backend's.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use qrita_benches::cuda::{Batches, Bench, Output, Result, dtype_parser, exit_code};
use qrita_benches::{Kind, Rows};
use qrita_core::{Dtype, Params, Plan, bf16, f16};
use qrita_study::ablation::{PAPER_A, Run, runs};
use serde::Serialize;

/// Time the paper's ablation runs A to J on a CUDA device, and the default plan
///
/// Every run's masked logits are compared with the others' first. Exit code: 0 if all agree, 1 if not or if there is no
/// device, 2 for wrong arguments.
#[derive(Parser)]
#[command(name = "cuda-ablation")]
struct Cli {
    /// Rows of the batch
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    rows: u32,
    /// Logits of a row
    #[arg(long, default_value_t = 128_256, value_parser = clap::value_parser!(u32).range(1..=1 << 21))]
    vocab: u32,
    /// Top-k; 0 is off
    #[arg(long, default_value_t = 50)]
    k: u32,
    /// Top-p; 1 is off
    #[arg(long, default_value_t = 0.9)]
    p: f32,
    /// Type of the logits
    #[arg(long, default_value = "f32", value_parser = dtype_parser())]
    dtype: Dtype,
    /// What the rows look like
    #[arg(long, value_enum, default_value = "llm")]
    kind: Kind,
    /// How many rows differ; the batch repeats them
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    different: u32,
    /// Replays that a median is of
    #[arg(long, default_value_t = 21, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// Rows of run A that are compared with the CPU backend's
    #[arg(long, default_value_t = 16)]
    sample: u32,
    /// The device's number
    #[arg(long, default_value_t = 0)]
    device: usize,
    /// Write the figures here, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    device: String,
    rows: u32,
    vocab: u32,
    k: u32,
    p: f32,
    dtype: &'static str,
    kind: &'static str,
    different: usize,
    repeats: u32,
    copies_of_the_batch: usize,
    copy_us: f64,
    read_us: f64,
    paper_a_us: f64,
    rows_with_ties: usize,
    runs: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    run: &'static str,
    off: &'static str,
    plan: Plan,
    us: f64,
    copies: f64,
    reads: f64,
    slower_than_a: bool,
}

/// Rows of the run without duplication handling that keep more than A's; an error if one keeps less or alters a logit.
fn rows_that_keep_more(exact: &[u8], ties: &[u8], rows: &Rows, dtype: Dtype) -> std::result::Result<usize, String> {
    let size = dtype.size();
    let removed = match dtype {
        Dtype::F32 => f32::NEG_INFINITY.to_ne_bytes().to_vec(),
        Dtype::F16 => f16::NEG_INFINITY.to_ne_bytes().to_vec(),
        Dtype::Bf16 => bf16::NEG_INFINITY.to_ne_bytes().to_vec(),
    };
    let pristine = rows.bytes(dtype);
    let bytes = rows.vocab() * size;
    let mut more = 0;
    for (row, (exact, ties)) in exact.chunks(bytes).zip(ties.chunks(bytes)).enumerate() {
        if exact == ties {
            continue;
        }
        more += 1;
        let before = &pristine[row % rows.count() * bytes..][..bytes];
        let logits = exact.chunks(size).zip(ties.chunks(size)).zip(before.chunks(size));
        for (id, ((exact, ties), before)) in logits.enumerate() {
            if exact != ties && (exact != removed || ties != before) {
                return Err(format!("row {row}, token {id}: kept with duplication handling alone"));
            }
        }
    }
    Ok(more)
}

/// Compares what the runs keep; returns in how many rows ties across a cut make a difference.
fn check(batches: &Batches<'_>, rows: &Rows, params: &Params<'_>, dtype: Dtype, sample: usize) -> Result<usize> {
    batches.call(Plan::paper(), params, Output::Mask)?.check(params, sample)?;
    // The first run with this handling of duplicates, and what it made of the batch.
    let mut first: HashMap<bool, (&'static str, Vec<u8>)> = HashMap::new();
    for Run { name, plan, .. } in runs() {
        let masked = batches.call(plan, params, Output::Mask)?.masked()?;
        match first.get(&plan.duplicates) {
            None => drop(first.insert(plan.duplicates, (name, masked))),
            Some((_, expected)) if *expected == masked => {}
            Some((other, _)) => {
                return Err(format!("run {name}, {plan:?}: not the masked logits of run {other}").into());
            }
        }
    }
    match (first.get(&true), first.get(&false)) {
        (Some((_, exact)), Some((_, ties))) => Ok(rows_that_keep_more(exact, ties, rows, dtype)?),
        _ => Err("no two runs to compare".into()),
    }
}

fn main() -> ExitCode {
    exit_code(run(&Cli::parse()))
}

fn run(cli: &Cli) -> Result<()> {
    let mut out = io::stdout().lock();
    let params = Params::default().top_k(cli.k).top_p(cli.p);
    let bench = Bench::new(cli.device, cli.repeats as usize)?;
    let rows = Rows::new(cli.kind, cli.vocab as usize, cli.different.min(cli.rows).max(2) as usize);
    let batches = bench.batches(&rows, cli.rows as usize, cli.dtype)?;
    let rows_with_ties = check(&batches, &rows, &params, cli.dtype, cli.sample as usize)?;
    let (copy, read) = (batches.time_copy()?, batches.time_read()?);

    let &Cli { rows: count, vocab, k, p, .. } = cli;
    let (dtype, kind) = (cli.dtype.name(), cli.kind.name());
    writeln!(out, "{}: {count} {kind} rows of {vocab}, {dtype}, k={k} and p={p}, masked in place", bench.device())?;
    writeln!(out, "a copy takes {copy:.1} µs, a read {read:.1} µs; all runs keep the same tokens")?;
    writeln!(out, "without duplication handling {rows_with_ties} rows keep ties beyond a cut")?;
    writeln!(out, "{:8} {:36} {:>9} {:>7} {:>7}  slower than A", "run", "what is off", "µs", "copies", "reads")?;
    let mut lines: Vec<Line> = Vec::new();
    for Run { name, off, plan } in runs() {
        let us = batches.call(plan, &params, Output::Mask)?.time()?;
        let slower_than_a = lines.first().is_some_and(|a| us > a.us);
        let line = Line { run: name, off, plan, us, copies: us / copy, reads: us / read, slower_than_a };
        let order = match (lines.is_empty(), slower_than_a) {
            (true, _) => format!("the paper's, on an H100: {PAPER_A} µs"),
            (false, true) => "yes".to_owned(),
            (false, false) => "no".to_owned(),
        };
        writeln!(out, "{name:8} {off:36} {us:9.1} {:7.2} {:7.2}  {order}", line.copies, line.reads)?;
        out.flush()?;
        lines.push(line);
    }
    let Some(path) = &cli.json else { return Ok(()) };
    let report = Report {
        device: bench.device().to_owned(),
        rows: count,
        vocab,
        k,
        p,
        dtype,
        kind,
        different: rows.count(),
        repeats: cli.repeats,
        copies_of_the_batch: batches.copies(),
        copy_us: copy,
        read_us: read,
        paper_a_us: PAPER_A,
        rows_with_ties,
        runs: lines,
    };
    Ok(serde_json::to_writer_pretty(File::create(path)?, &report)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_may_be_kept_and_nothing_else() {
        let rows = Rows::new(Kind::Plateaus, 3000, 2);
        let masked = |ties: bool| {
            let plan = Plan { duplicates: !ties, ..Plan::default() };
            let params = Params::default().top_k(400);
            (0..3).flat_map(|row| rows.masked(row, Dtype::F32, &params, &plan).unwrap()).collect::<Vec<u8>>()
        };
        let (exact, ties) = (masked(false), masked(true));
        let more = rows_that_keep_more(&exact, &ties, &rows, Dtype::F32).unwrap();
        assert_eq!(more, exact.chunks(12_000).zip(ties.chunks(12_000)).filter(|(a, b)| a != b).count());
        assert!(more > 0, "these rows have ties at their cuts");
        assert!(rows_that_keep_more(&ties, &exact, &rows, Dtype::F32).is_err());
        let altered: Vec<u8> = ties.iter().zip(&exact).map(|(a, b)| if a == b { *a } else { *a ^ 1 }).collect();
        assert!(rows_that_keep_more(&exact, &altered, &rows, Dtype::F32).is_err());
    }
}
