//! A sampler in the manner of candle's, to compare with: the row in a `Vec`, a softmax in f32, indices put in order, a
//! cumulative cut, a draw.
//!
//! It is written for this purpose and is no copy of theirs. It spares itself what costs candle more: the tensors of the
//! steps in between, and the draw over the whole vocabulary, which here is over the kept tokens. Top-p's
//! share is of what top-k left, as in the contract, where candle's is of the whole row: so both draw the same tokens.

use qrita_core::{RowAdjustments, RowParams};

/// How the first `top_k` indices are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indices {
    /// By a stable sort of all, as candle does for top-p alone.
    Sorted,
    /// By a selection and a sort of what it selects, as candle does for top-k before top-p.
    Selected,
}

impl Indices {
    /// Both.
    pub const ALL: [Indices; 2] = [Indices::Sorted, Indices::Selected];

    /// Its name in a report.
    pub fn name(self) -> &'static str {
        match self {
            Indices::Sorted => "candle-like, sorts",
            Indices::Selected => "candle-like, selects",
        }
    }
}

/// A token of the row and its log-probability among the kept ones. Bitmask, penalties, temperature, top-k and top-p are
/// looked at, in this order; `random` are the bits of the draw.
///
/// It is exact in nothing: sums are of f32, equal probabilities may come of different logits, and a NaN or a row without
/// a candidate yields a token all the same.
pub fn sample(
    row: &[f32],
    params: &RowParams,
    adjustments: &RowAdjustments<'_>,
    indices: Indices,
    random: u64,
) -> (u32, f32) {
    let mut probs = row.to_vec();
    if let Some((words, ids)) = adjustments.allowed {
        for (id, y) in probs.iter_mut().enumerate() {
            if id >= ids || words[id / 32] >> (id % 32) & 1 == 0 {
                *y = f32::NEG_INFINITY;
            }
        }
    }
    if let Some(penalties) = adjustments.penalties {
        for (&id, &count) in penalties.counts.0.iter().zip(penalties.counts.1) {
            probs[id as usize] = penalties.apply(probs[id as usize], count);
        }
    }
    softmax(&mut probs, params.temperature);

    let first = if params.top_k == 0 { probs.len() } else { probs.len().min(params.top_k as usize) };
    let mut ids: Vec<usize> = (0..probs.len()).collect();
    let descending = |i: &usize, j: &usize| probs[*j].total_cmp(&probs[*i]).then(i.cmp(j));
    if indices == Indices::Selected && first < ids.len() {
        ids.select_nth_unstable_by(first, descending);
        ids.truncate(first);
    }
    ids.sort_by(descending);
    ids.truncate(first);

    let need = params.top_p * ids.iter().map(|&id| probs[id]).sum::<f32>();
    let (mut kept, mut mass) = (0, 0.0);
    while kept < ids.len() && (kept == 0 || mass < need) {
        mass += probs[ids[kept]];
        kept += 1;
    }
    ids.truncate(kept);

    ids.sort_unstable();
    let mut left = (random as f64 / 2f64.powi(64)) as f32 * mass;
    let drawn = ids.iter().position(|&id| {
        left -= probs[id];
        left < 0.0
    });
    // The sums were in another order, and may be short of the target.
    let token = ids[drawn.unwrap_or(ids.len() - 1)];
    (token as u32, (probs[token] / mass).ln())
}

fn softmax(values: &mut [f32], temperature: f32) {
    values.iter_mut().for_each(|y| *y /= temperature);
    let max = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for y in values.iter_mut() {
        *y = (*y - max).exp();
        sum += *y;
    }
    values.iter_mut().for_each(|p| *p /= sum);
}
