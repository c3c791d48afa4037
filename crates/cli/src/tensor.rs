//! What a file holds: its tensors, which of them are logits, and why the others are not.

use std::fmt;
use std::ops::Range;

use qrita::{Dtype, MAX_VOCAB, Shape};

use crate::rows::Rows;
use crate::{npy, safe};

/// The format of a file, told by its content and not by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Format {
    Safetensors,
    Npy,
}

/// Why bytes are not a file of tensors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// There are no bytes.
    #[error("the file is empty: give a safetensors or npy file")]
    Empty,
    /// An archive that has tensor files inside.
    #[error(
        "this is a zip archive (npz, or a PyTorch file): save its tensors as a safetensors file or each as an npy file"
    )]
    Zip,
    /// Neither format.
    #[error("this is neither a safetensors nor an npy file: convert the logits to one of the two")]
    UnknownFormat,
    /// A safetensors file that is damaged.
    #[error("broken safetensors file: {0}: write it again")]
    Safetensors(String),
    /// An npy file that is damaged.
    #[error("broken npy file: {0}: write it again with numpy.save")]
    Npy(String),
}

/// Why a tensor can not be rows of logits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unfit {
    /// Not a floating-point type that the library takes.
    #[error("its dtype is {0}: convert it to f32, f16 or bf16")]
    Dtype(String),
    /// A dtype whose bytes are in big-endian order.
    #[error("its dtype {0} is big-endian: save it as little-endian, for example with a.astype('<f4')")]
    BigEndian(String),
    /// Column-major data.
    #[error("it is in Fortran order: save it in C order, for example with numpy.ascontiguousarray(a)")]
    FortranOrder,
    /// Too few or too many dimensions.
    #[error("it has {0} dimensions: give [vocab], [rows, vocab] or [rows, positions, vocab]")]
    Dimensions(usize),
    /// No last position.
    #[error("it has no positions: give [rows, positions, vocab] with at least one position")]
    NoPosition,
    /// The vocabulary is empty or larger than the library's limit.
    #[error("its vocab is {0}: it must be 1 to {MAX_VOCAB} (2^21)")]
    Vocab(usize),
}

/// Why the tensors asked for can not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// The file has tensors, but not this one.
    #[error("there is no tensor `{name}`: the file has {have}")]
    NoSuchTensor {
        /// The name asked for.
        name: String,
        /// The tensors in the file.
        have: String,
    },
    /// The tensor is not rows of logits.
    #[error("tensor `{name}` {shape:?} can not be used: {unfit}")]
    Unfit {
        /// Its name.
        name: String,
        /// Its shape.
        shape: Vec<usize>,
        /// What is wrong with it.
        unfit: Unfit,
    },
    /// No tensor of the file is rows of logits.
    #[error("no tensor of the file can be used as logits, [rows, vocab] in f32, f16 or bf16: it has {have}")]
    None {
        /// The tensors in the file.
        have: String,
    },
}

/// The tensors of a file, in name order.
#[derive(Debug)]
pub struct Contents<'a> {
    format: Format,
    entries: Vec<Entry<'a>>,
}

/// A tensor of a file, whatever it is.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    tensor: Result<Tensor<'a>, Unfit>,
}

impl<'a> Entry<'a> {
    /// A tensor of `shape` in `data`, which holds exactly that many values of `dtype`. `logits` is its dtype as one of
    /// the library's.
    pub(crate) fn new(
        name: String,
        dtype: String,
        shape: Vec<usize>,
        logits: Result<Dtype, Unfit>,
        data: &'a [u8],
    ) -> Entry<'a> {
        let tensor = logits.and_then(|dtype| Tensor::new(&name, dtype, &shape, data));
        Entry { name, dtype, shape, tensor }
    }
}

impl fmt::Display for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {} {:?}", self.name, self.dtype, self.shape)
    }
}

/// Reads the header of a safetensors or npy file and finds the logits in it. Copies nothing.
///
/// # Errors
/// The bytes are neither format, or break its rules.
pub fn read(bytes: &[u8]) -> Result<Contents<'_>, ReadError> {
    if bytes.is_empty() {
        return Err(ReadError::Empty);
    }
    if bytes.starts_with(b"PK\x03\x04") {
        return Err(ReadError::Zip);
    }
    let (format, mut entries) = if bytes.starts_with(npy::MAGIC) {
        (Format::Npy, vec![npy::read(bytes).map_err(ReadError::Npy)?])
    } else if bytes.get(8) == Some(&b'{') {
        // Eight bytes of header length, then JSON: the format has no other mark.
        (Format::Safetensors, safe::read(bytes).map_err(ReadError::Safetensors)?)
    } else {
        return Err(ReadError::UnknownFormat);
    };
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Contents { format, entries })
}

