//! safetensors files: a JSON header of names, dtypes, shapes and offsets, then the data.

use qrita::Dtype;
use safetensors::tensor::TensorView;
use safetensors::{SafeTensorError, SafeTensors};

use crate::tensor::{Entry, Unfit};

/// The tensors of a safetensors file, in any order.
pub(crate) fn read<'a>(bytes: &'a [u8]) -> Result<Vec<Entry<'a>>, String> {
    // The crate checks the header's length, every offset and every product of a shape against the bytes there are.
    let file = SafeTensors::deserialize(bytes).map_err(describe)?;
    let entry = |(name, view): (&str, TensorView<'a>)| {
        let dtype = view.dtype().to_string().to_lowercase();
        let logits = match view.dtype() {
            safetensors::Dtype::F32 => Ok(Dtype::F32),
            safetensors::Dtype::F16 => Ok(Dtype::F16),
            safetensors::Dtype::BF16 => Ok(Dtype::Bf16),
            _ => Err(Unfit::Dtype(dtype.clone())),
        };
        Entry::new(name.to_owned(), dtype, view.shape().to_vec(), logits, view.data())
    };
    Ok(file.iter().map(entry).collect())
}

/// The crate's errors in words that say what is wrong with the file.
fn describe(error: SafeTensorError) -> String {
    match error {
        SafeTensorError::InvalidHeaderLength => {
            "it is cut short: its header ends behind the end of the file".to_owned()
        }
        SafeTensorError::MetadataIncompleteBuffer => {
            "its header tells of more or fewer bytes than the file has: it is cut short, or has something behind"
                .to_owned()
        }
        SafeTensorError::HeaderTooLarge => "its header is larger than 100 MB".to_owned(),
        SafeTensorError::InvalidHeader(error) => format!("its header is not UTF-8 ({error})"),
        SafeTensorError::InvalidHeaderDeserialization(error) => {
            format!("its header is not the JSON it must be ({error})")
        }
        SafeTensorError::InvalidOffset(name) => format!("the offsets of tensor `{name}` are out of place"),
        SafeTensorError::TensorInvalidInfo => "the shape of a tensor does not fit its offsets".to_owned(),
        SafeTensorError::ValidationOverflow => "the shape of a tensor is larger than memory".to_owned(),
        error => error.to_string(),
    }
}
