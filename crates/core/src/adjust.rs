//! What turns a stored logit into the effective one: allowed-token bitmask, logit bias, penalties, standing penalties.
//!
//! All of it is applied while a row streams by; the caller's logits are not rewritten. The order is the contract's:
//! bitmask and valid vocab, then bias, then repetition, frequency and presence penalty, then the standing one, each a single IEEE
//! operation.

use alloc::string::ToString;

use crate::error::Error;
use crate::params::Param;

/// An allowed-token bitmask, packed 32 ids a word, least significant bit first; 1 = allowed.
///
/// The layout of grammar engines. Ids from `ids` on are disallowed, also where the last word has bits for them.
///
/// ```
/// use qrita_core::Bitmask;
/// let mask = Bitmask { words: &[0b101], ids: 3, stride: 0 };
/// assert!(mask.allows(0, 0) && !mask.allows(0, 1) && mask.allows(0, 2) && !mask.allows(0, 3));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Bitmask<'a> {
    /// The words of all rows.
    pub words: &'a [u32],
    /// How many ids a row's bits cover; may be less than the vocab.
    pub ids: usize,
    /// Words from one row's first to the next row's; 0 = one mask for all rows.
    pub stride: usize,
}

impl Bitmask<'_> {
    /// Whether row `row` may use token `id`.
    #[inline]
    pub fn allows(&self, row: usize, id: usize) -> bool {
        id < self.ids && self.words[row * self.stride + id / 32] >> (id % 32) & 1 == 1
    }

    fn validate(&self, rows: usize) -> Result<(), Error> {
        let words = self.ids.div_ceil(32);
        if self.stride != 0 && self.stride < words {
            let expected = "0, or at least the words that its ids take";
            return Err(Error::Shape { what: "bitmask stride", value: self.stride, expected });
        }
        let expected = rows.saturating_sub(1).saturating_mul(self.stride).saturating_add(words);
        if rows > 0 && self.words.len() < expected {
            return Err(Error::Length { what: "bitmask", found: self.words.len(), expected });
        }
        Ok(())
    }
}

/// A value for some token ids of each row, rows one behind the other (CSR).
///
/// Row `r` has the entries `offsets[r] .. offsets[r + 1]`; its ids ascend strictly.
///
/// ```
/// use qrita_core::Sparse;
/// // Row 0: token 5 gets +1.5. Row 1: nothing. Row 2: tokens 0 and 7.
/// let bias = Sparse { offsets: &[0, 1, 1, 3], ids: &[5, 0, 7], values: &[1.5, -2.0, 4.0] };
/// assert_eq!(bias.row(2), (&[0, 7][..], &[-2.0, 4.0][..]));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Sparse<'a, T> {
    /// Where each row's entries start, and the end of the last: rows + 1 numbers.
    pub offsets: &'a [usize],
    /// Token ids.
    pub ids: &'a [u32],
    /// Their values.
    pub values: &'a [T],
}

impl<'a, T> Sparse<'a, T> {
    /// The ids and values of row `row`. Panics outside the batch, as slices do.
    pub fn row(&self, row: usize) -> (&'a [u32], &'a [T]) {
        let range = self.offsets[row]..self.offsets[row + 1];
        (&self.ids[range.clone()], &self.values[range])
    }

    fn validate(&self, name: &'static str, rows: usize, vocab: usize) -> Result<(), Error> {
        if self.offsets.len() != rows + 1 {
            return Err(Error::Length { what: name, found: self.offsets.len(), expected: rows + 1 });
        }
        if self.ids.len() != self.values.len() {
            return Err(Error::Length { what: name, found: self.values.len(), expected: self.ids.len() });
        }
        for row in 0..rows {
            let (start, end) = (self.offsets[row], self.offsets[row + 1]);
            let refuse = |value: usize, expected| {
                Err(Error::Param { row: Some(row), param: name, value: value.to_string(), expected })
            };
            if start > end || end > self.ids.len() {
                return refuse(end, "an ascending list of offsets within the entries");
            }
            let ids = &self.ids[start..end];
            if let Some(pair) = ids.windows(2).find(|pair| pair[0] >= pair[1]) {
                return refuse(pair[1] as usize, "strictly ascending token ids");
            }
            if let Some(&id) = ids.last().filter(|&&id| id as usize >= vocab) {
                return refuse(id as usize, "token ids below the vocab");
            }
        }
        Ok(())
    }
}

