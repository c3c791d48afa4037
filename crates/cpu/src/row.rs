//! One row's call: which searches its filters need, and in which set.
//!
//! Every filter keeps a prefix of the contract's order, so that the kept set is always the shorter of two prefixes and
//! one [`Prefix`] describes it. The stages compose as in the paper: the gathered set of stage 1 answers where it provably
//! can, the whole row where it can not.

use qrita_core::weight::{LAST_DISTANCE_BITS, ONE, distance, need, weight};
use qrita_core::{Boundary, Key, Order, Plan, RowParams, Search, Status, Ties};
#[cfg(feature = "truncation")]
use qrita_delta_tables::DeltaTables;

use crate::effective::Effective;
use crate::exec::Exec;
use crate::pivot::{Found, Goal};
use crate::vector::estimate::Bounds;
use crate::vector::{Kernels, Law, Seen};

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
    #[cfg(feature = "truncation")]
    pub(crate) tables: &'a DeltaTables,
    pub(crate) exec: Exec<'w>,
    /// The row's maximum and NaN, from stage 1 on.
    pub(crate) seen: Seen,
    pub(crate) gathered: Gathered,
    /// Whether the gathered set has all that the boundary keeps, from stage 3 on.
    pub(crate) listed: bool,
    /// The mass of all candidates of the row, once it was needed.
    pub(crate) raw_mass: Option<u64>,
    /// Bounds of the mass from a key on, once they were needed.
    pub(crate) bounds: Option<(Key, Bounds)>,
}

impl<'a, 'w> RowWork<'a, 'w> {
    pub(crate) fn new(
        y: Effective<'a>,
        params: RowParams,
        plan: Plan,
        kernels: &'static Kernels,
        #[cfg(feature = "truncation")] tables: &'a DeltaTables,
        exec: Exec<'w>,
    ) -> Self {
        let gathered = Gathered { covered_above: Key::INFINITY };
        RowWork {
            y,
            params,
            plan,
            kernels,
            #[cfg(feature = "truncation")]
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
        !cfg!(feature = "duplicates") || self.params.ties == Ties::KeepAll || !self.plan.duplicates
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

    /// Stages 1 to 3: what the row keeps, and its status.
    pub(crate) fn run(&mut self) -> (Boundary, Status) {
        self.truncate();
        let status = self.status();
        (self.boundary(), status)
    }

    /// Stages 2 and 3 of a row that was truncated.
    pub(crate) fn boundary(&mut self) -> Boundary {
        if self.is_empty() {
            return Boundary::EMPTY;
        }
        let prefix = self.search();
        self.dedup(prefix)
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
            _ if source == Source::Gathered => self.search_certified(floor, limit).unwrap_or_else(|| {
                let universe = self.mass_from(floor);
                self.search_top_p(source, floor, limit, need(p, universe)).prefix
            }),
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

    /// Top-p's prefix among the gathered, by bounds of the mass from `floor` on; `None` if the cut is not the same for all
    /// masses within them.
    fn search_certified(&mut self, floor: Key, limit: Option<Limit>) -> Option<Prefix> {
        let (p, bounds) = (self.params.top_p, self.mass_bounds(floor));
        let top_p = self.search_top_p(Source::Gathered, floor, limit, need(p, bounds.low));
        (need(p, bounds.high) <= top_p.up_to).then_some(top_p.prefix)
    }

    /// Whether top-p is given bounds of a mass, and they leave its cut open. The gathered set has what is kept.
    pub(crate) fn straddles(&mut self) -> bool {
        if self.params.top_p >= 1.0 || self.params.temperature == 0.0 {
            return false;
        }
        let floor = self.floor();
        let limit = self.search_top_k(Source::Gathered, floor);
        let by_bounds = limit.is_none() || self.params.order == Order::Joint;
        by_bounds && self.search_certified(floor, limit).is_none()
    }

    /// As [`search_top_p`](Self::search_top_p) by histograms of the row, which tell its mass on the way.
    fn search_top_p_in_row(&mut self, floor: Key) -> Prefix {
        let p = self.params.top_p;
        let (mass, found) = self.search_share(floor, |mass| need(p, mass));
        if floor == Key::LEAST {
            self.raw_mass = Some(mass);
        }
        match found {
            Some(found) => self.top_p(found, None, need(p, mass)).prefix,
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
        if let Some(Limit { prefix, .. }) = limit
            && prefix.key == found.key
            && prefix.quota <= quota
        {
            (quota, up_to) = (prefix.quota, u64::MAX);
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
                // Top-p needs the whole tie group at top-k's cut.
                let limit = self.search_top_k(Source::Gathered, floor);
                let last = limit.map_or_else(|| self.search().key, |limit| limit.prefix.key);
                self.covers(last)
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
