//! Gathering: the candidates of a row above a key, in memory of their own.
//!
//! Stage 1 gathers above the thresholds of `truncate.rs`, where the feature `truncation` has them compiled in, which also says
//! why the threshold of [`gather_rising`](RowWork::gather_rising) may rise; the sorting search and the outputs gather what they
//! need in every build.

use qrita_core::{Boundary, Candidate, Key};

use crate::emit::with_ties;
use crate::row::{Gathered, RowWork};
use crate::vector::Seen;
use crate::workspace::Slot;

/// The least set that the rising threshold is reduced at.
const REDUCE_AT: usize = 1024;

impl RowWork<'_, '_> {
    /// Stage 1 without thresholds.
    #[cfg(not(feature = "truncation"))]
    pub(crate) fn truncate(&mut self) {
        self.scan_only();
    }

    /// Notes the row's maximum and NaN, and gathers nothing.
    pub(crate) fn scan_only(&mut self) {
        self.gather_above(f32::INFINITY);
    }

    /// Gathers what a boundary keeps, in the first slot, by ascending id.
    pub(crate) fn gather_kept(&mut self, boundary: Boundary) {
        let (y, kernels, key) = (self.y, self.kernels, boundary.key.value());
        self.exec.pass(y.len(), |slot, range| {
            let Slot { tile, gathered, part, .. } = slot;
            gathered.clear();
            part.seen = Seen::NOTHING;
            y.tiles(range, tile, |first, tile| {
                let with_ties = with_ties(boundary, first, tile.len());
                let (head, tail) = tile.split_at(with_ties);
                kernels.scan(head, first as u32, key.next_down(), gathered, &mut part.seen);
                kernels.scan(tail, (first + with_ties) as u32, key, gathered, &mut part.seen);
            });
        });
        self.merge_gathered();
    }

    /// Gathers the candidates with keys from `low` on, in the first slot, by ascending id.
    pub(crate) fn gather_from(&mut self, low: Key) {
        self.gather_above(low.value().next_down());
    }

    /// Gathers the candidates above a threshold in the first slot, by ascending id.
    pub(crate) fn gather_above(&mut self, threshold: f32) {
        let (y, kernels) = (self.y, self.kernels);
        self.exec.pass(y.len(), |slot, range| {
            let Slot { tile, gathered, part, .. } = slot;
            gathered.clear();
            part.seen = Seen::NOTHING;
            y.tiles(range, tile, |first, tile| {
                kernels.scan(tile, first as u32, threshold, gathered, &mut part.seen);
            });
        });
        self.merge_gathered();
        self.gathered = Gathered { covered_above: Key::new(threshold) };
    }

    /// Gathers the row's first `k` candidates, or all where there are not as many, in the first slot, by ascending id.
    pub(crate) fn gather_rising(&mut self, k: usize) {
        let (y, kernels) = (self.y, self.kernels);
        self.exec.pass(y.len(), |slot, range| {
            let mut threshold = f32::NEG_INFINITY;
            slot.gathered.clear();
            slot.part.seen = Seen::NOTHING;
            let Slot { tile, gathered, ordered, part, .. } = slot;
            y.tiles(range, tile, |first, tile| {
                kernels.scan(tile, first as u32, threshold, gathered, &mut part.seen);
                if gathered.len() >= REDUCE_AT.max(4 * k) {
                    threshold = reduce(gathered, ordered, k).logit();
                }
            });
        });
        self.merge_gathered();
        let Slot { gathered, ordered, .. } = self.exec.first();
        let covered_above = if gathered.len() >= k { reduce(gathered, ordered, k).key() } else { Key::NEG_INFINITY };
        self.gathered = Gathered { covered_above };
    }

    /// Joins what the slots gathered and saw. The slots' parts of the row ascend, so the ids do.
    pub(crate) fn merge_gathered(&mut self) {
        let [first, rest @ ..] = &mut *self.exec.slots else { return };
        for slot in rest {
            first.gathered.extend_from_slice(&slot.gathered);
            first.part.seen.max = first.part.seen.max.max(slot.part.seen.max);
            first.part.seen.nan |= slot.part.seen.nan;
        }
        self.seen = first.part.seen;
    }

    /// Whether these are candidates of the row by ascending id, and all that it has above the threshold.
    pub(crate) fn has_gathered(&mut self, gathered: &[Candidate], threshold: f32) -> bool {
        let y = self.y;
        let is_of_row = |candidate: &Candidate| {
            let (id, mut logit) = (candidate.id() as usize, [f32::NEG_INFINITY]);
            if id < y.len() {
                y.fill(id, &mut logit);
            }
            candidate.key() > Key::NEG_INFINITY && candidate.key() == Key::new(logit[0])
        };
        let above = gathered.iter().filter(|candidate| candidate.key() > Key::new(threshold)).count();
        gathered.is_sorted_by(|a, b| a.id() < b.id())
            && gathered.iter().all(is_of_row)
            && above == self.count_above(Key::new(threshold))
    }

    /// Whether the gathered set contains every candidate with a key from `key` on.
    pub(crate) fn covers(&self, key: Key) -> bool {
        key > self.gathered.covered_above
    }
}

/// Reduces a set to its first `k` in the contract's order, kept by ascending id; the last of them.
fn reduce(gathered: &mut Vec<Candidate>, ordered: &mut Vec<Candidate>, k: usize) -> Candidate {
    ordered.clear();
    ordered.extend_from_slice(gathered);
    let last = *ordered.select_nth_unstable_by(k - 1, |a, b| b.cmp(a)).1;
    gathered.retain(|&candidate| candidate >= last);
    last
}
