//! Samples under a grammar: only the tokens that a packed bitmask allows can be drawn.
//!
//! `cargo run --example grammar_mask`

use std::io::Write;

use qrita::{Adjustments, BackendKind, Bitmask, BuildError, Logits, Params, Sampler};

const VOCAB: usize = 128;

fn main() -> Result<(), BuildError> {
    // One character a token; the likelier, the later in the alphabet.
    let data: Vec<f32> = (0..VOCAB).map(|id| id as f32 / 16.0).collect();
    let logits = Logits::new(&data, VOCAB)?;

    // The layout of grammar engines: 32 tokens a word, least significant bit first, 1 = allowed. Here: digits.
    let mut words = [0u32; VOCAB / 32];
    for id in b'0'..=b'9' {
        words[usize::from(id) / 32] |= 1 << (id % 32);
    }
    let bitmask = Bitmask { words: &words, ids: VOCAB, stride: 0 };
    let adjustments = Adjustments { bitmask: Some(bitmask), ..Adjustments::default() };

    let mut sampler = Sampler::new(BackendKind::Auto)?;
    let mut text = String::new();
    for position in 0..16 {
        // One seed for the request; the position makes each draw its own.
        let params = Params::default().top_p(0.95).seed(42).position(position).adjustments(adjustments);
        // A row without an allowed token would yield `None`.
        if let Some(token) = sampler.sample(&logits, &params)?[0].token {
            text.push(char::from(token as u8));
        }
    }
    let _ = writeln!(std::io::stdout().lock(), "{text}");
    Ok(())
}
