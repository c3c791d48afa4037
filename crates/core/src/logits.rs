//! Rows of logits as the caller holds them: any of three dtypes, any stride, any alignment.

use half::{bf16, f16};

use crate::error::Error;
use crate::params::Param;

/// The largest vocabulary: 2^21, so that the sum of weights of a row is at most 2^63.
pub const MAX_VOCAB: usize = 1 << 21;

/// The type of a stored logit. All widen to f32 exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[allow(missing_docs)]
pub enum Dtype {
    F32,
    F16,
    Bf16,
}

impl Dtype {
    /// Bytes of one logit.
    pub fn size(self) -> usize {
        match self {
            Dtype::F32 => 4,
            Dtype::F16 | Dtype::Bf16 => 2,
        }
    }

    /// `f32`, `f16` or `bf16`.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::F32 => "f32",
            Dtype::F16 => "f16",
            Dtype::Bf16 => "bf16",
        }
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for half::f16 {}
    impl Sealed for half::bf16 {}
}

/// A stored logit: [`f32`], [`f16`](struct@f16) or [`bf16`].
pub trait Logit: Copy + Send + Sync + sealed::Sealed + 'static {
    /// Its type.
    const DTYPE: Dtype;
    /// What a mask stores for a token that is not kept.
    const NEG_INFINITY: Self;

    /// The same number as an f32.
    fn widen(self) -> f32;

    #[doc(hidden)]
    fn wrap(row: &[Self]) -> Row<'_>;
    #[doc(hidden)]
    fn wrap_mut(row: &mut [Self]) -> RowMut<'_>;
}

macro_rules! logit {
    ($type:ty, $dtype:ident, $widen:expr) => {
        impl Logit for $type {
            const DTYPE: Dtype = Dtype::$dtype;
            const NEG_INFINITY: Self = <$type>::NEG_INFINITY;

            #[inline]
            fn widen(self) -> f32 {
                $widen(self)
            }
            #[inline]
            fn wrap(row: &[Self]) -> Row<'_> {
                Row::$dtype(row)
            }
            #[inline]
            fn wrap_mut(row: &mut [Self]) -> RowMut<'_> {
                RowMut::$dtype(row)
            }
        }
    };
}
logit!(f32, F32, |y| y);
logit!(f16, F16, f16::to_f32);
logit!(bf16, Bf16, bf16::to_f32);

/// A run of stored logits: one row, or all rows of a batch.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum Row<'a> {
    F32(&'a [f32]),
    F16(&'a [f16]),
    Bf16(&'a [bf16]),
}

/// A run of stored logits that a mask is written to.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum RowMut<'a> {
    F32(&'a mut [f32]),
    F16(&'a mut [f16]),
    Bf16(&'a mut [bf16]),
}

/// Runs `$body` with `$slice` bound to the slice inside a [`Row`] or [`RowMut`], whatever its dtype.
#[macro_export]
macro_rules! with_dtype {
    ($kind:ident, $row:expr, |$slice:ident| $body:expr) => {
        match $row {
            $crate::$kind::F32($slice) => $body,
            $crate::$kind::F16($slice) => $body,
            $crate::$kind::Bf16($slice) => $body,
        }
    };
}

impl<'a> Row<'a> {
    /// How many logits it holds.
    pub fn len(&self) -> usize {
        with_dtype!(Row, self, |s| s.len())
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The stored logit at `id`, widened. Panics outside the row, as slices do.
    pub fn get(&self, id: usize) -> f32 {
        with_dtype!(Row, self, |s| s[id].widen())
    }

    /// The logits `range` of it. Panics outside the row, as slices do.
    pub fn slice(&self, range: core::ops::Range<usize>) -> Row<'a> {
        with_dtype!(Row, self, |s| Logit::wrap(&s[range]))
    }

    /// Their type.
    pub fn dtype(&self) -> Dtype {
        match self {
            Row::F32(_) => Dtype::F32,
            Row::F16(_) => Dtype::F16,
            Row::Bf16(_) => Dtype::Bf16,
        }
    }
}

impl<'a> RowMut<'a> {
    /// The same logits, to read.
    pub fn as_ref(&self) -> Row<'_> {
        with_dtype!(RowMut, self, |s| Logit::wrap(s))
    }

    /// The same logits, borrowed for a shorter time.
    pub fn reborrow(&mut self) -> RowMut<'_> {
        with_dtype!(RowMut, self, |s| Logit::wrap_mut(s))
    }

    /// The logits `range` of it. Panics outside the row, as slices do.
    pub fn slice(self, range: core::ops::Range<usize>) -> RowMut<'a> {
        with_dtype!(RowMut, self, |s| Logit::wrap_mut(&mut s[range]))
    }

    /// Divides it in two at `mid`. Panics outside the row, as slices do.
    pub fn split_at(self, mid: usize) -> (RowMut<'a>, RowMut<'a>) {
        with_dtype!(RowMut, self, |s| {
            let (left, right) = s.split_at_mut(mid);
            (Logit::wrap_mut(left), Logit::wrap_mut(right))
        })
    }
}

/// `rows` rows of `vocab` logits, `stride` elements from one row's start to the next.
///
/// ```
/// use qrita_core::Logits;
/// let data = [1.0f32, 2.0, 3.0, f32::NAN, 4.0, 5.0, 6.0];
/// // Two rows of three, padded to four: the padding is never read, and the last row needs none.
/// let logits = Logits::strided(&data, 2, 3, 4)?;
/// assert_eq!(logits.row(1).get(0), 4.0);
/// # Ok::<(), qrita_core::Error>(())
/// ```
///
/// Several rows of a batch may read the same stored row: see [`indexed`](Logits::indexed).
#[derive(Clone, Copy, Debug)]
pub struct Logits<'a> {
    data: Row<'a>,
    shape: Shape,
    /// The stored row of each row of the batch; `None` for one each.
    index: Option<&'a [u32]>,
}

