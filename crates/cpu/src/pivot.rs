//! Pivot search over ordered keys (paper, pivot search): quaternary with three pivots a pass, binary with one.
//!
//! # The search
//!
//! Wanted is the key `κ` at which a goal is met: the k-th largest key, or the key at which the mass from the top reaches
//! the need. Invariant: the goal is met by the candidates with keys from `low` on, and not by those above `high`. A pass
//! counts, for each pivot `p`, the candidates from `p` on (`N`), their mass, their least key and how many have that key
//! (`N_min`). The largest pivot that meets the goal becomes `low`, the next pivot bounds `high`. The paper's rule ends
//! it: when a pivot meets the goal and would not without its least key (`N ≥ k` and `N − N_min < k`), that least key is
//! `κ`.
//!
//! # Cost and proof
//!
//! Keys are integers, so that each quaternary pass leaves at most a quarter of an interval of at most 2^32 keys, rounded
//! up: at most 17 passes, 33 for binary, whatever the values are. There is no tolerance that logits closer than 1e-9
//! could fall into, and no iteration cap that could be wrong: with `low = high` the rule's condition is the invariant.

use qrita_core::Key;

/// The most pivots of a pass: what is not compiled in is not tallied either.
pub(crate) const MOST_PIVOTS: usize = if cfg!(feature = "quaternary") { 3 } else { 1 };

/// One number for each pivot.
pub(crate) type EachPivot<T> = [T; MOST_PIVOTS];

/// What to reach, counting from the largest candidate down.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// This many candidates, at least 1.
    Count(u32),
    /// This mass, at least 1.
    Mass(u64),
}

impl Goal {
    pub(crate) fn needs_mass(self) -> bool {
        matches!(self, Goal::Mass(_))
    }

    /// Whether a count and a mass meet it.
    #[inline]
    pub(crate) fn met(self, count: u32, mass: u64) -> bool {
        match self {
            Goal::Count(k) => count >= k,
            Goal::Mass(need) => mass >= need,
        }
    }
}

/// Where a goal is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The key at which it is met.
    pub(crate) key: Key,
    /// Candidates above the key.
    pub(crate) above: u32,
    /// Their mass, where the goal is one.
    pub(crate) mass_above: u64,
}

/// The candidates from one pivot on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) count: u32,
    pub(crate) mass: u64,
    /// Bits of the least key; `u32::MAX` when there is no candidate.
    pub(crate) least: u32,
    /// Candidates that have it, and their mass.
    pub(crate) least_count: u32,
    pub(crate) least_mass: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Tally { count: 0, mass: 0, least: u32::MAX, least_count: 0, least_mass: 0 }
    }
}

impl Tally {
    #[inline]
    pub(crate) fn add(&mut self, pivot: u32, key: u32, weight: u64) {
        if key >= pivot {
            self.count += 1;
            self.mass += weight;
            if key < self.least {
                (self.least, self.least_count, self.least_mass) = (key, 0, 0);
            }
            if key == self.least {
                self.least_count += 1;
                self.least_mass += weight;
            }
        }
    }

    /// The tally of both parts of a set.
    pub(crate) fn merge(self, other: Tally) -> Tally {
        let least = self.least.min(other.least);
        let of = |part: Tally| if part.least == least { (part.least_count, part.least_mass) } else { (0, 0) };
        let (a, b) = (of(self), of(other));
        Tally {
            count: self.count + other.count,
            mass: self.mass + other.mass,
            least,
            least_count: a.0 + b.0,
            least_mass: a.1 + b.1,
        }
    }
}

/// Searches `low ..= high` for the key that meets `goal`, with `pivots` pivots a pass: 1 or [`MOST_PIVOTS`].
///
/// `pass` tallies the candidates from each pivot on; unused pivots repeat the last. The goal must be met by the
/// candidates from `low` on and none may lie above `high`.
pub(crate) fn search(
    goal: Goal,
    mut low: Key,
    mut high: Key,
    pivots: usize,
    mut pass: impl FnMut(EachPivot<u32>) -> EachPivot<Tally>,
) -> Found {
    loop {
        let span = u64::from(high.bits() - low.bits()) + 1;
        let pivot = |i: usize| low.bits() + (span * i.min(pivots) as u64 / (pivots as u64 + 1)) as u32;
        let at: EachPivot<u32> = std::array::from_fn(|i| pivot(i + 1));
        let tallies = pass(at);
        let (start, end) = (low.bits(), high.bits());
        let mut upper = end;
        let mut lower = start;
        for i in (0..pivots).rev() {
            let tally = tallies[i];
            if !goal.met(tally.count, tally.mass) {
                upper = at[i] - 1;
                continue;
            }
            let (above, mass_above) = (tally.count - tally.least_count, tally.mass - tally.least_mass);
            if !goal.met(above, mass_above) {
                return Found { key: Key::from_bits(tally.least), above, mass_above };
            }
            // The goal is met without the least key, so that the answer lies above it.
            lower = tally.least + 1;
            break;
        }
        (low, high) = (Key::from_bits(lower), Key::from_bits(upper));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a sort, and within the number of passes that the proof gives.
        #[test]
        fn finds_the_key_that_a_sort_finds(
            mut keys in prop::collection::vec(
                prop_oneof![any::<u32>(), 5u32..9, Just(u32::MAX - 1), 0x8000_0000u32..0x8000_0400], 1..200),
            share in 0.0f64..1.0,
            by_mass in any::<bool>(),
        ) {
            keys.sort_unstable_by(|a, b| b.cmp(a));
            let weight = |key: u32| u64::from(key % 7 + 1);
            let total = keys.iter().map(|&key| weight(key)).sum::<u64>();
            let goal = if by_mass {
                Goal::Mass(((total as f64 * share) as u64).max(1))
            } else {
                Goal::Count(((keys.len() as f64 * share) as u32).max(1))
            };
            let (mut count, mut mass) = (0, 0);
            let key = keys.iter().copied().find(|&key| {
                count += 1;
                mass += weight(key);
                goal.met(count, mass)
            }).unwrap();
            let above = keys.iter().filter(|&&other| other > key);
            let expected = Found {
                key: Key::from_bits(key),
                above: above.clone().count() as u32,
                mass_above: above.map(|&key| weight(key)).sum(),
            };
            let passes_of = [(1, 33), (3, 17)];
            for (pivots, most) in passes_of.into_iter().filter(|(pivots, _)| *pivots <= MOST_PIVOTS) {
                let mut passes = 0;
                let (low, high) = (Key::from_bits(0), Key::from_bits(keys[0]));
                let found = search(goal, low, high, pivots, |at| {
                    passes += 1;
                    at.map(|pivot| {
                        let mut tally = Tally::default();
                        keys.iter().for_each(|&key| tally.add(pivot, key, weight(key)));
                        tally
                    })
                });
                prop_assert_eq!(found, expected);
                prop_assert!(passes <= most, "{} passes", passes);
            }
        }
    }
}
