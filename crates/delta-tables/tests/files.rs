//! Tables on disk: exact round trips, and an error of the right kind for everything that is not a table.

use std::fs;

use proptest::prelude::*;
use qrita_delta_tables::{DeltaTables, Error, Fitter};
use serde_json::{Value, json};

fn bytes(tables: &DeltaTables) -> Vec<u8> {
    let mut bytes = Vec::new();
    tables.to_writer(&mut bytes).expect("memory takes any table");
    bytes
}

fn normal_json() -> Value {
    serde_json::from_slice(&bytes(&DeltaTables::normal())).expect("it is JSON")
}

fn load(value: &Value) -> Result<DeltaTables, Error> {
    DeltaTables::from_slice(value.to_string().as_bytes())
}

/// A table small enough to mutate, with values that decimal text could lose.
fn small_json(values: &[f32]) -> Value {
    let mut falling = values.to_vec();
    falling.sort_by(|a, b| b.total_cmp(a));
    let falling: Vec<f64> = falling.iter().map(|&x| f64::from(x)).collect();
    let ratio: Vec<f64> = (1..=falling.len()).map(|i| f64::from(i as f32 / (falling.len() + 1) as f32)).collect();
    let offset = falling.repeat(2);
    json!({
        "format": DeltaTables::FORMAT,
        "version": DeltaTables::VERSION,
        "provenance": {"kind": "fitted", "description": "é\n", "rows": 3, "skipped": 0, "coverage": "0.999"},
        "top_k": {"ratio": ratio, "delta": falling},
        "top_p": {"p": ratio, "sigma": [0.0, 1.5], "offset": offset},
    })
}

#[test]
fn a_saved_table_loads_as_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("table.json");
    let mut fitter = Fitter::new("a \"file\", 3 rows");
    for scale in [1.0_f32, 2.7, 4.1] {
        fitter.push(&(0..300).map(|i| scale * (i as f32 * 0.7).sin()).collect::<Vec<_>>());
    }
    // A coverage of 17 digits.
    let fitted = fitter.finish(0.1 + 0.2).expect("rows with a scale");
    for tables in [DeltaTables::default(), fitted] {
        tables.save(&path).expect("saved, over the last one as well");
        assert_eq!(DeltaTables::load(&path).expect("loaded"), tables);
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "litter");
}

#[test]
fn serde_reads_and_checks_like_load() {
    let text = serde_json::to_string(&DeltaTables::normal()).expect("serialised");
    let back: DeltaTables = serde_json::from_str(&text).expect("deserialised");
    assert_eq!(back, DeltaTables::normal());
    let mut broken = normal_json();
    broken["top_k"]["delta"][5] = json!(100.0);
    assert!(serde_json::from_value::<DeltaTables>(broken).is_err());
    let mut foreign = normal_json();
    foreign["format"] = json!("another");
    assert!(serde_json::from_value::<DeltaTables>(foreign).is_err());
    let mut newer = normal_json();
    newer["version"] = json!(2);
    assert!(serde_json::from_value::<DeltaTables>(newer).is_err());
}

#[test]
fn foreign_bytes_are_not_a_table() {
    let whole = bytes(&DeltaTables::normal());
    let mut marked = normal_json();
    marked["format"] = json!(7);
    for foreign in [
        &b""[..],
        b"null",
        b"[]",
        b"{}",
        b"{\"format\": \"safetensors\", \"version\": 1}",
        b"\x80\x04pickle",
        &[b'['; 100_000],
        &whole[..whole.len() / 2],
        &whole[..whole.len() - 1],
        marked.to_string().as_bytes(),
    ] {
        let error = DeltaTables::from_slice(foreign).expect_err("not a table");
        assert!(matches!(error, Error::NotATable { .. }), "{error:?}");
        assert!(error.to_string().contains("DeltaTables::save"), "what to do: {error}");
    }
}

