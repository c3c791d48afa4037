//! Each stage alone: it is given what the oracle says the stage before it yields, so that a fault shows where it is.

use qrita_core::{Backend, Boundary, Cut, Gathering, Outcome, Plan, Truncated};

use super::harness::{Buffers, Suite, Wanted};
use crate::batch::Batch;
use crate::oracle::{self, Answer, OracleBackend};
use crate::rows::{self, Random, RowKind, Size};

/// Batches on which the stages are tried: random ones, and every kind of row.
fn batches() -> Vec<Batch> {
    let mut random = Random::new(77);
    let mut batches: Vec<Batch> = (0..60).map(|seed| rows::batch(seed, Size { rows: 12, vocab: 300 })).collect();
    batches.extend((0..4).map(|seed| rows::batch(1000 + seed, Size { rows: 4, vocab: 5000 })));
    batches.extend([7, 900].map(|vocab| rows::batch_of(&RowKind::ALL, vocab, &mut random)));
    batches
}

/// The plans that a batch is tried under: all of them, in turn over the batches, and always the default.
fn plans_in_turn(plans: &[Plan], turn: usize) -> Vec<Plan> {
    let mut some: Vec<Plan> = plans.iter().copied().skip(turn % 8).step_by(8).collect();
    some.push(Plan::default());
    some
}

/// Truncate: every candidate above the threshold is gathered and none below it, and a hit holds the kept set; what the whole call
/// gathers may be another set, of which the same holds.
pub fn stage_truncate<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    let plans = suite.plans().to_vec();
    for (turn, batch) in batches().iter().enumerate() {
        for plan in plans_in_turn(&plans, turn) {
            let answers = oracle::answers(&batch.logits(), &batch.params(), &plan);
            let (logits, params) = (batch.logits(), batch.params());
            let found = suite.backend.truncate(&logits, &params, &plan, &mut suite.workspace).unwrap();
            let gathered = suite.backend.gather(&logits, &params, &plan, &mut suite.workspace).unwrap();
            assert_eq!((found.len(), gathered.len()), (batch.rows, batch.rows));
            for (row, ((found, gathered), answer)) in found.iter().zip(&gathered).zip(&answers).enumerate() {
                if let Err(fault) = check_truncated(found, answer).and_then(|()| check_gathered(*gathered, answer)) {
                    panic!("{}: {fault}\n{plan:?}\n{}", suite.backend.name(), batch.describe(row));
                }
            }
        }
    }
}

fn check_truncated(found: &Truncated, answer: &Answer) -> Result<(), String> {
    let right = answer.truncated(f32::NEG_INFINITY, true);
    if (found.status, found.max) != (right.status, right.max) {
        return Err(format!("{} and {:?} must be {} and {:?}", found.status, found.max, right.status, right.max));
    }
    if found.threshold.is_nan() {
        return Err("the threshold is NaN".into());
    }
    if let Some(pair) = found.gathered.windows(2).find(|pair| pair[0].id() >= pair[1].id()) {
        return Err(format!("{:?} is gathered before {:?}", pair[0], pair[1]));
    }
    // Both lists ascend by id: what is gathered must be found, in turn, among all candidates of the row.
    let mut gathered = found.gathered.iter().peekable();
    for candidate in &right.gathered {
        let is_gathered = gathered.next_if_eq(&candidate).is_some();
        let logit = candidate.logit();
        if logit > found.threshold && !is_gathered {
            return Err(format!("{candidate:?} is above {:e} and not gathered", found.threshold));
        }
        if logit < found.threshold && is_gathered {
            return Err(format!("{candidate:?} is below {:e} and gathered", found.threshold));
        }
    }
    if let Some(stranger) = gathered.next() {
        return Err(format!("{stranger:?} is gathered and no candidate of the row"));
    }
    let has = |id: u32| found.gathered.binary_search_by_key(&id, |candidate| candidate.id()).is_ok();
    match answer.kept().iter().find(|entry| found.hit && !has(entry.id)) {
        Some(missing) => Err(format!("a hit that lacks the kept {missing:?}")),
        None => Ok(()),
    }
}

/// Of what the whole call gathers only the number is known: it must have room for what is kept, and none but candidates.
fn check_gathered(found: Gathering, answer: &Answer) -> Result<(), String> {
    let (candidates, kept) = (answer.ranked.candidates.len(), answer.kept().len());
    let least = if found.outcome == Outcome::Missed { 0 } else { kept };
    if !(least..=candidates).contains(&(found.count as usize)) {
        return Err(format!("{found:?} of {candidates} candidates, {kept} of which are kept"));
    }
    Ok(())
}

