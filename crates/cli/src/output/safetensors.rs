//! safetensors files, written piece by piece: the header needs the shapes alone, so the data never has to fit memory.

use std::io::Write;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::output::sink::NewFile;

/// A tensor to write.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
}

/// The types that the command writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dtype {
    I32,
    Logits(qrita::Dtype),
}

impl Dtype {
    pub(crate) const F32: Dtype = Dtype::Logits(qrita::Dtype::F32);

    fn size(self) -> usize {
        match self {
            Dtype::I32 => 4,
            Dtype::Logits(dtype) => dtype.size(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Dtype::I32 => "I32",
            Dtype::Logits(qrita::Dtype::F32) => "F32",
            Dtype::Logits(qrita::Dtype::F16) => "F16",
            Dtype::Logits(qrita::Dtype::Bf16) => "BF16",
        }
    }
}

/// A safetensors file in the making.
#[derive(Debug)]
pub(crate) struct SafetensorsWriter {
    file: NewFile,
    /// Where each tensor's data goes next.
    cursors: Vec<u64>,
}

impl SafetensorsWriter {
    /// Starts a file of these tensors.
    pub(crate) fn create(path: &Path, specs: &[Spec]) -> Result<SafetensorsWriter, Failure> {
        // Wider types first, as the format's own writer does: every tensor is then aligned to its type.
        let mut order: Vec<usize> = (0..specs.len()).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(specs[i].dtype.size()));
        let mut header = Map::new();
        let mut cursors = vec![0; specs.len()];
        let mut end = 0u64;
        for i in order {
            let Spec { name, dtype, shape } = &specs[i];
            cursors[i] = end;
            end += shape.iter().map(|&dim| dim as u64).product::<u64>() * dtype.size() as u64;
            let entry = json!({"dtype": dtype.name(), "shape": shape, "data_offsets": [cursors[i], end]});
            header.insert(name.clone(), entry);
        }
        let mut header = Value::Object(header).to_string().into_bytes();
        header.resize(header.len().next_multiple_of(8), b' ');
        let data = 8 + header.len() as u64;
        for cursor in &mut cursors {
            *cursor += data;
        }
        let mut file = NewFile::create(path)?;
        file.write(|out| {
            out.write_all(&(header.len() as u64).to_le_bytes())?;
            out.write_all(&header)
        })?;
        Ok(SafetensorsWriter { file, cursors })
    }

    /// Appends to the tensor with this index among the specs.
    pub(crate) fn append(&mut self, tensor: usize, bytes: &[u8]) -> Result<(), Failure> {
        self.file.write_at(self.cursors[tensor], bytes)?;
        self.cursors[tensor] += bytes.len() as u64;
        Ok(())
    }

    /// Gives the file its name.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        self.file.finish()
    }
}

/// The name of an output tensor: `name` alone when the run has one tensor, else with the tensor's before it.
pub(crate) fn output_name(tensor: &str, name: &str, several: bool) -> String {
    if several { format!("{tensor}.{name}") } else { name.to_owned() }
}
