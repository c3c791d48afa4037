//! npy files, as arbitrary bytes and as headers that are nearly right.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

const MAGIC: &[u8] = b"\x93NUMPY";

#[derive(Debug, Arbitrary)]
enum File<'a> {
    /// The magic before anything.
    Bytes(&'a [u8]),
    /// A version and the right length before anything.
    Header { wide: bool, header: &'a str, data: &'a [u8] },
    /// An array whose shape need not fit its data.
    Array { descr: Descr, fortran: bool, shape: Vec<Dim>, data: &'a [u8], fits: bool },
}

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Descr {
    F4,
    F2,
    BigEndian,
    Other,
}

#[derive(Debug, Arbitrary)]
enum Dim {
    Small(u8),
    Any(u64),
}

impl Dim {
    fn value(&self) -> u64 {
        match *self {
            Dim::Small(dim) => u64::from(dim % 16),
            Dim::Any(dim) => dim,
        }
    }
}

fn framed(wide: bool, header: &str, data: &[u8]) -> Vec<u8> {
    let length = header.len() as u32;
    let prefix = match wide {
        true => [&[2, 0][..], &length.to_le_bytes()].concat(),
        false => [&[1, 0][..], &(length as u16).to_le_bytes()].concat(),
    };
    [MAGIC, &prefix, header.as_bytes(), data].concat()
}

fn array(descr: Descr, fortran: bool, shape: &[Dim], data: &[u8], fits: bool) -> Vec<u8> {
    let (descr, size) = match descr {
        Descr::F4 => ("<f4", 4),
        Descr::F2 => ("<f2", 2),
        Descr::BigEndian => (">f4", 4),
        Descr::Other => ("|O", 8),
    };
    let fortran = if fortran { "True" } else { "False" };
    let dims: String = shape.iter().map(|dim| format!("{}, ", dim.value())).collect();
    let header = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': ({dims}), }}\n");
    let mut data = data.to_vec();
    let needed = shape.iter().try_fold(size, |bytes: u64, dim| bytes.checked_mul(dim.value()));
    // As much data as the header speaks of, where that is no more than a fuzzer should allocate.
    if let Some(needed) = needed.filter(|&needed| fits && needed <= 1 << 16) {
        data.resize(needed as usize, 0x3F);
    }
    framed(false, &header, &data)
}

fuzz_target!(|file: File<'_>| {
    let bytes = match file {
        File::Bytes(bytes) => [MAGIC, bytes].concat(),
        File::Header { wide, header, data } => framed(wide, header, data),
        File::Array { descr, fortran, shape, data, fits } => array(descr, fortran, &shape, data, fits),
    };
    qrita_fuzz::read_tensors(&bytes);
});
