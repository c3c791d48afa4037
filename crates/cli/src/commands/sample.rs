//! `qrita sample`: a token of every row.

use std::path::Path;

use qrita::{Candidates, Logits, Outputs, Params, Sampled, Sampler};

use crate::args::SampleArgs;
use crate::commands::{only_batch, to_i32};
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
    let parameters = Parameters::new(&args.parameters, args.seed, args.position)?;
    let source = Source::open(&args.input.file)?;
    let contents = source.contents()?;
    let batches = batches(&source, &contents, &args.input)?;
    for batch in &batches {
        parameters.check(batch)?;
    }
    let sampler = sampler(&args.engine, args.plan.into())?;
    let progress = Progress::new(&batches, 1, args.output.output.is_some());
    let mut sample = Sample { batches: &batches, parameters: &parameters, sampler, progress };
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
    sampler: Sampler,
    progress: Progress,
}

impl Sample<'_> {
    /// Hands every row's token to `each`, with its number.
    fn rows(
        &mut self,
        batch: &Batch<'_>,
        mut each: impl FnMut(usize, &Sampled) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        for chunk in batch.chunks() {
            let rows = batch.tensor.read(chunk.clone());
            let sampled = self.sampler.sample(&rows.logits()?, &self.parameters.of(&chunk))?;
            self.progress.advance(chunk.len());
            for (row, sampled) in chunk.zip(&sampled) {
                each(row, sampled)?;
            }
        }
        Ok(())
    }

    fn table(&mut self, path: Option<&Path>) -> Result<(), Failure> {
        let mut sink = Sink::open(path)?;
        for batch in self.batches {
            sink.write(|out| table::heading(out, batch).and_then(|()| table::sampled_columns(out)))?;
            for chunk in batch.chunks() {
                let rows = batch.tensor.read(chunk.clone());
                let (logits, params) = (rows.logits()?, self.parameters.of(&chunk));
                let sampled = self.sampler.sample(&logits, &params)?;
                let likeliest = Likeliest::of(&mut self.sampler, &logits, &params)?;
                self.progress.advance(chunk.len());
                for (i, row) in chunk.enumerate() {
                    sink.write(|out| table::sampled(out, row, &sampled[i], likeliest.row(i, sampled[i].kept)))?;
                }
            }
        }
        sink.finish()
    }

    fn jsonl(&mut self, path: Option<&Path>) -> Result<(), Failure> {
        let mut sink = Sink::open(path)?;
        for batch in self.batches {
            let tensor = (self.batches.len() > 1).then_some(batch.tensor.name());
            self.rows(batch, |row, sampled| {
                sink.write(|out| jsonl::write(out, &SampledRow::new(tensor, row, sampled)))
            })?;
        }
        sink.finish()
    }

    fn safetensors(&mut self, path: &Path) -> Result<(), Failure> {
        const COLUMNS: [(&str, Dtype); 6] = [
            ("status", Dtype::I32),
            ("token", Dtype::I32),
            ("logprob", Dtype::F32),
            ("raw_logprob", Dtype::F32),
            ("rank", Dtype::I32),
            ("kept", Dtype::I32),
        ];
        let several = self.batches.len() > 1;
        let specs: Vec<Spec> = self
            .batches
            .iter()
            .flat_map(|batch| {
                COLUMNS.map(|(name, dtype)| Spec {
                    name: output_name(batch.tensor.name(), name, several),
                    dtype,
                    shape: vec![batch.rows.len()],
                })
            })
            .collect();
        let mut writer = SafetensorsWriter::create(path, &specs)?;
        for (number, batch) in self.batches.iter().enumerate() {
            self.rows(batch, |_, sampled| {
                for (column, value) in fields(sampled).into_iter().enumerate() {
                    writer.append(number * COLUMNS.len() + column, &value)?;
                }
                Ok(())
            })?;
        }
        writer.finish()
    }

    fn npy(&mut self, path: &Path) -> Result<(), Failure> {
        let batch = only_batch(self.batches, path)?;
        let descr = "[('row', '<i8'), ('status', '<i4'), ('token', '<i4'), ('logprob', '<f4'), ('raw_logprob', '<f4'), \
                     ('rank', '<i4'), ('kept', '<i4')]";
        let mut writer = NpyWriter::create(path, descr)?;
        self.rows(batch, |row, sampled| {
            writer.append(&(row as u64).to_le_bytes())?;
            fields(sampled).iter().try_for_each(|value| writer.append(value))
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

/// The columns of a row as the arrays hold them: status, token, logprob, raw_logprob, rank, kept.
fn fields(sampled: &Sampled) -> [[u8; 4]; 6] {
    let Sampled { status, kept, token, logprob, raw_logprob, rank } = *sampled;
    [
        to_i32(status.bits()).to_le_bytes(),
        token.map_or(-1, to_i32).to_le_bytes(),
        logprob.to_le_bytes(),
        raw_logprob.to_le_bytes(),
        token.map_or(-1, |_| to_i32(rank)).to_le_bytes(),
        to_i32(kept).to_le_bytes(),
    ]
}
