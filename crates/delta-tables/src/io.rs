//! Tables on disk: one JSON object, readable by people and by other programs.
//!
//! JSON has no infinities and no f32, and `serde_json`'s number parser may be one unit off in f64. So: a table has no infinite
//! entry (the grids end below 1); an f32 is written as the f64 it equals, whose neighbours in f64 all round back to the same
//! f32; and the one f64, the coverage, is written as text, which std parses exactly. A table thus survives a save and a load
//! bit for bit.
//!
//! A file is read in two steps, marker and version first, so that a foreign file, a file of another release and a damaged
//! file are three different errors. It is written under a temporary name and renamed, so that a reader never sees half a
//! table and a failed save leaves the old one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Error;
use crate::table::{DeltaTables, Provenance, TopK, TopP};

/// The most bytes that [`DeltaTables::load`] reads. A table takes a quarter of a MiB; a path to something endless, or to a
/// model's weights, must not fill memory first.
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

/// What is read first: enough to tell whose file it is.
#[derive(Deserialize)]
struct Header {
    #[serde(default)]
    format: Value,
    #[serde(default)]
    version: Value,
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
        check_format(&Value::String(file.format))?;
        check_version(file.version)?;
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
        let header: Header =
            serde_json::from_slice(bytes).map_err(|error| Error::NotATable { why: error.to_string() })?;
        check_format(&header.format)?;
        let version = header
            .version
            .as_u64()
            .ok_or_else(|| Error::corrupt(format!("its version is {}, not a number", header.version)))?;
        check_version(version)?;
        let file: TableFile = serde_json::from_slice(bytes).map_err(|error| Error::corrupt(error.to_string()))?;
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
        let path = path.as_ref();
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
            .map_err(|source| io_error(path, source))?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(Error::NotATable { why: format!("it has more than {MAX_BYTES} bytes") });
        }
        Self::from_slice(&bytes)
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

fn check_format(found: &Value) -> Result<(), Error> {
    match found {
        Value::String(format) if format == DeltaTables::FORMAT => Ok(()),
        _ => Err(Error::NotATable { why: format!("it lacks the marker \"{}\"", DeltaTables::FORMAT) }),
    }
}

fn check_version(found: u64) -> Result<(), Error> {
    if found == u64::from(DeltaTables::VERSION) {
        Ok(())
    } else {
        Err(Error::Version { found, expected: DeltaTables::VERSION })
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
