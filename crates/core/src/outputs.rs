//! What a call writes: any combination, each into memory of the caller's.

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

impl Outputs<'_> {
    /// Checks that every slice holds the batch.
    ///
    /// # Errors
    /// [`Error::Length`] names the slice that does not.
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
        Ok(())
    }
}
