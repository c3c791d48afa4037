//! A decode loop with recorded logits: several requests, one row each a step, with seeds, settings and penalties of their own.
//!
//! `cargo run --release --example decode`
//!
//! An engine would replace [`Recorded::forward`] by its model's forward pass, whose row depends on the tokens so far, and
//! put requests in and out of the batch between steps. All else stays: a request's tokens depend on its own logits, seed and
//! positions, not on the batch that it is part of.

use std::collections::BTreeMap;
use std::io::Write;

use qrita::{
    Adjustments, BackendKind, BuildError, Logits, NO_TOKEN, Outputs, Params, Penalties, Sampler, Sparse, bf16,
};
use qrita_testkit::fixtures;

/// Steps of the loop.
const STEPS: usize = 6;

/// What stands for a model: rows that one gave at some positions of a text.
struct Recorded {
    rows: fixtures::Rows,
}

impl Recorded {
    /// The row of each request at this step, one behind the other.
    fn forward(&self, requests: &[Request], step: usize, logits: &mut Vec<bf16>) {
        logits.clear();
        for request in requests {
            let row = (request.first_row + step) % self.rows.rows();
            logits.extend_from_slice(&self.rows.logits[row * self.rows.vocab..][..self.rows.vocab]);
        }
    }
}

struct Request {
    seed: u64,
    temperature: f32,
    first_row: usize,
    /// How often each token was generated; 0 for those that only the prompt has. Ascending, as penalties want them.
    counts: BTreeMap<u32, u32>,
    /// Token and log-probability.
    generated: Vec<(u32, f32)>,
}

impl Request {
    fn new(seed: u64, temperature: f32, first_row: usize, prompt: &[u32]) -> Request {
        let counts = prompt.iter().map(|&token| (token, 0)).collect();
        Request { seed, temperature, first_row, counts, generated: Vec::new() }
    }
}

fn main() -> Result<(), BuildError> {
    let Some(rows) = fixtures::small().into_iter().find(|rows| rows.model == "smollm2_135m") else { return Ok(()) };
    let model = Recorded { rows };
    // The third is greedy; the last two ask for the same with other seeds.
    let mut requests = [
        Request::new(17, 0.7, 0, &[28, 253]),
        Request::new(18, 1.3, 2, &[30]),
        Request::new(19, 0.0, 4, &[]),
        Request::new(20, 1.0, 6, &[28]),
        Request::new(21, 1.0, 6, &[28]),
    ];

    // Built once: it owns the threads and the scratch memory.
    let mut sampler = Sampler::new(BackendKind::Auto)?;
    let seeds: Vec<u64> = requests.iter().map(|request| request.seed).collect();
    let temperatures: Vec<f32> = requests.iter().map(|request| request.temperature).collect();
    // Memory of the loop's, used again at every step.
    let (mut logits, mut positions) = (Vec::new(), Vec::new());
    let (mut offsets, mut ids, mut values) = (Vec::new(), Vec::new(), Vec::new());
    let (mut token, mut logprob) = (vec![NO_TOKEN; requests.len()], vec![0.0; requests.len()]);

    for step in 0..STEPS {
        model.forward(&requests, step, &mut logits);

        positions.clear();
        offsets.clear();
        offsets.push(0);
        ids.clear();
        values.clear();
        for request in &requests {
            // Seed and position are the key of a row's random bits: no position is used twice.
            positions.push(request.generated.len() as u64);
            ids.extend(request.counts.keys());
            values.extend(request.counts.values());
            offsets.push(ids.len());
        }
        let penalties = Penalties {
            repetition: 1.1.into(),
            frequency: 0.5.into(),
            presence: 0.25.into(),
            counts: Sparse { offsets: &offsets, ids: &ids, values: &values },
        };
        let params = Params::default()
            .temperature(&temperatures)
            .top_k(50)
            .top_p(0.9)
            .seed(&seeds)
            .position(&positions)
            .adjustments(Adjustments { penalties: Some(penalties), ..Adjustments::default() });

        let mut outputs = Outputs { token: Some(&mut token), logprob: Some(&mut logprob), ..Outputs::default() };
        sampler.run(Logits::new(&logits, model.rows.vocab)?.into(), &params, &mut outputs)?;

        for (request, (&token, &logprob)) in requests.iter_mut().zip(token.iter().zip(&logprob)) {
            // A row without a candidate has no token; an engine would end the request.
            if token != NO_TOKEN {
                *request.counts.entry(token).or_insert(0) += 1;
                request.generated.push((token, logprob));
            }
        }
    }

    let mut out = std::io::stdout().lock();
    for Request { seed, temperature, generated, .. } in &requests {
        // A closed pipe is no fault of the example.
        let _ = write!(out, "seed {seed}, temperature {temperature:.1}:");
        for (token, logprob) in generated {
            let _ = write!(out, " {token:5} ({logprob:7.4})");
        }
        let _ = writeln!(out);
    }
    Ok(())
}
