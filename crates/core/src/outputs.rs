//! What a call writes: any combination, each into memory of the caller's.

use crate::error::Error;
use crate::status::Status;

/// What stands for "no token" and "no rank": never the id of a token.
pub const NO_TOKEN: u32 = u32::MAX;

/// The outputs that a call is asked for. What is `None` is not computed.
///
/// Every slice has one element a row. A row without a candidate gets [`NO_TOKEN`] as token and rank, −∞ as
/// log-probabilities, and keeps nothing. The masked logits are asked for by [`Input::Mask`](crate::Input::Mask).
#[derive(Debug, Default)]
pub struct Outputs<'a> {
    /// Row status.
    pub status: Option<&'a mut [Status]>,
    /// How many tokens the row keeps.
    pub kept: Option<&'a mut [u32]>,
    /// The kept tokens in order.
    pub candidates: Option<Candidates<'a>>,
    /// The token drawn.
    pub token: Option<&'a mut [u32]>,
    /// Its log-probability among the kept tokens.
    pub logprob: Option<&'a mut [f32]>,
    /// Its log-probability in the whole row: after temperature and adjustments, before the filters.
    pub raw_logprob: Option<&'a mut [f32]>,
    /// How many tokens precede it in the contract's order.
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
    /// Whether anything of a drawn token is asked for.
    pub fn draws(&self) -> bool {
        self.token.is_some() || self.logprob.is_some() || self.raw_logprob.is_some() || self.rank.is_some()
    }

    /// Checks that every slice holds the batch.
    ///
    /// # Errors
    /// [`Error::Length`] names the slice that does not.
    pub fn validate(&self, rows: usize) -> Result<(), Error> {
        let one_a_row =
            |what, found: Option<usize>| found.map_or(Ok(()), |found| Error::check_length(what, found, rows));
        one_a_row("status", self.status.as_ref().map(|s| s.len()))?;
        one_a_row("kept", self.kept.as_ref().map(|s| s.len()))?;
        one_a_row("token", self.token.as_ref().map(|s| s.len()))?;
        one_a_row("logprob", self.logprob.as_ref().map(|s| s.len()))?;
        one_a_row("raw_logprob", self.raw_logprob.as_ref().map(|s| s.len()))?;
        one_a_row("rank", self.rank.as_ref().map(|s| s.len()))?;
        if let Some(c) = &self.candidates {
            let room = rows.saturating_mul(c.capacity);
            Error::check_length("candidate ids", c.ids.len(), room)?;
            Error::check_length("candidate logits", c.logits.len(), room)?;
            Error::check_length("candidate logprobs", c.logprobs.len(), room)?;
        }
        Ok(())
    }
}
