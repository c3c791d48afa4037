//! Delta tables: arbitrary bytes, tables that are nearly right, and one that is right with some of its bytes replaced.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use qrita_delta_tables::DeltaTables;

#[derive(Debug, Arbitrary)]
enum File<'a> {
    /// Anything.
    Bytes(&'a [u8]),
    /// Small tables of these numbers.
    Built { ratio: Vec<u8>, p: Vec<u8>, sigma: Vec<u8>, values: Vec<f32>, sorted: bool },
    /// A table with these bytes put in place of as many as `removed` at each place.
    Edited(Vec<Edit<'a>>),
}

#[derive(Debug, Arbitrary)]
struct Edit<'a> {
    place: u16,
    removed: u8,
    bytes: &'a [u8],
}

/// A table as small as a table can be, so that the fuzzer is not slowed down by reading numbers.
const TABLE: &[u8] = br#"{"format":"qrita-delta-tables","version":1,
"provenance":{"kind":"fitted","description":"a model","rows":9,"skipped":0,"coverage":"0.99"},
"top_k":{"ratio":[0.25,0.5],"delta":[0.5,-0.5]},
"top_p":{"p":[0.5,0.75],"sigma":[0.0,2.0],"offset":[0.0,-0.75,0.25,-0.5]}}"#;

fn edited(edits: &[Edit<'_>]) -> Vec<u8> {
    let mut bytes = TABLE.to_vec();
    for Edit { place, removed, bytes: new } in edits {
        let start = usize::from(*place) % (bytes.len() + 1);
        let end = (start + usize::from(*removed)).min(bytes.len());
        bytes.splice(start..end, new.iter().copied());
    }
    bytes
}

/// The numbers as a grid that increases, where `sorted`, in steps of 1/256.
fn grid(numbers: &[u8], sorted: bool) -> Vec<f32> {
    let mut numbers = numbers.to_vec();
    if sorted {
        numbers.sort_unstable();
        numbers.dedup();
    }
    numbers.iter().map(|&number| f32::from(number) / 256.0).collect()
}

/// As many of the values as `length`, over and over where there are fewer, falling within each cell where `sorted`.
fn fall(values: &[f32], length: usize, cell: usize, sorted: bool) -> Vec<f32> {
    let mut values: Vec<f32> = values.iter().copied().cycle().take(length).collect();
    if sorted {
        values.chunks_mut(cell.max(1)).for_each(|cell| cell.sort_by(|a, b| b.total_cmp(a)));
    }
    values
}

fn built(ratio: &[u8], p: &[u8], sigma: &[u8], values: &[f32], sorted: bool) -> Vec<u8> {
    let (ratio, p, sigma) = (grid(ratio, sorted), grid(p, sorted), grid(sigma, sorted));
    let delta = fall(values, ratio.len(), ratio.len(), sorted);
    let offset = fall(values, p.len() * sigma.len(), p.len(), sorted);
    let (format, version) = (DeltaTables::FORMAT, DeltaTables::VERSION);
    let (head, top_k, top_p) = (
        format!(r#""format":"{format}","version":{version},"provenance":{{"kind":"normal"}}"#),
        format!(r#""ratio":{ratio:?},"delta":{delta:?}"#),
        format!(r#""p":{p:?},"sigma":{sigma:?},"offset":{offset:?}"#),
    );
    format!(r#"{{{head},"top_k":{{{top_k}}},"top_p":{{{top_p}}}}}"#).into_bytes()
}

fn check(bytes: &[u8]) {
    let Ok(tables) = DeltaTables::from_slice(bytes) else { return };
    let mut written = Vec::new();
    tables.to_writer(&mut written).expect("memory takes all that is written");
    assert_eq!(DeltaTables::from_slice(&written).expect("a table reads what it wrote"), tables);

    for vocab in [1, 2, 1000, 262_144] {
        let mut before = f32::INFINITY;
        for k in [1, 2, 50, 999, 1000, 262_143] {
            let delta = tables.top_k(k, vocab);
            // Also false for NaN.
            assert!(delta <= before, "delta rises to {delta} at k = {k} of {vocab}");
            before = delta;
        }
    }
    for sigma in [f32::NAN, -1.0, 0.0, 0.01, 1.0, 3.3, 100.0, f32::INFINITY] {
        let mut before = f32::INFINITY;
        for p in [0.0, 1e-6, 0.1, 0.5, 0.9, 0.999_999, 1.0, f32::NAN] {
            let delta = tables.top_p(p, sigma);
            assert!(delta <= before, "delta rises to {delta} at p = {p}, sigma = {sigma}");
            before = delta;
        }
    }
}

fuzz_target!(init: assert!(DeltaTables::from_slice(TABLE).is_ok()), |file: File<'_>| {
    match file {
        File::Bytes(bytes) => check(bytes),
        File::Built { ratio, p, sigma, values, sorted } => check(&built(&ratio, &p, &sigma, &values, sorted)),
        File::Edited(edits) => check(&edited(&edits)),
    }
});
