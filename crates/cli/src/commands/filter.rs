//! `qrita filter`: the tokens that the filters keep, or the logits with everything else masked.

use std::path::Path;

use qrita::{Dtype, Outputs, Sampler, Status};

use crate::args::FilterArgs;
use crate::commands::{only_batch, to_i32};
use crate::failure::Failure;
use crate::job::{Batch, Progress, batches, sampler};
use crate::output::jsonl::{self, FilteredRow};
use crate::output::npy::NpyWriter;
use crate::output::safetensors::{self, SafetensorsWriter, Spec, output_name};
use crate::output::sink::Sink;
use crate::output::{Target, table};
use crate::parameters::Parameters;
use crate::source::Source;

pub(crate) fn run(args: FilterArgs) -> Result<(), Failure> {
    let target = Target::new(&args.output)?;
    let parameters = Parameters::new(&args.parameters, 0, 0)?;
    let source = Source::open(&args.input.file)?;
    let contents = source.contents()?;
    let batches = batches(&source, &contents, &args.input)?;
    for batch in &batches {
        parameters.check(batch)?;
    }
    let sampler = sampler(&args.engine, args.plan.into())?;
    let mut filter = Filter { batches: &batches, parameters: &parameters, sampler };
    match (args.mask, target) {
        (false, Target::Table(path)) => filter.table(path),
        (false, Target::Jsonl(path)) => filter.jsonl(path),
        (false, Target::Safetensors(path)) => filter.safetensors(path),
        (false, Target::Npy(path)) => filter.npy(path),
        (true, Target::Safetensors(path)) => filter.mask_safetensors(path),
        (true, Target::Npy(path)) => filter.mask_npy(path),
        (true, _) => Err(Failure::Usage(
            "--mask writes logits: use --format safetensors or npy, or an --output that ends so".to_owned(),
        )),
    }
}

struct Filter<'a> {
    batches: &'a [Batch<'a>],
    parameters: &'a Parameters,
    sampler: Sampler,
}

