//! One row's call: which searches its filters need, and in which set.
//!
//! Every filter keeps a prefix of the contract's order, so that the kept set is always the shorter of two prefixes and
//! one [`Prefix`] describes it. The stages compose as in the paper: the gathered set of stage 1 answers where it provably
//! can, the whole row where it can not.

use qrita_core::weight::{LAST_DISTANCE_BITS, ONE, distance, need, weight};
use qrita_core::{Boundary, Candidate, Cut, Key, Order, Plan, RowParams, Search, Status, Ties};
use qrita_delta_tables::DeltaTables;

use crate::effective::Effective;
use crate::exec::Exec;
use crate::histogram::walk;
use crate::pivot::{self, Found, Goal, Tally};
use crate::vector::estimate::Bounds;
use crate::vector::{Kernels, Law, Seen};
use crate::workspace::Slot;

/// What is known of the set that was gathered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gathered {
    /// Every candidate of the row above this key is in the set.
    pub(crate) covered_above: Key,
}

/// Where a search looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Gathered,
    Row,
}

/// A prefix of the contract's order: all candidates above a key, and of those equal to it the first `quota` by id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefix {
    pub(crate) key: Key,
    /// Candidates above the key; not known of a prefix that only min-p bounds, or nothing.
    pub(crate) above: Option<u32>,
    /// How many of the tied; [`Prefix::ALL`] for all there are, be it none.
    pub(crate) quota: u32,
}

impl Prefix {
    pub(crate) const ALL: u32 = u32::MAX;
}

/// Top-k's prefix, with what top-p needs of it.
#[derive(Clone, Copy, Debug)]
struct Limit {
    prefix: Prefix,
    /// The weight of its last value.
    weight: u64,
    /// The mass above it.
    mass_above: u64,
}

/// Top-p's prefix, and the greatest need that leads to the same one.
#[derive(Clone, Copy, Debug)]
struct TopP {
    prefix: Prefix,
    up_to: u64,
}

/// A row in work.
pub(crate) struct RowWork<'a, 'w> {
    pub(crate) y: Effective<'a>,
    pub(crate) params: RowParams,
    pub(crate) plan: Plan,
    pub(crate) kernels: &'static Kernels,
    pub(crate) tables: &'a DeltaTables,
    pub(crate) exec: Exec<'w>,
    /// The row's maximum and NaN, from stage 1 on.
    pub(crate) seen: Seen,
    pub(crate) gathered: Gathered,
    /// Whether the gathered set has all that the boundary keeps, from stage 3 on.
    pub(crate) listed: bool,
    /// The mass of all candidates of the row, once it was needed.
    raw_mass: Option<u64>,
    /// Bounds of the mass from a key on, once they were needed.
    bounds: Option<(Key, Bounds)>,
}

impl<'a, 'w> RowWork<'a, 'w> {
    pub(crate) fn new(
        y: Effective<'a>,
        params: RowParams,
        plan: Plan,
        kernels: &'static Kernels,
        tables: &'a DeltaTables,
        exec: Exec<'w>,
    ) -> Self {
        let gathered = Gathered { covered_above: Key::INFINITY };
        RowWork {
            y,
            params,
            plan,
            kernels,
            tables,
            exec,
            seen: Seen::NOTHING,
            gathered,
            listed: false,
            raw_mass: None,
            bounds: None,
        }
    }

    /// Ends the work on a row: its threads, and whether the first slot lists by ascending id what the boundary keeps.
    pub(crate) fn into_list(mut self, boundary: Boundary) -> (Exec<'w>, bool) {
        let gathered = &mut self.exec.first().gathered;
        if self.listed {
            gathered.retain(|candidate| boundary.keeps(candidate.key(), candidate.id()));
            gathered.sort_unstable_by_key(|candidate| candidate.id());
        }
        (self.exec, self.listed)
    }

