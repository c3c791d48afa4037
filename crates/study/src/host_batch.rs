//! A batch in host memory.

use qrita_core::{Dtype, Error, LogitsMut};
use qrita_testkit::batch::Stored;

use crate::Rows;
use crate::rows::bytes;

/// A batch of repeated [`Rows`] to mask in place, and what it was before.
#[derive(Clone, Debug)]
pub struct HostBatch {
    pristine: Stored,
    work: Stored,
    vocab: usize,
}

impl HostBatch {
    /// `count` rows of the endless repetition, rounded to `dtype`.
    pub fn new(rows: &Rows, dtype: Dtype, count: usize) -> HostBatch {
        let values: Vec<&[f32]> = (0..count).map(|row| rows.row(row)).collect();
        let pristine = Stored::narrow(&values.concat(), dtype);
        HostBatch { work: pristine.clone(), pristine, vocab: rows.vocab() }
    }

    /// Undoes every mask: a copy of the batch.
    pub fn restore(&mut self) {
        match (&mut self.work, &self.pristine) {
            (Stored::F32(work), Stored::F32(pristine)) => work.copy_from_slice(pristine),
            (Stored::F16(work), Stored::F16(pristine)) => work.copy_from_slice(pristine),
            (Stored::Bf16(work), Stored::Bf16(pristine)) => work.copy_from_slice(pristine),
            (work, pristine) => work.clone_from(pristine),
        }
    }

    /// The rows, to mask.
    ///
    /// # Errors
    /// A vocabulary that is none.
    pub fn logits_mut(&mut self) -> Result<LogitsMut<'_>, Error> {
        self.work.logits_mut(self.vocab)
    }

    /// The rows as they are now, in bytes of the machine's order.
    pub fn bytes(&self) -> Vec<u8> {
        bytes(&self.work)
    }
}
