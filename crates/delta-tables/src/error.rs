//! What can go wrong: a file that cannot be read, or is not a table, and rows that no table can be fitted to.

use std::path::PathBuf;

/// Why a table could not be loaded, saved or fitted. Lookups have no errors: they answer −∞, "gather everything".
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused to read or write the file.
    #[error("cannot access the delta table {}: {source}", path.display())]
    Io {
        /// The file that was to be read or written.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The bytes are not a delta table at all: not JSON, cut short, or JSON of another program.
    #[error(
        "not a delta table ({why}); give a file written by `DeltaTables::save`, or use the built-in `DeltaTables::normal`"
    )]
    NotATable {
        /// What was found instead.
        why: String,
    },
    /// A delta table, written in a layout that this release does not read.
    #[error(
        "delta table of version {found}, but this release reads version {expected}; fit and save it again with this release"
    )]
    Version {
        /// The version in the file.
        found: u64,
        /// The version that this release reads: [`DeltaTables::VERSION`](crate::DeltaTables::VERSION).
        expected: u32,
    },
    /// A delta table of the right version whose content breaks a rule that the lookups rely on.
    #[error("corrupt delta table: {what}; restore the file, or fit and save it again")]
    Corrupt {
        /// The rule that is broken, and where.
        what: String,
    },
    /// The coverage asked of a fit is not a share of rows.
    #[error("coverage is {value}, but it is the share of rows to hit: above 0 and at most 1")]
    Coverage {
        /// The value that was given.
        value: f64,
    },
    /// No row was left to fit to.
    #[error(
        "no row to fit to ({skipped} skipped): a row needs two finite logits that differ; push at least one such row"
    )]
    NoRows {
        /// How many rows were pushed and skipped.
        skipped: u64,
    },
}

impl Error {
    pub(crate) fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into() }
    }
}
