//! What each stage of the algorithm hands to the next, so that each can be run and checked alone.

use alloc::vec::Vec;

use crate::key::{Candidate, Key};
use crate::status::Status;

/// Stage 1, truncate: the part of a row that the search looks at first.
#[derive(Clone, Debug, PartialEq)]
pub struct Truncated {
    /// The row's status so far.
    pub status: Status,
    /// The key of the row's largest effective logit; of −∞ for an empty row.
    pub max: Key,
    /// Every candidate above it was gathered, none below it.
    pub threshold: f32,
    /// The gathered candidates, by ascending id.
    pub gathered: Vec<Candidate>,
    /// Whether the gathered set provably contains all that the filters need: of each filter but the last, what it keeps;
    /// of the last, the kept set.
    pub hit: bool,
}

/// What a whole call gathers of a row, and what comes of it: for studies of the algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gathering {
    /// Candidates.
    pub count: u32,
    /// Whether they are enough.
    pub outcome: Outcome,
}

/// Whether what a call gathers of a row is enough to decide it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It is.
    Hit,
    /// It provably is not, or it found no room.
    Missed,
    /// It has what is kept, but top-p was given bounds of the row's mass, and they leave its cut open.
    Straddled,
}

impl From<&Truncated> for Gathering {
    fn from(truncated: &Truncated) -> Gathering {
        Gathering {
            // No more than the vocab.
            count: truncated.gathered.len() as u32,
            outcome: if truncated.hit { Outcome::Hit } else { Outcome::Missed },
        }
    }
}

/// Stage 2, search: the last value that is kept, and how many of the values equal to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The key of the row's largest effective logit.
    pub max: Key,
    /// The key of the last token kept; of −∞ for an empty row.
    pub key: Key,
    /// Candidates above it: all are kept.
    pub above: u32,
    /// Candidates equal to it.
    pub tied: u32,
    /// How many of the tied are kept: `1 ..= tied`, 0 for an empty row.
    pub quota: u32,
}

impl Cut {
    /// The cut of a row without a candidate.
    pub const EMPTY: Cut = Cut { max: Key::NEG_INFINITY, key: Key::NEG_INFINITY, above: 0, tied: 0, quota: 0 };

    /// How many tokens are kept.
    #[inline]
    pub fn kept(&self) -> u32 {
        self.above.saturating_add(self.quota)
    }
}

/// Stage 3, dedup: the last token kept. Whatever the filters were, the kept set is the prefix of the order up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// The key of the row's largest effective logit.
    pub max: Key,
    /// The key of the last token kept; of −∞ for an empty row.
    pub key: Key,
    /// Its id.
    pub id: u32,
    /// How many tokens are kept.
    pub kept: u32,
}

impl Boundary {
    /// The boundary of a row without a candidate.
    pub const EMPTY: Boundary = Boundary { max: Key::NEG_INFINITY, key: Key::NEG_INFINITY, id: 0, kept: 0 };

    /// Whether the boundary keeps this token.
    #[inline]
    pub fn keeps(&self, key: Key, id: u32) -> bool {
        self.kept > 0 && Candidate::new(key, id) >= Candidate::new(self.key, self.id)
    }
}
