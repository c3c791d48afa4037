//! A batch of rows and its parameters in memory of its own.
//!
//! [`Logits`] and [`Params`] borrow, as a library's input should. A test wants to generate a batch, to run one row of it
//! alone, to permute it, to print it when something differs: it needs a value. [`Batch`] is that value, and it can hold
//! everything a caller can pass: any dtype, a start that is not aligned, padding between the rows and behind them.

use std::fmt::Write as _;

use qrita_core::{
    Adjustments, Bitmask, Dtype, Error, Logits, LogitsMut, Order, Param, Params, Penalties, Row, RowParams, Sparse,
    Standing, Ties, bf16, f16,
};

/// Stored logits of one dtype.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Stored {
    F32(Vec<f32>),
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
}

/// Runs `$body` with `$values` bound to the vector inside a [`Stored`], whatever its dtype.
macro_rules! with_stored {
    ($stored:expr, |$values:ident| $body:expr) => {
        match $stored {
            Stored::F32($values) => $body,
            Stored::F16($values) => $body,
            Stored::Bf16($values) => $body,
        }
    };
}

impl Stored {
    /// The values rounded to `dtype`.
    pub fn narrow(values: &[f32], dtype: Dtype) -> Stored {
        match dtype {
            Dtype::F32 => Stored::F32(values.to_vec()),
            Dtype::F16 => Stored::F16(values.iter().map(|&value| f16::from_f32(value)).collect()),
            Dtype::Bf16 => Stored::Bf16(values.iter().map(|&value| bf16::from_f32(value)).collect()),
        }
    }

    /// Their type.
    pub fn dtype(&self) -> Dtype {
        match self {
            Stored::F32(_) => Dtype::F32,
            Stored::F16(_) => Dtype::F16,
            Stored::Bf16(_) => Dtype::Bf16,
        }
    }

    /// All of them, to read.
    pub fn as_row(&self) -> Row<'_> {
        match self {
            Stored::F32(values) => Row::F32(values),
            Stored::F16(values) => Row::F16(values),
            Stored::Bf16(values) => Row::Bf16(values),
        }
    }

    /// How many.
    pub fn len(&self) -> usize {
        with_stored!(self, |values| values.len())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bits of one, which tell NaNs and zeros apart.
    pub fn bits(&self, index: usize) -> u32 {
        match self {
            Stored::F32(values) => values[index].to_bits(),
            Stored::F16(values) => u32::from(values[index].to_bits()),
            Stored::Bf16(values) => u32::from(values[index].to_bits()),
        }
    }

    /// They are rows of `vocab` logits.
    ///
    /// # Errors
    /// They are no whole rows.
    pub fn logits(&self, vocab: usize) -> Result<Logits<'_>, Error> {
        with_stored!(self, |values| Logits::new(values, vocab))
    }

    /// The same, to mask in place.
    ///
    /// # Errors
    /// They are no whole rows.
    pub fn logits_mut(&mut self, vocab: usize) -> Result<LogitsMut<'_>, Error> {
        with_stored!(self, |values| LogitsMut::new(values, vocab))
    }

    /// Those of `range`.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Stored {
        match self {
            Stored::F32(values) => Stored::F32(values[range].to_vec()),
            Stored::F16(values) => Stored::F16(values[range].to_vec()),
            Stored::Bf16(values) => Stored::Bf16(values[range].to_vec()),
        }
    }

    fn append(&mut self, other: Stored) {
        match (self, other) {
            (Stored::F32(values), Stored::F32(more)) => values.extend(more),
            (Stored::F16(values), Stored::F16(more)) => values.extend(more),
            (Stored::Bf16(values), Stored::Bf16(more)) => values.extend(more),
            _ => panic!("two dtypes in one batch"),
        }
    }
}

/// A [`Bitmask`] in memory of its own.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct OwnedBitmask {
    pub words: Vec<u32>,
    pub ids: usize,
    pub stride: usize,
}

/// A [`Sparse`] in memory of its own: the entries of each row.
#[derive(Clone, Debug)]
pub struct OwnedSparse<T> {
    offsets: Vec<usize>,
    ids: Vec<u32>,
    values: Vec<T>,
}

