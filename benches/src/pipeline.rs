//! The whole way from a row of raw logits to a token with its log-probability, as an engine asks for it at each step.

use qrita_core::{Adjustments, Backend, Bitmask, Logits, Outputs, Params, Penalties, Plan, Row, Sparse, philox};
use qrita_cpu::{CpuBackend, Workspace};

use crate::candle_like::{self, Indices};

/// Tokens that the penalties list.
const SEEN: usize = 512;
const OFFSETS: [usize; 2] = [0, SEEN];

/// Temperature 0.7, top-k 50, top-p 0.9; with or without a bitmask and penalties.
pub struct Pipeline {
    vocab: usize,
    adjusted: bool,
    words: Vec<u32>,
    ids: Vec<u32>,
    counts: Vec<u32>,
}

impl Pipeline {
    /// Of rows with `vocab` logits, at least 512. Adjusted, a bitmask allows three of four tokens, and the three penalties
    /// apply to 512 tokens, some of which only the prompt has.
    pub fn new(vocab: usize, adjusted: bool) -> Pipeline {
        Pipeline {
            vocab,
            adjusted,
            words: vec![0x7777_7777; vocab.div_ceil(32)],
            ids: (0..SEEN).map(|i| (i * vocab / SEEN) as u32).collect(),
            counts: (0..SEEN as u32).map(|i| i % 4).collect(),
        }
    }

    /// Its name in a report.
    pub fn name(&self) -> &'static str {
        if self.adjusted { "bitmask and penalties" } else { "plain" }
    }

    /// The parameters of one row.
    pub fn params(&self, position: u64) -> Params<'_> {
        let params = Params::default().temperature(0.7).top_k(50).top_p(0.9).seed(7).position(position);
        if !self.adjusted {
            return params;
        }
        let bitmask = Bitmask { words: &self.words, ids: self.vocab, stride: 0 };
        let penalties = Penalties {
            repetition: 1.1.into(),
            frequency: 0.2.into(),
            presence: 0.1.into(),
            counts: Sparse { offsets: &OFFSETS, ids: &self.ids, values: &self.counts },
        };
        let adjustments = Adjustments { bitmask: Some(bitmask), penalties: Some(penalties), ..Adjustments::default() };
        params.adjustments(adjustments)
    }

    /// The token of one row, and its log-probability.
    ///
    /// # Panics
    /// If `logits` are not one row of the vocabulary.
    pub fn run(
        &self,
        backend: &CpuBackend,
        logits: Logits<'_>,
        position: u64,
        workspace: &mut Workspace,
    ) -> (u32, f32) {
        let (mut token, mut logprob) = ([0], [0.0]);
        let mut outputs = Outputs { token: Some(&mut token), logprob: Some(&mut logprob), ..Outputs::default() };
        let done = backend.run(logits.into(), &self.params(position), &Plan::default(), &mut outputs, workspace);
        done.expect("one row, and parameters that are valid");
        (token[0], logprob[0])
    }

    /// The same by the [candle-like](candle_like) sampler, from the same random bits.
    ///
    /// # Panics
    /// If `logits` are not one row of the vocabulary in f32.
    pub fn run_candle_like(&self, logits: Logits<'_>, position: u64, indices: Indices) -> (u32, f32) {
        let Row::F32(row) = logits.row(0) else { panic!("the candle-like sampler takes f32") };
        let params = self.params(position);
        let one = params.row(0);
        let random = philox::random(one.seed, one.position, one.stream, 0);
        candle_like::sample(row, &one, &params.adjustments.row(0), indices, random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Ring};
    use qrita_core::Dtype;

    /// Else the times would be of two different things. Rounding could move a draw next to a boundary to the other side of
    /// it; none of these lies so close.
    #[test]
    fn the_candle_like_sampler_draws_the_same_tokens() {
        let backend = CpuBackend::with_threads(1).unwrap();
        let mut workspace = backend.workspace();
        let mut ring = Ring::new(Kind::Normal, 4000, Dtype::F32, 4 * 4000 * 4);
        for adjusted in [false, true] {
            let pipeline = Pipeline::new(4000, adjusted);
            let mut tokens = Vec::new();
            for position in 0..100 {
                let row = ring.next_row();
                let (token, logprob) = pipeline.run(&backend, row, position, &mut workspace);
                for indices in Indices::ALL {
                    let (other, near) = pipeline.run_candle_like(row, position, indices);
                    assert_eq!(token, other, "position {position}, {}, {}", pipeline.name(), indices.name());
                    assert!((logprob - near).abs() < 1e-4, "{logprob} and {near}");
                }
                tokens.push(token);
            }
            tokens.sort_unstable();
            tokens.dedup();
            assert!(tokens.len() > 20, "the draws differ");
            assert!(!adjusted || tokens.iter().all(|token| token % 4 != 3), "the bitmask holds");
        }
    }
}
