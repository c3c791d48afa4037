//! npy files, written piece by piece: how many elements there are is filled in at the end.

use std::io::Write;
use std::path::Path;

use crate::failure::Failure;
use crate::output::sink::NewFile;

/// The format's alignment of the data.
const ALIGNMENT: usize = 64;
/// Room for a header with a short type, and so of most files.
const HEADER: usize = 256;
/// Room for all of a header but its type: two dimensions of 20 digits among it.
const AROUND: usize = 112;

/// An npy file in the making.
#[derive(Debug)]
pub(crate) struct NpyWriter {
    file: NewFile,
    descr: String,
    header: usize,
}

impl NpyWriter {
    /// Starts a file of elements of this type, a Python literal.
    pub(crate) fn create(path: &Path, descr: &str) -> Result<NpyWriter, Failure> {
        let header = (AROUND + descr.len()).next_multiple_of(ALIGNMENT).max(HEADER);
        let mut file = NewFile::create(path)?;
        file.write(|out| out.write_all(&vec![b' '; header]))?;
        Ok(NpyWriter { file, descr: descr.to_owned(), header })
    }

    /// Appends elements.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.file.write(|out| out.write_all(bytes))
    }

    /// Gives the array its shape and the file its name.
    pub(crate) fn finish(mut self, shape: &[usize]) -> Result<(), Failure> {
        let dims: String = shape.iter().map(|dim| format!("{dim}, ")).collect();
        let header = format!("{{'descr': {}, 'fortran_order': False, 'shape': ({dims}), }}", self.descr);
        // Magic, version 1.0, and the length of what follows: the text, padded, and a line feed.
        let mut start = b"\x93NUMPY\x01\x00".to_vec();
        let text = self.header - start.len() - 2;
        start.extend((text as u16).to_le_bytes());
        start.extend(format!("{header:<width$}\n", width = text - 1).bytes());
        self.file.write_at(0, &start)?;
        self.file.finish()
    }
}