/// Truncations of a row that a search must find the same cut from.
fn truncations(answer: &Answer) -> [Truncated; 4] {
    let reach = |count: usize| count.checked_sub(1).map_or(f32::INFINITY, |last| answer.ranked.candidates[last].logit);
    [
        // Everything.
        answer.truncated(f32::NEG_INFINITY, true),
        // No more than a search needs, ties complete.
        answer.truncated(reach(answer.searched), true),
        // The same, as a miss; and a miss that gathered next to nothing.
        answer.truncated(reach(answer.searched), false),
        answer.truncated(f32::INFINITY, false),
    ]
}

/// Search: the oracle's cut, from the backend's own truncation, and from hits and misses made by the oracle.
pub fn stage_search<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    let plans = suite.plans().to_vec();
    for (turn, batch) in batches().iter().enumerate() {
        for plan in plans_in_turn(&plans, turn) {
            let answers = oracle::answers(&batch.logits(), &batch.params(), &plan);
            let right: Vec<Cut> = answers.iter().map(Answer::cut).collect();
            let (logits, params) = (batch.logits(), batch.params());
            let mut check = |truncated: &[Truncated], of: &str| {
                let workspace = &mut suite.workspace;
                let found = suite.backend.search(&logits, &params, &plan, truncated, workspace).unwrap();
                assert_eq!(found.len(), right.len());
                for row in 0..right.len() {
                    assert!(
                        found[row] == right[row],
                        "{}: {:?} of {of} must be {:?}\n{plan:?}\n{}",
                        suite.backend.name(),
                        found[row],
                        right[row],
                        batch.describe(row),
                    );
                }
            };
            let names = ["everything", "the least that is needed", "a miss", "a miss of everything"];
            for (index, name) in names.iter().enumerate() {
                let given: Vec<Truncated> = answers.iter().map(|answer| truncations(answer)[index].clone()).collect();
                check(&given, name);
            }
            let own = suite.backend.truncate(&logits, &params, &plan, &mut suite.backend.workspace()).unwrap();
            check(&own, "its own truncation");
        }
    }
}

/// Dedup: the last id within the quota, for the right cut and for every other quota of its tied group.
pub fn stage_dedup<B: Backend>(make: impl Fn() -> B) {
    let Suite { backend, mut workspace, .. } = Suite::new(make);
    let mut random = Random::new(5);
    for batch in batches() {
        let (logits, params) = (batch.logits(), batch.params());
        let answers = oracle::answers(&logits, &params, &Plan::default());
        let right_cuts: Vec<Cut> = answers.iter().map(Answer::cut).collect();
        let mut tries = vec![right_cuts.clone()];
        for _ in 0..4 {
            let other = |cut: &Cut| match cut.tied {
                0 => *cut,
                tied => Cut { quota: 1 + random.below(tied as usize) as u32, ..*cut },
            };
            tries.push(right_cuts.iter().map(other).collect());
        }
        for cuts in tries {
            let found = backend.dedup(&logits, &params, &cuts, &mut workspace).unwrap();
            let right = OracleBackend.dedup(&logits, &params, &cuts, &mut ()).unwrap();
            assert_eq!(found.len(), right.len());
            for row in 0..right.len() {
                assert!(
                    found[row] == right[row],
                    "{}: {:?} of {:?} must be {:?}\n{}",
                    backend.name(),
                    found[row],
                    cuts[row],
                    right[row],
                    batch.describe(row),
                );
            }
        }
    }
}

/// Emit: every output, for the right boundary and for any other place of the order.
pub fn stage_emit<B: Backend>(make: impl Fn() -> B) {
    let Suite { backend, mut workspace, .. } = Suite::new(make);
    let mut random = Random::new(6);
    for batch in batches() {
        let params = batch.params();
        let answers = oracle::answers(&batch.logits(), &params, &Plan::default());
        for turn in 0..6 {
            let boundary = |answer: &Answer| match answer.ranked.candidates.len() {
                len if turn > 0 && len > 0 => Answer { kept: 1 + random.below(len), ..answer.clone() }.boundary(),
                _ => answer.boundary(),
            };
            let boundaries: Vec<Boundary> = answers.iter().map(boundary).collect();
            let widest = boundaries.iter().map(|boundary| boundary.kept as usize).max().unwrap_or(0);
            let wanted = match turn {
                0 | 1 => Wanted::all(widest),
                _ => Wanted::subset(random.bits() as u16, random.below(widest + 1)),
            };
            let (mut found, mut right) = (Buffers::new(&batch, &wanted), Buffers::new(&batch, &wanted));
            let emit = found.call(&batch, &wanted, |input, outputs| {
                backend.emit(input, &params, &boundaries, outputs, &mut workspace)
            });
            emit.unwrap();
            let emit = right.call(&batch, &wanted, |input, outputs| {
                OracleBackend.emit(input, &params, &boundaries, outputs, &mut ())
            });
            emit.unwrap();
            if let Some((row, what)) = found.difference(&right, &batch, &wanted) {
                let name = backend.name();
                panic!("{name}: {what}\n{:?}\n{wanted:?}\n{}", boundaries[row], batch.describe(row));
            }
        }
    }
}
