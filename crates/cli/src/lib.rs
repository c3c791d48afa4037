//! The files that the `qrita` command reads: logits in safetensors and npy files, parameters in JSON lines.
//!
//! Every reader takes bytes and never panics, whatever they are: the command maps files that it knows nothing about.
//! The readers are a library so that fuzz targets and tests can call them without the command around them.
//!
//! ```
//! let mut file = b"\x93NUMPY\x01\x00\x46\x00".to_vec();
//! file.extend(format!("{:69}\n", "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3)}").bytes());
//! file.extend([1.0f32, 3.0, 2.0].iter().flat_map(|y| y.to_le_bytes()));
//! let contents = qrita_cli::read(&file)?;
//! let tensors = contents.select(&[])?;
//! assert_eq!((tensors[0].rows(), tensors[0].vocab()), (1, 3));
//! assert_eq!(tensors[0].read(0..1).logits()?.row(0).get(1), 3.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod npy;
mod params;
mod rows;
mod safe;
mod tensor;

pub use params::{ParamsError, RowParams, read_params};
pub use rows::Rows;
pub use tensor::{Contents, Format, ReadError, SelectError, Tensor, Unfit, read};

// Stored logits are little-endian in both formats, and are used where they lie.
#[cfg(target_endian = "big")]
compile_error!("qrita-cli maps little-endian files and has no byte swapping");
