//! What a call writes: any combination, each into memory of the caller's.

use alloc::string::ToString;

use crate::error::Error;
use crate::logits::Logits;
use crate::params::Params;
use crate::status::Status;

/// What stands for "no token" and "no rank": never the id of a token.
pub const NO_TOKEN: u32 = u32::MAX;

/// The outputs that a call is asked for. What is `None` is not computed.
///
/// Every slice has one element a row; those of the drawn tokens have [`Params::draws`] elements a row, draw `j` of row `r` at
/// `r·draws + j`. A row without a candidate gets [`NO_TOKEN`] as token and rank, −∞ as
/// log-probabilities, and keeps nothing. The masked logits are asked for by [`Input::Mask`](crate::Input::Mask).
#[derive(Debug, Default)]
pub struct Outputs<'a> {
    /// Row status.
    pub status: Option<&'a mut [Status]>,
    /// How many tokens the row keeps.
    pub kept: Option<&'a mut [u32]>,
    /// The kept tokens in order.
    pub candidates: Option<Candidates<'a>>,
    /// The tokens drawn.
    pub token: Option<&'a mut [u32]>,
    /// Their log-probabilities among the kept tokens.
    pub logprob: Option<&'a mut [f32]>,
    /// Their log-probabilities in the whole row: after temperature and adjustments, before the filters.
    pub raw_logprob: Option<&'a mut [f32]>,
    /// How many tokens precede each in the contract's order.
    pub rank: Option<&'a mut [u32]>,
    /// The first candidates of the row, whatever of them is kept.
    pub top: Option<Top<'a>>,
    /// The probability of every token among the kept: `vocab` elements a row, one row behind the other, 0 for what is not kept.
    pub probabilities: Option<&'a mut [f32]>,
}

/// Room for the kept tokens of every row, in the contract's order: `capacity` entries a row.
///
/// A row that keeps more gets its first `capacity` tokens and [`Status::OVERFLOW`]; [`Outputs::kept`] has the whole
/// count. A row that keeps fewer leaves the rest of its room as it was.
#[derive(Debug)]
pub struct Candidates<'a> {
    /// Entries a row.
    pub capacity: usize,
    /// Token ids.
    pub ids: &'a mut [u32],
    /// Effective logits; −0 is written as +0.
    pub logits: &'a mut [f32],
    /// Log-probabilities among the kept tokens.
    pub logprobs: &'a mut [f32],
}

/// The most first candidates of a row that [`Top`] lists.
pub const MAX_TOP: usize = 1024;

/// Room for the first `n` candidates of every row in the contract's order, before any filter, with their log-probabilities in
/// the whole row: after temperature and adjustments.
///
/// A row with fewer candidates leaves the rest as [`NO_TOKEN`] and −∞.
///
/// ```
/// use qrita_core::{Logits, Outputs, Params, Top};
/// let logits = Logits::new(&[0.0f32; 8], 4)?;
/// let (mut ids, mut logprobs) = ([0; 6], [0.0; 6]);
/// let top = Top { n: 3, ids: &mut ids, logprobs: &mut logprobs };
/// assert!(Outputs { top: Some(top), ..Outputs::default() }.validate(&logits, &Params::default()).is_ok());
/// # Ok::<(), qrita_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Top<'a> {
    /// Entries a row: at most [`MAX_TOP`].
    pub n: usize,
    /// Token ids, the likeliest first.
    pub ids: &'a mut [u32],
    /// Their log-probabilities.
    pub logprobs: &'a mut [f32],
}

impl Top<'_> {
    /// Refuses more first candidates than [`MAX_TOP`].
    ///
    /// # Errors
    /// [`Error::Param`] with their number.
    pub fn check(n: usize) -> Result<(), Error> {
        if n > MAX_TOP {
            return Err(Error::Param { row: None, param: "top", value: n.to_string(), expected: "at most 1024" });
        }
        Ok(())
    }
}

impl Outputs<'_> {
    /// Checks that every slice holds the batch.
    ///
    /// # Errors
    /// [`Error::Length`] names the slice that does not, [`Error::Param`] more than [`MAX_TOP`] first candidates.
    pub fn validate(&self, logits: &Logits<'_>, params: &Params<'_>) -> Result<(), Error> {
        let rows = logits.rows();
        let draws = rows.saturating_mul(params.draws as usize);
        let check = |what, found: Option<usize>, expected| {
            found.map_or(Ok(()), |found| Error::check_length(what, found, expected))
        };
        check("status", self.status.as_ref().map(|s| s.len()), rows)?;
        check("kept", self.kept.as_ref().map(|s| s.len()), rows)?;
        check("token", self.token.as_ref().map(|s| s.len()), draws)?;
        check("logprob", self.logprob.as_ref().map(|s| s.len()), draws)?;
        check("raw_logprob", self.raw_logprob.as_ref().map(|s| s.len()), draws)?;
        check("rank", self.rank.as_ref().map(|s| s.len()), draws)?;
        if let Some(c) = &self.candidates {
            let room = rows.saturating_mul(c.capacity);
            Error::check_length("candidate ids", c.ids.len(), room)?;
            Error::check_length("candidate logits", c.logits.len(), room)?;
            Error::check_length("candidate logprobs", c.logprobs.len(), room)?;
        }
        if let Some(top) = &self.top {
            Top::check(top.n)?;
            let room = rows.saturating_mul(top.n);
            Error::check_length("top ids", top.ids.len(), room)?;
            Error::check_length("top logprobs", top.logprobs.len(), room)?;
        }
        check("probabilities", self.probabilities.as_ref().map(|s| s.len()), rows.saturating_mul(logits.vocab()))?;
        Ok(())
    }
}
