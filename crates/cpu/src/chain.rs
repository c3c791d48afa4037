//! Chains of draft tokens: the walk along one request's rows.
//!
//! The laws of a row pair are found as those of ordinary rows are, up to the boundary and the kept mass; an acceptance then
//! reads two logits. Rows behind the end of a chain are not looked at. What takes a rejected token's place is drawn by one
//! pass over the target's kept tokens that sums their excess, and one that stops where the sum exceeds the target: over the
//! list of them where the row has one, else over tiles of both rows.

use qrita_core::philox::random;
use qrita_core::verify::{ACCEPT_DRAW, REJECT_DRAW, Share, accepts, excess, upper};
use qrita_core::{Boundary, Chains, Key, NO_TOKEN, Plan, RowParams, Side, Status};

use crate::backend::CpuBackend;
use crate::effective::{Effective, TILE};
use crate::exec::Exec;
use crate::vector::{Kernels, Law};
use crate::workspace::Slot;

/// What came of a request, but for its tokens.
pub(crate) struct Walked {
    pub(crate) accepted: u32,
    /// Of the target rows that were reached.
    pub(crate) status: Status,
}

/// What a row's filters keep, and its mass.
struct Kept<'a> {
    y: Effective<'a>,
    law: Law,
    kernels: &'static Kernels,
    boundary: Boundary,
    mass: u64,
    status: Status,
    /// Whether the slot's gathered set is what the row keeps, by ascending id, until another row is looked at.
    listed: bool,
}

impl Kept<'_> {
    /// The weight of a logit of the row; 0 if it is not kept.
    fn weight_of(&self, id: u32, y: f32) -> u64 {
        if self.boundary.keeps(Key::new(y), id) { self.kernels.weight(y, &self.law) } else { 0 }
    }

    /// The part of a token.
    fn share(&self, id: u32) -> Share {
        let mut y = [f32::NEG_INFINITY];
        if (id as usize) < self.y.len() {
            self.y.fill(id as usize, &mut y);
        }
        Share { weight: self.weight_of(id, y[0]), mass: self.mass }
    }
}

/// Walks the chain of one request; `write` gets each target row's token.
pub(crate) fn walk(
    backend: &CpuBackend,
    chains: &Chains<'_>,
    request: usize,
    plan: &Plan,
    exec: &mut Exec<'_>,
    mut write: impl FnMut(usize, u32),
) -> Walked {
    let (drafts, targets) = (chains.draft_rows(request), chains.target_rows(request));
    let (mut accepted, mut status) = (0, Status::OK);
    let mut rows = targets.clone();
    for row in rows.by_ref() {
        let params = chains.target.params.row(row);
        let at = drafts.start + accepted;
        let draft = (at < drafts.end).then(|| (chains.tokens[at], keep(backend, &chains.draft, at, plan, exec)));
        // Last, so that the slot has its list.
        let target = keep(backend, &chains.target, row, plan, exec);
        status |= target.status;
        if target.mass == 0 {
            write(row, NO_TOKEN);
            break;
        }
        let Some((token, draft)) = draft else {
            write(row, draw_excess(&target, None, random_of(&params, 0), exec.first()));
            break;
        };
        let share = draft.share(token);
        if accepts(random_of(&params, ACCEPT_DRAW), share, target.share(token)) {
            write(row, token);
            accepted += 1;
        } else {
            let draft = (share.weight > 0).then_some(&draft);
            write(row, draw_excess(&target, draft, random_of(&params, REJECT_DRAW), exec.first()));
            break;
        }
    }
    rows.for_each(|row| write(row, NO_TOKEN));
    Walked { accepted: accepted as u32, status }
}

fn random_of(params: &RowParams, draw: u32) -> u64 {
    random(params.seed, params.position, params.stream, draw)
}

/// What a row keeps.
fn keep<'a>(backend: &'a CpuBackend, side: &Side<'a>, row: usize, plan: &Plan, exec: &mut Exec<'_>) -> Kept<'a> {
    let kernels = backend.kernels();
    let y = Effective::new(side.logits.row(row), side.params.adjustments.row(row), kernels);
    let mut work = backend.row_work(y, side.params.row(row), plan, exec.reborrow());
    work.truncate();
    let status = work.status();
    let boundary = work.boundary();
    let (mass, listed) = if boundary.kept == 0 { (0, false) } else { work.kept_mass(boundary, false) };
    Kept { y, law: work.law(Key::LEAST), kernels, boundary, mass, status, listed }
}

/// Draws from what the target law has in excess of the draft's, or from all of it.
fn draw_excess(target: &Kept<'_>, draft: Option<&Kept<'_>>, random: u64, slot: &mut Slot) -> u32 {
    let mut whole = 0;
    for_each_excess(target, draft, slot, |_, excess| {
        whole += excess;
        false
    });
    let mut left = upper(random, whole);
    let mut drawn = NO_TOKEN;
    for_each_excess(target, draft, slot, |id, excess| {
        drawn = id;
        let is_found = left < excess;
        left = left.saturating_sub(excess);
        is_found
    });
    drawn
}

/// Calls `each` with the kept tokens of the target by ascending id, and with what it has of them in excess of the draft, until
/// it says to stop.
fn for_each_excess(
    target: &Kept<'_>,
    draft: Option<&Kept<'_>>,
    slot: &mut Slot,
    mut each: impl FnMut(u32, u128) -> bool,
) {
    let of = |weight| Share { weight, mass: target.mass };
    if target.listed {
        for candidate in &slot.gathered {
            let id = candidate.id();
            let of_draft = draft.map_or(Share::NONE, |draft| draft.share(id));
            if each(id, excess(of_draft, of(target.kernels.weight(candidate.logit(), &target.law)))) {
                return;
            }
        }
        return;
    }
    let mut of_draft = [f32::NEG_INFINITY; TILE];
    let Slot { tile, .. } = slot;
    target.y.tiles_until(0..target.y.len(), tile, |first, tile| {
        if let Some(draft) = draft {
            // What the draft's row does not have is not kept.
            let len = draft.y.len().saturating_sub(first).min(tile.len());
            of_draft[len..].fill(f32::NEG_INFINITY);
            if len > 0 {
                draft.y.fill(first, &mut of_draft[..len]);
            }
        }
        (first as u32..).zip(tile).zip(&of_draft).any(|((id, &y), &y_of_draft)| {
            let weight = target.weight_of(id, y);
            let of_draft =
                draft.map_or(Share::NONE, |draft| Share { weight: draft.weight_of(id, y_of_draft), mass: draft.mass });
            weight > 0 && each(id, excess(of_draft, of(weight)))
        })
    });
}
