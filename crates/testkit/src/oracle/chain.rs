//! Chains of draft tokens, literally: section 11 of the contract, one request at a time, in integers without a limit of size.

use std::collections::BTreeMap;

use dashu_int::UBig;
use qrita_core::philox::random;
use qrita_core::{ChainOutputs, Chains, NO_TOKEN, Plan, RowParams, Side, Status};
use rayon::prelude::*;

use super::{Answer, answer};

/// What comes of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walked {
    /// How many draft tokens are accepted.
    pub accepted: u32,
    /// A token for each target row, or [`NO_TOKEN`].
    pub tokens: Vec<u32>,
    /// The status bits of the target rows that were reached.
    pub status: Status,
}

/// What comes of every request.
pub fn walks(chains: &Chains<'_>, plan: &Plan) -> Vec<Walked> {
    (0..chains.requests()).into_par_iter().map(|request| walk(chains, request, plan)).collect()
}

fn walk(chains: &Chains<'_>, request: usize, plan: &Plan) -> Walked {
    let (drafts, targets) = (chains.draft_rows(request), chains.target_rows(request));
    let mut walked = Walked { accepted: 0, tokens: vec![NO_TOKEN; targets.len()], status: Status::OK };
    for (i, at) in targets.enumerate() {
        let target = answer_of(&chains.target, at, plan);
        walked.status |= target.ranked.status;
        if target.kept == 0 {
            break;
        }
        let Some(at_draft) = drafts.clone().nth(i) else {
            walked.tokens[i] = target.drawn.first().expect("a row that keeps tokens has one drawn").token;
            break;
        };
        let (draft, token) = (answer_of(&chains.draft, at_draft, plan), chains.tokens[at_draft]);
        let params = chains.target.params.row(at);
        if accepts(&params, &draft, &target, token) {
            walked.tokens[i] = token;
            walked.accepted += 1;
        } else {
            walked.tokens[i] = draw_excess(&params, &draft, &target, token);
            break;
        }
    }
    walked
}

fn answer_of(side: &Side<'_>, row: usize, plan: &Plan) -> Answer {
    answer(&side.logits.row(row), &side.params.row(row), &side.params.adjustments.row(row), plan)
}

/// The weights of the kept tokens, by id.
fn weights(answer: &Answer) -> BTreeMap<u32, u64> {
    answer.kept().iter().map(|entry| (entry.id, entry.weight)).collect()
}

fn weight_of(answer: &Answer, token: u32) -> UBig {
    weights(answer).get(&token).copied().unwrap_or(0).into()
}

fn accepts(params: &RowParams, draft: &Answer, target: &Answer, token: u32) -> bool {
    let (p, q) = (weight_of(target, token), weight_of(draft, token));
    let random = UBig::from(random(params.seed, params.position, params.stream, 0xFFFF_FFFF));
    let left = random * &q * UBig::from(target.kept_mass);
    let right = (p * UBig::from(draft.kept_mass)) << 64;
    q > UBig::ZERO && left < right
}

fn draw_excess(params: &RowParams, draft: &Answer, target: &Answer, token: u32) -> u32 {
    let is_of_draft = weight_of(draft, token) > UBig::ZERO;
    let of_draft = weights(draft);
    let excess = |(&id, &p): (&u32, &u64)| {
        let q = of_draft.get(&id).copied().unwrap_or(0);
        let (of_target, of_draft) = (UBig::from(p) * draft.kept_mass, UBig::from(q) * target.kept_mass);
        let excess = match is_of_draft {
            false => p.into(),
            true if of_target > of_draft => of_target - of_draft,
            true => UBig::ZERO,
        };
        (id, excess)
    };
    let excesses: Vec<(u32, UBig)> = weights(target).iter().map(excess).collect();
    let all: UBig = excesses.iter().map(|(_, excess)| excess).sum();
    let random = UBig::from(random(params.seed, params.position, params.stream, 0xFFFF_FFFE));
    let target = (random * all) >> 64;
    let mut sum = UBig::ZERO;
    for (id, excess) in excesses {
        sum += excess;
        if target < sum {
            return id;
        }
    }
    unreachable!("the target lies below the sum of all excesses");
}

/// Writes the outputs asked for.
///
/// # Panics
/// If the outputs do not fit the batch.
pub fn write(walks: &[Walked], outputs: &mut ChainOutputs<'_>) {
    let mut row = 0;
    for (request, walked) in walks.iter().enumerate() {
        if let Some(accepted) = &mut outputs.accepted {
            accepted[request] = walked.accepted;
        }
        if let Some(status) = &mut outputs.status {
            status[request] = walked.status;
        }
        for &token in &walked.tokens {
            if let Some(tokens) = &mut outputs.tokens {
                tokens[row] = token;
            }
            row += 1;
        }
    }
}