impl<T: Copy> OwnedSparse<T> {
    /// From the entries of each row, ids ascending.
    pub fn new(rows: &[Vec<(u32, T)>]) -> OwnedSparse<T> {
        let mut sparse = OwnedSparse { offsets: vec![0], ids: Vec::new(), values: Vec::new() };
        for row in rows {
            sparse.ids.extend(row.iter().map(|entry| entry.0));
            sparse.values.extend(row.iter().map(|entry| entry.1));
            sparse.offsets.push(sparse.ids.len());
        }
        sparse
    }

    fn row(&self, row: usize) -> Vec<(u32, T)> {
        (self.offsets[row]..self.offsets[row + 1]).map(|entry| (self.ids[entry], self.values[entry])).collect()
    }

    fn select(&self, rows: &[usize]) -> OwnedSparse<T> {
        OwnedSparse::new(&rows.iter().map(|&row| self.row(row)).collect::<Vec<_>>())
    }

    fn borrow(&self) -> Sparse<'_, T> {
        Sparse { offsets: &self.offsets, ids: &self.ids, values: &self.values }
    }
}

/// [`Penalties`] in memory of their own.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct OwnedPenalties {
    pub repetition: Vec<f32>,
    pub frequency: Vec<f32>,
    pub presence: Vec<f32>,
    pub counts: OwnedSparse<u32>,
}

/// [`Standing`] penalties in memory of their own.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct OwnedStanding {
    pub penalties: Vec<f32>,
    pub stride: usize,
}

impl OwnedStanding {
    /// The element at a place of the memory, or 0 behind its end: the last row may end before its stride does.
    fn at(&self, place: usize) -> f32 {
        self.penalties.get(place).copied().unwrap_or(0.0)
    }
}

/// [`Params`] in memory of their own. A vector of one value serves all rows, another one has a value a row.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct OwnedParams {
    pub temperature: Vec<f32>,
    pub top_k: Vec<u32>,
    pub top_p: Vec<f32>,
    pub min_p: Vec<f32>,
    pub seed: Vec<u64>,
    pub position: Vec<u64>,
    pub stream: Vec<u32>,
    pub draws: u32,
    pub ties: Ties,
    pub order: Order,
    pub valid_vocab: Option<usize>,
    pub bitmask: Option<OwnedBitmask>,
    pub bias: Option<OwnedSparse<f32>>,
    pub penalties: Option<OwnedPenalties>,
    pub standing: Option<OwnedStanding>,
}

impl Default for OwnedParams {
    fn default() -> Self {
        OwnedParams::from_rows(&[Params::default().row(0)])
    }
}

fn borrow<T: Copy>(values: &[T]) -> Param<'_, T> {
    match values {
        [value] => Param::All(*value),
        values => Param::PerRow(values),
    }
}

fn select<T: Copy>(values: &[T], rows: &[usize]) -> Vec<T> {
    match values {
        [value] => vec![*value],
        values => rows.iter().map(|&row| values[row]).collect(),
    }
}

impl OwnedParams {
    /// From the parameters of each row; draws, ties and order are those of the first.
    pub fn from_rows(rows: &[RowParams]) -> OwnedParams {
        OwnedParams {
            temperature: rows.iter().map(|row| row.temperature).collect(),
            top_k: rows.iter().map(|row| row.top_k).collect(),
            top_p: rows.iter().map(|row| row.top_p).collect(),
            min_p: rows.iter().map(|row| row.min_p).collect(),
            seed: rows.iter().map(|row| row.seed).collect(),
            position: rows.iter().map(|row| row.position).collect(),
            stream: rows.iter().map(|row| row.stream).collect(),
            draws: rows.first().map_or(1, |row| row.draws),
            ties: rows.first().map_or(Ties::default(), |row| row.ties),
            order: rows.first().map_or(Order::default(), |row| row.order),
            valid_vocab: None,
            bitmask: None,
            bias: None,
            penalties: None,
            standing: None,
        }
    }

