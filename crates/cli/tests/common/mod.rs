//! Files of logits, and the command run on them.
// Each test binary uses its own part.
#![allow(dead_code, missing_docs)]

use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;
use safetensors::tensor::{Dtype, TensorView};
use tempfile::TempDir;

pub(crate) const INF: f32 = f32::INFINITY;

/// The logits of three models that the repository holds.
pub(crate) fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/real_logits_small.safetensors")
}

/// A folder for the files of one test.
pub(crate) struct Files(TempDir);

impl Files {
    pub(crate) fn new() -> Files {
        Files(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// The names of all files, hidden ones too.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// A safetensors file with one tensor `logits` of f32.
    pub(crate) fn logits(&self, name: &str, shape: &[usize], values: &[f32]) -> PathBuf {
        self.write(name, safetensors(&[("logits", Dtype::F32, shape, &f32_bytes(values))]))
    }
}

/// A safetensors file by its own crate.
pub(crate) fn safetensors(tensors: &[(&str, Dtype, &[usize], &[u8])]) -> Vec<u8> {
    safetensors::serialize(
        tensors.iter().map(|&(name, dtype, shape, data)| (name, TensorView::new(dtype, shape.to_vec(), data).unwrap())),
        None,
    )
    .unwrap()
}

/// An npy file by npyz.
pub(crate) fn npy<T: npyz::AutoSerialize + Copy>(shape: &[u64], values: &[T], order: npyz::Order) -> Vec<u8> {
    use npyz::WriterBuilder;
    let mut bytes = Vec::new();
    let mut writer =
        npyz::WriteOptions::new().default_dtype().order(order).shape(shape).writer(&mut bytes).begin_nd().unwrap();
    writer.extend(values.iter().copied()).unwrap();
    writer.finish().unwrap();
    bytes
}

/// An npy file with this header and data.
pub(crate) fn raw_npy(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.bytes());
    bytes.extend(data);
    bytes
}

pub(crate) fn f32_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Runs the command.
pub(crate) fn run<A: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = A>) -> Output {
    Command::new(assert_cmd::cargo::cargo_bin!("qrita")).args(args).output().unwrap()
}

/// Runs `qrita SUBCOMMAND FILE ARGS…`, the arguments divided at spaces, which must succeed: what it prints.
pub(crate) fn prints(subcommand: &str, file: &Path, args: &str) -> String {
    let mut all = vec![subcommand.into(), file.as_os_str().to_owned()];
    all.extend(args.split_whitespace().map(Into::into));
    let output = run(&all);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{all:?}: {errors}");
    assert_eq!(errors, "", "{all:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs the command, which must fail with this code and one line of error, and returns the line.
pub(crate) fn fails<A: AsRef<std::ffi::OsStr> + std::fmt::Debug>(code: i32, args: &[A]) -> String {
    let output = run(args);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{args:?}");
    let line = errors.strip_suffix('\n').unwrap_or_else(|| panic!("{args:?}: no whole line: {errors:?}"));
    assert!(!line.contains('\n'), "{args:?}: more than a line: {errors}");
    line.strip_prefix("error: ").unwrap_or_else(|| panic!("{args:?}: {line}")).to_owned()
}
