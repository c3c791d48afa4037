//! Every error names what was wrong, where, and with what value. An error means that no buffer was written.

use alloc::boxed::Box;
use alloc::string::String;

/// Why a call was refused. Nothing was launched and the caller's buffers are untouched.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A parameter has a value outside its range.
    #[error("{param} is {value} {}: it must be {expected}", place(*.row))]
    Param {
        /// The offending row; `None` when one value serves all rows.
        row: Option<usize>,
        /// The parameter's name as in [`Params`](crate::Params).
        param: &'static str,
        /// Its value.
        value: String,
        /// The values that it may have.
        expected: &'static str,
    },
    /// A slice is too short, or not as long as the batch has rows.
    #[error("{what} has {found} elements: {expected} are needed")]
    Length {
        /// Which slice.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The length that was needed.
        expected: usize,
    },
    /// The shape of the logits is outside the contract.
    #[error("{what} is {value}: it must be {expected}")]
    Shape {
        /// Which dimension.
        what: &'static str,
        /// Its value.
        value: usize,
        /// The values that it may have.
        expected: &'static str,
    },
    /// The plan names a choice that the build has no code for: see [`Features`](crate::Features).
    #[error("the plan's {switch} is {value}, which is not part of this build: enable the Cargo feature `{feature}`")]
    NotCompiled {
        /// The field of [`Plan`](crate::Plan).
        switch: &'static str,
        /// Its value.
        value: &'static str,
        /// The Cargo feature that brings it.
        feature: &'static str,
    },
    /// This backend can not do what was asked.
    #[error("the {backend} backend has no {what}")]
    Unsupported {
        /// The backend's name.
        backend: &'static str,
        /// What was asked.
        what: String,
    },
    /// The device, its driver or its runtime failed.
    #[error("{backend}: {message}")]
    Device {
        /// The backend's name.
        backend: &'static str,
        /// What failed, and what to do about it where that is known.
        message: String,
    },
    /// The draft rows of a verification have this fault; those of the target rows are not wrapped.
    #[error("draft rows: {0}")]
    Draft(Box<Error>),
}

impl Error {
    /// Refuses a slice of another length than this.
    ///
    /// # Errors
    /// [`Error::Length`], which names it.
    pub fn check_length(what: &'static str, found: usize, expected: usize) -> Result<(), Error> {
        if found == expected { Ok(()) } else { Err(Error::Length { what, found, expected }) }
    }
}

fn place(row: Option<usize>) -> String {
    match row {
        Some(row) => alloc::format!("in row {row}"),
        None => String::from("for all rows"),
    }
}