    /// The parameters as a backend takes them.
    pub fn borrow(&self) -> Params<'_> {
        Params {
            temperature: borrow(&self.temperature),
            top_k: borrow(&self.top_k),
            top_p: borrow(&self.top_p),
            min_p: borrow(&self.min_p),
            seed: borrow(&self.seed),
            position: borrow(&self.position),
            stream: borrow(&self.stream),
            draws: self.draws,
            ties: self.ties,
            order: self.order,
            adjustments: Adjustments {
                valid_vocab: self.valid_vocab,
                bitmask: self.bitmask.as_ref().map(|mask| Bitmask {
                    words: &mask.words,
                    ids: mask.ids,
                    stride: mask.stride,
                }),
                bias: self.bias.as_ref().map(OwnedSparse::borrow),
                penalties: self.penalties.as_ref().map(|penalties| Penalties {
                    repetition: borrow(&penalties.repetition),
                    frequency: borrow(&penalties.frequency),
                    presence: borrow(&penalties.presence),
                    counts: penalties.counts.borrow(),
                }),
                standing: self
                    .standing
                    .as_ref()
                    .map(|standing| Standing { penalties: &standing.penalties, stride: standing.stride }),
            },
        }
    }

    /// The parameters of these rows.
    #[must_use]
    pub fn select(&self, rows: &[usize]) -> OwnedParams {
        OwnedParams {
            temperature: select(&self.temperature, rows),
            top_k: select(&self.top_k, rows),
            top_p: select(&self.top_p, rows),
            min_p: select(&self.min_p, rows),
            seed: select(&self.seed, rows),
            position: select(&self.position, rows),
            stream: select(&self.stream, rows),
            draws: self.draws,
            ties: self.ties,
            order: self.order,
            valid_vocab: self.valid_vocab,
            bitmask: self.bitmask.as_ref().map(|mask| {
                let words = mask.ids.div_ceil(32);
                if mask.stride == 0 {
                    return mask.clone();
                }
                let of = |&row: &usize| &mask.words[row * mask.stride..row * mask.stride + words];
                OwnedBitmask { words: rows.iter().flat_map(of).copied().collect(), ids: mask.ids, stride: words }
            }),
            bias: self.bias.as_ref().map(|bias| bias.select(rows)),
            penalties: self.penalties.as_ref().map(|penalties| OwnedPenalties {
                repetition: select(&penalties.repetition, rows),
                frequency: select(&penalties.frequency, rows),
                presence: select(&penalties.presence, rows),
                counts: penalties.counts.select(rows),
            }),
            standing: self.standing.as_ref().map(|standing| {
                let of = |&row: &usize| (row * standing.stride..(row + 1) * standing.stride).map(|at| standing.at(at));
                OwnedStanding { penalties: rows.iter().flat_map(of).collect(), stride: standing.stride }
            }),
        }
    }
}

/// Rows of logits and their parameters.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The memory that the rows lie in, from before the first to behind the last.
    pub stored: Stored,
    /// Where the first row starts: elements that are not the batch's lie before it, and bend its alignment.
    pub start: usize,
    /// Rows: B.
    pub rows: usize,
    /// The stored row of each row, where rows share them; `None` for one each.
    pub index: Option<Vec<u32>>,
    /// Rows in memory: as many as the batch has, unless there is an index.
    pub stored_rows: usize,
    /// Logits in a row: V.
    pub vocab: usize,
    /// Elements from one row's first logit to the next row's.
    pub stride: usize,
    /// The parameters.
    pub params: OwnedParams,
}

impl Batch {
    /// Rows of one length, dense, as f32, with default parameters.
    pub fn new(rows: &[impl AsRef<[f32]>]) -> Batch {
        Batch::narrow(rows, Dtype::F32)
    }

    /// The same, rounded to `dtype`.
    pub fn narrow(rows: &[impl AsRef<[f32]>], dtype: Dtype) -> Batch {
        let vocab = rows.first().map_or(1, |row| row.as_ref().len());
        assert!(rows.iter().all(|row| row.as_ref().len() == vocab), "rows of different lengths");
        let values: Vec<f32> = rows.iter().flat_map(|row| row.as_ref()).copied().collect();
        Batch::of(Stored::narrow(&values, dtype), vocab)
    }

    /// Dense rows of `vocab` stored logits, with default parameters.
    pub fn of(stored: Stored, vocab: usize) -> Batch {
        let rows = stored.len() / vocab;
        Batch {
            start: 0,
            rows,
            index: None,
            stored_rows: rows,
            vocab,
            stride: vocab,
            stored,
            params: OwnedParams::default(),
        }
    }

    /// A batch with a row for each of these numbers of this one's stored rows, with the same parameters, which must have as
    /// many rows as they.
    #[must_use]
    pub fn indexed(self, index: &[u32]) -> Batch {
        Batch { rows: index.len(), index: Some(index.to_vec()), ..self }
    }

