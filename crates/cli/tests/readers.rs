//! The readers: what they find in good files, what they say of bad ones, and that no bytes make them panic.
#![allow(missing_docs)]

mod common;

use common::{f32_bytes, npy, raw_npy, safetensors};
use proptest::prelude::*;
use qrita::{Dtype, Logits, bf16, f16};
use qrita_cli::{Format, ReadError, SelectError, Unfit, read, read_params};
use safetensors::tensor::Dtype as Stored;

/// Every row that is read, whatever its dtype and stride.
fn rows(logits: &Logits<'_>) -> Vec<Vec<f32>> {
    (0..logits.rows()).map(|row| (0..logits.vocab()).map(|id| logits.row(row).get(id)).collect()).collect()
}

#[test]
fn safetensors_of_every_dtype_and_shape() {
    let values: Vec<f32> = (0..12).map(|i| i as f32 / 4.0 - 1.0).collect();
    let f16_bytes: Vec<u8> = values.iter().flat_map(|&y| f16::from_f32(y).to_le_bytes()).collect();
    let bf16_bytes: Vec<u8> = values.iter().flat_map(|&y| bf16::from_f32(y).to_le_bytes()).collect();
    let bytes = safetensors(&[
        ("c", Stored::F32, &[3, 4], &f32_bytes(&values)),
        ("a", Stored::F16, &[12], &f16_bytes),
        ("b", Stored::BF16, &[2, 3, 2], &bf16_bytes),
        ("ids", Stored::I64, &[1], &[0; 8]),
    ]);
    let contents = read(&bytes).unwrap();
    assert_eq!(contents.format(), Format::Safetensors);
    let tensors = contents.select(&[]).unwrap();
    let found: Vec<_> = tensors.iter().map(|t| (t.name(), t.dtype(), t.rows(), t.vocab(), t.is_one_row())).collect();
    assert_eq!(
        found,
        [("a", Dtype::F16, 1, 12, true), ("b", Dtype::Bf16, 2, 2, false), ("c", Dtype::F32, 3, 4, false)]
    );
    assert_eq!(rows(&tensors[0].read(0..1).logits().unwrap()), [&values[..]]);
    // Of three positions the last one.
    for rows_read in [tensors[1].read(0..2), tensors[1].copy(0..2)] {
        assert_eq!(rows(&rows_read.logits().unwrap()), [&values[4..6], &values[10..12]]);
    }
    assert_eq!(rows(&tensors[2].read(1..3).logits().unwrap()), [&values[4..8], &values[8..12]]);
    assert_eq!(rows(&tensors[2].read(1..1).logits().unwrap()), Vec::<Vec<f32>>::new());
}

#[test]
fn data_at_any_address_reads_the_same() {
    let values: Vec<f32> = (0..10).map(|i| (i as f32).sqrt()).collect();
    for padding in 0..8 {
        let mut bytes = Vec::new();
        let header = r#"{"x":{"dtype":"F32","shape":[2,5],"data_offsets":[0,40]}}"#;
        let header = format!("{header}{}", " ".repeat(padding));
        bytes.extend((header.len() as u64).to_le_bytes());
        bytes.extend(header.bytes());
        bytes.extend(f32_bytes(&values));
        let contents = read(&bytes).unwrap();
        let tensor = contents.select(&[]).unwrap()[0].read(0..2);
        assert_eq!(rows(&tensor.logits().unwrap()), [&values[..5], &values[5..]], "padding {padding}");
    }
}

#[test]
fn npy_as_another_writer_writes_it() {
    let values = [0.5f32, -1.0, f32::NAN, f32::INFINITY, 2.0, 3.0];
    let bytes = npy(&[2, 3], &values, npyz::Order::C);
    let contents = read(&bytes).unwrap();
    assert_eq!(contents.format(), Format::Npy);
    let tensor = contents.select(&["logits".to_owned()]).unwrap()[0];
    assert_eq!((tensor.rows(), tensor.vocab(), tensor.dtype()), (2, 3, Dtype::F32));
    assert_eq!(tensor.read(0..2).bytes(), f32_bytes(&values));
}