    /// The row's status, from stage 1 on.
    pub(crate) fn status(&self) -> Status {
        let mut status = Status::OK;
        if self.seen.nan {
            status |= Status::NAN;
        }
        if self.seen.max == f32::INFINITY {
            status |= Status::POS_INF;
        }
        if self.is_empty() {
            status |= Status::EMPTY;
        }
        status
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.seen.max == f32::NEG_INFINITY
    }

    /// The row's law for logits with keys from `floor` on.
    pub(crate) fn law(&self, floor: Key) -> Law {
        Law { max: self.seen.max, temperature: self.params.temperature, floor: floor.value() }
    }

    fn keeps_all_ties(&self) -> bool {
        // Without duplication handling nothing divides a group of ties.
        self.params.ties == Ties::KeepAll || !self.plan.duplicates
    }

    fn k(&self) -> Option<u32> {
        let k = self.params.top_k;
        (k > 0 && (k as usize) < self.y.len()).then_some(k)
    }

    /// The least key that min-p keeps.
    ///
    /// Weight and distance are monotone, so that the weights from a least key on are the sufficient ones: first the
    /// greatest distance with enough weight, then the least key within that distance.
    pub(crate) fn floor(&self) -> Key {
        if self.params.min_p == 0.0 { Key::LEAST } else { self.least_key(need(self.params.min_p, ONE)) }
    }

    /// The least key with at least this weight, which is not 0 and not above [`ONE`].
    pub(crate) fn least_key(&self, least_weight: u64) -> Key {
        let Law { max, temperature, .. } = self.law(Key::LEAST);
        let last = LAST_DISTANCE_BITS as usize;
        let farthest = last_satisfying(last, |bits| weight(f32::from_bits(bits)) >= least_weight);
        let enough = |key: u32| distance(Key::from_bits(key).value(), max, temperature).abs().to_bits() <= farthest;
        let steps = (Key::new(max).bits() - Key::LEAST.bits()) as usize;
        let top = Key::new(max).bits();
        Key::from_bits(top - last_satisfying(steps, |below| enough(top - below)))
    }

    /// Stage 2, search: the prefix that the filters keep. The row is not empty.
    pub(crate) fn search(&mut self) -> Prefix {
        if self.params.temperature == 0.0 {
            return Prefix { key: Key::new(self.seen.max), above: Some(0), quota: 1 };
        }
        let floor = self.floor();
        let source = if self.hit(floor) { Source::Gathered } else { Source::Row };
        let limit = self.search_top_k(source, floor);
        if self.params.top_p >= 1.0 {
            return limit.map_or(Prefix { key: floor, above: None, quota: Prefix::ALL }, |limit| limit.prefix);
        }
        let p = self.params.top_p;
        match limit {
            Some(limit) if self.params.order == Order::TopKThenTopP => {
                let universe = limit.mass_above + limit.weight * self.tied(source, limit.prefix);
                self.search_top_p(source, floor, Some(limit), need(p, universe)).prefix
            }
            _ if source == Source::Gathered => {
                let bounds = self.mass_bounds(floor);
                let top_p = self.search_top_p(source, floor, limit, need(p, bounds.low));
                if need(p, bounds.high) <= top_p.up_to {
                    return top_p.prefix;
                }
                // The cut is not the same for all masses within the bounds.
                let universe = self.mass_from(floor);
                self.search_top_p(source, floor, limit, need(p, universe)).prefix
            }
            None if self.plan.search == Search::Select => self.search_top_p_in_row(floor),
            _ => {
                let universe = self.mass_from(floor);
                self.search_top_p(source, floor, limit, need(p, universe)).prefix
            }
        }
    }

    /// Top-k's prefix; `None` where it is off or there are not as many candidates from `floor` on.
    fn search_top_k(&mut self, source: Source, floor: Key) -> Option<Limit> {
        let k = self.k()?;
        if self.count_from(source, floor) < k as usize {
            return None;
        }
        let Found { key, above, .. } = self.find(source, Goal::Count(k), floor);
        let quota = if self.keeps_all_ties() { Prefix::ALL } else { k - above };
        let weight = self.kernels.weight(key.value(), &self.law(Key::LEAST));
        let mass_above = if self.params.top_p < 1.0 { self.mass_above(source, key) } else { 0 };
        Some(Limit { prefix: Prefix { key, above: Some(above), quota }, weight, mass_above })
    }

