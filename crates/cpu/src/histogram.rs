//! Search in a whole row by histograms of keys: what the default plan does when the gathered set does not hold the
//! answer.
//!
//! Flat rows, of which top-p keeps half the vocabulary, and huge groups of ties are not rare, so this path is made to be
//! fast and its memory does not grow with the row. One pass counts candidates and mass in 2048 equal ranges of keys; the
//! range where the goal is met is then gathered and divided again among the gathered alone if it is small. If it is
//! large, one cheap pass narrows it to the keys that occur in it, which ends the search at once for ties, and the next
//! histogram of the row divides what is left. Each level divides by 2048, so that 2^32 keys take at most three.

use qrita_core::Key;

use crate::effective::TILE;
use crate::find::walk;
use crate::pivot::{Found, Goal};
use crate::row::RowWork;
use crate::vector::{Kernels, Law};
use crate::workspace::{BUCKETS, Bucket, Slot};

/// A range of keys with at most this many candidates is gathered.
const SMALL: u64 = 16384;
/// A range with at most this many is sorted.
const TINY: u64 = 256;

/// Logits that are added together where they fall into one bucket: adding ties one by one would wait for the memory of
/// that bucket each time.
const RUN: usize = 16;

/// The integer between the keys of the least negative number and of 0.
const NEGATIVE_ZERO: u32 = 0x7FFF_FFFF;

/// A division of a range of keys into buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Division {
    low: Key,
    high: Key,
    shift: u32,
}

impl Division {
    fn new(low: Key, high: Key) -> Division {
        let span = u64::from(high.bits() - low.bits()) + 1;
        Division { low, high, shift: span.div_ceil(BUCKETS as u64).next_power_of_two().trailing_zeros() }
    }

    /// The keys of one bucket, which holds a candidate.
    fn bucket(self, bucket: usize) -> (Key, Key) {
        let low = self.low.bits() + ((bucket as u32) << self.shift);
        let high = self.high.bits().min(low + ((1 << self.shift) - 1));
        // The integer of −0 is no logit's key. As a number it would let the bucket end with +0, which is in the next one.
        let high = if high == NEGATIVE_ZERO { high - 1 } else { high };
        (Key::from_bits(low), Key::from_bits(high))
    }

    /// Adds a tile to a histogram; masses too where `law` says so.
    #[inline]
    fn add(self, tile: &[f32], law: Option<&Law>, kernels: &Kernels, scratch: Scratch<'_>) {
        let Scratch { weights, buckets, histogram } = scratch;
        let (buckets, weights) = (&mut buckets[..tile.len()], &mut weights[..tile.len()]);
        let span = self.high.bits() - self.low.bits();
        kernels.buckets(tile, self.low.bits(), span, self.shift, BUCKETS as u32, buckets);
        match law {
            Some(law) => {
                kernels.weights(tile, law, weights);
                for (buckets, weights) in buckets.chunks(RUN).zip(weights.chunks(RUN)) {
                    let first = buckets[0];
                    if buckets.iter().fold(0, |differ, &bucket| differ | (bucket ^ first)) == 0 {
                        histogram[first as usize].add(weights.len() as u64, weights.iter().sum());
                    } else {
                        for (&bucket, &weight) in buckets.iter().zip(weights) {
                            histogram[bucket as usize].add(1, weight);
                        }
                    }
                }
            }
            None => buckets.iter().for_each(|&bucket| histogram[bucket as usize].count += 1),
        }
    }
}

/// The parts of a slot that a histogram is made in.
struct Scratch<'s> {
    weights: &'s mut [u64; TILE],
    buckets: &'s mut [u32; TILE],
    histogram: &'s mut [Bucket; BUCKETS + 1],
}

/// Walks a histogram from the top to the bucket where the goal is met; `start` becomes what lies above it.
fn walk_down(goal: Goal, histogram: &[Bucket; BUCKETS + 1], start: &mut Found) -> usize {
    for bucket in (1..BUCKETS).rev() {
        let Bucket { count, mass } = histogram[bucket];
        if goal.met(start.above + count as u32, start.mass_above + mass) {
            return bucket;
        }
        start.above += count as u32;
        start.mass_above += mass;
    }
    0
}

impl RowWork<'_, '_> {
    /// The mass of all candidates from `floor` on, and where the `need` that it makes is met, unless that is 0. The first
    /// histogram tells the mass, so that no pass is made for it alone.
    pub(crate) fn search_share(&mut self, floor: Key, need: impl Fn(u64) -> u64) -> (u64, Option<Found>) {
        let (low, high) = (floor.max(self.least_key(1)), Key::new(self.seen.max));
        let division = Division::new(low, high);
        self.fill_histogram(division, true);
        let mass = self.exec.first().histogram[..BUCKETS].iter().map(|bucket| bucket.mass).sum();
        let need = need(mass);
        (mass, (need > 0).then(|| self.descend(Goal::Mass(need), division)))
    }

