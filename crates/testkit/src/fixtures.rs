//! Logits of real language models: bf16 rows as an engine hands them over.
//!
//! A few rows lie in the repository's `fixtures` folder. Larger files of the same kind are not part of it; where they are
//! at hand, in the folder that the environment variable `QRITA_DATA` names or in `shared/data` beside the repository,
//! [`large`] reads them.

use std::fs;
use std::path::{Path, PathBuf};

use qrita_core::bf16;
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;

/// Rows of one model.
#[derive(Clone, Debug)]
pub struct Rows {
    /// The model.
    pub model: String,
    /// Logits in a row: V.
    pub vocab: usize,
    /// The rows, one behind the other.
    pub logits: Vec<bf16>,
}

impl Rows {
    /// How many rows.
    pub fn rows(&self) -> usize {
        self.logits.len() / self.vocab
    }
}

/// An executable that was built on another machine is told where the repository lies: by `QRITA_REPOSITORY`.
fn repository() -> PathBuf {
    let built_in = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::env::var_os("QRITA_REPOSITORY").map_or_else(built_in, PathBuf::from)
}

/// The rows that the repository holds: Gemma 3 270M, Qwen2.5-Coder 0.5B, SmolLM2 135M.
///
/// # Panics
/// If the fixture is missing or damaged.
pub fn small() -> Vec<Rows> {
    read(&repository().join("fixtures/real_logits_small.safetensors"), None)
}

/// The rows of the larger files; `None` where they are absent.
///
/// # Panics
/// If a file is there and damaged.
pub fn large() -> Option<Vec<Rows>> {
    let folder = std::env::var_os("QRITA_DATA").map_or_else(|| repository().join("../shared/data"), PathBuf::from);
    let mut files: Vec<PathBuf> = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.to_string_lossy().ends_with("_wikitext2.safetensors"));
    files.sort();
    let model = |file: &PathBuf| file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let rows: Vec<Rows> = files.iter().flat_map(|file| read(file, model(file))).collect();
    if rows.is_empty() { None } else { Some(rows) }
}

fn read(file: &Path, model: Option<String>) -> Vec<Rows> {
    let bytes = fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let tensors = SafeTensors::deserialize(&bytes).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut rows: Vec<Rows> = tensors
        .tensors()
        .into_iter()
        .map(|(name, tensor)| {
            assert_eq!(tensor.dtype(), Dtype::BF16, "{name} in {}", file.display());
            let vocab = *tensor.shape().last().expect("logits have a dimension");
            let logits = tensor.data().chunks_exact(2).map(|pair| bf16::from_le_bytes([pair[0], pair[1]])).collect();
            Rows { model: model.clone().unwrap_or(name), vocab, logits }
        })
        .collect();
    rows.sort_by(|a, b| a.model.cmp(&b.model));
    rows
}
