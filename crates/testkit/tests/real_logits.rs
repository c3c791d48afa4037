//! The oracle on real logits keeps what a float64 softmax keeps, as `real_logits_small.json` notes of each row.

use std::fs;
use std::path::Path;

use qrita_core::Plan;
use qrita_testkit::batch::{Batch, Stored};
use qrita_testkit::{fixtures, oracle};
use serde_json::Value;

#[test]
fn facts_of_the_small_rows() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/real_logits_small.json");
    let facts: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let models = fixtures::small();
    assert_eq!(models.iter().map(|rows| rows.rows()).collect::<Vec<_>>(), [5, 4, 8]);
    for rows in models {
        let facts = &facts[&rows.model];
        assert_eq!(facts["V"], rows.vocab);
        let batch = |k: u32, p: f32| {
            let stored = Stored::Bf16(rows.logits.clone());
            Batch::of(stored, rows.vocab).with(|params| (params.top_k, params.top_p) = (vec![k], vec![p]))
        };
        let answers = |batch: &Batch| oracle::answers(&batch.logits(), &batch.params(), &Plan::default());
        let (by_p, by_k) = (answers(&batch(0, 0.9)), answers(&batch(50, 1.0)));
        for (row, fact) in facts["rows"].as_array().unwrap().iter().enumerate() {
            assert_eq!(fact["n90"], by_p[row].kept, "{} row {row}", rows.model);
            let cut = by_k[row].cut();
            assert_eq!(fact["n_equal_kth50"], cut.tied, "{} row {row}", rows.model);
            assert_eq!(fact["tie_crosses_k50"], cut.quota < cut.tied, "{} row {row}", rows.model);
            assert_eq!(fact["max"], f64::from(by_k[row].ranked.max), "{} row {row}", rows.model);
        }
    }
}