    /// Finds where `goal` is met among the row's candidates with keys in `low ..= high`. As for the pivot search, the
    /// goal must be met from `low` on.
    pub(crate) fn search_histogram(&mut self, goal: Goal, low: Key, high: Key) -> Found {
        let division = Division::new(low, high);
        self.fill_histogram(division, goal.needs_mass());
        self.descend(goal, division)
    }

    /// Descends from the histogram of a division, which is in the first slot, to the key.
    fn descend(&mut self, goal: Goal, mut division: Division) -> Found {
        let mut found = Found { key: division.low, above: 0, mass_above: 0 };
        loop {
            let histogram = &self.exec.first().histogram;
            let bucket = walk_down(goal, histogram, &mut found);
            let count = histogram[bucket].count;
            let (mut low, mut high) = division.bucket(bucket);
            if low < high && count <= SMALL {
                return self.search_range(goal, low, high, found);
            }
            if low < high {
                (low, high) = self.narrow(low, high);
            }
            if low == high {
                return Found { key: low, ..found };
            }
            division = Division::new(low, high);
            self.fill_histogram(division, goal.needs_mass());
        }
    }

    /// Makes the histogram of the row in the first slot.
    fn fill_histogram(&mut self, division: Division, with_mass: bool) {
        let (y, kernels, law) = (self.y, self.kernels, self.law(Key::LEAST));
        self.exec.pass(y.len(), |slot, range| {
            let Slot { tile, weights, buckets, histogram, .. } = slot;
            histogram.fill(Bucket::default());
            y.tiles(range, tile, |_, tile| {
                let scratch = Scratch { weights, buckets, histogram };
                division.add(tile, with_mass.then_some(&law), kernels, scratch);
            });
        });
        let [first, rest @ ..] = &mut *self.exec.slots else { return };
        for slot in rest {
            for (sum, part) in first.histogram.iter_mut().zip(&*slot.histogram) {
                sum.mass += part.mass;
                sum.count += part.count;
            }
        }
    }

    /// The range of the keys that occur within `low ..= high`; one does.
    fn narrow(&mut self, low: Key, high: Key) -> (Key, Key) {
        let (y, kernels) = (self.y, self.kernels);
        self.exec.pass(y.len(), |slot, range| {
            let (mut least, mut greatest) = (f32::INFINITY, f32::NEG_INFINITY);
            y.tiles(range, &mut slot.tile, |_, tile| {
                let within = kernels.least_from(tile, low.value(), high.value());
                least = least.min(within.0);
                greatest = greatest.max(within.1);
            });
            (slot.part.least, slot.part.greatest) = (least, greatest);
        });
        let parts = || self.exec.slots.iter().map(|slot| slot.part);
        let least = parts().map(|part| part.least).fold(f32::INFINITY, f32::min);
        let greatest = parts().map(|part| part.greatest).fold(f32::NEG_INFINITY, f32::max);
        (Key::new(least), Key::new(greatest))
    }

    /// Gathers the candidates in `low ..= high` and searches among them, on top of what lies above the range.
    fn search_range(&mut self, goal: Goal, mut low: Key, mut high: Key, mut found: Found) -> Found {
        let (y, kernels, law) = (self.y, self.kernels, self.law(Key::LEAST));
        let range_of_values = (low.value(), high.value());
        self.exec.pass(y.len(), |slot, range| {
            let Slot { tile, ordered, .. } = slot;
            ordered.clear();
            y.tiles(range, tile, |first, tile| kernels.scan_range(tile, first as u32, range_of_values, ordered));
        });
        let [first, rest @ ..] = &mut *self.exec.slots else { return found };
        for slot in rest {
            first.ordered.extend_from_slice(&slot.ordered);
        }
        let Slot { tile, weights, buckets, histogram, ordered, .. } = first;
        while low < high && ordered.len() as u64 > TINY {
            let division = Division::new(low, high);
            histogram.fill(Bucket::default());
            for part in ordered.chunks(TILE) {
                tile.iter_mut().zip(part).for_each(|(y, candidate)| *y = candidate.logit());
                let scratch = Scratch { weights, buckets, histogram };
                division.add(&tile[..part.len()], goal.needs_mass().then_some(&law), kernels, scratch);
            }
            (low, high) = division.bucket(walk_down(goal, histogram, &mut found));
            ordered.retain(|candidate| (low..=high).contains(&candidate.key()));
        }
        if low == high {
            return Found { key: low, ..found };
        }
        ordered.sort_unstable_by(|a, b| b.cmp(a));
        walk(goal, ordered, found, |candidate| kernels.weight(candidate.logit(), &law))
    }
}
