//! Files that say what they are: one JSON object with a marker (`format`) and a version (`version`) beside its content.
//!
//! A file is read in two steps, marker and version first, so that a foreign file, a file of another release and a damaged
//! file are three different faults. Tables are such files, and others of Qrita's.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// What is wrong with a file.
#[derive(Debug)]
pub enum Fault {
    /// The operating system refused to read it.
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// It is no such file at all: what was found instead.
    Foreign(String),
    /// It has this version, and another was to be read.
    Version(u64),
    /// It has the right version, and not what belongs into it: what is wrong.
    Corrupt(String),
}

/// What is read first: enough to tell whose file it is.
#[derive(Deserialize)]
struct Header {
    #[serde(default)]
    format: Value,
    #[serde(default)]
    version: Value,
}

/// Reads the content of a file with this marker and version from the bytes of its JSON. Any bytes are safe to pass.
///
/// ```
/// use qrita_delta_tables::marked::{Fault, from_slice};
///
/// #[derive(serde::Deserialize)]
/// struct Content { rows: u32 }
///
/// let file = br#"{"format": "mine", "version": 2, "rows": 7}"#;
/// assert_eq!(from_slice::<Content>(file, "mine", 2).unwrap().rows, 7);
/// assert!(matches!(from_slice::<Content>(file, "mine", 3), Err(Fault::Version(2))));
/// assert!(matches!(from_slice::<Content>(file, "yours", 2), Err(Fault::Foreign(_))));
/// ```
///
/// # Errors
/// [`Fault::Foreign`], [`Fault::Version`] or [`Fault::Corrupt`].
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8], format: &str, version: u32) -> Result<T, Fault> {
    let header: Header = serde_json::from_slice(bytes).map_err(|error| Fault::Foreign(error.to_string()))?;
    check_marker(header.format.as_str(), format)?;
    let Some(found) = header.version.as_u64() else {
        return Err(Fault::Corrupt(format!("its version is {}, not a number", header.version)));
    };
    check_version(found, version)?;
    serde_json::from_slice(bytes).map_err(|error| Fault::Corrupt(error.to_string()))
}

pub(crate) fn check_marker(found: Option<&str>, format: &str) -> Result<(), Fault> {
    if found == Some(format) { Ok(()) } else { Err(Fault::Foreign(format!("it lacks the marker \"{format}\""))) }
}

pub(crate) fn check_version(found: u64, version: u32) -> Result<(), Fault> {
    if found == u64::from(version) { Ok(()) } else { Err(Fault::Version(found)) }
}

/// The bytes of a file, which has at most so many: a path to something endless, or to a model's weights, must not fill memory
/// first.
///
/// # Errors
/// [`Fault::Io`], or [`Fault::Foreign`] for a larger file.
pub fn read(path: &Path, most_bytes: u64) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    let refused = |source| Fault::Io { path: path.to_owned(), source };
    File::open(path).and_then(|file| file.take(most_bytes + 1).read_to_end(&mut bytes)).map_err(refused)?;
    if bytes.len() as u64 > most_bytes {
        return Err(Fault::Foreign(format!("it has more than {most_bytes} bytes")));
    }
    Ok(bytes)
}
