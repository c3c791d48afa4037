//! safetensors files, as arbitrary bytes and as headers that are nearly right.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
enum File<'a> {
    /// Anything.
    Bytes(&'a [u8]),
    /// The right length before anything.
    Header { header: &'a str, data: &'a [u8] },
    /// Tensors whose shapes and offsets need not fit.
    Tensors { tensors: Vec<Tensor>, data: &'a [u8] },
}

#[derive(Debug, Arbitrary)]
struct Tensor {
    name: u8,
    dtype: Dtype,
    shape: Shape,
    /// Where its data ends, if not where its shape says.
    end: Option<u64>,
}

#[derive(Debug, Arbitrary)]
#[allow(clippy::upper_case_acronyms)]
enum Dtype {
    F32,
    F16,
    BF16,
    I64,
}

#[derive(Debug, Arbitrary)]
enum Shape {
    Small(u8, u8),
    Positions(u8, u8, u8),
    Any(Vec<u64>),
}

impl Shape {
    fn dims(&self) -> Vec<u64> {
        match self {
            Shape::Small(rows, vocab) => [rows, vocab].map(|dim| u64::from(dim % 16)).to_vec(),
            Shape::Positions(rows, positions, vocab) => [rows, positions, vocab].map(|dim| u64::from(dim % 8)).to_vec(),
            Shape::Any(dims) => dims.clone(),
        }
    }
}

fn framed(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

fn described(tensors: &[Tensor], data: &[u8]) -> Vec<u8> {
    let mut start = 0u64;
    let mut entries = Vec::new();
    for Tensor { name, dtype, shape, end } in tensors {
        let size = match dtype {
            Dtype::F16 | Dtype::BF16 => 2,
            Dtype::F32 => 4,
            Dtype::I64 => 8,
        };
        let bytes = shape.dims().iter().fold(size, |bytes: u64, &dim| bytes.wrapping_mul(dim));
        let end = end.unwrap_or(start.wrapping_add(bytes));
        let shape = shape.dims();
        entries.push(format!(r#""{name}":{{"dtype":"{dtype:?}","shape":{shape:?},"data_offsets":[{start},{end}]}}"#));
        start = end;
    }
    let mut data = data.to_vec();
    // As much data as the header speaks of, where that is no more than a fuzzer should allocate.
    if let Some(needed) = usize::try_from(start).ok().filter(|&needed| needed <= 1 << 16) {
        data.resize(needed, 0x3F);
    }
    framed(&format!("{{{}}}", entries.join(",")), &data)
}

fuzz_target!(|file: File<'_>| {
    match file {
        File::Bytes(bytes) => qrita_fuzz::read_tensors(bytes),
        File::Header { header, data } => qrita_fuzz::read_tensors(&framed(header, data)),
        File::Tensors { tensors, data } => qrita_fuzz::read_tensors(&described(&tensors, data)),
    }
});
