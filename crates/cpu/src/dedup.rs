//! Stage 3, dedup: the last token that a prefix keeps (paper, duplication handling).
//!
//! Every kept set is a prefix of the contract's order, so one boundary describes it: the key and the id of its last
//! token. With a key and a quota known, that is the id of the quota-th of the candidates equal to the key: a count of
//! equals along the row that stops when the quota is met, or a look into the gathered set where that has them.
//!
//! Without the feature `duplicates` there are no quotas: all equals are kept or, at temperature 0, the first.

use qrita_core::{Boundary, Cut, Key};

use crate::row::{Prefix, RowWork, Source};
use crate::workspace::Slot;

impl RowWork<'_, '_> {
    /// Stage 3, dedup: the last token of a prefix.
    pub(crate) fn dedup(&mut self, prefix: Prefix) -> Boundary {
        let max = Key::new(self.seen.max);
        let Prefix { key, above, quota } = prefix;
        self.listed = self.has(prefix);
        let source = if self.listed { Source::Gathered } else { Source::Row };
        match above {
            Some(above) if quota != Prefix::ALL => {
                Boundary { max, key, id: self.tied_id(source, key, quota), kept: above.saturating_add(quota) }
            }
            _ => Boundary { max, key, id: u32::MAX, kept: self.count_from(source, key) as u32 },
        }
    }

    /// Stage 3 alone: the last token of a cut of the caller's.
    #[cfg(feature = "duplicates")]
    pub(crate) fn dedup_cut(&mut self, Cut { key, above, quota, .. }: Cut) -> Boundary {
        self.dedup(Prefix { key, above: Some(above), quota })
    }

    /// Stage 3 alone: the last token of a cut of the caller's, whose quota is not looked at.
    #[cfg(not(feature = "duplicates"))]
    pub(crate) fn dedup_cut(&mut self, Cut { key, above, .. }: Cut) -> Boundary {
        let greedy = self.params.temperature == 0.0;
        let quota = if greedy { 1 } else { Prefix::ALL };
        let mut boundary = self.dedup(Prefix { key, above: Some(above), quota });
        if !greedy {
            boundary.id = self.last_id(key);
        }
        boundary
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
        let above = prefix.above.map_or_else(|| self.count_above(key), |above| above as usize);
        let tied = self.count_equal(key) as u32;
        Cut { max, key, above: above as u32, tied, quota: prefix.quota.min(tied) }
    }

    /// The id of the `quota`-th candidate with this key; the last one's where there are fewer.
    #[cfg(feature = "duplicates")]
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

    /// The id of the first candidate with this key: there is no other quota than the 1 of temperature 0.
    #[cfg(not(feature = "duplicates"))]
    fn tied_id(&mut self, source: Source, key: Key, _quota: u32) -> u32 {
        let (y, value) = (self.y, key.value());
        let Slot { tile, gathered, .. } = self.exec.first();
        if source == Source::Gathered {
            return gathered.iter().find(|candidate| candidate.key() == key).map_or(0, |candidate| candidate.id());
        }
        let mut id = 0;
        y.tiles_until(0..y.len(), tile, |first, tile| {
            let found = tile.iter().position(|y| *y == value);
            id = found.map_or(0, |i| first as u32 + i as u32);
            found.is_some()
        });
        id
    }

    /// The id of the row's last candidate with this key.
    #[cfg(not(feature = "duplicates"))]
    fn last_id(&mut self, key: Key) -> u32 {
        let (y, value) = (self.y, key.value());
        let mut id = 0;
        y.tiles(0..y.len(), &mut self.exec.first().tile, |first, tile| {
            if let Some(i) = tile.iter().rposition(|y| *y == value) {
                id = first as u32 + i as u32;
            }
        });
        id
    }
}
