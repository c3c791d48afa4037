//! The parameters of a call, validated before anything is launched.

use alloc::string::ToString;
use core::fmt::Display;

use crate::adjust::Adjustments;
use crate::error::Error;
use crate::logits::Logits;

/// One value for all rows, or one per row.
///
/// ```
/// use qrita_core::Param;
/// let (all, each): (Param<u32>, Param<u32>) = (50.into(), (&[1, 2, 3]).into());
/// assert_eq!((all.get(2), each.get(2)), (50, 3));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Param<'a, T> {
    /// One value for all rows.
    All(T),
    /// One value a row.
    PerRow(&'a [T]),
}

impl<T> From<T> for Param<'_, T> {
    fn from(value: T) -> Self {
        Param::All(value)
    }
}

impl<'a, T> From<&'a [T]> for Param<'a, T> {
    fn from(values: &'a [T]) -> Self {
        Param::PerRow(values)
    }
}

impl<'a, T, const N: usize> From<&'a [T; N]> for Param<'a, T> {
    fn from(values: &'a [T; N]) -> Self {
        Param::PerRow(values)
    }
}

impl<'a, T> From<&'a alloc::vec::Vec<T>> for Param<'a, T> {
    fn from(values: &'a alloc::vec::Vec<T>) -> Self {
        Param::PerRow(values)
    }
}

impl<T: Copy> Param<'_, T> {
    /// The value for row `row`. Panics outside the batch, as slices do.
    #[inline]
    pub fn get(&self, row: usize) -> T {
        match self {
            Param::All(value) => *value,
            Param::PerRow(values) => values[row],
        }
    }
}

impl<T: Copy + Display> Param<'_, T> {
    pub(crate) fn check(
        &self,
        param: &'static str,
        rows: usize,
        expected: &'static str,
        valid: impl Fn(&T) -> bool,
    ) -> Result<(), Error> {
        let refuse = |row, value: &T| Err(Error::Param { row, param, value: value.to_string(), expected });
        match self {
            Param::All(value) if !valid(value) => refuse(None, value),
            Param::All(_) => Ok(()),
            Param::PerRow(values) if values.len() != rows => {
                Err(Error::Length { what: param, found: values.len(), expected: rows })
            }
            Param::PerRow(values) => match values.iter().position(|value| !valid(value)) {
                Some(row) => refuse(Some(row), &values[row]),
                None => Ok(()),
            },
        }
    }
}

/// Which of several equal logits a cut keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Ties {
    /// Those with the lowest ids, as a stable sort does.
    #[default]
    LowestId,
    /// All of them: each cut is extended to the whole group of values equal to the last one kept.
    KeepAll,
}

/// Over which mass top-p is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Order {
    /// The mass that top-k left, renormalised.
    #[default]
    TopKThenTopP,
    /// The mass before top-k; both cuts hold.
    Joint,
}

/// How many tokens may be drawn from a row: the last two numbers of a draw are those of a
/// [chain's](crate::verify) decisions.
pub const MAX_DRAWS: u32 = crate::verify::REJECT_DRAW;

/// The parameters of a batch. The default filters nothing and draws one token, at temperature 1 and seed 0.
///
/// ```
/// use qrita_core::{Logits, Params};
/// let logits = Logits::new(&[0.0f32; 8], 4)?;
/// let params = Params::default().top_k(50).top_p(&[0.9, f32::NAN]);
/// assert_eq!(
///     params.validate(&logits).unwrap_err().to_string(),
///     "top_p is NaN in row 1: it must be at least 0 (1 and more is off)",
/// );
/// # Ok::<(), qrita_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Params<'a> {
    /// Divides the distances from the row's maximum: finite, at least 0; 0 is greedy.
    pub temperature: Param<'a, f32>,
    /// How many tokens to keep at most; 0 is off.
    pub top_k: Param<'a, u32>,
    /// The share of the mass to keep: at least 0; 1 and more is off.
    pub top_p: Param<'a, f32>,
    /// The least weight to keep, relative to the maximum's: 0 to 1; 0 is off.
    pub min_p: Param<'a, f32>,
    /// The key of the row's random bits.
    pub seed: Param<'a, u64>,
    /// The row's place in its own sequence: the counter of its random bits.
    pub position: Param<'a, u64>,
    /// Tells apart independent uses of one seed.
    pub stream: Param<'a, u32>,
    /// How many tokens to draw from each row, with replacement: at least 1, for the whole batch.
    pub draws: u32,
    /// Which of several equal logits a cut keeps.
    pub ties: Ties,
    /// Over which mass top-p is taken.
    pub order: Order,
    /// Bitmask, bias and penalties.
    pub adjustments: Adjustments<'a>,
}