#[test]
fn another_version_says_which() {
    for found in [0, 2, u64::from(u32::MAX) + 2] {
        // Nothing but the marker is known of the layout of another version.
        let other = json!({"format": DeltaTables::FORMAT, "version": found, "tables": []});
        match load(&other) {
            Err(Error::Version { found: told, expected }) => {
                assert_eq!((told, expected), (found, DeltaTables::VERSION));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn every_broken_rule_is_corrupt_and_named() {
    let entries = |name: &str, field: &str| normal_json()[name][field].as_array().expect("a list").len();
    let (ratios, ps) = (entries("top_k", "ratio"), entries("top_p", "p"));
    let last_ratio = format!("/top_k/ratio/{}", ratios - 1);
    let last_p = format!("/top_p/p/{}", ps - 1);
    let last_of_second_cell = format!("/top_p/offset/{}", 2 * ps - 1);
    let cases: Vec<(&str, &str, Value)> = vec![
        ("/version", "version", json!("1")),
        ("/version", "version", json!(-1)),
        ("/version", "version", json!(null)),
        ("/provenance", "variant", json!({"kind": "guessed"})),
        (
            "/provenance",
            "no rows",
            json!({"kind": "fitted", "description": "", "rows": 0, "skipped": 0, "coverage": "1"}),
        ),
        (
            "/provenance",
            "coverage",
            json!({"kind": "fitted", "description": "", "rows": 1, "skipped": 0, "coverage": "NaN"}),
        ),
        (
            "/provenance",
            "coverage",
            json!({"kind": "fitted", "description": "", "rows": 1, "skipped": 0, "coverage": "1.5"}),
        ),
        (
            "/provenance",
            "invalid",
            json!({"kind": "fitted", "description": "", "rows": 1, "skipped": 0, "coverage": "most"}),
        ),
        ("/top_k", "missing", json!({})),
        ("/top_k/ratio", "empty", json!([])),
        ("/top_k/ratio/0", "(0, 1)", json!(0.0)),
        ("/top_k/ratio/0", "(0, 1)", json!(-0.5)),
        (&last_ratio, "(0, 1)", json!(1.0)),
        ("/top_k/ratio/7", "increase", normal_json()["top_k"]["ratio"][6].clone()),
        ("/top_k/ratio/7", "null", json!(null)),
        ("/top_k/delta", "entries", json!([1.0, 0.5])),
        ("/top_k/delta/9", "rises", json!(5.0)),
        ("/top_k/delta/0", "finite", json!(1e39)),
        ("/top_k/delta/3", "expected", json!("1.0")),
        ("/top_p/p", "empty", json!([])),
        ("/top_p/p/4", "increase", json!(0.9)),
        (&last_p, "(0, 1)", json!(1.5)),
        ("/top_p/sigma", "empty", json!([])),
        ("/top_p/sigma", "entries", json!([0.0])),
        ("/top_p/sigma/0", "negative", json!(-1.0)),
        ("/top_p/sigma/1", "increase", json!(0.0)),
        ("/top_p/sigma/32", "finite", json!(1e300)),
        ("/top_p/offset/1", "rises", json!(4.0)),
        (&last_of_second_cell, "finite", json!(-1e300)),
    ];
    for (at, word, value) in cases {
        let mut table = normal_json();
        *table.pointer_mut(at).expect(at) = value.clone();
        let error = load(&table).expect_err(at);
        assert!(matches!(error, Error::Corrupt { .. }), "{at} = {value}: {error:?}");
        assert!(error.to_string().contains(word), "{at} = {value}: {error}");
    }
    // A step up between two cells is no fault: only within a cell must offsets fall.
    assert!(load(&normal_json()).is_ok());
}

#[test]
fn a_grid_that_starts_above_a_scale_gathers_everything_below() {
    let mut table = small_json(&[0.5, -0.5]);
    table["top_p"]["sigma"] = json!([1.0, 1.5]);
    let tables = load(&table).expect("a table");
    assert_eq!(tables.top_p(0.2, 0.99), f32::NEG_INFINITY);
    assert!(tables.top_p(0.2, 1.0).is_finite());
}

#[test]
fn lookups_read_the_entry_that_the_grid_says() {
    // Thirds as grids, cells from 0 and from 1.5 nats.
    let tables = load(&small_json(&[0.5, -0.5])).expect("a table");
    let third = 1.0_f32 / 3.0;
    // A grid point is its own entry, the next f32 is the next entry's.
    assert_eq!(tables.top_p(third, 0.0), 0.5);
    assert_eq!(tables.top_p(third.next_up(), 0.0), -0.5);
    assert_eq!(tables.top_k(1, 4), 0.5);
    assert_eq!(tables.top_k(2, 5), -0.5);
    assert_eq!(tables.top_k(3, 4), f32::NEG_INFINITY);
    // The scale is added up to the last edge, and no further.
    assert_eq!(tables.top_p(0.5, 1.0), 0.5);
    assert_eq!(tables.top_p(0.5, 1.5), 1.0);
    assert_eq!(tables.top_p(0.5, 2.0), 1.0);
}

#[test]
fn files_that_cannot_be_reached_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("missing").join("table.json");
    for error in [
        DeltaTables::load(&missing).expect_err("no such file"),
        DeltaTables::normal().save(&missing).expect_err("no such folder"),
    ] {
        assert!(matches!(&error, Error::Io { path, .. } if *path == missing), "{error:?}");
        assert!(error.to_string().contains("table.json"), "{error}");
    }
    assert!(matches!(DeltaTables::load(folder.path()), Err(Error::Io { .. })), "a folder");
    assert!(matches!(DeltaTables::normal().save(".."), Err(Error::Io { .. })), "no name");
}

#[test]
fn a_failed_save_leaves_what_was_there() {
    let folder = tempfile::tempdir().expect("a folder");
    // A folder in the way: the rename fails after the temporary file was written.
    let taken = folder.path().join("table.json");
    fs::create_dir(&taken).expect("a folder");
    assert!(matches!(DeltaTables::normal().save(&taken), Err(Error::Io { .. })));
    let names: Vec<_> =
        fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("an entry").file_name()).collect();
    assert_eq!(names, ["table.json"]);
    assert!(taken.is_dir());
}

#[test]
fn threads_may_save_to_one_path() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("table.json");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| DeltaTables::normal().save(&path).expect("saved"));
        }
    });
    assert_eq!(DeltaTables::load(&path).expect("whole"), DeltaTables::normal());
}

