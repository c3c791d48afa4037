//! `qrita sample`: a token of every row, or several.

use std::ops::Range;
use std::path::Path;

use qrita::{Candidates, Logits, Outputs, Params, Sampler};

use crate::args::SampleArgs;
use crate::commands::{only_batch, to_i32};
use crate::drawn::{Asked, Drawn, DrawnRow};
use crate::failure::Failure;
use crate::job::{Batch, Progress, batches, sampler};
use crate::output::jsonl::{self, SampledRow};
use crate::output::npy::NpyWriter;
use crate::output::safetensors::{Dtype, SafetensorsWriter, Spec, output_name};
use crate::output::sink::Sink;
use crate::output::{Target, table};
use crate::parameters::Parameters;
use crate::source::Source;

pub(crate) fn run(args: SampleArgs) -> Result<(), Failure> {
    let target = Target::new(&args.output)?;
    let asked = Asked::new(&args.drawn);
    let parameters = Parameters::new(&args.parameters, args.seed, args.position)?.draws(args.drawn.draws.unwrap_or(1));
    let source = Source::open(&args.input.file)?;
    let contents = source.contents()?;
    let batches = batches(&source, &contents, &args.input)?;
    for batch in &batches {
        parameters.check(batch)?;
    }
    let sampler = sampler(&args.engine, args.plan.into())?;
    let progress = Progress::new(&batches, 1, args.output.output.is_some());
    let mut sample = Sample { batches: &batches, parameters: &parameters, asked, sampler, progress };
    match target {
        Target::Table(path) => sample.table(path),
        Target::Jsonl(path) => sample.jsonl(path),
        Target::Safetensors(path) => sample.safetensors(path),
        Target::Npy(path) => sample.npy(path),
    }
}

struct Sample<'a> {
    batches: &'a [Batch<'a>],
    parameters: &'a Parameters,
    asked: Asked,
    sampler: Sampler,
    progress: Progress,
}

impl Sample<'_> {
    /// The rows in parts that fit memory.
    fn chunks(&self, batch: &Batch<'_>) -> impl Iterator<Item = Range<usize>> + use<> {
        batch.chunks_for(self.asked.row_bytes())
    }

    /// Hands what is drawn of every row to `each`, with its number.
    fn rows(
        &mut self,
        batch: &Batch<'_>,
        mut each: impl FnMut(usize, &DrawnRow<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        for chunk in self.chunks(batch) {
            let rows = batch.tensor.read(chunk.clone());
            let drawn = Drawn::of(&mut self.sampler, self.asked, &rows.logits()?, &self.parameters.of(&chunk))?;
            self.progress.advance(chunk.len());
            for (i, row) in chunk.enumerate() {
                each(row, &drawn.row(i))?;
            }
        }
        Ok(())
    }

    fn table(&mut self, path: Option<&Path>) -> Result<(), Failure> {
        let mut sink = Sink::open(path)?;
        for batch in self.batches {
            sink.write(|out| table::heading(out, batch).and_then(|()| table::sampled_columns(out, self.asked)))?;
            for chunk in self.chunks(batch) {
                let rows = batch.tensor.read(chunk.clone());
                let (logits, params) = (rows.logits()?, self.parameters.of(&chunk));
                let drawn = Drawn::of(&mut self.sampler, self.asked, &logits, &params)?;
                let likeliest = match self.asked.top {
                    None => Some(Likeliest::of(&mut self.sampler, &logits, &params)?),
                    Some(_) => None,
                };
                self.progress.advance(chunk.len());
                for (i, row) in chunk.enumerate() {
                    let drawn = drawn.row(i);
                    let likeliest = likeliest.as_ref().map_or((&[][..], &[][..]), |all| all.row(i, drawn.kept));
                    sink.write(|out| table::sampled(out, row, &drawn, likeliest))?;
                }
            }
        }
        sink.finish()
    }

    fn jsonl(&mut self, path: Option<&Path>) -> Result<(), Failure> {
        let mut sink = Sink::open(path)?;
        for batch in self.batches {
            let tensor = (self.batches.len() > 1).then_some(batch.tensor.name());
            self.rows(batch, |row, drawn| sink.write(|out| jsonl::write(out, &SampledRow::new(tensor, row, drawn))))?;
        }
        sink.finish()
    }

    fn safetensors(&mut self, path: &Path) -> Result<(), Failure> {
        let columns = columns(self.asked);
        let several = self.batches.len() > 1;
        let specs: Vec<Spec> = self
            .batches
            .iter()
            .flat_map(|batch| {
                columns.iter().map(move |&Column { name, dtype, list }| Spec {
                    name: output_name(batch.tensor.name(), name, several),
                    dtype,
                    shape: [batch.rows.len()].into_iter().chain(list).collect(),
                })
            })
            .collect();
        let mut writer = SafetensorsWriter::create(path, &specs)?;
        for (number, batch) in self.batches.iter().enumerate() {
            self.rows(batch, |_, drawn| {
                for (column, bytes) in fields(drawn).iter().enumerate() {
                    writer.append(number * columns.len() + column, bytes)?;
                }
                Ok(())
            })?;
        }
        writer.finish()
    }

    fn npy(&mut self, path: &Path) -> Result<(), Failure> {
        let batch = only_batch(self.batches, path)?;
        let mut descr = "[('row', '<i8')".to_owned();
        for Column { name, dtype, list } in columns(self.asked) {
            let kind = if dtype == Dtype::I32 { "<i4" } else { "<f4" };
            let list = list.map_or(String::new(), |list| format!(", ({list},)"));
            descr += &format!(", ('{name}', '{kind}'{list})");
        }
        let mut writer = NpyWriter::create(path, &(descr + "]"))?;
        self.rows(batch, |row, drawn| {
            writer.append(&(row as u64).to_le_bytes())?;
            fields(drawn).iter().try_for_each(|bytes| writer.append(bytes))
        })?;
        writer.finish(&[batch.rows.len()])
    }
}

