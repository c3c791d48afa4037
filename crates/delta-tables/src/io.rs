//! Tables on disk: one JSON object, readable by people and by other programs.
//!
//! JSON has no infinities and no f32, and `serde_json`'s number parser may be one unit off in f64. So: a table has no infinite
//! entry (the grids end below 1); an f32 is written as the f64 it equals, whose neighbours in f64 all round back to the same
//! f32; and the one f64, the coverage, is written as text, which std parses exactly. A table thus survives a save and a load
//! bit for bit.
//!
//! A file is [marked](crate::marked). It is written under a temporary name and renamed, so that a reader never sees half a
//! table and a failed save leaves the old one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::marked::{self, Fault};
use crate::table::{DeltaTables, Provenance, TopK, TopP};

/// The most bytes that [`DeltaTables::load`] reads. A table takes a quarter of a MiB.
const MAX_BYTES: u64 = 64 << 20;

/// Numbers the temporary files of this process, so that two threads that save to one path do not share one.
static SAVES: AtomicU64 = AtomicU64::new(0);

/// The layout of the file. [`DeltaTables`] is serialised through it, so that no way of reading skips the check.
#[derive(Serialize, Deserialize)]
pub(crate) struct TableFile {
    format: String,
    version: u64,
    provenance: Provenance,
    top_k: TopK,
    top_p: TopP,
}

impl From<DeltaTables> for TableFile {
    fn from(tables: DeltaTables) -> Self {
        Self {
            format: DeltaTables::FORMAT.to_owned(),
            version: u64::from(DeltaTables::VERSION),
            provenance: tables.provenance,
            top_k: tables.top_k,
            top_p: tables.top_p,
        }
    }
}

impl TryFrom<TableFile> for DeltaTables {
    type Error = Error;

    fn try_from(file: TableFile) -> Result<Self, Error> {
        marked::check_marker(Some(&file.format), DeltaTables::FORMAT)?;
        marked::check_version(file.version, DeltaTables::VERSION)?;
        Self { provenance: file.provenance, top_k: file.top_k, top_p: file.top_p }.check()
    }
}

impl DeltaTables {
    /// Writes the table as JSON.
    ///
    /// # Errors
    ///
    /// Those of `writer`.
    ///
    /// ```
    /// use qrita_delta_tables::DeltaTables;
    ///
    /// let mut bytes = Vec::new();
    /// DeltaTables::normal().to_writer(&mut bytes)?;
    /// assert_eq!(DeltaTables::from_slice(&bytes)?, DeltaTables::normal());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to_writer(&self, writer: impl Write) -> io::Result<()> {
        serde_json::to_writer(writer, self).map_err(io::Error::from)
    }

    /// Reads a table from the bytes of its JSON. Any bytes are safe to pass.
    ///
    /// # Errors
    ///
    /// [`Error::NotATable`] for anything but the JSON of a delta table, [`Error::Version`] for one of another layout and
    /// [`Error::Corrupt`] for one whose numbers do not make a table.
    ///
    /// ```
    /// use qrita_delta_tables::{DeltaTables, Error};
    ///
    /// let foreign = DeltaTables::from_slice(br#"{"vocab_size": 262144}"#);
    /// assert!(matches!(foreign, Err(Error::NotATable { .. })));
    /// ```
    pub fn from_slice(bytes: &[u8]) -> Result<Self, Error> {
        let file: TableFile = marked::from_slice(bytes, DeltaTables::FORMAT, DeltaTables::VERSION)?;
        Self::try_from(file)
    }

    /// Saves the table to `path`: all of it or, after an error, nothing.
    ///
    /// It is written beside `path` under a temporary name, flushed to disk and renamed, which replaces a file of that name (and
    /// a symbolic link itself, not its target).
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the folder cannot be written to, the disk is full, or `path` names no file.
    ///
    /// ```
    /// use qrita_delta_tables::DeltaTables;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("normal.json");
    /// DeltaTables::normal().save(&path)?;
    /// assert_eq!(DeltaTables::load(&path)?, DeltaTables::normal());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        self.replace(path).map_err(|source| io_error(path, source))
    }

    /// Loads a table that [`DeltaTables::save`] wrote.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the file cannot be read, else those of [`DeltaTables::from_slice`]. A file of more than 64 MiB is not
    /// a table.
    ///
    /// ```
    /// use qrita_delta_tables::{DeltaTables, Error};
    ///
    /// assert!(matches!(DeltaTables::load("no/such/table.json"), Err(Error::Io { .. })));
    /// ```
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::from_slice(&marked::read(path.as_ref(), MAX_BYTES)?)
    }

    fn replace(&self, path: &Path) -> io::Result<()> {
        let temporary = temporary_beside(path)?;
        let file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
        self.write_through(file).and_then(|()| fs::rename(&temporary, path)).inspect_err(|_| {
            // The first error is the one to report; a temporary file that cannot be removed either is only litter.
            let _ = fs::remove_file(&temporary);
        })
    }

    fn write_through(&self, file: File) -> io::Result<()> {
        let mut writer = io::BufWriter::new(file);
        self.to_writer(&mut writer)?;
        let mut file = writer.into_inner().map_err(|error| error.into_error())?;
        file.write_all(b"\n")?;
        // A rename can reach the disk before the content does: without this, a power cut leaves an empty table.
        file.sync_all()
    }
}

fn temporary_beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"))?;
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    let save = SAVES.fetch_add(1, Ordering::Relaxed);
    temporary.push(format!(".{}-{save}.tmp", std::process::id()));
    Ok(path.with_file_name(temporary))
}

fn io_error(path: &Path, source: io::Error) -> Error {
    Error::Io { path: path.to_owned(), source }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Error {
        match fault {
            Fault::Io { path, source } => Error::Io { path, source },
            Fault::Foreign(why) => Error::NotATable { why },
            Fault::Version(found) => Error::Version { found, expected: DeltaTables::VERSION },
            Fault::Corrupt(what) => Error::Corrupt { what },
        }
    }
}

/// f32 lists as the f64 that they equal.
pub(crate) mod exact_f32 {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(values: &[f32], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(values.iter().map(|&value| f64::from(value)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f32>, D::Error> {
        // A number beyond f32 becomes an infinity, which the check refuses.
        let wide = Vec::<f64>::deserialize(from)?;
        Ok(wide.into_iter().map(|value| value as f32).collect())
    }
}

/// An f64 as the shortest decimal text that std parses back to it.
pub(crate) mod decimal_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(value: &f64, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
        // Owned, not &str: a text with an escape in it cannot be borrowed.
        let text = String::deserialize(from)?;
        text.parse().map_err(D::Error::custom)
    }
}