/// Penalties for tokens that were seen before.
#[derive(Clone, Copy, Debug)]
pub struct Penalties<'a> {
    /// Divides positive and multiplies other logits of every listed token; 1 is off.
    pub repetition: Param<'a, f32>,
    /// Subtracted once for each time that a token was generated; 0 is off.
    pub frequency: Param<'a, f32>,
    /// Subtracted from tokens that were generated at least once; 0 is off.
    pub presence: Param<'a, f32>,
    /// How often each token was generated. A count of 0 lists a token that only the prompt has: the repetition penalty
    /// applies to it, the others do not.
    pub counts: Sparse<'a, u32>,
}

/// A penalty for every token of every row, subtracted from its logit after all other adjustments: what a
/// [step](crate::Backend::step) keeps from one to the next. Other calls read them and change nothing.
///
/// ```
/// use qrita_core::{Adjustments, Logits, Params, Standing};
/// let logits = Logits::new(&[0.0f32; 8], 4)?;
/// let standing = Standing { penalties: &[0.5; 9], stride: 5 };
/// let adjustments = Adjustments { standing: Some(standing), ..Adjustments::default() };
/// assert!(Params::default().adjustments(adjustments).validate(&logits).is_ok());
/// # Ok::<(), qrita_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Standing<'a> {
    /// The penalties of all rows, `vocab` of each; what lies between the rows is not looked at.
    pub penalties: &'a [f32],
    /// Elements from one row's first penalty to the next row's: at least the vocab.
    pub stride: usize,
}

impl<'a> Standing<'a> {
    /// The penalties of one row, one a token, with perhaps some that are no token's. Panics outside the batch, as slices do.
    pub fn row(&self, row: usize) -> &'a [f32] {
        let rest = &self.penalties[row * self.stride..];
        &rest[..rest.len().min(self.stride)]
    }

    pub(crate) fn validate(&self, rows: usize, vocab: usize) -> Result<(), Error> {
        if self.stride < vocab {
            return Err(Error::Shape { what: "standing stride", value: self.stride, expected: "at least the vocab" });
        }
        let expected = rows.saturating_sub(1).saturating_mul(self.stride).saturating_add(vocab);
        if rows > 0 && self.penalties.len() < expected {
            return Err(Error::Length { what: "standing penalties", found: self.penalties.len(), expected });
        }
        Ok(())
    }
}

/// All adjustments of a batch. The default leaves every logit as it is stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct Adjustments<'a> {
    /// Ids from here on are padding of the vocabulary, and disallowed.
    pub valid_vocab: Option<usize>,
    /// Allowed tokens.
    pub bitmask: Option<Bitmask<'a>>,
    /// Added to the logits of single tokens.
    pub bias: Option<Sparse<'a, f32>>,
    /// Penalties for repetition.
    pub penalties: Option<Penalties<'a>>,
    /// Penalties that stand from step to step.
    pub standing: Option<Standing<'a>>,
}