impl Default for Params<'_> {
    fn default() -> Self {
        Params {
            temperature: Param::All(1.0),
            top_k: Param::All(0),
            top_p: Param::All(1.0),
            min_p: Param::All(0.0),
            seed: Param::All(0),
            position: Param::All(0),
            stream: Param::All(0),
            draws: 1,
            ties: Ties::default(),
            order: Order::default(),
            adjustments: Adjustments::default(),
        }
    }
}

macro_rules! setters {
    ($($name:ident: $type:ty),*) => {$(
        #[doc = concat!("Sets [`", stringify!($name), "`](Params::", stringify!($name), "): one value, or a slice with one a row.")]
        #[must_use]
        pub fn $name(mut self, value: impl Into<Param<'a, $type>>) -> Self {
            self.$name = value.into();
            self
        }
    )*};
}

impl<'a> Params<'a> {
    setters!(temperature: f32, top_k: u32, top_p: f32, min_p: f32, seed: u64, position: u64, stream: u32);

    /// Sets [`draws`](Params::draws).
    #[must_use]
    pub fn draws(mut self, draws: u32) -> Self {
        self.draws = draws;
        self
    }

    /// Sets [`ties`](Params::ties).
    #[must_use]
    pub fn ties(mut self, ties: Ties) -> Self {
        self.ties = ties;
        self
    }

    /// Sets [`order`](Params::order).
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Sets [`adjustments`](Params::adjustments).
    #[must_use]
    pub fn adjustments(mut self, adjustments: Adjustments<'a>) -> Self {
        self.adjustments = adjustments;
        self
    }

    /// Refuses no draw, and more than [`MAX_DRAWS`].
    ///
    /// # Errors
    /// [`Error::Param`] with their number.
    pub fn check_draws(draws: u32) -> Result<(), Error> {
        let valid = |draws: &u32| (1..=MAX_DRAWS).contains(draws);
        Param::All(draws).check("draws", 1, "from 1 to 4294967294", valid)
    }

    /// Checks every parameter of every row against the contract.
    ///
    /// # Errors
    /// The first parameter that is out of range, with its row and value, or a slice that is not as long as the batch.
    pub fn validate(&self, logits: &Logits<'_>) -> Result<(), Error> {
        let rows = logits.rows();
        self.temperature.check("temperature", rows, "finite and at least 0", |t| *t >= 0.0 && t.is_finite())?;
        self.top_k.check("top_k", rows, "a count", |_| true)?;
        self.top_p.check("top_p", rows, "at least 0 (1 and more is off)", |p| *p >= 0.0)?;
        self.min_p.check("min_p", rows, "between 0 and 1", |p| (0.0..=1.0).contains(p))?;
        self.seed.check("seed", rows, "a 64-bit number", |_| true)?;
        self.position.check("position", rows, "a 64-bit number", |_| true)?;
        self.stream.check("stream", rows, "a 32-bit number", |_| true)?;
        Params::check_draws(self.draws)?;
        self.adjustments.validate(rows, logits.vocab())
    }

    /// The parameters of one row. Panics outside the batch, as slices do.
    pub fn row(&self, row: usize) -> RowParams {
        RowParams {
            temperature: self.temperature.get(row),
            top_k: self.top_k.get(row),
            top_p: self.top_p.get(row),
            min_p: self.min_p.get(row),
            seed: self.seed.get(row),
            position: self.position.get(row),
            stream: self.stream.get(row),
            draws: self.draws,
            ties: self.ties,
            order: self.order,
        }
    }
}

/// The parameters of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct RowParams {
    pub temperature: f32,
    pub top_k: u32,
    pub top_p: f32,
    pub min_p: f32,
    pub seed: u64,
    pub position: u64,
    pub stream: u32,
    pub draws: u32,
    pub ties: Ties,
    pub order: Order,
}
