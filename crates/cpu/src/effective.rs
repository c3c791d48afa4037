//! Effective logits, a tile at a time: widened, masked, biased and penalised while the row streams by.
//!
//! Every loop of this backend reads f32 tiles that fit the first-level cache. A tile of an f32 row that nothing adjusts
//! is the row's own memory; any other is made in the slot's tile buffer, so that no loop knows dtypes or adjustments
//! and no copy of a row is ever kept.

use std::ops::Range;

use qrita_core::{Row, RowAdjustments};

use crate::vector::Kernels;

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
                Row::F32(row) if self.identity => each(start, &row[start..end]),
                _ => {
                    let tile = &mut buffer[..end - start];
                    self.fill(start, tile);
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
        adjust(tile, start, adjustments);
    }
}

fn adjust(tile: &mut [f32], start: usize, adjustments: &RowAdjustments<'_>) {
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
        for (y, id) in tile.iter_mut().zip(start..range.end.min(valid)) {
            if words[id / 32] >> (id % 32) & 1 == 0 {
                *y = f32::NEG_INFINITY;
            }
        }
    }
    if range.end > valid {
        tile[valid.max(start) - start..].fill(f32::NEG_INFINITY);
    }
}

/// The entries of an ascending list whose ids lie in `range`.
fn listed<T: Copy>((ids, values): (&[u32], &[T]), range: &Range<usize>) -> impl Iterator<Item = (usize, T)> {
    let at = |id: usize| ids.partition_point(|&listed| (listed as usize) < id);
    let entries = at(range.start)..at(range.end);
    ids[entries.clone()].iter().zip(&values[entries]).map(|(&id, &value)| (id as usize, value))
}
