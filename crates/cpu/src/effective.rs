//! Effective logits, a tile at a time: widened, masked, biased and penalised while the row streams by.
//!
//! Every loop of this backend reads f32 tiles that fit the first-level cache. A tile of an f32 row in which nothing adjusts a
//! logit is the row's own memory; any other is made in the slot's tile buffer, so that no loop knows dtypes or adjustments
//! and no copy of a row is ever kept.

use std::ops::Range;

use qrita_core::{Row, RowAdjustments, with_dtype};

use crate::vector::{Kernels, prefetch};

/// Logits in a tile.
pub(crate) const TILE: usize = 1024;

/// One row as the loops see it.
#[derive(Clone, Copy)]
pub(crate) struct Effective<'a> {
    row: Row<'a>,
    adjustments: RowAdjustments<'a>,
    identity: bool,
    kernels: &'static Kernels,
}

impl<'a> Effective<'a> {
    pub(crate) fn new(row: Row<'a>, adjustments: RowAdjustments<'a>, kernels: &'static Kernels) -> Self {
        Effective { row, adjustments, identity: adjustments.is_identity(row.len()), kernels }
    }

    pub(crate) fn len(&self) -> usize {
        self.row.len()
    }

    /// Calls `each` with the tiles of `range` in order, and with the id of each tile's first logit, until it says to stop.
    #[inline]
    pub(crate) fn tiles_until(
        &self,
        range: Range<usize>,
        buffer: &mut [f32; TILE],
        mut each: impl FnMut(usize, &[f32]) -> bool,
    ) {
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(start + TILE);
            let stop = match self.row {
                Row::F32(row) if self.identity || !touches(&self.adjustments, start..end) => {
                    each(start, &row[start..end])
                }
                _ => {
                    let tile = &mut buffer[..end - start];
                    self.fill(start, tile);
                    if !self.identity {
                        // The tile is read where it was made: meanwhile the row's next part comes from memory.
                        with_dtype!(Row, self.row, |row| prefetch(&row[end..range.end.min(end + TILE)]));
                    }
                    each(start, tile)
                }
            };
            if stop {
                return;
            }
            start = end;
        }
    }

    /// Calls `each` with all tiles of `range` in order, and with the id of each tile's first logit.
    #[inline]
    pub(crate) fn tiles(&self, range: Range<usize>, buffer: &mut [f32; TILE], mut each: impl FnMut(usize, &[f32])) {
        self.tiles_until(range, buffer, |first, tile| {
            each(first, tile);
            false
        });
    }

    /// Writes the effective logits from id `start` on into `tile`.
    pub(crate) fn fill(&self, start: usize, tile: &mut [f32]) {
        let adjustments = (!self.identity).then_some(&self.adjustments);
        fill_tile(self.row.slice(start..start + tile.len()), start, adjustments, self.kernels, tile);
    }
}

/// Writes the effective logits of `stored`, the part of a row from id `start` on, into `tile`.
pub(crate) fn fill_tile(
    stored: Row<'_>,
    start: usize,
    adjustments: Option<&RowAdjustments<'_>>,
    kernels: &Kernels,
    tile: &mut [f32],
) {
    match stored {
        Row::F32(stored) => tile.copy_from_slice(stored),
        Row::F16(stored) => kernels.widen_f16(stored, tile),
        Row::Bf16(stored) => kernels.widen_bf16(stored, tile),
    }
    if let Some(adjustments) = adjustments {
        adjust(tile, start, adjustments, kernels);
    }
}

fn adjust(tile: &mut [f32], start: usize, adjustments: &RowAdjustments<'_>, kernels: &Kernels) {
    let RowAdjustments { mut valid, allowed, bias, penalties, standing } = *adjustments;
    let range = start..start + tile.len();
    // Bias and penalties first, allowed tokens last: a disallowed token is −∞ whatever else is listed for it.
    for (id, bias) in listed(bias, &range) {
        tile[id - start] += bias;
    }
    if let Some(penalties) = penalties {
        for (id, count) in listed(penalties.counts, &range) {
            let y = &mut tile[id - start];
            *y = penalties.apply(*y, count);
        }
    }
    if let Some(standing) = standing {
        tile.iter_mut().zip(&standing[range.clone()]).for_each(|(y, penalty)| *y -= penalty);
    }
    if let Some((words, ids)) = allowed {
        valid = valid.min(ids);
        let tile = &mut tile[..valid.saturating_sub(start).min(range.len())];
        // Tiles start at a word but for those of a part of a row that is masked, or a single logit.
        let before = (start.next_multiple_of(32) - start).min(tile.len());
        let (head, rest) = tile.split_at_mut(before);
        for (y, id) in head.iter_mut().zip(start..) {
            *y = if words[id / 32] >> (id % 32) & 1 == 1 { *y } else { f32::NEG_INFINITY };
        }
        if !rest.is_empty() {
            kernels.allow(rest, &words[(start + before) / 32..]);
        }
    }
    if range.end > valid {
        tile[valid.max(start) - start..].fill(f32::NEG_INFINITY);
    }
}

/// Whether any logit of a tile may be another than the stored one.
fn touches(adjustments: &RowAdjustments<'_>, range: Range<usize>) -> bool {
    let RowAdjustments { valid, allowed, bias, penalties, standing } = adjustments;
    let is_disallowed = |&(words, ids): &(&[u32], usize)| {
        ids < range.end || words[range.start / 32..range.end.div_ceil(32)].iter().any(|&word| word != u32::MAX)
    };
    *valid < range.end
        || standing.is_some()
        || listed(*bias, &range).next().is_some()
        || penalties.is_some_and(|penalties| listed(penalties.counts, &range).next().is_some())
        || allowed.as_ref().is_some_and(is_disallowed)
}

/// The entries of an ascending list whose ids lie in `range`.
fn listed<T: Copy>((ids, values): (&[u32], &[T]), range: &Range<usize>) -> impl Iterator<Item = (usize, T)> {
    let from = ids.partition_point(|&listed| (listed as usize) < range.start);
    let end = range.end;
    let entries = ids[from..].iter().zip(&values[from..]).map(|(&id, &value)| (id as usize, value));
    entries.take_while(move |&(id, _)| id < end)
}
