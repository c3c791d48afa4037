//! Speculative decoding with recorded logits: a chain of draft tokens, drawn from a coarser version of a model's rows, is
//! verified against the rows themselves.
//!
//! `cargo run --release --example speculative`
//!
//! The rows stand for consecutive positions of one request. The draft model is the same rows with every logit rounded to a
//! multiple of a step: the coarser, the fewer of its tokens are accepted. What is emitted has the target's law in any case.

use std::io::Write;

use qrita::{BackendKind, BuildError, ChainOutputs, Chains, Logits, NO_TOKEN, Params, Sampler, Side, bf16};
use qrita_testkit::fixtures;

/// Chains to each step, with a seed each.
const SEEDS: u64 = 40;

fn main() -> Result<(), BuildError> {
    let mut sampler = Sampler::new(BackendKind::Auto)?;
    let mut out = std::io::stdout().lock();
    for model in fixtures::small() {
        let (rows, vocab) = (model.rows(), model.vocab);
        let drafts = rows - 1;
        let positions: Vec<u64> = (0..rows as u64).collect();
        // A closed pipe is no fault of the example.
        let _ = writeln!(out, "{}: chains of {drafts} draft tokens, top-p 0.95", model.model);
        for step in [0.25f32, 1.0, 2.0, 4.0] {
            let round = |y: &bf16| bf16::from_f32((y.to_f32() / step).round() * step);
            let coarse: Vec<bf16> = model.logits[..drafts * vocab].iter().map(round).collect();
            let (draft_logits, target_logits) = (Logits::new(&coarse, vocab)?, Logits::new(&model.logits, vocab)?);
            let (mut all, mut shown) = (0, String::new());
            for seed in 0..SEEDS {
                // Both sides may use the same seed and positions: a verification takes random bits of its own.
                let params = Params::default().top_p(0.95).seed(seed);
                let draft = Side { logits: draft_logits, params: params.position(&positions[..drafts]) };
                let target = Side { logits: target_logits, params: params.position(&positions) };
                let proposed = sampler.sample(&draft.logits, &draft.params)?;
                let tokens: Vec<u32> = proposed.iter().map(|row| row.token.unwrap_or(NO_TOKEN)).collect();
                let chains = Chains { offsets: &[0, drafts], tokens: &tokens, draft, target };
                let (mut accepted, mut emitted) = ([0], vec![0; rows]);
                let mut outputs = ChainOutputs {
                    accepted: Some(&mut accepted),
                    tokens: Some(&mut emitted),
                    ..ChainOutputs::default()
                };
                sampler.verify(&chains, &mut outputs)?;
                all += accepted[0];
                shown = format!("of {tokens:?} came {:?}", &emitted[..=accepted[0] as usize]);
            }
            let mean = f64::from(all) / SEEDS as f64;
            let _ = writeln!(out, "  draft rounded to {step:4}: {mean:.2} accepted; the last chain: {shown}");
        }
    }
    Ok(())
}
