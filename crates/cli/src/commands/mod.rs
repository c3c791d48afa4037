//! The subcommands, one a file.

pub(crate) mod ablate;
pub(crate) mod filter;
pub(crate) mod info;
pub(crate) mod sample;
pub(crate) mod stats;
pub(crate) mod tables;
#[cfg(feature = "cuda")]
pub(crate) mod tune;

use std::path::Path;

use crate::failure::Failure;
use crate::job::Batch;

/// The one tensor of a run that writes an npy file, which holds one array.
fn only_batch<'a, 'b>(batches: &'b [Batch<'a>], path: &Path) -> Result<&'b Batch<'a>, Failure> {
    match batches {
        [batch] => Ok(batch),
        _ => {
            let names: Vec<_> = batches.iter().map(|batch| format!("`{}`", batch.tensor.name())).collect();
            Err(Failure::Usage(format!(
                "{}: an npy file holds one array, not those of {}: choose one with --tensor, or write safetensors",
                path.display(),
                names.join(", ")
            )))
        }
    }
}

/// An id, a count or a rank as the arrays hold it: they are below 2^21, so that −1 can stand for none.
fn to_i32(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(-1)
}