    /// The prefix of least mass that has the need, within top-k's where that limits it.
    fn search_top_p(&mut self, source: Source, floor: Key, limit: Option<Limit>, need: u64) -> TopP {
        if need == 0 {
            return self.first_maximum();
        }
        let found = match limit {
            // Top-p's cut is at top-k's value or, with the joint order, below it.
            Some(Limit { prefix: Prefix { key, above: Some(above), .. }, mass_above, .. }) if mass_above < need => {
                Found { key, above, mass_above }
            }
            _ => self.find(source, Goal::Mass(need), floor),
        };
        self.top_p(found, limit, need)
    }

    /// As [`search_top_p`](Self::search_top_p) by histograms of the row, which tell its mass on the way.
    fn search_top_p_in_row(&mut self, floor: Key) -> Prefix {
        let p = self.params.top_p;
        let (found, mass) = self.search_share(floor, |mass| Some(Goal::Mass(need(p, mass))).filter(|_| p > 0.0));
        if floor == Key::LEAST {
            self.raw_mass = Some(mass);
        }
        match found {
            Some((_, found)) => self.top_p(found, None, need(p, mass)).prefix,
            None => self.first_maximum().prefix,
        }
    }

    fn first_maximum(&self) -> TopP {
        let quota = if self.keeps_all_ties() { Prefix::ALL } else { 1 };
        // At p = 0 no mass is needed, whatever the row's is.
        TopP { prefix: Prefix { key: Key::new(self.seen.max), above: Some(0), quota }, up_to: u64::MAX }
    }

    /// The prefix of a need that is met at `found`.
    fn top_p(&self, found: Found, limit: Option<Limit>, need: u64) -> TopP {
        let weight = self.kernels.weight(found.key.value(), &self.law(Key::LEAST));
        // A weight of 0 can only be at top-k's own value, where the joint order has not met its need.
        let quota = if weight == 0 { u64::MAX } else { (need - found.mass_above).div_ceil(weight) };
        let mut up_to = found.mass_above.saturating_add(quota.saturating_mul(weight.max(1)));
        let mut quota = quota.min(u64::from(Prefix::ALL)) as u32;
        if let Some(limit) = limit.filter(|limit| limit.prefix.key == found.key) {
            if limit.prefix.quota <= quota {
                (quota, up_to) = (limit.prefix.quota, u64::MAX);
            }
        }
        if self.keeps_all_ties() {
            quota = Prefix::ALL;
        }
        TopP { prefix: Prefix { key: found.key, above: Some(found.above), quota }, up_to }
    }

    /// Whether the gathered set provably contains the kept set, be it ties that the search can count without.
    pub(crate) fn has_kept_set(&mut self) -> bool {
        let floor = self.floor();
        self.hit(floor)
            && (!self.keeps_all_ties() || self.params.temperature == 0.0 || {
                let prefix = self.search();
                self.covers(prefix.key)
            })
    }

    /// Whether the gathered set provably contains the kept set, but for ties with its least key.
    fn hit(&mut self, floor: Key) -> bool {
        if self.plan.force_fallback {
            return false;
        }
        // From the floor on, everything is there.
        if self.covers(floor) {
            return true;
        }
        let gathered = self.exec.first().gathered.len();
        if self.params.temperature == 0.0 {
            return gathered > 0;
        }
        if let Some(k) = self.k() {
            // The set is a prefix of the order: with k of it, all of it above the floor or not, it has the first k.
            return gathered >= k as usize;
        }
        if self.params.top_p < 1.0 && gathered > 0 {
            let universe = self.mass_bounds(floor).high;
            return self.gathered_mass_where(|_| true) >= need(self.params.top_p, universe);
        }
        false
    }

