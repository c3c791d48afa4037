//! Different rows of one kind, and what the CPU backend makes of them.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use qrita_core::{Backend, Dtype, Error, Filtered, Logits, Outputs, Params, Plan};
use qrita_cpu::CpuBackend;
use qrita_testkit::batch::Stored;
use rayon::prelude::*;

use crate::Kind;

/// Rows that differ from each other, as `f32`. Batches are cut from an endless repetition of them.
#[derive(Clone)]
pub struct Rows {
    values: Vec<f32>,
    vocab: usize,
}

impl Rows {
    /// `count` rows, at least one: the same ones for the same kind and vocabulary in every run.
    pub fn new(kind: Kind, vocab: usize, count: usize) -> Rows {
        let mut values = vec![0.0; count.max(1) * vocab];
        let rows = values.par_chunks_mut(vocab).enumerate();
        rows.for_each(|(seed, row)| row.copy_from_slice(&kind.row(vocab, seed as u64)));
        Rows { values, vocab }
    }

    /// These rows, one behind the other.
    ///
    /// # Errors
    /// No logit, or such as are no whole rows of the vocabulary.
    pub fn from_values(values: Vec<f32>, vocab: usize) -> Result<Rows, Error> {
        if values.is_empty() {
            return Err(Error::Shape { what: "rows", value: 0, expected: "at least 1" });
        }
        Logits::new(&values, vocab)?;
        Ok(Rows { values, vocab })
    }

    /// How many differ.
    pub fn count(&self) -> usize {
        self.values.len() / self.vocab
    }

    /// Logits in a row.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// A row of the endless repetition.
    pub fn row(&self, index: usize) -> &[f32] {
        let start = index % self.count() * self.vocab;
        &self.values[start..start + self.vocab]
    }

    /// All of them once, rounded to `dtype`.
    pub(crate) fn stored(&self, dtype: Dtype) -> Stored {
        Stored::narrow(&self.values, dtype)
    }

    /// The same, as bytes in the machine's order.
    pub fn bytes(&self, dtype: Dtype) -> Vec<u8> {
        bytes(&self.stored(dtype))
    }

    /// Writes them as `f32`, little-endian, without a header.
    ///
    /// # Errors
    /// What writing the file fails with.
    pub fn dump(&self, path: &Path) -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        self.values.iter().try_for_each(|value| file.write_all(&value.to_le_bytes()))?;
        file.flush()
    }

    /// A row as the CPU backend masks it, in bytes.
    ///
    /// # Errors
    /// A parameter that is out of range.
    pub fn masked(&self, index: usize, dtype: Dtype, params: &Params<'_>, plan: &Plan) -> Result<Vec<u8>, Error> {
        let mut stored = Stored::narrow(self.row(index), dtype);
        let input = stored.logits_mut(self.vocab)?;
        let backend = CpuBackend::new();
        backend.run(input.into(), params, plan, &mut Outputs::default(), &mut backend.workspace())?;
        Ok(bytes(&stored))
    }

    /// What the CPU backend keeps of a row.
    ///
    /// # Errors
    /// A parameter that is out of range.
    pub fn kept(&self, index: usize, dtype: Dtype, params: &Params<'_>, plan: &Plan) -> Result<Filtered, Error> {
        let stored = Stored::narrow(self.row(index), dtype);
        let logits = stored.logits(self.vocab)?;
        let backend = CpuBackend::new();
        Ok(backend.filter(&logits, params, plan, &mut backend.workspace())?.remove(0))
    }
}

pub(crate) fn bytes(stored: &Stored) -> Vec<u8> {
    match stored {
        Stored::F32(values) => values.iter().flat_map(|value| value.to_ne_bytes()).collect(),
        Stored::F16(values) => values.iter().flat_map(|value| value.to_ne_bytes()).collect(),
        Stored::Bf16(values) => values.iter().flat_map(|value| value.to_ne_bytes()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_differ_and_repeat() {
        let rows = Rows::new(Kind::LanguageModel, 1000, 3);
        assert_eq!(rows.count(), 3);
        assert_ne!(rows.row(0), rows.row(1));
        assert_eq!(rows.row(1), rows.row(4));
        assert_eq!(rows.row(2), Rows::new(Kind::LanguageModel, 1000, 9).row(2));
    }

    #[test]
    fn a_dump_has_the_rows_in_little_endian() {
        let path = std::env::temp_dir().join(format!("qrita-rows-{}", std::process::id()));
        let rows = Rows::new(Kind::Normal, 17, 2);
        rows.dump(&path).unwrap();
        let dumped = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(dumped.len(), 2 * 17 * 4);
        assert_eq!(dumped[17 * 4..][..4], rows.row(1)[0].to_le_bytes());
    }

    #[test]
    fn a_mask_keeps_what_is_kept() {
        let rows = Rows::new(Kind::LanguageModel, 5000, 1);
        let params = Params::default().top_k(7);
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            let (all, masked) = (rows.bytes(dtype), rows.masked(0, dtype, &params, &Plan::default()).unwrap());
            let size = dtype.size();
            let same = |id: &u32| all[*id as usize * size..][..size] == masked[*id as usize * size..][..size];
            let kept: Vec<u32> = (0..5000).filter(same).collect();
            let mut ids = rows.kept(0, dtype, &params, &Plan::default()).unwrap().ids;
            ids.sort_unstable();
            assert_eq!(kept, ids);
        }
    }
}
