//! Chains of draft tokens to be verified, and what their verification writes.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use core::ops::Range;

use crate::error::Error;
use crate::logits::Logits;
use crate::params::Params;
use crate::status::Status;

/// Rows of logits with their parameters: one side of a verification.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Side<'a> {
    pub logits: Logits<'a>,
    pub params: Params<'a>,
}

/// The draft tokens of a batch of requests, with the rows that they were drawn from and the rows that they are verified
/// against (speculative decoding).
///
/// A request of `n` draft tokens has `n` draft rows and `n + 1` target rows; requests lie one behind the other. Both sides have
/// one dtype; their vocabs and parameters may differ. What comes of a chain is in the contract, section 11.
///
/// ```
/// use qrita_core::{Chains, Logits, Params, Side};
/// // Two requests, of two draft tokens and of none, with a vocab of 3.
/// let (draft, target) = ([0.0f32; 2 * 3], [0.0f32; 4 * 3]);
/// let chains = Chains {
///     offsets: &[0, 2, 2],
///     tokens: &[1, 0],
///     draft: Side { logits: Logits::new(&draft, 3)?, params: Params::default() },
///     target: Side { logits: Logits::new(&target, 3)?, params: Params::default().seed(7).position(&[10, 11, 12, 20]) },
/// };
/// chains.validate()?;
/// assert_eq!((chains.requests(), chains.draft_rows(0), chains.target_rows(0)), (2, 0..2, 0..3));
/// assert_eq!((chains.draft_rows(1), chains.target_rows(1)), (2..2, 3..4));
/// # Ok::<(), qrita_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Chains<'a> {
    /// Where each request's draft tokens start, and where the last one's end: requests + 1 numbers, ascending from 0.
    pub offsets: &'a [usize],
    /// The draft tokens. An id that its draft row does not keep is no error: it is never accepted.
    pub tokens: &'a [u32],
    /// The rows that they were drawn from: one a draft token.
    pub draft: Side<'a>,
    /// The rows that they are verified against: one a draft token, and one more a request.
    pub target: Side<'a>,
}

/// What a verification is asked for. What is `None` is not written.
#[derive(Debug, Default)]
pub struct ChainOutputs<'a> {
    /// How many draft tokens are accepted: one number a request.
    pub accepted: Option<&'a mut [u32]>,
    /// The tokens: one a target row. A request's are its accepted draft tokens and one more, which was drawn; behind those
    /// [`NO_TOKEN`](crate::NO_TOKEN).
    pub tokens: Option<&'a mut [u32]>,
    /// The status bits, together, of the target rows that the chain reached: one a request. [`Status::EMPTY`] is that of a
    /// chain which an empty row ended, without a token for it.
    pub status: Option<&'a mut [Status]>,
}

impl Chains<'_> {
    /// How many requests there are.
    pub fn requests(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// The draft rows, and draft tokens, of a request. Panics outside the batch, as slices do.
    pub fn draft_rows(&self, request: usize) -> Range<usize> {
        self.offsets[request]..self.offsets[request + 1]
    }

    /// The target rows of a request. Panics outside the batch, as slices do.
    pub fn target_rows(&self, request: usize) -> Range<usize> {
        self.offsets[request] + request..self.offsets[request + 1] + request + 1
    }

    /// Checks offsets, numbers of rows and the parameters of both sides.
    ///
    /// # Errors
    /// What is out of range first; [`Error::Draft`] for what is wrong with the draft rows' parameters.
    pub fn validate(&self) -> Result<(), Error> {
        let Chains { offsets, tokens, draft, target } = self;
        let refuse = |row, value: String, expected| Err(Error::Param { row, param: "offsets", value, expected });
        match offsets {
            [] => return Err(Error::Length { what: "offsets", found: 0, expected: 1 }),
            [0, ..] => {}
            [first, ..] => return refuse(Some(0), first.to_string(), "0, where the first request starts"),
        }
        if let Some(row) = offsets.windows(2).position(|pair| pair[1] < pair[0]) {
            return refuse(Some(row + 1), offsets[row + 1].to_string(), "at least the offset before");
        }
        Error::check_length("draft tokens", tokens.len(), offsets[offsets.len() - 1])?;
        Error::check_length("draft rows", draft.logits.rows(), tokens.len())?;
        Error::check_length("target rows", target.logits.rows(), tokens.len() + self.requests())?;
        if draft.logits.dtype() != target.logits.dtype() {
            let value = draft.logits.dtype().name().to_string();
            return Err(Error::Param { row: None, param: "draft dtype", value, expected: "that of the target rows" });
        }
        draft.params.validate(&draft.logits).map_err(|error| Error::Draft(Box::new(error)))?;
        target.params.validate(&target.logits)
    }
}

impl ChainOutputs<'_> {
    /// Checks that every slice holds the batch.
    ///
    /// # Errors
    /// [`Error::Length`] names the slice that does not.
    pub fn validate(&self, chains: &Chains<'_>) -> Result<(), Error> {
        let has = |what, found: Option<usize>, expected| {
            found.map_or(Ok(()), |found| Error::check_length(what, found, expected))
        };
        has("accepted", self.accepted.as_ref().map(|s| s.len()), chains.requests())?;
        has("tokens", self.tokens.as_ref().map(|s| s.len()), chains.target.logits.rows())?;
        has("status", self.status.as_ref().map(|s| s.len()), chains.requests())
    }
}
