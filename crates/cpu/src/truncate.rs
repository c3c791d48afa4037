//! Stage 1, truncate: gather the part of the row that the search looks at first (paper, σ-truncation).
//!
//! # Static thresholds
//!
//! The paper's threshold is `t = μ + δσ − 0.2·|t|`, mean and deviation from a sample, δ from the normal's tables. Its
//! margin depends on where zero lies, while a softmax does not see a shift of the logits; [`Truncation::Gaussian`]
//! takes the margin in units of σ. [`Truncation::Quantile`] asks the sample itself: the threshold is its order statistic
//! at the share of the row that is wanted. All three sample runs spread over the whole row, since the first block of a
//! real vocabulary is not like the rest of it.
//!
//! # The rising threshold
//!
//! A CPU sees a row in sequence, so it need not guess ([`Truncation::Adaptive`]). Wanted are the row's first `k`
//! candidates in the contract's order. Gather everything above a threshold that starts at −∞; whenever the set has grown
//! to some multiple of `k`, reduce it to its first `k` and raise the threshold to the last of them. What comes later
//! with a logit equal to the threshold has a higher id and `k` candidates before it, so that the comparison may be
//! strict, and rows of ties cost nothing. This never misses. On rows whose order says nothing about their values, the
//! set grows by about `k·ln(V/k)` candidates in all; on an ascending row by every one, for one partition of the set per
//! multiple of `k` logits: linear still.

use qrita_core::Truncation;

use crate::effective::{Effective, TILE};
use crate::row::RowWork;

/// The sample: this many runs of this many logits, spread evenly.
const SAMPLE_RUNS: usize = 128;
const SAMPLE_RUN: usize = 32;

/// How many candidates the rising threshold keeps for top-p and min-p, which do not say how many they need. Real rows
/// keep a median of 33 at p = 0.9; what needs more is searched in the whole row.
const UNKNOWN_COUNT: usize = 512;

/// The most candidates that are gathered under a rising threshold.
const MOST: usize = 4096;

/// Margin of the Gaussian threshold in units of σ, for the error of a sample's tail.
const SIGMA_MARGIN: f64 = 0.25;

impl RowWork<'_, '_> {
    /// Gathers candidates as the plan says, and notes the row's maximum and NaN.
    pub(crate) fn truncate(&mut self) {
        match self.plan.truncation {
            Truncation::Off => self.scan_only(),
            Truncation::Adaptive => match self.wanted() {
                0 => self.scan_only(),
                // Many candidates are found faster by histograms of the row.
                wanted if wanted > MOST => self.scan_only(),
                wanted => self.gather_rising(wanted),
            },
            Truncation::Paper | Truncation::Gaussian | Truncation::Quantile => {
                let threshold = self.threshold();
                self.gather_above(threshold);
            }
        }
    }

    /// How many of the row's first candidates the filters can need, as far as that is known; 0 for none.
    fn wanted(&self) -> usize {
        if self.params.temperature == 0.0 {
            1
        } else if self.params.top_k > 0 && (self.params.top_k as usize) < self.y.len() {
            self.params.top_k as usize
        } else if self.params.top_p < 1.0 || self.params.min_p > 0.0 {
            UNKNOWN_COUNT
        } else {
            0
        }
    }

    /// The static threshold of the plan; −∞, which gathers everything, where the sample gives none.
    fn threshold(&mut self) -> f32 {
        let (tables, params, plan, y) = (self.tables, self.params, self.plan, self.y);
        let (vocab, k) = (y.len(), params.top_k as usize);
        let by_count = params.top_k > 0 && k < vocab;
        let sample = sample(&y, &mut self.exec.first().sample);
        if sample.is_empty() {
            return f32::NEG_INFINITY;
        }
        if plan.truncation == Truncation::Quantile {
            let wanted = if by_count { (2 * k).max(k + 512) } else { 2 * UNKNOWN_COUNT };
            let rank = (wanted * sample.len()).div_ceil(vocab);
            return match rank < sample.len() {
                true => *sample.select_nth_unstable_by(rank, |a, b| b.total_cmp(a)).1,
                false => f32::NEG_INFINITY,
            };
        }
        let n = sample.len() as f64;
        let mean = sample.iter().map(|&y| f64::from(y)).sum::<f64>() / n;
        let variance = sample.iter().map(|&y| (f64::from(y) - mean).powi(2)).sum::<f64>() / n;
        let sigma = variance.sqrt();
        let delta = if by_count {
            tables.top_k(params.top_k, vocab)
        } else {
            tables.top_p(params.top_p, (sigma / f64::from(params.temperature)) as f32)
        };
        let t = mean + f64::from(delta) * sigma;
        let margin = if plan.truncation == Truncation::Paper { 0.2 * t.abs() } else { SIGMA_MARGIN * sigma };
        let threshold = (t - margin) as f32;
        if threshold.is_nan() { f32::NEG_INFINITY } else { threshold }
    }
}

/// The finite logits among runs spread over the row; all of them where the row is shorter than the sample.
fn sample<'s>(y: &Effective<'_>, buffer: &'s mut Vec<f32>) -> &'s mut [f32] {
    buffer.clear();
    let mut run = [0.0; SAMPLE_RUN];
    let whole = y.len() <= SAMPLE_RUNS * SAMPLE_RUN;
    let runs = if whole { y.len().div_ceil(SAMPLE_RUN) } else { SAMPLE_RUNS };
    for i in 0..runs {
        let start = if whole { i * SAMPLE_RUN } else { i * (y.len() - SAMPLE_RUN) / (SAMPLE_RUNS - 1) };
        let run = &mut run[..SAMPLE_RUN.min(y.len() - start)];
        y.fill(start, run);
        buffer.extend(run.iter().filter(|y| y.is_finite()));
    }
    buffer
}

const _: () = assert!(SAMPLE_RUN <= TILE);
