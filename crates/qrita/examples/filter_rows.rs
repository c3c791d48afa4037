//! Filters two rows with top-k and top-p, each row with parameters of its own, and prints what is kept.
//!
//! `cargo run --example filter_rows`

use std::io::Write;

use qrita::{BackendKind, BuildError, Logits, Params, Sampler};

const VOCAB: usize = 32_000;

fn main() -> Result<(), BuildError> {
    // A stand-in for a model's output: a few likely tokens over a long, low tail.
    let mut data: Vec<f32> = (0..2 * VOCAB).map(|i| -6.0 + (i * 7919 % 1000) as f32 / 500.0).collect();
    for (id, logit) in [(11, 8.0), (290, 7.5), (318, 7.5), (464, 5.0)] {
        data[id] = logit;
        data[VOCAB + 2 * id] = logit / 2.0;
    }
    let logits = Logits::new(&data, VOCAB)?;

    let mut sampler = Sampler::new(BackendKind::Auto)?;
    let params = Params::default().top_k(&[3, 50]).top_p(&[1.0, 0.9]);
    let rows = sampler.filter(&logits, &params)?;

    let mut out = std::io::stdout().lock();
    for (number, row) in rows.iter().enumerate() {
        // A closed pipe is no fault of the example.
        let _ = writeln!(out, "row {number} keeps {} tokens, status {}", row.ids.len(), row.status);
        for (id, logprob) in row.ids.iter().zip(&row.logprobs).take(5) {
            let _ = writeln!(out, "  token {id:5}  p = {:.4}", logprob.exp());
        }
    }
    Ok(())
}
