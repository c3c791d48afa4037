//! The bytes of the file of logits.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use qrita_cli::Contents;

use crate::failure::Failure;

/// A file of logits.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Mapped(Mmap),
    Read(Vec<u8>),
}

impl Source {
    /// Maps a file; reads what can not be mapped, such as a pipe.
    pub(crate) fn open(path: &Path) -> Result<Source, Failure> {
        let failure = |source| Failure::Open { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(failure)?;
        let metadata = file.metadata().map_err(failure)?;
        if metadata.is_dir() {
            return Err(Failure::Directory(path.to_owned()));
        }
        let bytes = if metadata.is_file() && metadata.len() > 0 {
            // SAFETY: the map is only read. What no program can rule out is another process that writes to the file
            // meanwhile: shortening it ends this process with SIGBUS, other changes give other logits. Logits are plain
            // numbers, so that no bytes are invalid, and every shape is checked against the length mapped. The
            // command's own outputs replace files by renaming, which leaves the mapped one as it is.
            Bytes::Mapped(unsafe { Mmap::map(&file) }.map_err(failure)?)
        } else {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).map_err(failure)?;
            Bytes::Read(bytes)
        };
        Ok(Source { path: path.to_owned(), bytes })
    }

    /// Its path, for errors.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The tensors in it.
    pub(crate) fn contents(&self) -> Result<Contents<'_>, Failure> {
        let bytes = match &self.bytes {
            Bytes::Mapped(map) => &map[..],
            Bytes::Read(bytes) => bytes,
        };
        qrita_cli::read(bytes).map_err(|source| Failure::Read { path: self.path.clone(), source })
    }
}

/// A small text file.
pub(crate) fn read_text(path: &Path) -> Result<Vec<u8>, Failure> {
    if path.is_dir() {
        return Err(Failure::Directory(path.to_owned()));
    }
    fs::read(path).map_err(|source| Failure::Open { path: path.to_owned(), source })
}