#[test]
fn bad_files_are_named() {
    let data = f32_bytes(&[1.0, 2.0]);
    let good = safetensors(&[("x", Stored::F32, &[1, 2], &data)]);
    let header = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes(), &data].concat();
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (vec![], "empty"),
        (b"PK\x03\x04....".to_vec(), "zip archive"),
        (b"GGUF\x03\0\0\0\0\0\0\0".to_vec(), "neither a safetensors nor an npy"),
        (vec![0; 100], "neither a safetensors nor an npy"),
        (good[..good.len() - 1].to_vec(), "cut short"),
        (good[..20].to_vec(), "cut short"),
        ([&good[..], b"x"].concat(), "something behind"),
        ([&u64::MAX.to_le_bytes()[..], b"{}"].concat(), "100 MB"),
        (header("{nonsense"), "not the JSON"),
        (header(r#"{"x":{"dtype":"F32","shape":[1,2],"data_offsets":[4,12]}}"#), "offsets"),
        (header(r#"{"x":{"dtype":"F32","shape":[1,2],"data_offsets":[8,0]}}"#), "offsets"),
        (header(r#"{"x":{"dtype":"F32","shape":[1,3],"data_offsets":[0,8]}}"#), "does not fit"),
        (header(r#"{"x":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}}"#), "larger than memory"),
        (b"\x93NUMPY\x01".to_vec(), "cut short"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{".to_vec(), "cut short"),
        (b"\x93NUMPY\x09\x00\x00\x00".to_vec(), "version is 9.0"),
        (raw_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3)}", &data), "takes 12 bytes"),
        (
            raw_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", &data),
            "more bytes than memory",
        ),
        (raw_npy("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (2,)}", &data), "structured"),
        (raw_npy(&"(".repeat(60_000), &data), "where `{` belongs"),
        (raw_npy("\u{fe}", &[]), "where `{` belongs"),
    ];
    for (bytes, expected) in cases {
        let error = read(&bytes).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert_eq!(read(b"").unwrap_err(), ReadError::Empty);
}

#[test]
fn tensors_that_are_no_logits_are_named() {
    let none: &[u8] = &[];
    let unfit = |bytes: &[u8]| match read(bytes).unwrap().select(&[]).unwrap_err() {
        SelectError::Unfit { unfit, .. } => unfit,
        error => panic!("{error}"),
    };
    assert_eq!(unfit(&safetensors(&[("x", Stored::I64, &[1], &[0; 8])])), Unfit::Dtype("i64".to_owned()));
    assert_eq!(unfit(&safetensors(&[("x", Stored::F64, &[1], &[0; 8])])), Unfit::Dtype("f64".to_owned()));
    assert_eq!(unfit(&safetensors(&[("x", Stored::F32, &[], &[0; 4])])), Unfit::Dimensions(0));
    assert_eq!(unfit(&safetensors(&[("x", Stored::F32, &[1, 1, 1, 1], &[0; 4])])), Unfit::Dimensions(4));
    assert_eq!(unfit(&safetensors(&[("x", Stored::F32, &[3, 0], none)])), Unfit::Vocab(0));
    assert_eq!(unfit(&safetensors(&[("x", Stored::F32, &[0, 2_097_153], none)])), Unfit::Vocab(2_097_153));
    assert_eq!(unfit(&safetensors(&[("x", Stored::F32, &[3, 0, 5], none)])), Unfit::NoPosition);
    let npy = |descr: &str, fortran: &str, data: &[u8]| {
        raw_npy(&format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': (2, 2)}}"), data)
    };
    assert_eq!(unfit(&npy(">f4", "False", &[0; 16])), Unfit::BigEndian(">f4".to_owned()));
    assert_eq!(unfit(&npy("<f4", "True", &[0; 16])), Unfit::FortranOrder);
    assert_eq!(unfit(&npy("<i4", "False", &[0; 16])), Unfit::Dtype("<i4".to_owned()));
    assert_eq!(unfit(&npy("|O", "False", &[0; 3])), Unfit::Dtype("|O".to_owned()));

    let two = safetensors(&[("x", Stored::I64, &[1], &[0; 8]), ("y", Stored::U8, &[2], &[0; 2])]);
    let error = read(&two).unwrap().select(&[]).unwrap_err();
    assert_eq!(error, SelectError::None { have: "`x` i64 [1], `y` u8 [2]".to_owned() });
    let error = read(&two).unwrap().select(&["z".to_owned()]).unwrap_err();
    assert!(matches!(error, SelectError::NoSuchTensor { .. }), "{error}");
}

#[test]
fn the_order_of_one_column_does_not_matter() {
    let data = f32_bytes(&[1.0, 2.0, 3.0]);
    let bytes = raw_npy("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 3)}", &data);
    let contents = read(&bytes).unwrap();
    assert_eq!(rows(&contents.select(&[]).unwrap()[0].read(0..1).logits().unwrap()), [[1.0, 2.0, 3.0]]);
}

#[test]
fn a_tensor_without_rows_is_empty_whatever_its_other_dimensions() {
    for shape in [&[0, 7][..], &[0, usize::MAX >> 1, 2], &[0, 1 << 40, 1 << 20]] {
        let header = format!(r#"{{"x":{{"dtype":"F32","shape":{shape:?},"data_offsets":[0,0]}}}}"#);
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
        let contents = read(&bytes).unwrap();
        let tensor = contents.select(&[]).unwrap()[0];
        assert_eq!(tensor.rows(), 0);
        assert_eq!(tensor.read(0..0).logits().unwrap().rows(), 0);
        assert_eq!(tensor.copy(0..0).logits().unwrap().rows(), 0);
    }
}

#[test]
fn parameters_round_as_the_flags_do() {
    for text in ["0.9", "0.1", "0.30000001192092896", "0.7000000029802322", "1e-3"] {
        let line = format!("{{\"top_p\": {text}}}");
        let rows = read_params(line.as_bytes()).unwrap();
        assert_eq!(rows[0].top_p.unwrap().to_bits(), text.parse::<f32>().unwrap().to_bits(), "{text}");
    }
    let rows = read_params(br#"{"seed": 18446744073709551615, "position": 1, "temperature": 0, "min_p": 1}"#).unwrap();
    assert_eq!((rows[0].seed, rows[0].position), (Some(u64::MAX), Some(1)));
    assert_eq!(read_params(b"").unwrap(), []);
}

#[test]
fn bad_parameters_are_named_with_their_line() {
    let cases = [
        ("{}\n{\"topk\": 3}", 2, "unknown field `topk`"),
        ("{}\n\n{}", 2, "it is empty"),
        ("[50]", 1, "not a JSON object"),
        ("{\"top_k\": -1}", 1, "integer `-1`"),
        ("{\"top_k\": 1} x", 1, "trailing characters"),
        ("{\"top_p\": -0.5}", 1, "top_p is -0.5: it must be at least 0"),
        ("{\"top_p\": NaN}", 1, "at column"),
        ("{\"temperature\": 1e39}", 1, "number out of range"),
        ("{}\r\n{\"min_p\": 2}\r\n", 2, "min_p is 2: it must be between 0 and 1"),
        ("{\"seed\": 18446744073709551616}", 1, "invalid type: floating point"),
    ];
    for (text, line, expected) in cases {
        let error = read_params(text.as_bytes()).unwrap_err();
        assert_eq!(error.line, line, "{text}: {error}");
        assert!(error.message.contains(expected), "{text}: {error}");
    }
}

/// Whatever is read must be usable: every row of every tensor, borrowed and copied alike.
fn exercise(bytes: &[u8]) {
    let Ok(contents) = read(bytes) else { return };
    let Ok(tensors) = contents.select(&[]) else { return };
    for tensor in tensors {
        let end = tensor.rows().min(3);
        for range in [0..end, tensor.rows() - end..tensor.rows()] {
            let (read, mut copied) = (tensor.read(range.clone()), tensor.copy(range.clone()));
            let logits = read.logits().unwrap();
            assert_eq!((logits.rows(), logits.vocab()), (range.len(), tensor.vocab()));
            assert_eq!(copied.logits_mut().unwrap().shape().rows, range.len());
            assert_eq!(copied.bytes().len(), range.len() * tensor.vocab() * tensor.dtype().size());
            if range.end > range.start {
                let last = logits.row(range.len() - 1).get(tensor.vocab() - 1);
                let copied = copied.logits().unwrap().row(range.len() - 1).get(tensor.vocab() - 1);
                assert_eq!(last.to_bits(), copied.to_bits());
            }
        }
    }
}

fn header_piece() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("{".to_owned()),
        Just("}".to_owned()),
        Just("'descr': '<f4', ".to_owned()),
        Just("'descr': '<f2', ".to_owned()),
        Just("'fortran_order': False, ".to_owned()),
        Just("'fortran_order': True, ".to_owned()),
        prop::collection::vec(any::<u64>(), 0..5)
            .prop_map(|dims| format!("'shape': {dims:?}, ").replace('[', "(").replace(']', ")")),
        prop::collection::vec(0usize..5, 0..5).prop_map(|dims| {
            format!("'shape': ({}), ", dims.iter().map(|dim| format!("{dim}, ")).collect::<String>())
        }),
        ".{0,8}".prop_map(|text| text),
    ]
}

proptest! {
    #[test]
    fn arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        exercise(&bytes);
        let _ = read_params(&bytes);
    }

    #[test]
    fn arbitrary_safetensors_headers(
        dtype in prop::sample::select(vec!["F32", "F16", "BF16", "I64", "F4", "X"]),
        shape in prop::collection::vec(prop_oneof![0usize..6, any::<usize>()], 0..5),
        offsets in (prop_oneof![0usize..40, any::<usize>()], prop_oneof![0usize..40, any::<usize>()]),
        data in prop::collection::vec(any::<u8>(), 0..40),
        padding in 0usize..8,
    ) {
        let fitting = shape.iter().try_fold(2usize, |size, &dim| size.checked_mul(dim));
        for offsets in [offsets, (0, data.len()), (0, fitting.unwrap_or(0))] {
            let header = format!(
                r#"{{"x":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{},{}]}}}}{}"#,
                offsets.0, offsets.1, " ".repeat(padding)
            );
            exercise(&[&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat());
        }
    }

    #[test]
    fn arbitrary_npy_headers(
        pieces in prop::collection::vec(header_piece(), 0..6),
        shape in prop::collection::vec(0usize..4, 0..4),
        data in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        exercise(&raw_npy(&pieces.concat(), &data));
        // A good header of a shape that the data may or may not fit.
        let dims: String = shape.iter().map(|dim| format!("{dim}, ")).collect();
        let size = 2 * shape.iter().product::<usize>();
        let header = format!("{{'descr': '<f2', 'fortran_order': False, 'shape': ({dims})}}");
        exercise(&raw_npy(&header, &data[..size.min(data.len())]));
    }

    #[test]
    fn damaged_files(at in any::<prop::sample::Index>(), value in any::<u8>(), end in any::<prop::sample::Index>()) {
        let data = f32_bytes(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        for mut bytes in [
            safetensors(&[("x", Stored::F32, &[3, 2], &data), ("y", Stored::F16, &[3, 4], &data)]),
            npy(&[3, 2], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], npyz::Order::C),
        ] {
            exercise(&bytes[..end.index(bytes.len())]);
            let at = at.index(bytes.len());
            bytes[at] = value;
            exercise(&bytes);
        }
    }

    #[test]
    fn arbitrary_parameter_lines(text in "(\\{[\"a-z_:0-9.,e+ -]{0,40}\\}|.{0,20})(\n.{0,20}){0,3}") {
        if let Ok(rows) = read_params(text.as_bytes()) {
            prop_assert!(rows.iter().all(|row| row.top_p.is_none_or(|p| p >= 0.0)));
        }
    }
}