    /// The same batch with other parameters.
    #[must_use]
    pub fn with(mut self, set: impl FnOnce(&mut OwnedParams)) -> Batch {
        set(&mut self.params);
        self
    }

    /// The same rows laid out with this stride, from this element on, with `padding` repeated before, between and
    /// behind them; `tail` elements follow the last row.
    #[must_use]
    pub fn laid_out(&self, start: usize, stride: usize, tail: usize, padding: &[f32]) -> Batch {
        assert!(stride >= self.vocab);
        let pad = |len| Stored::narrow(&padding.iter().copied().cycle().take(len).collect::<Vec<_>>(), self.dtype());
        let mut stored = pad(start);
        for row in 0..self.stored_rows {
            stored.append(self.at(row));
            stored.append(pad(if row + 1 < self.stored_rows { stride - self.vocab } else { tail }));
        }
        Batch { stored, start, stride, ..self.clone() }
    }

    /// The type of the stored logits.
    pub fn dtype(&self) -> Dtype {
        self.stored.dtype()
    }

    /// The stored logits of one row.
    pub fn stored_row(&self, row: usize) -> Stored {
        self.at(self.index.as_ref().map_or(row, |index| index[row] as usize))
    }

    /// The logits of a stored row.
    fn at(&self, stored_row: usize) -> Stored {
        let start = self.start + stored_row * self.stride;
        self.stored.slice(start..start + self.vocab)
    }

    /// The rows as a backend takes them.
    pub fn logits(&self) -> Logits<'_> {
        let Batch { start, stored_rows, vocab, stride, .. } = *self;
        let stored = with_stored!(&self.stored, |values| Logits::strided(&values[start..], stored_rows, vocab, stride));
        let batch = stored.and_then(|stored| match &self.index {
            Some(index) => stored.indexed(index),
            None => Ok(stored),
        });
        batch.expect("a batch has a valid shape")
    }

    /// The rows of a copy of [`Batch::stored`], to be masked: all stored ones.
    pub fn logits_mut<'a>(&self, copy: &'a mut Stored) -> LogitsMut<'a> {
        let Batch { start, stored_rows, vocab, stride, .. } = *self;
        with_stored!(copy, |values| LogitsMut::strided(&mut values[start..], stored_rows, vocab, stride))
            .expect("a batch has a valid shape")
    }

    /// The parameters as a backend takes them.
    pub fn params(&self) -> Params<'_> {
        self.params.borrow()
    }

    /// These rows, in this order, dense.
    #[must_use]
    pub fn select(&self, rows: &[usize]) -> Batch {
        let mut stored = Stored::narrow(&[], self.dtype());
        for &row in rows {
            stored.append(self.stored_row(row));
        }
        Batch { params: self.params.select(rows), ..Batch::of(stored, self.vocab) }
    }

    /// What a person needs to reproduce row `row`: its shape, parameters and, of a short row, logits.
    pub fn describe(&self, row: usize) -> String {
        let Batch { start, rows, vocab, stride, .. } = *self;
        let shared = self.index.as_ref().map_or(String::new(), |index| format!(" (stored row {})", index[row]));
        let mut text = format!(
            "row {row} of {rows}{shared}: {} x {vocab}, stride {stride}, start {start}\n{:?}",
            self.dtype().name(),
            self.params().row(row),
        );
        let one = self.select(&[row]);
        let adjustments = one.params().adjustments;
        if adjustments.valid_vocab.is_some() || adjustments.bitmask.is_some() {
            let mask = &one.params.bitmask;
            let _ = write!(text, "\nvalid_vocab {:?}, bitmask {mask:x?}", adjustments.valid_vocab);
        }
        if let Some(standing) = adjustments.standing.filter(|_| vocab <= 64) {
            let _ = write!(text, "\nstanding {:?}", &standing.row(0)[..vocab]);
        }
        if adjustments.bias.is_some() || adjustments.penalties.is_some() {
            let _ = write!(text, "\nbias {:?}, penalties {:?}", one.params.bias, one.params.penalties);
        }
        if vocab <= 64 {
            let values: Vec<f32> = (0..vocab).map(|id| self.logits().row(row).get(id)).collect();
            let _ = write!(text, "\nlogits {values:?}");
        }
        text
    }
}