    /// The candidates of a source with keys from `low` on.
    fn count_from(&mut self, source: Source, low: Key) -> usize {
        match source {
            Source::Gathered => self.exec.first().gathered.iter().filter(|candidate| candidate.key() >= low).count(),
            Source::Row => self.count_row(low),
        }
    }

    /// The row's candidates with keys from `low` on.
    pub(crate) fn count_row(&mut self, low: Key) -> usize {
        let kernels = self.kernels;
        let below = low.value().next_down();
        self.sum_over_row(move |tile| kernels.count_above(tile, below))
    }

    /// The row's candidates with this key.
    pub(crate) fn count_equal(&mut self, key: Key) -> usize {
        let kernels = self.kernels;
        self.sum_over_row(move |tile| kernels.count_equal(tile, key.value()))
    }

    fn sum_over_row(&mut self, count: impl Fn(&[f32]) -> usize + Sync) -> usize {
        let y = self.y;
        self.exec.pass(y.len(), |slot, range| {
            let mut sum = 0;
            y.tiles(range, &mut slot.tile, |_, tile| sum += count(tile));
            slot.part.count = sum;
        });
        self.exec.slots.iter().map(|slot| slot.part.count).sum()
    }

    /// The mass of the row's candidates with keys from `floor` on.
    pub(crate) fn mass_from(&mut self, floor: Key) -> u64 {
        match self.raw_mass {
            Some(mass) if floor == Key::LEAST => return mass,
            _ => {}
        }
        let (y, kernels, law) = (self.y, self.kernels, self.law(floor));
        self.exec.pass(y.len(), |slot, range| {
            let mut mass = 0;
            y.tiles(range, &mut slot.tile, |_, tile| mass += kernels.mass(tile, &law));
            slot.part.mass = mass;
        });
        let mass = self.exec.slots.iter().map(|slot| slot.part.mass).sum();
        if floor == Key::LEAST {
            self.raw_mass = Some(mass);
        }
        mass
    }

    /// An interval that holds the mass of the row's candidates with keys from `floor` on, at the cost of a floating-point
    /// pass.
    fn mass_bounds(&mut self, floor: Key) -> Bounds {
        if let Some((_, bounds)) = self.bounds.filter(|(at, _)| *at == floor) {
            return bounds;
        }
        let bounds = match self.raw_mass {
            Some(mass) if floor == Key::LEAST => Bounds::exact(mass),
            _ if self.seen.max.is_finite() => {
                let (y, kernels, law) = (self.y, self.kernels, self.law(floor));
                self.exec.pass(y.len(), |slot, range| {
                    let mut sum = 0.0;
                    y.tiles(range, &mut slot.tile, |_, tile| sum += kernels.estimate(tile, &law));
                    slot.part.sum = sum;
                });
                let sum = self.exec.slots.iter().map(|slot| slot.part.sum).sum();
                Bounds::around(sum, kernels.relative, y.len())
            }
            _ => Bounds::exact(self.mass_from(floor)),
        };
        self.bounds = Some((floor, bounds));
        bounds
    }

    /// The mass of all candidates of the row.
    pub(crate) fn raw_mass(&mut self) -> u64 {
        self.mass_from(Key::LEAST)
    }

    fn gathered_mass_where(&mut self, belongs: impl Fn(Candidate) -> bool) -> u64 {
        let (kernels, law) = (self.kernels, self.law(Key::LEAST));
        let Slot { gathered, tile, .. } = self.exec.first();
        let mut mass = 0;
        for part in gathered.chunks(tile.len()) {
            let mut filled = 0;
            for candidate in part.iter().filter(|candidate| belongs(**candidate)) {
                tile[filled] = candidate.logit();
                filled += 1;
            }
            mass += kernels.mass(&tile[..filled], &law);
        }
        mass
    }

