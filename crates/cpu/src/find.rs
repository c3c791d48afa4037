//! Stage 2's inner step: where a goal of count or mass is met, by the search that the plan names, in the gathered set or
//! in the whole row.

use qrita_core::{Candidate, Key, Search};

use crate::pivot::{self, EachPivot, Found, Goal, MOST_PIVOTS, Tally};
use crate::row::{RowWork, Source};
use crate::workspace::Slot;

impl RowWork<'_, '_> {
    /// Finds where a goal is met, by the plan's search. The source's candidates with keys from `floor` on meet it.
    pub(crate) fn find(&mut self, source: Source, goal: Goal, floor: Key) -> Found {
        let max = Key::new(self.seen.max);
        // What weighs nothing can not help to meet a need.
        let floor = if goal.needs_mass() { floor.max(self.least_key(1)) } else { floor };
        match (self.plan.search, source) {
            // Where quaternary search is not compiled in, no plan that names it gets here.
            (Search::Quaternary, _) => pivot::search(goal, floor, max, MOST_PIVOTS, |at| self.tally(source, goal, at)),
            (Search::Binary, _) => pivot::search(goal, floor, max, 1, |at| self.tally(source, goal, at)),
            (Search::Select, Source::Row) => self.search_histogram(goal, floor, max),
            (Search::Sort, Source::Row) => {
                self.gather_from(floor);
                self.search_sorted(goal)
            }
            (Search::Sort, Source::Gathered) => self.search_sorted(goal),
            (Search::Select, Source::Gathered) => match goal {
                Goal::Count(k) => self.select_count(k),
                Goal::Mass(need) => self.select_mass(need),
            },
        }
    }

    /// One pass of the pivot search.
    fn tally(&mut self, source: Source, goal: Goal, at: EachPivot<u32>) -> EachPivot<Tally> {
        let (y, kernels, law) = (self.y, self.kernels, self.law(Key::LEAST));
        let tally_tile = |tile: &[f32], weights: &mut [u64], tallies: &mut EachPivot<Tally>| {
            if goal.needs_mass() {
                kernels.weights(tile, &law, weights);
            }
            for (&y, &weight) in tile.iter().zip(&*weights) {
                let key = Key::new(y).bits();
                for (tally, pivot) in tallies.iter_mut().zip(at) {
                    tally.add(pivot, key, weight);
                }
            }
        };
        match source {
            Source::Gathered => {
                let Slot { gathered, tile, weights, .. } = self.exec.first();
                let mut tallies = EachPivot::<Tally>::default();
                weights.fill(0);
                for part in gathered.chunks(tile.len()) {
                    tile.iter_mut().zip(part).for_each(|(y, candidate)| *y = candidate.logit());
                    tally_tile(&tile[..part.len()], &mut weights[..part.len()], &mut tallies);
                }
                tallies
            }
            Source::Row => {
                self.exec.pass(y.len(), |slot, range| {
                    let Slot { tile, weights, part, .. } = slot;
                    let mut tallies = EachPivot::<Tally>::default();
                    weights.fill(0);
                    y.tiles(range, tile, |_, tile| tally_tile(tile, &mut weights[..tile.len()], &mut tallies));
                    part.tallies = tallies;
                });
                self.exec.slots.iter().fold(Default::default(), |sum: EachPivot<Tally>, slot| {
                    std::array::from_fn(|i| sum[i].merge(slot.part.tallies[i]))
                })
            }
        }
    }

    fn search_sorted(&mut self, goal: Goal) -> Found {
        let (kernels, law) = (self.kernels, self.law(Key::LEAST));
        let Slot { gathered, ordered, .. } = self.exec.first();
        ordered.clone_from(gathered);
        ordered.sort_unstable_by(|a, b| b.cmp(a));
        let start = Found { key: Key::INFINITY, above: 0, mass_above: 0 };
        walk(goal, ordered, start, |candidate| kernels.weight(candidate.logit(), &law))
    }

    fn select_count(&mut self, k: u32) -> Found {
        let Slot { gathered, ordered, .. } = self.exec.first();
        ordered.clone_from(gathered);
        let key = ordered.select_nth_unstable_by(k as usize - 1, |a, b| b.cmp(a)).1.key();
        let above = ordered[..k as usize].iter().filter(|candidate| candidate.key() > key).count();
        Found { key, above: above as u32, mass_above: 0 }
    }

    /// Sorts only as much of the gathered set as meets the goal, in portions that grow fourfold: most rows need few.
    fn select_mass(&mut self, need: u64) -> Found {
        let (kernels, law) = (self.kernels, self.law(Key::LEAST));
        let Slot { gathered, ordered, .. } = self.exec.first();
        ordered.clone_from(gathered);
        let (mut start, mut portion, mut mass) = (0, 64, 0);
        loop {
            let end = ordered.len().min(start + portion);
            if end < ordered.len() {
                ordered[start..].select_nth_unstable_by(end - start - 1, |a, b| b.cmp(a));
            }
            ordered[start..end].sort_unstable_by(|a, b| b.cmp(a));
            let met = ordered[start..end].iter().position(|candidate| {
                mass += kernels.weight(candidate.logit(), &law);
                mass >= need
            });
            if let Some(at) = met {
                let key = ordered[start + at].key();
                // A group of ties is one value: back to its first.
                let first = ordered[..=start + at].partition_point(|candidate| candidate.key() > key);
                let tied = (start + at + 1 - first) as u64;
                let mass_above = mass - tied * kernels.weight(key.value(), &law);
                return Found { key, above: first as u32, mass_above };
            }
            if end == ordered.len() {
                debug_assert!(false, "the goal is met by the whole set");
                return Found { key: Key::LEAST, above: end as u32, mass_above: mass };
            }
            (start, portion) = (end, portion * 4);
        }
    }
}

/// Walks candidates in the contract's order from `start` on, until the goal is met.
///
/// The last candidate must meet it.
pub(crate) fn walk(goal: Goal, ordered: &[Candidate], start: Found, mut weight: impl FnMut(Candidate) -> u64) -> Found {
    let mut found = start;
    for group in ordered.chunk_by(|a, b| a.key() == b.key()) {
        let count = group.len() as u32;
        let mass = if goal.needs_mass() { weight(group[0]) * u64::from(count) } else { 0 };
        found.key = group[0].key();
        if goal.met(found.above + count, found.mass_above + mass) {
            return found;
        }
        found.above += count;
        found.mass_above += mass;
    }
    debug_assert!(false, "the goal is met by the whole set");
    found
}
