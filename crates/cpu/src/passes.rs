//! Passes over a row, or over the set gathered from it, that come to one number: counts, masses, bounds of a mass.

use qrita_core::{Candidate, Key};

use crate::row::{Prefix, RowWork, Source};
use crate::vector::estimate::Bounds;
use crate::workspace::Slot;

impl RowWork<'_, '_> {
    /// The candidates of a source with keys from `low` on.
    pub(crate) fn count_from(&mut self, source: Source, low: Key) -> usize {
        match source {
            Source::Gathered => self.exec.first().gathered.iter().filter(|candidate| candidate.key() >= low).count(),
            Source::Row => self.count_row(low),
        }
    }

    /// The row's candidates with keys from `low` on.
    pub(crate) fn count_row(&mut self, low: Key) -> usize {
        self.count_greater(low.value().next_down())
    }

    /// The row's candidates with greater keys.
    pub(crate) fn count_above(&mut self, key: Key) -> usize {
        self.count_greater(key.value())
    }

    fn count_greater(&mut self, value: f32) -> usize {
        let kernels = self.kernels;
        self.sum_over_row(move |tile| kernels.count_above(tile, value))
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
    pub(crate) fn mass_bounds(&mut self, floor: Key) -> Bounds {
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

    pub(crate) fn gathered_mass_where(&mut self, belongs: impl Fn(Candidate) -> bool) -> u64 {
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
    pub(crate) fn mass_above(&mut self, source: Source, key: Key) -> u64 {
        match source {
            Source::Gathered => self.gathered_mass_where(|candidate| candidate.key() > key),
            Source::Row if key == Key::INFINITY => 0,
            Source::Row => self.mass_from(Key::from_bits(key.bits() + 1)),
        }
    }

    /// How many candidates with the prefix's key belong to it.
    pub(crate) fn tied(&mut self, source: Source, prefix: Prefix) -> u64 {
        if prefix.quota != Prefix::ALL {
            u64::from(prefix.quota)
        } else if source == Source::Gathered && self.covers(prefix.key) {
            let gathered = &self.exec.first().gathered;
            gathered.iter().filter(|candidate| candidate.key() == prefix.key).count() as u64
        } else {
            self.count_equal(prefix.key) as u64
        }
    }

    /// The least key from `low` on that a candidate has.
    pub(crate) fn least_from(&mut self, low: Key) -> Key {
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
}
