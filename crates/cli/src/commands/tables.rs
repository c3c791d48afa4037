//! `qrita tables`: the delta tables behind the truncation.

use std::io::{self, Write};
use std::path::Path;

use qrita_delta_tables::{DeltaTables, Fitter, Provenance};

use crate::args::{InputArgs, TablesArgs, TablesCommand};
use crate::failure::Failure;
use crate::job::{Progress, batches};
use crate::output::sink::Sink;
use crate::source::Source;

pub(crate) fn run(args: TablesArgs) -> Result<(), Failure> {
    match args.command {
        TablesCommand::Generate { output } => generate(output.as_deref()),
        TablesCommand::Fit { input, output, coverage } => fit(&input, &output, coverage),
        TablesCommand::Show { file } => show(file.as_deref()),
    }
}

fn generate(output: Option<&Path>) -> Result<(), Failure> {
    let tables = DeltaTables::normal();
    if let Some(path) = output {
        return Ok(tables.save(path)?);
    }
    let mut sink = Sink::open(None)?;
    sink.write(|out| {
        tables.to_writer(&mut *out)?;
        out.write_all(b"\n")
    })?;
    sink.finish()
}

fn fit(input: &InputArgs, output: &Path, coverage: f64) -> Result<(), Failure> {
    let source = Source::open(&input.file)?;
    let contents = source.contents()?;
    let batches = batches(&source, &contents, input)?;
    let progress = Progress::new(&batches, 1, false);
    // The file's name without its folders: a table may be given to others.
    let file = input.file.file_name().unwrap_or_default().to_string_lossy();
    let names: Vec<_> = batches.iter().map(|batch| batch.tensor.name()).collect();
    let mut fitter = Fitter::new(format!("{file}: {}", names.join(", ")));
    let mut row = Vec::new();
    for batch in &batches {
        for number in batch.rows.clone() {
            let rows = batch.tensor.read(number..number + 1);
            let logits = rows.logits()?.row(0);
            row.clear();
            row.extend((0..logits.len()).map(|id| logits.get(id)));
            fitter.push(&row);
            progress.advance(1);
        }
    }
    let (rows, skipped) = (fitter.rows(), fitter.skipped());
    fitter.finish(coverage)?.save(output)?;
    let mut sink = Sink::open(None)?;
    sink.write(|out| writeln!(out, "fitted to {rows} rows, {skipped} skipped: {}", output.display()))?;
    sink.finish()
}

fn show(file: Option<&Path>) -> Result<(), Failure> {
    let tables = match file {
        Some(path) => DeltaTables::load(path)?,
        None => DeltaTables::normal(),
    };
    let mut sink = Sink::open(None)?;
    sink.write(|out| {
        provenance(out, tables.provenance())?;
        grid(
            out,
            "top-k",
            "k",
            &[1, 10, 50, 100, 1000],
            "vocab",
            &[32_000, 49_152, 128_256, 151_936, 262_144],
            |k, v| tables.top_k(k, v),
        )?;
        grid(out, "top-p", "p", &[0.5, 0.8, 0.9, 0.95, 0.99], "sigma", &[1.0, 2.0, 3.0, 4.0, 5.0], |p, sigma| {
            tables.top_p(p, sigma)
        })
    })?;
    sink.finish()
}

fn provenance(out: &mut dyn Write, provenance: &Provenance) -> io::Result<()> {
    match provenance {
        Provenance::Normal => writeln!(out, "the normal law"),
        Provenance::Fitted { description, rows, skipped, coverage, .. } => {
            // It comes from a file, and goes to a terminal.
            let description = description.escape_debug();
            writeln!(out, "fitted to {description}: {rows} rows, {skipped} skipped, coverage {coverage}")
        }
        _ => writeln!(out, "of unknown origin"),
    }
}

/// Some values of a table: how many σ above the mean the threshold lies.
fn grid<A: Copy + std::fmt::Display, B: Copy + std::fmt::Display>(
    out: &mut dyn Write,
    filter: &str,
    row: &str,
    rows: &[A],
    column: &str,
    columns: &[B],
    delta: impl Fn(A, B) -> f32,
) -> io::Result<()> {
    write!(out, "\n{filter} delta\n{:>8}", format!("{row} \\ {column}"))?;
    for value in columns {
        write!(out, "  {value:>8}")?;
    }
    writeln!(out)?;
    for &value in rows {
        write!(out, "{value:>8}")?;
        for &other in columns {
            write!(out, "  {:>8.3}", delta(value, other))?;
        }
        writeln!(out)?;
    }
    Ok(())
}