impl Filter<'_> {
    /// Hands every row's kept tokens to `each`, with its number.
    fn rows(
        &mut self,
        batch: &Batch<'_>,
        progress: &Progress,
        mut each: impl FnMut(usize, &qrita::Filtered) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        for chunk in batch.chunks() {
            let rows = batch.tensor.read(chunk.clone());
            let filtered = self.sampler.filter(&rows.logits()?, &self.parameters.of(&chunk))?;
            progress.advance(chunk.len());
            for (row, filtered) in chunk.zip(&filtered) {
                each(row, filtered)?;
            }
        }
        Ok(())
    }

    fn table(&mut self, path: Option<&Path>) -> Result<(), Failure> {
        let mut sink = Sink::open(path)?;
        let progress = Progress::new(self.batches, 1, path.is_some());
        for batch in self.batches {
            sink.write(|out| table::heading(out, batch).and_then(|()| table::filtered_columns(out)))?;
            self.rows(batch, &progress, |row, filtered| sink.write(|out| table::filtered(out, row, filtered)))?;
        }
        sink.finish()
    }

    fn jsonl(&mut self, path: Option<&Path>) -> Result<(), Failure> {
        let mut sink = Sink::open(path)?;
        let progress = Progress::new(self.batches, 1, path.is_some());
        for batch in self.batches {
            let tensor = (self.batches.len() > 1).then_some(batch.tensor.name());
            self.rows(batch, &progress, |row, filtered| {
                sink.write(|out| jsonl::write(out, &FilteredRow::new(tensor, row, filtered)))
            })?;
        }
        sink.finish()
    }

    /// The kept counts first, because the header must know the widest row; then the candidates, row by row.
    fn safetensors(&mut self, path: &Path) -> Result<(), Failure> {
        let progress = Progress::new(self.batches, 2, true);
        let several = self.batches.len() > 1;
        let (mut specs, mut counts) = (Vec::new(), Vec::new());
        for batch in self.batches {
            let (kept, status) = self.count(batch, &progress)?;
            let widest = kept.iter().copied().max().unwrap_or(0) as usize;
            let (rows, wide) = (vec![kept.len()], vec![kept.len(), widest]);
            let mut spec = |name, dtype, shape| {
                specs.push(Spec { name: output_name(batch.tensor.name(), name, several), dtype, shape });
            };
            spec("kept", safetensors::Dtype::I32, rows.clone());
            spec("status", safetensors::Dtype::I32, rows);
            spec("ids", safetensors::Dtype::I32, wide.clone());
            spec("logits", safetensors::Dtype::F32, wide.clone());
            spec("logprobs", safetensors::Dtype::F32, wide);
            counts.push((kept, status, widest));
        }
        let mut writer = SafetensorsWriter::create(path, &specs)?;
        for (number, (batch, (kept, status, widest))) in self.batches.iter().zip(counts).enumerate() {
            let first = number * 5;
            let kept: Vec<i32> = kept.into_iter().map(to_i32).collect();
            let status: Vec<i32> = status.iter().map(|status| to_i32(status.bits())).collect();
            writer.append(first, bytemuck::cast_slice(&kept))?;
            writer.append(first + 1, bytemuck::cast_slice(&status))?;
            self.rows(batch, &progress, |_, filtered| {
                let mut ids: Vec<i32> = filtered.ids.iter().map(|&id| to_i32(id)).collect();
                ids.resize(widest, -1);
                writer.append(first + 2, bytemuck::cast_slice(&ids))?;
                for (tensor, values) in [(first + 3, &filtered.logits), (first + 4, &filtered.logprobs)] {
                    let mut values = values.clone();
                    values.resize(widest, f32::NEG_INFINITY);
                    writer.append(tensor, bytemuck::cast_slice(&values))?;
                }
                Ok(())
            })?;
        }
        writer.finish()
    }

    fn count(&mut self, batch: &Batch<'_>, progress: &Progress) -> Result<(Vec<u32>, Vec<Status>), Failure> {
        let mut kept = vec![0; batch.rows.len()];
        let mut status = vec![Status::OK; batch.rows.len()];
        for chunk in batch.chunks() {
            let rows = batch.tensor.read(chunk.clone());
            let at = chunk.start - batch.rows.start..chunk.end - batch.rows.start;
            let mut outputs =
                Outputs { kept: Some(&mut kept[at.clone()]), status: Some(&mut status[at]), ..Outputs::default() };
            self.sampler.run(rows.logits()?.into(), &self.parameters.of(&chunk), &mut outputs)?;
            progress.advance(chunk.len());
        }
        Ok((kept, status))
    }

    fn npy(&mut self, path: &Path) -> Result<(), Failure> {
        let batch = only_batch(self.batches, path)?;
        let progress = Progress::new(self.batches, 1, true);
        let descr = "[('row', '<i8'), ('id', '<i4'), ('logit', '<f4'), ('logprob', '<f4')]";
        let mut writer = NpyWriter::create(path, descr)?;
        let mut records = 0;
        self.rows(batch, &progress, |row, filtered| {
            for ((id, logit), logprob) in filtered.ids.iter().zip(&filtered.logits).zip(&filtered.logprobs) {
                writer.append(&(row as u64).to_le_bytes())?;
                writer.append(&id.to_le_bytes())?;
                writer.append(&logit.to_le_bytes())?;
                writer.append(&logprob.to_le_bytes())?;
            }
            records += filtered.ids.len();
            Ok(())
        })?;
        writer.finish(&[records])
    }

    /// Hands every chunk's masked logits to `each`.
    fn masked(
        &mut self,
        batch: &Batch<'_>,
        progress: &Progress,
        mut each: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        for chunk in batch.chunks() {
            let mut rows = batch.tensor.copy(chunk.clone());
            let input = rows.logits_mut()?.into();
            self.sampler.run(input, &self.parameters.of(&chunk), &mut Outputs::default())?;
            progress.advance(chunk.len());
            each(rows.bytes())?;
        }
        Ok(())
    }

    fn mask_safetensors(&mut self, path: &Path) -> Result<(), Failure> {
        let progress = Progress::new(self.batches, 1, true);
        let spec = |batch: &Batch<'_>| Spec {
            name: batch.tensor.name().to_owned(),
            dtype: safetensors::Dtype::Logits(batch.tensor.dtype()),
            shape: masked_shape(batch),
        };
        let specs: Vec<Spec> = self.batches.iter().map(spec).collect();
        let mut writer = SafetensorsWriter::create(path, &specs)?;
        for (number, batch) in self.batches.iter().enumerate() {
            self.masked(batch, &progress, |bytes| writer.append(number, bytes))?;
        }
        writer.finish()
    }

    fn mask_npy(&mut self, path: &Path) -> Result<(), Failure> {
        let batch = only_batch(self.batches, path)?;
        let descr = match batch.tensor.dtype() {
            Dtype::F32 => "'<f4'",
            Dtype::F16 => "'<f2'",
            Dtype::Bf16 => {
                return Err(Failure::Usage(format!(
                    "{}: npy has no bf16, the dtype of tensor `{}`: write a safetensors file",
                    path.display(),
                    batch.tensor.name()
                )));
            }
        };
        let progress = Progress::new(self.batches, 1, true);
        let mut writer = NpyWriter::create(path, descr)?;
        self.masked(batch, &progress, |bytes| writer.append(bytes))?;
        writer.finish(&masked_shape(batch))
    }
}

/// A single row stays one; of a prompt, the last position alone is left.
fn masked_shape(batch: &Batch<'_>) -> Vec<usize> {
    let vocab = batch.tensor.vocab();
    if batch.tensor.is_one_row() { vec![vocab] } else { vec![batch.rows.len(), vocab] }
}