    /// The mass above a key, which top-k found in this source.
    fn mass_above(&mut self, source: Source, key: Key) -> u64 {
        match source {
            Source::Gathered => self.gathered_mass_where(|candidate| candidate.key() > key),
            Source::Row if key == Key::INFINITY => 0,
            Source::Row => self.mass_from(Key::from_bits(key.bits() + 1)),
        }
    }

    /// How many candidates with the prefix's key belong to it.
    fn tied(&mut self, source: Source, prefix: Prefix) -> u64 {
        if prefix.quota != Prefix::ALL {
            u64::from(prefix.quota)
        } else if source == Source::Gathered && self.covers(prefix.key) {
            let gathered = &self.exec.first().gathered;
            gathered.iter().filter(|candidate| candidate.key() == prefix.key).count() as u64
        } else {
            self.count_equal(prefix.key) as u64
        }
    }

    /// Finds where a goal is met, by the plan's search. The source's candidates with keys from `floor` on meet it.
    fn find(&mut self, source: Source, goal: Goal, floor: Key) -> Found {
        let max = Key::new(self.seen.max);
        // What weighs nothing can not help to meet a need.
        let floor = if goal.needs_mass() { floor.max(self.least_key(1)) } else { floor };
        match (self.plan.search, source) {
            (Search::Quaternary, _) => pivot::search(goal, floor, max, 3, |at| self.tally(source, goal, at)),
            (Search::Binary, _) => pivot::search(goal, floor, max, 1, |at| self.tally(source, goal, at)),
            (Search::Select, Source::Row) => self.search_histogram(goal, floor, max),
            (Search::Sort, Source::Row) => {
                self.gather_from(floor);
                self.search_sorted(goal)
            }
            (Search::Sort, Source::Gathered) => self.search_sorted(goal),
            (Search::Select, Source::Gathered) => match goal {
                Goal::Count(k) => self.select_count(k),
                Goal::Mass(_) => self.select_mass(goal),
            },
        }
    }

