//! Parameter files: what is taken has a row a line and is valid; what is not names one of the lines.
#![no_main]

use libfuzzer_sys::fuzz_target;
use qrita_core::{Logits, Params};

fuzz_target!(|text: &[u8]| {
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let lines = if body.is_empty() { 0 } else { 1 + body.iter().filter(|&&byte| byte == b'\n').count() };
    match qrita_cli::read_params(text) {
        Ok(rows) => {
            assert_eq!(rows.len(), lines);
            let logits = Logits::new(&[0.0f32], 1).unwrap();
            for row in rows {
                let params = Params::default()
                    .top_k(row.top_k.unwrap_or(0))
                    .top_p(row.top_p.unwrap_or(1.0))
                    .min_p(row.min_p.unwrap_or(0.0))
                    .temperature(row.temperature.unwrap_or(1.0));
                assert_eq!(params.validate(&logits), Ok(()), "{row:?}");
            }
        }
        Err(error) => {
            assert!((1..=lines).contains(&error.line), "{error}");
            assert!(!error.message.is_empty());
        }
    }
});
