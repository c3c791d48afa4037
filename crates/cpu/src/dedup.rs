//! Stage 3, dedup: the last token that a prefix keeps (paper, duplication handling).
//!
//! Every kept set is a prefix of the contract's order, so one boundary describes it: the key and the id of its last
//! token. With a key and a quota known, that is the id of the quota-th of the candidates equal to the key: a count of
//! equals along the row that stops when the quota is met, or a look into the gathered set where that has them.

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