    /// One pass of the pivot search.
    fn tally(&mut self, source: Source, goal: Goal, at: [u32; 3]) -> [Tally; 3] {
        let (y, kernels, law) = (self.y, self.kernels, self.law(Key::LEAST));
        let tally_tile = |tile: &[f32], weights: &mut [u64], tallies: &mut [Tally; 3]| {
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
                let mut tallies = <[Tally; 3]>::default();
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
                    let mut tallies = <[Tally; 3]>::default();
                    weights.fill(0);
                    y.tiles(range, tile, |_, tile| tally_tile(tile, &mut weights[..tile.len()], &mut tallies));
                    part.tallies = tallies;
                });
                self.exec.slots.iter().fold(Default::default(), |sum: [Tally; 3], slot| {
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
    fn select_mass(&mut self, goal: Goal) -> Found {
        let (kernels, law) = (self.kernels, self.law(Key::LEAST));
        let Slot { gathered, ordered, .. } = self.exec.first();
        ordered.clone_from(gathered);
        let (mut start, mut portion) = (0, 64);
        let (mut above, mut mass) = (0, 0);
        loop {
            let end = ordered.len().min(start + portion);
            if end < ordered.len() {
                ordered[start..].select_nth_unstable_by(end - start - 1, |a, b| b.cmp(a));
            }
            ordered[start..end].sort_unstable_by(|a, b| b.cmp(a));
            let met = ordered[start..end].iter().position(|candidate| {
                mass += kernels.weight(candidate.logit(), &law);
                mass >= match goal {
                    Goal::Mass(need) => need,
                    Goal::Count(_) => 0,
                }
            });
            if let Some(at) = met {
                let key = ordered[start + at].key();
                // A group of ties is one value: back to its first.
                let first = ordered[..=start + at].partition_point(|candidate| candidate.key() > key);
                let tied = (start + at + 1 - first) as u64;
                above += first as u32;
                return Found { key, above, mass_above: mass - tied * kernels.weight(key.value(), &law) };
            }
            if end == ordered.len() {
                debug_assert!(false, "the goal is met by the whole set");
                return Found { key: Key::LEAST, above: end as u32, mass_above: mass };
            }
            (start, portion) = (end, portion * 4);
        }
    }

    /// Stage 3, dedup: the last token of a prefix.
    pub(crate) fn dedup(&mut self, prefix: Prefix) -> Boundary {
        let max = Key::new(self.seen.max);
        let Prefix { key, above, quota } = prefix;
        self.listed = self.has(prefix);
        let source = if self.listed { Source::Gathered } else { Source::Row };
        match above {
            Some(above) if quota != Prefix::ALL => {
                Boundary { max, key, id: self.tied_id(source, key, quota), kept: above + quota }
            }
            _ => Boundary { max, key, id: u32::MAX, kept: self.count_from(source, key) as u32 },
        }
    }

    /// Whether the gathered set has all of a prefix.
    fn has(&mut self, prefix: Prefix) -> bool {
        let covers = self.covers(prefix.key);
        // At its own least key the set is a prefix of the order too: it has the ties with the lowest ids.
        let tied = self.exec.first().gathered.iter().filter(|candidate| candidate.key() == prefix.key);
        covers
            || (prefix.key == self.gathered.covered_above
                && prefix.quota != Prefix::ALL
                && tied.count() >= prefix.quota as usize)
    }

    /// The cut of a prefix, with the counts that only the stage's own output needs.
    pub(crate) fn cut(&mut self, prefix: Prefix) -> Cut {
        let max = Key::new(self.seen.max);
        let key = match prefix.above {
            Some(_) => prefix.key,
            None => self.least_from(prefix.key),
        };
        let above = match prefix.above {
            Some(above) => above as usize,
            None if key == Key::INFINITY => 0,
            None => self.count_row(Key::from_bits(key.bits() + 1)),
        };
        let tied = self.count_equal(key) as u32;
        Cut { max, key, above: above as u32, tied, quota: prefix.quota.min(tied) }
    }

    fn least_from(&mut self, low: Key) -> Key {
        let (y, kernels) = (self.y, self.kernels);
        self.exec.pass(y.len(), |slot, range| {
            let mut least = f32::INFINITY;
            y.tiles(range, &mut slot.tile, |_, tile| {
                least = least.min(kernels.least_from(tile, low.value(), f32::INFINITY).0);
            });
            slot.part.least = least;
        });
        Key::new(self.exec.slots.iter().map(|slot| slot.part.least).fold(f32::INFINITY, f32::min))
    }

    /// The id of the `quota`-th candidate with this key; the last one's where there are fewer.
    pub(crate) fn tied_id(&mut self, source: Source, key: Key, quota: u32) -> u32 {
        let mut left = quota as usize;
        let mut last = 0;
        if source == Source::Gathered {
            for candidate in self.exec.first().gathered.iter().filter(|candidate| candidate.key() == key) {
                last = candidate.id();
                left -= 1;
                if left == 0 {
                    break;
                }
            }
            return last;
        }
        // One thread: a quota is most often met early in the row, and the pass is a compare and a count.
        let (y, kernels, value) = (self.y, self.kernels, key.value());
        let Slot { tile, .. } = self.exec.first();
        y.tiles_until(0..y.len(), tile, |first, tile| {
            let count = kernels.count_equal(tile, value);
            if count == 0 {
                return false;
            }
            let nth = left.min(count);
            let tied = tile.iter().enumerate().filter(|(_, y)| **y == value);
            last = first as u32 + tied.map(|(i, _)| i as u32).nth(nth - 1).unwrap_or(0);
            left -= nth;
            left == 0
        });
        last
    }
}

/// The last of the integers `0 ..= end` that satisfies a predicate which, once false, stays false. 0 satisfies it.
fn last_satisfying(end: usize, satisfies: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (0, end);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if satisfies(middle as u32) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low as u32
}
