//! Rows of a tensor as typed slices: borrowed from the file where alignment allows, else copied.

use std::borrow::Cow;

use bytemuck::Pod;
use qrita::{Dtype, Error, Logits, LogitsMut, Shape, bf16, f16};

/// Some rows of a tensor.
#[derive(Debug)]
pub struct Rows<'a> {
    data: Data<'a>,
    shape: Shape,
}

#[derive(Debug)]
enum Data<'a> {
    F32(Cow<'a, [f32]>),
    F16(Cow<'a, [f16]>),
    Bf16(Cow<'a, [bf16]>),
}

macro_rules! with_data {
    ($data:expr, |$values:ident| $body:expr) => {
        match $data {
            Data::F32($values) => $body,
            Data::F16($values) => $body,
            Data::Bf16($values) => $body,
        }
    };
}

impl<'a> Rows<'a> {
    pub(crate) fn borrow(dtype: Dtype, shape: Shape, bytes: &'a [u8]) -> Rows<'a> {
        // The data of a safetensors file starts behind a header of any length: it may lie at any address.
        let data = match dtype {
            Dtype::F32 => bytemuck::try_cast_slice(bytes).map(|values| Data::F32(Cow::Borrowed(values))),
            Dtype::F16 => bytemuck::try_cast_slice(bytes).map(|values| Data::F16(Cow::Borrowed(values))),
            Dtype::Bf16 => bytemuck::try_cast_slice(bytes).map(|values| Data::Bf16(Cow::Borrowed(values))),
        };
        match data {
            Ok(data) => Rows { data, shape },
            Err(_) => Rows::copy(dtype, shape, bytes),
        }
    }

    pub(crate) fn copy(dtype: Dtype, shape: Shape, bytes: &[u8]) -> Rows<'static> {
        let data = match dtype {
            Dtype::F32 => Data::F32(Cow::Owned(dense(shape, bytes))),
            Dtype::F16 => Data::F16(Cow::Owned(dense(shape, bytes))),
            Dtype::Bf16 => Data::Bf16(Cow::Owned(dense(shape, bytes))),
        };
        Rows { data, shape: Shape { stride: shape.vocab, ..shape } }
    }

    /// The rows as the library takes them.
    ///
    /// # Errors
    /// None for rows of a [`Tensor`](crate::Tensor), whose shape was checked when it was read.
    pub fn logits(&self) -> Result<Logits<'_>, Error> {
        let Shape { rows, vocab, stride } = self.shape;
        with_data!(&self.data, |values| Logits::strided(values, rows, vocab, stride))
    }

    /// The rows, to mask in place. The file's own bytes are never written: rows that borrow them are copied first.
    ///
    /// # Errors
    /// As [`logits`](Rows::logits).
    pub fn logits_mut(&mut self) -> Result<LogitsMut<'_>, Error> {
        let Shape { rows, vocab, stride } = self.shape;
        with_data!(&mut self.data, |values| LogitsMut::strided(values.to_mut(), rows, vocab, stride))
    }

    /// All elements as they are stored, little-endian.
    pub fn bytes(&self) -> &[u8] {
        with_data!(&self.data, |values| bytemuck::cast_slice(values))
    }
}

/// The rows without what lies between them.
fn dense<T: Pod>(shape: Shape, bytes: &[u8]) -> Vec<T> {
    let size = size_of::<T>();
    let mut values = vec![T::zeroed(); shape.rows * shape.vocab];
    let to: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
    for (row, from) in to.chunks_exact_mut(shape.vocab * size).zip(bytes.chunks(shape.stride.saturating_mul(size))) {
        row.copy_from_slice(&from[..row.len()]);
    }
    values
}