impl<'a> Adjustments<'a> {
    pub(crate) fn validate(&self, rows: usize, vocab: usize) -> Result<(), Error> {
        if let Some(valid) = self.valid_vocab.filter(|&valid| valid > vocab) {
            return Err(Error::Shape { what: "valid_vocab", value: valid, expected: "at most the vocab" });
        }
        if let Some(bitmask) = &self.bitmask {
            bitmask.validate(rows)?;
        }
        if let Some(bias) = &self.bias {
            bias.validate("logit_bias", rows, vocab)?;
            for row in 0..rows {
                if let Some(value) = bias.row(row).1.iter().find(|value| value.is_nan()) {
                    return Err(Error::Param {
                        row: Some(row),
                        param: "logit_bias",
                        value: value.to_string(),
                        expected: "a number",
                    });
                }
            }
        }
        if let Some(penalties) = &self.penalties {
            let Penalties { repetition, frequency, presence, counts } = penalties;
            repetition.check("repetition", rows, "positive and finite", |&v| v > 0.0 && v.is_finite())?;
            frequency.check("frequency", rows, "finite", |v| v.is_finite())?;
            presence.check("presence", rows, "finite", |v| v.is_finite())?;
            counts.validate("penalty counts", rows, vocab)?;
        }
        if let Some(standing) = &self.standing {
            standing.validate(rows, vocab)?;
        }
        Ok(())
    }

    /// The adjustments of one row.
    pub fn row(&self, row: usize) -> RowAdjustments<'a> {
        RowAdjustments {
            valid: self.valid_vocab.unwrap_or(usize::MAX),
            allowed: self.bitmask.map(|mask| {
                let start = row * mask.stride;
                (&mask.words[start..start + mask.ids.div_ceil(32)], mask.ids)
            }),
            bias: self.bias.map_or((&[], &[]), |bias| bias.row(row)),
            penalties: self.penalties.map(|p| RowPenalties {
                repetition: p.repetition.get(row),
                frequency: p.frequency.get(row),
                presence: p.presence.get(row),
                counts: p.counts.row(row),
            }),
            standing: self.standing.map(|standing| standing.row(row)),
        }
    }
}

/// The adjustments of one row, as a backend applies them.
#[derive(Clone, Copy, Debug)]
pub struct RowAdjustments<'a> {
    /// Ids from here on are disallowed.
    pub valid: usize,
    /// The row's bitmask words and how many ids they cover.
    pub allowed: Option<(&'a [u32], usize)>,
    /// Ids, ascending, and what is added to their logits.
    pub bias: (&'a [u32], &'a [f32]),
    /// The row's penalties.
    pub penalties: Option<RowPenalties<'a>>,
    /// What is subtracted last, one number a token.
    pub standing: Option<&'a [f32]>,
}

impl RowAdjustments<'_> {
    /// Whether every stored logit is the effective one, for a row of `vocab` logits.
    pub fn is_identity(&self, vocab: usize) -> bool {
        self.valid >= vocab
            && self.allowed.is_none()
            && self.bias.0.is_empty()
            && self.penalties.is_none()
            && self.standing.is_none()
    }
}

/// The penalties of one row.
#[derive(Clone, Copy, Debug)]
pub struct RowPenalties<'a> {
    /// Repetition penalty.
    pub repetition: f32,
    /// Frequency penalty.
    pub frequency: f32,
    /// Presence penalty.
    pub presence: f32,
    /// Ids, ascending, and how often each was generated.
    pub counts: (&'a [u32], &'a [u32]),
}

impl RowPenalties<'_> {
    /// The logit `y` of a listed token with this count after the penalties: at most four IEEE operations, in this order.
    ///
    /// ```
    /// use qrita_core::RowPenalties;
    /// let p = RowPenalties { repetition: 2.0, frequency: 0.5, presence: 0.25, counts: (&[], &[]) };
    /// assert_eq!(p.apply(4.0, 3), 4.0 / 2.0 - 0.5 * 3.0 - 0.25);
    /// assert_eq!(p.apply(-4.0, 0), -8.0);
    /// ```
    #[inline]
    pub fn apply(&self, y: f32, count: u32) -> f32 {
        let y = if y > 0.0 { y / self.repetition } else { y * self.repetition };
        if count == 0 {
            return y;
        }
        // Rust never contracts these to a multiply-add.
        y - self.frequency * count as f32 - self.presence
    }
}
