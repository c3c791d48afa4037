//! Stage 4, emit: the outputs asked for, from a boundary.
//!
//! Where the kept tokens are at hand as a list by ascending id, everything is read off it: their mass, the [draw](crate::draw), the
//! candidates; and a mask is a fill with −∞ and a scatter of the kept, so that the row is not read again. Where they are
//! too many to list for nothing, the row streams by once more for each of mass, draw and mask.

use crate::draw;
use crate::effective::{TILE, fill_tile};
use crate::exec::Exec;
use crate::row::RowWork;
use crate::sink::RowSink;
use crate::vector::{Kernels, Law};
use crate::workspace::Slot;
use qrita_core::logarithm::Logprob;
use qrita_core::probability::probability;
use qrita_core::weight::distance;
use qrita_core::{Boundary, Candidate, Key, Logit, RowAdjustments, RowMut, Status, with_dtype};

/// Up to this many kept tokens are gathered for a draw alone.
const LISTED: u32 = 4096;

impl RowWork<'_, '_> {
    /// Writes the outputs asked for, but the mask, which needs the row for itself ([`mask`]).
    pub(crate) fn emit(&mut self, boundary: Boundary, mut status: Status, sink: &mut RowSink<'_>) {
        if let Some(kept) = &mut sink.kept {
            **kept = boundary.kept;
        }
        if let Some(top) = &mut sink.top {
            self.write_top(boundary, top);
        }
        let is_drawn = sink.is_drawn();
        if boundary.kept == 0 {
            sink.write_no_token();
        } else if sink.candidates.is_some() || sink.probabilities.is_some() || is_drawn {
            let wants_list = sink.candidates.is_some() || draw::wants_list(&self.params, sink);
            let (kept_mass, listed) = self.kept_mass(boundary, wants_list);
            if is_drawn {
                self.draw(boundary, listed, kept_mass, sink);
            }
            if let Some(out) = &mut sink.probabilities {
                self.write_probabilities(boundary, listed, kept_mass, out);
            }
            status |= self.write_candidates(boundary, kept_mass, sink);
        }
        if let Some(out) = &mut sink.status {
            **out = status;
        }
    }

    /// The mass of what a boundary keeps, and whether the gathered set is just that, by ascending id: it is where those are few
    /// or at hand, or the caller wants it.
    pub(crate) fn kept_mass(&mut self, boundary: Boundary, wants_list: bool) -> (u64, bool) {
        let listed = wants_list || boundary.kept <= LISTED || self.listed;
        if listed {
            self.list(boundary);
            (self.list_mass(), true)
        } else {
            (self.row_mass(boundary), false)
        }
    }

    fn write_probabilities(&mut self, boundary: Boundary, listed: bool, kept_mass: u64, out: &mut [f32]) {
        let (y, kernels, law) = (self.y, self.kernels, self.law(Key::LEAST));
        if listed {
            out.fill(0.0);
            for candidate in &self.exec.first().gathered {
                out[candidate.id() as usize] = probability(kernels.weight(candidate.logit(), &law), kept_mass);
            }
            return;
        }
        self.exec.pass_mut(RowMut::F32(out), |slot, start, part| {
            let RowMut::F32(part) = part else { return };
            let Slot { tile, weights, .. } = slot;
            y.tiles(start..start + part.len(), tile, |first, tile| {
                kernels.weights(tile, &law, &mut weights[..tile.len()]);
                let out = part[first - start..].iter_mut();
                for ((out, id), (&y, &weight)) in out.zip(first as u32..).zip(tile.iter().zip(&**weights)) {
                    let is_kept = boundary.keeps(Key::new(y), id);
                    *out = if is_kept { probability(weight, kept_mass) } else { 0.0 };
                }
            });
        });
    }

    fn write_candidates(&mut self, boundary: Boundary, kept_mass: u64, sink: &mut RowSink<'_>) -> Status {
        let (max, temperature) = (self.seen.max, self.params.temperature);
        let Some(room) = &mut sink.candidates else { return Status::OK };
        let gathered = &mut self.exec.first().gathered;
        let capacity = room.ids.len();
        // Only what there is room for need be in order.
        if gathered.len() > capacity {
            if capacity > 0 {
                gathered.select_nth_unstable_by(capacity - 1, |a, b| b.cmp(a));
            }
            gathered.truncate(capacity);
        }
        gathered.sort_unstable_by(|a, b| b.cmp(a));
        let law = Logprob::new(kept_mass);
        for (i, candidate) in gathered.iter().enumerate() {
            room.ids[i] = candidate.id();
            room.logits[i] = candidate.logit();
            room.logprobs[i] = law.of(distance(candidate.logit(), max, temperature));
        }
        // The mask reads the list by ascending id.
        self.listed = boundary.kept as usize <= capacity;
        if boundary.kept as usize > capacity { Status::OVERFLOW } else { Status::OK }
    }

