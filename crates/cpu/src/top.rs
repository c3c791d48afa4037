//! The row's first candidates, whatever of them is kept, with their log-probabilities in the whole row.

use qrita_core::logarithm::Logprob;
use qrita_core::weight::distance;
use qrita_core::{Boundary, Key, NO_TOKEN};

use crate::row::RowWork;
use crate::sink::RowTop;
use crate::workspace::Slot;

impl RowWork<'_, '_> {
    /// Writes the first candidates. Before all other outputs: where the gathered set does not have them it gathers anew, and
    /// what is then gathered may have what the boundary keeps, or not.
    pub(crate) fn write_top(&mut self, boundary: Boundary, top: &mut RowTop<'_>) {
        top.ids.fill(NO_TOKEN);
        top.logprobs.fill(f32::NEG_INFINITY);
        let count = top.ids.len();
        if count == 0 || self.is_empty() {
            return;
        }
        // None where nothing was gathered, and the set is another row's: nothing is above +∞.
        let covered = self.gathered.covered_above;
        let held = self.exec.first().gathered.iter().filter(|candidate| candidate.key() > covered).count();
        if held < count && !self.covers(Key::LEAST) {
            self.gather_rising(count);
            self.listed = boundary.kept as usize <= count;
        }
        let (max, temperature) = (self.seen.max, self.params.temperature);
        let law = Logprob::new(self.raw_mass());
        let Slot { gathered, ordered, .. } = self.exec.first();
        ordered.clone_from(gathered);
        if ordered.len() > count {
            ordered.select_nth_unstable_by(count - 1, |a, b| b.cmp(a));
            ordered.truncate(count);
        }
        ordered.sort_unstable_by(|a, b| b.cmp(a));
        for (i, candidate) in ordered.iter().enumerate() {
            top.ids[i] = candidate.id();
            top.logprobs[i] = law.of(distance(candidate.logit(), max, temperature));
        }
    }
}