#[cfg(unix)]
#[test]
fn an_endless_file_is_not_read_to_its_end() {
    let error = DeltaTables::load("/dev/zero").expect_err("not a table");
    assert!(matches!(error, Error::NotATable { .. }), "{error:?}");
}

/// Any finite f32, all exponents alike.
fn finite() -> impl Strategy<Value = f32> {
    any::<u32>().prop_map(f32::from_bits).prop_filter("finite", |x| x.is_finite())
}

proptest! {
    #[test]
    fn any_finite_values_survive_bit_for_bit(values in prop::collection::vec(finite(), 1..20)) {
        let tables = load(&small_json(&values)).expect("a table");
        let once = bytes(&tables);
        let again = DeltaTables::from_slice(&once).expect("a table");
        prop_assert_eq!(&again, &tables);
        prop_assert_eq!(bytes(&again), once);
        // And they are the values that went in: δ at the first ratio is the largest.
        let largest = values.iter().copied().max_by(f32::total_cmp).expect("not empty");
        prop_assert_eq!(tables.top_k(1, 1 << 21).to_bits(), largest.to_bits());
    }

    #[test]
    fn adding_the_scale_rounds_down(offset in -4_f32..1.0, sigma in 0_f32..1.5) {
        let tables = load(&small_json(&[offset])).expect("a table");
        let delta = tables.top_p(0.5, sigma);
        let exact = f64::from(offset) + f64::from(sigma);
        prop_assert!(f64::from(delta) <= exact && exact < f64::from(delta.next_up()));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(DeltaTables::from_slice(&bytes).is_err());
    }

    #[test]
    fn mutated_tables_never_panic(
        values in prop::collection::vec(-4_f32..4.0, 1..5),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..3), 1..4),
        k: u32, vocab: usize, p: f32, sigma: f32,
    ) {
        let mut text = small_json(&values).to_string().into_bytes();
        for (at, byte, kind) in edits {
            // Bytes that JSON is made of, so that many mutants still parse.
            let byte = b"0123456789.-e,[]{}\":nul"[usize::from(byte) % 23];
            let at = at.index(text.len());
            match kind {
                0 => text[at] = byte,
                1 => text.insert(at, byte),
                _ => drop(text.remove(at)),
            }
        }
        if let Ok(tables) = DeltaTables::from_slice(&text) {
            prop_assert!(!tables.top_k(k, vocab).is_nan());
            prop_assert!(!tables.top_p(p, sigma).is_nan());
        }
    }
}