/// Rows of logits that are masked in place: what is not kept becomes −∞, what is kept is not touched.
///
/// No [index](Logits::indexed): two rows of a batch would mask one stored row.
#[derive(Debug)]
pub struct LogitsMut<'a> {
    data: RowMut<'a>,
    shape: Shape,
}

/// The shape of stored rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows: B, unless an [index](Logits::indexed) says which of them the batch has.
    pub rows: usize,
    /// Logits in a row: V.
    pub vocab: usize,
    /// Elements from one row's first logit to the next row's.
    pub stride: usize,
}

impl Shape {
    /// Checks the contract's limits and that `len` elements hold the batch.
    ///
    /// # Errors
    /// [`Error::Shape`] or [`Error::Length`].
    pub fn validate(self, len: usize) -> Result<Shape, Error> {
        let Shape { rows, vocab, stride } = self;
        if vocab == 0 || vocab > MAX_VOCAB {
            return Err(Error::Shape { what: "vocab", value: vocab, expected: "1 to 2097152 (2^21)" });
        }
        if stride < vocab {
            return Err(Error::Shape { what: "row stride", value: stride, expected: "at least the vocab" });
        }
        let expected = match rows {
            0 => 0,
            // Saturation makes an overflowing shape a shape that no slice can hold.
            _ => (rows - 1).saturating_mul(stride).saturating_add(vocab),
        };
        if len < expected {
            return Err(Error::Length { what: "logits", found: len, expected });
        }
        Ok(self)
    }

    fn dense(len: usize, vocab: usize) -> Result<Shape, Error> {
        let shape = Shape { rows: len / vocab.max(1), vocab, stride: vocab };
        shape.validate(len)?;
        if !len.is_multiple_of(vocab) {
            let expected = (shape.rows + 1) * vocab;
            return Err(Error::Length { what: "logits", found: len, expected });
        }
        Ok(shape)
    }

    /// The last positions of logits of these dimensions, and the element that the first one starts at.
    fn last_positions(len: usize, dims: &[usize]) -> Result<(usize, Shape), Error> {
        let (rows, positions, vocab) = match *dims {
            [vocab] => (1, 1, vocab),
            [rows, vocab] => (rows, 1, vocab),
            [rows, positions, vocab] => (rows, positions, vocab),
            _ => {
                let expected = "1 to 3: (V), (B, V) or (B, T, V)";
                return Err(Error::Shape { what: "number of dimensions", value: dims.len(), expected });
            }
        };
        if positions == 0 {
            return Err(Error::Shape { what: "number of positions", value: 0, expected: "at least 1" });
        }
        // Saturation, as in `validate`.
        let shape = Shape { rows, vocab, stride: positions.saturating_mul(vocab) };
        shape.validate(usize::MAX)?;
        Error::check_length("logits", len, rows.saturating_mul(shape.stride))?;
        let start = if rows == 0 { 0 } else { shape.stride - vocab };
        Ok((start, shape))
    }
}

