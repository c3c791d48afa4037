//! The parameters of every row: the flags' values, and those of a parameter file.

use std::ops::Range;
use std::path::PathBuf;

use qrita::{Adjustments, Error, Logits, Params};
use qrita_cli::read_params;

use crate::args::ParameterArgs;
use crate::failure::Failure;
use crate::job::Batch;
use crate::source::read_text;

/// The parameters of a run.
#[derive(Debug)]
pub(crate) struct Parameters {
    /// The flags' values.
    all: Params<'static>,
    rows: Option<PerRow>,
}

/// The lines of a parameter file as columns, with the flags' values where a line has none.
#[derive(Debug)]
struct PerRow {
    path: PathBuf,
    top_k: Vec<u32>,
    top_p: Vec<f32>,
    min_p: Vec<f32>,
    temperature: Vec<f32>,
    seed: Vec<u64>,
    position: Vec<u64>,
}

impl Parameters {
    /// Checks the flags and reads the parameter file.
    pub(crate) fn new(args: &ParameterArgs, seed: u64, position: u64) -> Result<Parameters, Failure> {
        let all = Params::default()
            .top_k(args.top_k)
            .top_p(args.top_p)
            .min_p(args.min_p)
            .temperature(args.temperature)
            .seed(seed)
            .position(position)
            .ties(args.ties.into())
            .order(args.order.into());
        check(&all)?;
        let rows = match &args.params {
            None => None,
            Some(path) => {
                let rows = read_params(&read_text(path)?)
                    .map_err(|source| Failure::ParamsFile { path: path.clone(), source })?;
                Some(PerRow {
                    path: path.clone(),
                    top_k: rows.iter().map(|row| row.top_k.unwrap_or(args.top_k)).collect(),
                    top_p: rows.iter().map(|row| row.top_p.unwrap_or(args.top_p)).collect(),
                    min_p: rows.iter().map(|row| row.min_p.unwrap_or(args.min_p)).collect(),
                    temperature: rows.iter().map(|row| row.temperature.unwrap_or(args.temperature)).collect(),
                    seed: rows.iter().map(|row| row.seed.unwrap_or(seed)).collect(),
                    position: rows.iter().map(|row| row.position.unwrap_or(position)).collect(),
                })
            }
        };
        let adjustments = Adjustments { valid_vocab: args.valid_vocab, ..Adjustments::default() };
        Ok(Parameters { all: all.adjustments(adjustments), rows })
    }

    /// The same with so many draws of each row, at least one.
    #[must_use]
    pub(crate) fn draws(self, draws: u32) -> Parameters {
        Parameters { all: self.all.draws(draws), ..self }
    }

    /// Checks what depends on the tensor: that there is a line for every row of it that is used and none for a row that
    /// it lacks, and that the valid vocabulary is part of its.
    pub(crate) fn check(&self, batch: &Batch<'_>) -> Result<(), Failure> {
        if let Some(value) = self.all.adjustments.valid_vocab.filter(|&valid| valid > batch.tensor.vocab()) {
            let expected = "at most the vocab";
            return Err(Error::Shape { what: "valid_vocab", value, expected }.into());
        }
        let Some(PerRow { path, top_k, .. }) = &self.rows else { return Ok(()) };
        let lines = top_k.len();
        let needs = if lines > batch.tensor.rows() {
            format!("has {} rows", batch.tensor.rows())
        } else if lines < batch.rows.end {
            format!("needs {}", batch.rows.end)
        } else {
            return Ok(());
        };
        let tensor = batch.tensor.name().to_owned();
        Err(Failure::ParamsLines { path: path.clone(), lines, tensor, needs })
    }

    /// The parameters of these rows.
    pub(crate) fn of(&self, range: &Range<usize>) -> Params<'_> {
        let Some(rows) = &self.rows else { return self.all };
        self.all
            .top_k(&rows.top_k[range.clone()])
            .top_p(&rows.top_p[range.clone()])
            .min_p(&rows.min_p[range.clone()])
            .temperature(&rows.temperature[range.clone()])
            .seed(&rows.seed[range.clone()])
            .position(&rows.position[range.clone()])
    }
}

/// Checks parameters that serve all rows, before any file is opened or written.
pub(crate) fn check(params: &Params<'_>) -> Result<(), Failure> {
    params.validate(&Logits::new(&[0.0f32], 1)?)?;
    Ok(())
}
