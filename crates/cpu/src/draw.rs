//! The draw: the kept token whose interval holds the target in the cumulative sum of weights by ascending id.
//!
//! Masses are summed once a row, for all its draws: block by block of the list or, where there is none, of the row. A draw then
//! looks among those sums, and walks the weights of one block.

use qrita_core::logarithm::Logprob;
use qrita_core::philox::{random, target};
use qrita_core::weight::distance;
use qrita_core::{Boundary, Candidate, Key, NO_TOKEN, RowParams};

use crate::effective::TILE;
use crate::emit::kept_mass_of;
use crate::row::RowWork;
use crate::sink::RowSink;
use crate::workspace::Slot;

/// Candidates of a list, or logits of a row, in a block: blocks divide tiles.
const BLOCK: usize = 128;
const _: () = assert!(TILE.is_multiple_of(BLOCK));

/// From so many draws on, the list is sorted for their ranks.
const WORTH_SORTING: u32 = 16;

/// From so many draws on, their ranks are worth a list of whatever the row keeps: without one, each takes a pass over the row.
const WORTH_LISTING: u32 = 64;

/// Whether a row is to be listed for these draws, however much it keeps.
pub(crate) fn wants_list(params: &RowParams, sink: &RowSink<'_>) -> bool {
    sink.rank.is_some() && params.draws >= WORTH_LISTING
}

impl RowWork<'_, '_> {
    /// Draws the row's tokens. What [`kept_mass`](Self::kept_mass) left in the slots is still there.
    pub(crate) fn draw(&mut self, boundary: Boundary, listed: bool, kept_mass: u64, sink: &mut RowSink<'_>) {
        let RowParams { temperature, seed, position, stream, draws, .. } = self.params;
        let kept_law = Logprob::new(kept_mass);
        let raw_law = sink.raw_logprob.is_some().then(|| Logprob::new(self.raw_mass()));
        let sorted = listed && sink.rank.is_some() && draws >= WORTH_SORTING;
        if sorted {
            let Slot { gathered, ordered, .. } = self.exec.first();
            ordered.clone_from(gathered);
            ordered.sort_unstable();
        }
        for draw in 0..draws {
            let target = target(random(seed, position, stream, draw), kept_mass);
            let token = if listed { self.draw_listed(target) } else { self.draw_row(boundary, target) };
            let d = distance(token.logit(), self.seen.max, temperature);
            let draw = draw as usize;
            if let Some(out) = &mut sink.token {
                out[draw] = token.id();
            }
            if let Some(out) = &mut sink.rank {
                out[draw] = if sorted {
                    let ordered = &self.exec.first().ordered;
                    ordered.len() - ordered.partition_point(|&candidate| candidate <= token)
                } else if listed {
                    self.exec.first().gathered.iter().filter(|&&candidate| candidate > token).count()
                } else {
                    self.rank_in_row(token)
                } as u32;
            }
            if let Some(out) = &mut sink.logprob {
                out[draw] = kept_law.of(d);
            }
            if let (Some(out), Some(law)) = (&mut sink.raw_logprob, &raw_law) {
                out[draw] = law.of(d);
            }
        }
    }

    /// The mass of the list, which the first slot then has block by block.
    pub(crate) fn list_mass(&mut self) -> u64 {
        let (kernels, law) = (self.kernels, self.law(Key::LEAST));
        let Slot { gathered, tile, masses, .. } = self.exec.first();
        masses.clear();
        masses.reserve_exact(gathered.len().div_ceil(BLOCK));
        let mut mass = 0;
        for block in gathered.chunks(BLOCK) {
            tile.iter_mut().zip(block).for_each(|(y, candidate)| *y = candidate.logit());
            mass += kernels.mass(&tile[..block.len()], &law);
            masses.push(mass);
        }
        mass
    }

    fn draw_listed(&mut self, mut target: u64) -> Candidate {
        let (kernels, law) = (self.kernels, self.law(Key::LEAST));
        let Slot { gathered, masses, .. } = self.exec.first();
        let from = gathered.len().min(block_at(masses, &mut target) * BLOCK);
        walk_mass(gathered[from..].iter().map(|&c| (c, kernels.weight(c.logit(), &law))), target)
    }

    /// The mass of what a boundary keeps of the row, which each slot then has block by block of its part.
    pub(crate) fn row_mass(&mut self, boundary: Boundary) -> u64 {
        let (y, kernels, law) = (self.y, self.kernels, self.law(Key::LEAST));
        self.exec.pass(y.len(), |slot, range| {
            let Slot { tile, masses, part, .. } = slot;
            masses.clear();
            masses.reserve_exact(range.len().div_ceil(BLOCK));
            part.mass = 0;
            y.tiles(range, tile, |first, tile| {
                for (block, first) in tile.chunks(BLOCK).zip((first..).step_by(BLOCK)) {
                    part.mass += kept_mass_of(kernels, &law, boundary, first, block);
                    masses.push(part.mass);
                }
            });
        });
        self.exec.slots.iter().map(|slot| slot.part.mass).sum()
    }

    /// Finds the token that holds `target`, from the masses that [`row_mass`](Self::row_mass) left in the slots.
    fn draw_row(&mut self, boundary: Boundary, mut target: u64) -> Candidate {
        let (y, kernels, law) = (self.y, self.kernels, self.law(Key::LEAST));
        let mut at = 0;
        for slot in &*self.exec.slots {
            let blocks = block_at(&slot.masses, &mut target);
            at += blocks;
            if blocks < slot.masses.len() {
                break;
            }
        }
        let range = (at * BLOCK).min(y.len())..y.len().min((at + 1) * BLOCK);
        let mut token = nothing();
        let Slot { tile, weights, .. } = self.exec.first();
        y.tiles(range, tile, |first, block| {
            let weights = &mut weights[..block.len()];
            kernels.weights(block, &law, weights);
            let kept = (first as u32..).zip(block).zip(&*weights).filter_map(|((id, &y), &weight)| {
                let candidate = Candidate::new(Key::new(y), id);
                boundary.keeps(candidate.key(), id).then_some((candidate, weight))
            });
            token = walk_mass(kept, target);
        });
        token
    }

    /// How many candidates of the row precede one.
    fn rank_in_row(&mut self, token: Candidate) -> usize {
        let (y, kernels, key) = (self.y, self.kernels, token.key());
        let above = self.count_above(key);
        let mut before = 0;
        y.tiles(0..y.len().min(token.id() as usize), &mut self.exec.first().tile, |_, tile| {
            before += kernels.count_equal(tile, key.value());
        });
        above + before
    }
}

/// The block that holds `target`, from which what lies before it is taken; the number of blocks if none does.
fn block_at(masses: &[u64], target: &mut u64) -> usize {
    let block = masses.partition_point(|mass| mass <= target);
    *target -= if block == 0 { 0 } else { masses[block - 1] };
    block
}

/// The first whose cumulative sum of weights exceeds `target`. The sum of all does, unless the boundary is none of the row:
/// then no token.
fn walk_mass(kept: impl Iterator<Item = (Candidate, u64)>, mut target: u64) -> Candidate {
    for (candidate, weight) in kept {
        if target < weight {
            return candidate;
        }
        target -= weight;
    }
    nothing()
}

fn nothing() -> Candidate {
    Candidate::new(Key::NEG_INFINITY, NO_TOKEN)
}