/// The first kept tokens of every row, as many as a table shows.
struct Likeliest {
    ids: Vec<u32>,
    logprobs: Vec<f32>,
}

impl Likeliest {
    fn of(sampler: &mut Sampler, logits: &Logits<'_>, params: &Params<'_>) -> Result<Likeliest, Failure> {
        let room = logits.rows() * table::SHOWN;
        let (mut ids, mut values, mut logprobs) = (vec![0; room], vec![0.0; room], vec![0.0; room]);
        let candidates =
            Candidates { capacity: table::SHOWN, ids: &mut ids, logits: &mut values, logprobs: &mut logprobs };
        let mut outputs = Outputs { candidates: Some(candidates), ..Outputs::default() };
        sampler.run((*logits).into(), params, &mut outputs)?;
        Ok(Likeliest { ids, logprobs })
    }

    /// The tokens and log-probabilities of the batch's row `row`, which keeps `kept` tokens.
    fn row(&self, row: usize, kept: u32) -> (&[u32], &[f32]) {
        let start = row * table::SHOWN;
        let range = start..start + table::SHOWN.min(kept as usize);
        (&self.ids[range.clone()], &self.logprobs[range])
    }
}

/// A column of the arrays: one number a row, or a list of so many.
struct Column {
    name: &'static str,
    dtype: Dtype,
    list: Option<usize>,
}

/// The columns of the arrays, in the order of [`fields`].
fn columns(asked: Asked) -> Vec<Column> {
    let column = |name, dtype, list| Column { name, dtype, list };
    let mut columns = vec![
        column("status", Dtype::I32, None),
        column("token", Dtype::I32, asked.draws),
        column("logprob", Dtype::F32, asked.draws),
        column("raw_logprob", Dtype::F32, asked.draws),
        column("rank", Dtype::I32, asked.draws),
        column("kept", Dtype::I32, None),
    ];
    if asked.top.is_some() {
        columns.push(column("top_ids", Dtype::I32, asked.top));
        columns.push(column("top_logprobs", Dtype::F32, asked.top));
    }
    columns
}

/// A row's part of every column.
fn fields(drawn: &DrawnRow<'_>) -> Vec<Vec<u8>> {
    let integers = |values: &[u32]| values.iter().flat_map(|&value| to_i32(value).to_le_bytes()).collect();
    let numbers = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut fields = vec![
        integers(&[drawn.status.bits()]),
        integers(drawn.token),
        numbers(drawn.logprob),
        numbers(drawn.raw_logprob),
        integers(drawn.rank),
        integers(&[drawn.kept]),
    ];
    if drawn.asked.top.is_some() {
        fields.push(integers(drawn.top_ids));
        fields.push(numbers(drawn.top_logprobs));
    }
    fields
}