impl<'a> Contents<'a> {
    /// The format of the file.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The tensors with these names, in this order; with no names, every tensor that can be used, in name order.
    ///
    /// # Errors
    /// A name that the file lacks, a tensor that is not rows of logits, or a file without any that is.
    pub fn select(&self, names: &[String]) -> Result<Vec<&Tensor<'a>>, SelectError> {
        if names.is_empty() {
            let found: Vec<_> = self.entries.iter().filter_map(|entry| entry.tensor.as_ref().ok()).collect();
            return match (found.is_empty(), &self.entries[..]) {
                (false, _) => Ok(found),
                (true, [only]) => only.tensor.as_ref().map(|tensor| vec![tensor]).map_err(|unfit| only.refuse(unfit)),
                (true, _) => Err(SelectError::None { have: self.list() }),
            };
        }
        let find = |name: &String| {
            let Some(entry) = self.entries.iter().find(|entry| entry.name == *name) else {
                return Err(SelectError::NoSuchTensor { name: name.clone(), have: self.list() });
            };
            entry.tensor.as_ref().map_err(|unfit| entry.refuse(unfit))
        };
        names.iter().map(find).collect()
    }

    fn list(&self) -> String {
        // Enough to find a misspelt name; a whole model's weights would fill the screen.
        const SHOWN: usize = 20;
        if self.entries.is_empty() {
            return "none".to_owned();
        }
        let mut list = self.entries.iter().take(SHOWN).map(Entry::to_string).collect::<Vec<_>>().join(", ");
        if let Some(more) = self.entries.len().checked_sub(SHOWN).filter(|&more| more > 0) {
            list += &format!(" and {more} more");
        }
        list
    }
}

impl Entry<'_> {
    fn refuse(&self, unfit: &Unfit) -> SelectError {
        SelectError::Unfit { name: self.name.clone(), shape: self.shape.clone(), unfit: unfit.clone() }
    }
}

/// Rows of logits in a file.
#[derive(Clone, Debug)]
pub struct Tensor<'a> {
    name: String,
    dtype: Dtype,
    shape: Shape,
    one_row: bool,
    /// From the first logit of the first row on.
    data: &'a [u8],
}

impl<'a> Tensor<'a> {
    fn new(name: &str, dtype: Dtype, dims: &[usize], data: &'a [u8]) -> Result<Tensor<'a>, Unfit> {
        let (rows, positions, vocab) = match *dims {
            [vocab] => (1, 1, vocab),
            [rows, vocab] => (rows, 1, vocab),
            [rows, positions, vocab] => (rows, positions, vocab),
            _ => return Err(Unfit::Dimensions(dims.len())),
        };
        if vocab == 0 || vocab > MAX_VOCAB {
            return Err(Unfit::Vocab(vocab));
        }
        if positions == 0 {
            return Err(Unfit::NoPosition);
        }
        // Only the last position of a prompt is about the next token. No product overflows: with rows, the data holds
        // them all; without, saturation is as good as any number.
        let stride = positions.saturating_mul(vocab);
        let first = (positions - 1).saturating_mul(vocab).saturating_mul(dtype.size());
        let shape = Shape { rows, vocab, stride };
        let data = data.get(first..).unwrap_or_default();
        Ok(Tensor { name: name.to_owned(), dtype, shape, one_row: dims.len() == 1, data })
    }

    /// Its name in the file; `logits` for the array of an npy file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type of its logits.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// How many rows it has.
    pub fn rows(&self) -> usize {
        self.shape.rows
    }

    /// How many logits a row has.
    pub fn vocab(&self) -> usize {
        self.shape.vocab
    }

    /// Whether it is a single row without a dimension of rows.
    pub fn is_one_row(&self) -> bool {
        self.one_row
    }

    /// The rows `range`: where they lie in the file if they are aligned there, else copied. Panics outside the tensor,
    /// as slices do.
    pub fn read(&self, range: Range<usize>) -> Rows<'a> {
        let (data, shape) = self.part(range);
        Rows::borrow(self.dtype, shape, data)
    }

    /// A copy of the rows `range`, one right behind the other. Panics outside the tensor, as slices do.
    pub fn copy(&self, range: Range<usize>) -> Rows<'static> {
        let (data, shape) = self.part(range);
        Rows::copy(self.dtype, shape, data)
    }

    fn part(&self, range: Range<usize>) -> (&'a [u8], Shape) {
        assert!(range.start <= range.end && range.end <= self.shape.rows, "{range:?} of {} rows", self.shape.rows);
        let shape = Shape { rows: range.len(), ..self.shape };
        if range.is_empty() {
            return (&[], shape);
        }
        let size = self.dtype.size();
        let elements = (shape.rows - 1) * shape.stride + shape.vocab;
        let start = range.start * shape.stride * size;
        (&self.data[start..start + elements * size], shape)
    }
}