impl<'a> Logits<'a> {
    /// Rows of `vocab` logits without padding; as many as `data` holds.
    ///
    /// # Errors
    /// `vocab` outside `1 ..= 2^21`, or `data` not a whole number of rows.
    pub fn new<T: Logit>(data: &'a [T], vocab: usize) -> Result<Logits<'a>, Error> {
        Ok(Logits { shape: Shape::dense(data.len(), vocab)?, data: T::wrap(data), index: None })
    }

    /// `rows` rows of `vocab` logits, `stride` elements apart.
    ///
    /// # Errors
    /// `vocab` outside `1 ..= 2^21`, `stride < vocab`, or `data` shorter than `(rows − 1)·stride + vocab`.
    pub fn strided<T: Logit>(data: &'a [T], rows: usize, vocab: usize, stride: usize) -> Result<Logits<'a>, Error> {
        let shape = Shape { rows, vocab, stride }.validate(data.len())?;
        Ok(Logits { data: T::wrap(data), shape, index: None })
    }

    /// The last position of every sequence: of logits of shape `dims`, which is (B, T, V) as a model yields them of prompts, (B, V)
    /// with one position each, or (V), one row. Rows are `T·V` elements apart, and nothing is copied.
    ///
    /// ```
    /// use qrita_core::Logits;
    /// // Two prompts of three positions, four logits each.
    /// let data: Vec<f32> = (0..24).map(|i| i as f32).collect();
    /// let logits = Logits::last_positions(&data, &[2, 3, 4])?;
    /// assert_eq!((logits.rows(), logits.vocab()), (2, 4));
    /// assert_eq!((logits.row(0).get(0), logits.row(1).get(3)), (8.0, 23.0));
    /// let one_row = Logits::last_positions(&data, &[24])?;
    /// assert_eq!((one_row.rows(), one_row.vocab()), (1, 24));
    /// # Ok::<(), qrita_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// Other than one to three dimensions, no position, `V` outside `1 ..= 2^21`, or `data` not as long as their product.
    pub fn last_positions<T: Logit>(data: &'a [T], dims: &[usize]) -> Result<Logits<'a>, Error> {
        let (start, shape) = Shape::last_positions(data.len(), dims)?;
        Ok(Logits { data: T::wrap(&data[start..]), shape, index: None })
    }

    /// A batch with one row for each number in `index`: row `r` has the logits of stored row `index[r]`. For requests that
    /// share logits and differ in their parameters, adjustments and outputs, all of which are one a row of the batch. In any
    /// order, any number of times; a stored row that no number names is not read.
    ///
    /// ```
    /// use qrita_core::Logits;
    /// let stored = [1.0f32, 2.0, 3.0, 4.0];
    /// let logits = Logits::new(&stored, 2)?.indexed(&[1, 0, 1])?;
    /// assert_eq!((logits.rows(), logits.row(2).get(0)), (3, 3.0));
    /// let error = Logits::new(&stored, 2)?.indexed(&[0, 2]).unwrap_err();
    /// assert_eq!(error.to_string(), "index is 2 in row 1: it must be below the number of stored rows");
    /// # Ok::<(), qrita_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Param`] with the first row whose number is not that of a stored row.
    pub fn indexed(self, index: &'a [u32]) -> Result<Logits<'a>, Error> {
        Param::PerRow(index).check("index", index.len(), "below the number of stored rows", |&stored| {
            (stored as usize) < self.shape.rows
        })?;
        Ok(Logits { index: Some(index), ..self })
    }

    /// The shape of the stored rows.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The stored row of each row of the batch, where it was [given](Logits::indexed).
    pub fn index(&self) -> Option<&'a [u32]> {
        self.index
    }

    /// Rows of the batch: B.
    pub fn rows(&self) -> usize {
        self.index.map_or(self.shape.rows, <[u32]>::len)
    }

    /// Logits in a row: V.
    pub fn vocab(&self) -> usize {
        self.shape.vocab
    }

    /// The type of the stored logits.
    pub fn dtype(&self) -> Dtype {
        self.data.dtype()
    }

    /// All elements, padding included.
    pub fn data(&self) -> Row<'a> {
        self.data
    }

    /// Row `row`, without its padding. Panics outside the batch, as slices do.
    pub fn row(&self, row: usize) -> Row<'a> {
        assert!(row < self.rows(), "row {row} of {}", self.rows());
        let stored = self.index.map_or(row, |index| index[row] as usize);
        let start = stored * self.shape.stride;
        self.data.slice(start..start + self.shape.vocab)
    }

    /// The rows `range` as a batch of their own. Panics outside the batch, as slices do.
    pub fn slice(&self, range: core::ops::Range<usize>) -> Logits<'a> {
        assert!(range.start <= range.end && range.end <= self.rows());
        if let Some(index) = self.index {
            return Logits { index: Some(&index[range]), ..*self };
        }
        let shape = Shape { rows: range.len(), ..self.shape };
        let start = range.start * shape.stride;
        let data = if range.is_empty() {
            self.data.slice(0..0)
        } else {
            self.data.slice(start..start + (shape.rows - 1) * shape.stride + shape.vocab)
        };
        Logits { data, shape, index: None }
    }
}