    /// Makes the gathered set the kept tokens, by ascending id: gathers them where it does not have them.
    fn list(&mut self, boundary: Boundary) {
        let gathered = &mut self.exec.first().gathered;
        if self.listed {
            gathered.retain(|candidate| boundary.keeps(candidate.key(), candidate.id()));
        } else {
            // Growing by doubling would take twice the memory of a wide set.
            gathered.clear();
            gathered.reserve_exact(boundary.kept as usize + TILE);
            self.gather_kept(boundary);
            self.listed = true;
        }
    }
}

/// How many of the `len` logits from id `first` on come with their ties: up to the boundary's id the logits equal to its key
/// are kept, behind it they are not.
pub(crate) fn with_ties(boundary: Boundary, first: usize, len: usize) -> usize {
    (boundary.id as usize + 1).saturating_sub(first).min(len)
}

/// The mass of what a boundary keeps of the logits from id `first` on.
pub(crate) fn kept_mass_of(kernels: &Kernels, law: &Law, boundary: Boundary, first: usize, tile: &[f32]) -> u64 {
    let (head, tail) = tile.split_at(with_ties(boundary, first, tile.len()));
    kernels.mass(head, &Law { floor: boundary.key.value(), ..*law })
        + kernels.mass(tail, &Law { floor: floor_above(boundary.key), ..*law })
}

/// The least logit above a key; NaN above +∞, which no logit is at least.
fn floor_above(key: Key) -> f32 {
    if key == Key::INFINITY { f32::NAN } else { Key::from_bits(key.bits() + 1).value() }
}

/// Stores −∞ over everything in a row that the boundary does not keep.
///
/// `listed` says that the first slot has the kept tokens by ascending id: then the row is not read again.
pub(crate) fn mask(
    row: RowMut<'_>,
    adjustments: &RowAdjustments<'_>,
    boundary: Boundary,
    kernels: &Kernels,
    exec: &mut Exec<'_>,
    listed: bool,
) {
    if boundary.kept == 0 {
        with_dtype!(RowMut, row, |stored| fill_between(stored, &[]));
    } else if listed && boundary.kept as usize <= TILE {
        let kept = &exec.first().gathered;
        with_dtype!(RowMut, row, |stored| fill_between(stored, kept));
    } else {
        let identity = adjustments.is_identity(row.as_ref().len());
        let adjustments = (!identity).then_some(adjustments);
        exec.pass_mut(row, |slot, start, part| mask_part(part, start, adjustments, boundary, kernels, &mut slot.tile));
    }
}

/// Stores −∞ over all but the listed, whose ids ascend.
fn fill_between<T: Logit>(stored: &mut [T], kept: &[Candidate]) {
    let mut from = 0;
    for candidate in kept {
        let id = candidate.id() as usize;
        stored[from..id].fill(T::NEG_INFINITY);
        from = id + 1;
    }
    stored[from..].fill(T::NEG_INFINITY);
}

/// Masks the part of a row that starts at id `start`.
fn mask_part(
    part: RowMut<'_>,
    start: usize,
    adjustments: Option<&RowAdjustments<'_>>,
    boundary: Boundary,
    kernels: &Kernels,
    buffer: &mut [f32; TILE],
) {
    let with_ties = with_ties(boundary, start, part.as_ref().len());
    let (head, tail) = part.split_at(with_ties);
    mask_from(head, start, adjustments, boundary.key.value(), kernels, buffer);
    mask_from(tail, start + with_ties, adjustments, floor_above(boundary.key), kernels, buffer);
}

/// Stores −∞ over all effective logits below `cut`.
fn mask_from(
    part: RowMut<'_>,
    start: usize,
    adjustments: Option<&RowAdjustments<'_>>,
    cut: f32,
    kernels: &Kernels,
    buffer: &mut [f32; TILE],
) {
    match (part, adjustments) {
        (RowMut::F32(stored), None) => kernels.mask_f32(stored, cut),
        (RowMut::Bf16(stored), None) => kernels.mask_bf16(stored, cut),
        (part, _) => with_dtype!(RowMut, part, |stored| {
            for (i, stored) in stored.chunks_mut(TILE).enumerate() {
                let tile = &mut buffer[..stored.len()];
                fill_tile(Logit::wrap(stored), start + i * TILE, adjustments, kernels, tile);
                for (stored, y) in stored.iter_mut().zip(tile) {
                    *stored = if *y >= cut { *stored } else { Logit::NEG_INFINITY };
                }
            }
        }),
    }
}
