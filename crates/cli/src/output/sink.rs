//! Standard output and new files.

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, StdoutLock, Write};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Where text goes.
#[derive(Debug)]
pub(crate) enum Sink {
    Stdout(BufWriter<StdoutLock<'static>>),
    File(NewFile),
}

impl Sink {
    /// A new file, or standard output.
    pub(crate) fn open(path: Option<&Path>) -> Result<Sink, Failure> {
        Ok(match path {
            None => Sink::Stdout(BufWriter::new(io::stdout().lock())),
            Some(path) => Sink::File(NewFile::create(path)?),
        })
    }

    /// Writes something.
    pub(crate) fn write(&mut self, text: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
        match self {
            Sink::Stdout(out) => text(out).map_err(Failure::Stdout),
            Sink::File(file) => file.write(|out| text(out)),
        }
    }

    /// Ends the output. A file gets its name only now.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        match self {
            Sink::Stdout(mut out) => out.flush().map_err(Failure::Stdout),
            Sink::File(file) => file.finish(),
        }
    }
}

/// A file that appears under its name when it is complete, and not at all after an error. That also leaves alone an
/// input of the same name, which may be mapped.
#[derive(Debug)]
pub(crate) struct NewFile {
    path: PathBuf,
    temporary: PathBuf,
    out: BufWriter<File>,
}

impl NewFile {
    pub(crate) fn create(path: &Path) -> Result<NewFile, Failure> {
        let refuse = |kind, why| Err(Failure::Write { path: path.to_owned(), source: io::Error::new(kind, why) });
        let Some(name) = path.file_name() else {
            return refuse(io::ErrorKind::InvalidInput, "it is not the name of a file");
        };
        if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
            return refuse(io::ErrorKind::AlreadyExists, "there is something of this name that is not a file");
        }
        // The same directory: a rename does not cross file systems.
        let mut temporary = std::ffi::OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{}.partial", std::process::id()));
        let temporary = path.with_file_name(temporary);
        let file = File::create_new(&temporary).map_err(|source| Failure::Write { path: path.to_owned(), source })?;
        Ok(NewFile { path: path.to_owned(), temporary, out: BufWriter::new(file) })
    }

    /// Writes at the current end.
    pub(crate) fn write(&mut self, bytes: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<(), Failure> {
        bytes(&mut self.out).map_err(|source| Failure::Write { path: self.path.clone(), source })
    }

    /// Writes at an offset.
    pub(crate) fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Failure> {
        self.write(|out| {
            out.seek(SeekFrom::Start(offset))?;
            out.write_all(bytes)
        })
    }

    /// Gives the file its name.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.write(Write::flush)?;
        fs::rename(&self.temporary, &self.path).map_err(|source| Failure::Write { path: self.path.clone(), source })
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // After a rename there is nothing of this name; otherwise an error is on its way that matters more.
        let _ = fs::remove_file(&self.temporary);
    }
}