impl<'a> LogitsMut<'a> {
    /// As [`Logits::new`].
    ///
    /// # Errors
    /// As there.
    pub fn new<T: Logit>(data: &'a mut [T], vocab: usize) -> Result<LogitsMut<'a>, Error> {
        Ok(LogitsMut { shape: Shape::dense(data.len(), vocab)?, data: T::wrap_mut(data) })
    }

    /// As [`Logits::strided`].
    ///
    /// # Errors
    /// As there.
    pub fn strided<T: Logit>(
        data: &'a mut [T],
        rows: usize,
        vocab: usize,
        stride: usize,
    ) -> Result<LogitsMut<'a>, Error> {
        let shape = Shape { rows, vocab, stride }.validate(data.len())?;
        Ok(LogitsMut { data: T::wrap_mut(data), shape })
    }

    /// As [`Logits::last_positions`]: the positions before the last are not touched.
    ///
    /// # Errors
    /// As there.
    pub fn last_positions<T: Logit>(data: &'a mut [T], dims: &[usize]) -> Result<LogitsMut<'a>, Error> {
        let (start, shape) = Shape::last_positions(data.len(), dims)?;
        Ok(LogitsMut { data: T::wrap_mut(&mut data[start..]), shape })
    }

    /// The shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The same rows, to read.
    pub fn as_ref(&self) -> Logits<'_> {
        Logits { data: self.data.as_ref(), shape: self.shape, index: None }
    }

    /// All elements, padding included.
    pub fn data_mut(&mut self) -> RowMut<'_> {
        self.data.reborrow()
    }
}

/// The logits of a call: to read only, or to mask in place as one of the outputs.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Input<'a> {
    Read(Logits<'a>),
    Mask(LogitsMut<'a>),
}

impl Input<'_> {
    /// The rows, to read.
    pub fn logits(&self) -> Logits<'_> {
        match self {
            Input::Read(logits) => *logits,
            Input::Mask(logits) => logits.as_ref(),
        }
    }
}

impl<'a> From<Logits<'a>> for Input<'a> {
    fn from(logits: Logits<'a>) -> Self {
        Input::Read(logits)
    }
}

impl<'a> From<LogitsMut<'a>> for Input<'a> {
    fn from(logits: LogitsMut<'a>) -> Self {
        Input::Mask(logits)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn last_positions_of_all_dimensions() {
        let mut data: Vec<f32> = (0..30).map(|i| i as f32).collect();
        for (dims, first, last) in [
            (&[30][..], 0.0, 29.0),
            (&[5, 6], 0.0, 29.0),
            (&[5, 1, 6], 0.0, 29.0),
            (&[1, 5, 6], 24.0, 29.0),
            (&[3, 5, 2], 8.0, 29.0),
        ] {
            let logits = Logits::last_positions(&data, dims).unwrap();
            let (rows, vocab) = (logits.rows(), logits.vocab());
            assert_eq!((logits.row(0).get(0), logits.row(rows - 1).get(vocab - 1)), (first, last), "{dims:?}");
            let shape = logits.shape();
            assert_eq!(LogitsMut::last_positions(&mut data, dims).unwrap().shape(), shape);
        }
        assert_eq!(Logits::last_positions::<f32>(&[], &[0, 7, 4]).unwrap().rows(), 0);
    }

    #[test]
    fn last_positions_refused() {
        let data = vec![0.0f32; 12];
        let refused = |dims: &[usize]| Logits::last_positions(&data, dims).unwrap_err();
        for dims in [&[][..], &[1, 1, 3, 4], &[2, 0, 6], &[12, 0], &[3, 4, 0]] {
            assert!(matches!(refused(dims), Error::Shape { .. }), "{dims:?}");
        }
        for dims in [&[11][..], &[2, 5], &[2, 2, 4], &[0, 3, 4], &[usize::MAX, usize::MAX, 2]] {
            assert!(matches!(refused(dims), Error::Length { .. }), "{dims:?}");
        }
    }

    #[test]
    fn a_part_of_an_indexed_batch() {
        let data = [0.0f32, 1.0, 2.0];
        let logits = Logits::new(&data, 1).unwrap().indexed(&[2, 0, 2, 1]).unwrap();
        let part = logits.slice(1..4);
        assert_eq!([0, 1, 2].map(|row| part.row(row).get(0)), [0.0, 2.0, 1.0]);
        assert_eq!((part.index(), logits.slice(2..2).rows()), (Some(&[0, 2, 1][..]), 0));
        let error = Logits::new::<f32>(&[], 1).unwrap().indexed(&[0]).unwrap_err();
        assert!(matches!(error, Error::Param { row: Some(0), param: "index", .. }));
    }
}
