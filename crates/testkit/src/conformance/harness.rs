//! One call, compared: every output lies in memory filled with a pattern, the oracle writes into one copy of it and the
//! backend into another, and the two must be equal bit for bit. So what must not be written is checked with what must.

use qrita_core::{
    Backend, Candidates, Error, Features, Filtered, Input, MAX_TOP, Outputs, Plan, Sampled, Search, Status, Ties, Top,
    Truncation,
};

use crate::batch::{Batch, Stored};
use crate::oracle::{self, Answer};
use crate::rows::Random;

/// The outputs that a call is asked for.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Wanted {
    pub mask: bool,
    pub status: bool,
    pub kept: bool,
    /// With this capacity.
    pub candidates: Option<usize>,
    pub token: bool,
    pub logprob: bool,
    pub raw_logprob: bool,
    pub rank: bool,
    /// With this many a row.
    pub top: Option<usize>,
    pub probabilities: bool,
}

impl Wanted {
    /// All of them, with this capacity.
    pub fn all(capacity: usize) -> Wanted {
        Wanted { candidates: Some(capacity), top: Some(TOP), ..Wanted::subset(Wanted::EVERY, capacity) }
    }

    /// The bits of all outputs.
    pub const EVERY: u16 = (1 << 10) - 1;

    /// The outputs whose bit is set: mask, status, kept, candidates, token, logprob, raw logprob, rank, top, probabilities.
    /// As many first candidates as there is room for kept ones.
    pub fn subset(bits: u16, capacity: usize) -> Wanted {
        let bit = |index: u16| bits >> index & 1 == 1;
        Wanted {
            mask: bit(0),
            status: bit(1),
            kept: bit(2),
            candidates: bit(3).then_some(capacity),
            token: bit(4),
            logprob: bit(5),
            raw_logprob: bit(6),
            rank: bit(7),
            top: bit(8).then_some(capacity.min(MAX_TOP)),
            probabilities: bit(9),
        }
    }

    /// A random subset, with a capacity that is often too small.
    pub(crate) fn random(random: &mut Random, answers: &[Answer]) -> Wanted {
        let widest = answers.iter().map(|answer| answer.kept).max().unwrap_or(0);
        let capacity = match random.below(4) {
            0 => widest,
            1 => widest + random.below(3),
            _ => random.below(widest.min(40) + 1),
        };
        let bits = if random.once_in(3) { Wanted::EVERY } else { random.bits() as u16 };
        let wanted = Wanted::subset(bits, capacity);
        Wanted { top: wanted.top.and(Some(random.pick(&[0, 1, TOP, (widest + 1).min(MAX_TOP), MAX_TOP]))), ..wanted }
    }
}

/// How many first candidates a call for all outputs asks for.
const TOP: usize = 20;

const UNTOUCHED: u32 = 0x7FC5_A5A5;

/// Memory for every output, filled with a pattern.
#[derive(Clone)]
pub(crate) struct Buffers {
    stored: Stored,
    status: Vec<Status>,
    kept: Vec<u32>,
    ids: Vec<u32>,
    logits: Vec<f32>,
    logprobs: Vec<f32>,
    token: Vec<u32>,
    logprob: Vec<f32>,
    raw_logprob: Vec<f32>,
    rank: Vec<u32>,
    top_ids: Vec<u32>,
    top_logprobs: Vec<f32>,
    probabilities: Vec<f32>,
}

impl Buffers {
    pub(crate) fn new(batch: &Batch, wanted: &Wanted) -> Buffers {
        let rows = batch.rows;
        let room = rows * wanted.candidates.unwrap_or(0);
        let draws = rows * batch.params.draws as usize;
        let float = f32::from_bits(UNTOUCHED);
        Buffers {
            stored: batch.stored.clone(),
            status: vec![Status::from_bits(15); rows],
            kept: vec![UNTOUCHED; rows],
            ids: vec![UNTOUCHED; room],
            logits: vec![float; room],
            logprobs: vec![float; room],
            token: vec![UNTOUCHED; draws],
            logprob: vec![float; draws],
            raw_logprob: vec![float; draws],
            rank: vec![UNTOUCHED; draws],
            top_ids: vec![UNTOUCHED; rows * wanted.top.unwrap_or(0)],
            top_logprobs: vec![float; rows * wanted.top.unwrap_or(0)],
            probabilities: vec![float; if wanted.probabilities { rows * batch.vocab } else { 0 }],
        }
    }

    /// Calls `call` with these buffers as the outputs wanted.
    pub(crate) fn call<R>(
        &mut self,
        batch: &Batch,
        wanted: &Wanted,
        call: impl FnOnce(Input<'_>, &mut Outputs<'_>) -> R,
    ) -> R {
        let mut outputs = Outputs {
            status: wanted.status.then_some(&mut self.status),
            kept: wanted.kept.then_some(&mut self.kept),
            candidates: wanted.candidates.map(|capacity| Candidates {
                capacity,
                ids: &mut self.ids,
                logits: &mut self.logits,
                logprobs: &mut self.logprobs,
            }),
            token: wanted.token.then_some(&mut self.token),
            logprob: wanted.logprob.then_some(&mut self.logprob),
            raw_logprob: wanted.raw_logprob.then_some(&mut self.raw_logprob),
            rank: wanted.rank.then_some(&mut self.rank),
            top: wanted.top.map(|n| Top { n, ids: &mut self.top_ids, logprobs: &mut self.top_logprobs }),
            probabilities: wanted.probabilities.then_some(&mut self.probabilities),
        };
        // Rows that share logits are never masked.
        let input = match wanted.mask && batch.index.is_none() {
            true => Input::Mask(batch.logits_mut(&mut self.stored)),
            false => Input::Read(batch.logits()),
        };
        call(input, &mut outputs)
    }

    /// The first difference from what is right: the row, and what differs.
    pub(crate) fn difference(&self, right: &Buffers, batch: &Batch, wanted: &Wanted) -> Option<(usize, String)> {
        let capacity = wanted.candidates.unwrap_or(0);
        let (draws, top) = (batch.params.draws as usize, wanted.top.unwrap_or(0));
        let row_words = |name: &str, found: &[u32], right: &[u32], per_row: usize| {
            let index = (0..right.len()).find(|&index| found[index] != right[index])?;
            let place = if per_row > 1 { format!(" {}", index % per_row) } else { String::new() };
            Some((index / per_row, format!("{name}{place} is {} and must be {}", found[index], right[index])))
        };
        let row_floats = |name: &str, found: &[f32], right: &[f32], per_row: usize| {
            let index = (0..right.len()).find(|&index| found[index].to_bits() != right[index].to_bits())?;
            let place = if per_row > 1 { format!(" {}", index % per_row) } else { String::new() };
            let show = |value: f32| format!("{value:e} ({:08x})", value.to_bits());
            let text = format!("{name}{place} is {} and must be {}", show(found[index]), show(right[index]));
            Some((index / per_row, text))
        };
        let status = || {
            let row = (0..batch.rows).find(|&row| self.status[row] != right.status[row])?;
            Some((row, format!("status is {} and must be {}", self.status[row], right.status[row])))
        };
        status()
            .or_else(|| row_words("kept", &self.kept, &right.kept, 1))
            .or_else(|| row_words("candidate id", &self.ids, &right.ids, capacity))
            .or_else(|| row_floats("candidate logit", &self.logits, &right.logits, capacity))
            .or_else(|| row_floats("candidate logprob", &self.logprobs, &right.logprobs, capacity))
            .or_else(|| row_words("token", &self.token, &right.token, draws))
            .or_else(|| row_words("rank", &self.rank, &right.rank, draws))
            .or_else(|| row_floats("logprob", &self.logprob, &right.logprob, draws))
            .or_else(|| row_floats("raw logprob", &self.raw_logprob, &right.raw_logprob, draws))
            .or_else(|| row_words("top id", &self.top_ids, &right.top_ids, top))
            .or_else(|| row_floats("top logprob", &self.top_logprobs, &right.top_logprobs, top))
            .or_else(|| row_floats("probability", &self.probabilities, &right.probabilities, batch.vocab))
            .or_else(|| self.mask_difference(right, batch))
    }

    fn mask_difference(&self, right: &Buffers, batch: &Batch) -> Option<(usize, String)> {
        let index = (0..right.stored.len()).find(|&index| self.stored.bits(index) != right.stored.bits(index))?;
        let (found, right) = (self.stored.bits(index), right.stored.bits(index));
        let offset = index.saturating_sub(batch.start);
        let (row, id) = ((offset / batch.stride).min(batch.rows.saturating_sub(1)), offset % batch.stride);
        let what = if index < batch.start || id >= batch.vocab { "padding" } else { "masked logit" };
        Some((row, format!("{what} at element {index}, id {id}: bits {found:x} and must be {right:x}")))
    }
}

/// A backend under test, with one workspace for all its calls.
#[derive(Debug)]
pub struct Suite<B: Backend> {
    /// The backend.
    pub backend: B,
    /// Its workspace, which no call may leave anything in.
    pub workspace: B::Workspace,
    plans: Vec<Plan>,
}

impl<B: Backend> Suite<B> {
    /// Makes the backend and finds the plans that it supports.
    ///
    /// # Panics
    /// If it does not support the default plan.
    pub fn new(make: impl Fn() -> B) -> Suite<B> {
        let backend = make();
        let mut workspace = backend.workspace();
        let batch = Batch::new(&[[2.0, 1.0, 0.0]]).with(|params| params.top_k = vec![2]);
        let mut supports = |plan: &Plan| {
            let run = backend.filter(&batch.logits(), &batch.params(), plan, &mut workspace);
            !matches!(run, Err(Error::Unsupported { .. } | Error::NotCompiled { .. }))
        };
        assert!(supports(&Plan::default()), "the default plan is not supported");
        let plans = Plan::all().filter(|plan| supports(plan)).collect();
        Suite { backend, workspace, plans }
    }

    /// Every plan that the backend supports.
    pub fn plans(&self) -> &[Plan] {
        &self.plans
    }

    /// Every plan for a small batch, [`Suite::few_plans`] for a large one.
    pub fn plans_for(&self, batch: &Batch) -> Vec<Plan> {
        if batch.rows * batch.vocab <= 4096 { self.plans.clone() } else { self.few_plans() }
    }

    /// Plans that between them use every choice once.
    pub fn few_plans(&self) -> Vec<Plan> {
        let compiled = |truncation| if Features::OF_CORE.truncation { truncation } else { Truncation::Off };
        let (gaussian, quantile) = (compiled(Truncation::Gaussian), compiled(Truncation::Quantile));
        let one = Plan { truncation: Truncation::Off, search: Search::Sort, ..Plan::default() };
        let two = Plan { truncation: gaussian, force_fallback: true, search: Search::Binary, ..Plan::default() };
        let three = Plan { truncation: quantile, duplicates: false, autotune: false, ..Plan::default() };
        let four = Plan { force_fallback: true, ..Plan::default() };
        // Without some choices, some of these are the same.
        let mut few: Vec<Plan> = Vec::new();
        for plan in [Plan::default(), Plan::paper(), one, two, three, four] {
            if self.plans.contains(&plan) && !few.contains(&plan) {
                few.push(plan);
            }
        }
        few
    }

    /// Compares one call.
    ///
    /// # Errors
    /// What differs, with the row's parameters and logits.
    pub fn compare(&mut self, batch: &Batch, answers: &[Answer], plan: &Plan, wanted: &Wanted) -> Result<(), String> {
        let mut right = Buffers::new(batch, wanted);
        right.call(batch, wanted, |input, outputs| oracle::write(answers, input, &batch.params(), outputs));
        self.compare_with(batch, &right, plan, wanted)
    }

    fn compare_with(&mut self, batch: &Batch, right: &Buffers, plan: &Plan, wanted: &Wanted) -> Result<(), String> {
        let (backend, workspace) = (&self.backend, &mut self.workspace);
        let mut found = Buffers::new(batch, wanted);
        let result =
            found.call(batch, wanted, |input, outputs| backend.run(input, &batch.params(), plan, outputs, workspace));
        let context = |row: usize| format!("{}\n{plan:?}\n{wanted:?}", batch.describe(row));
        if let Err(error) = result {
            return Err(format!("{}: {error}\n{}", self.backend.name(), context(0)));
        }
        match found.difference(right, batch, wanted) {
            Some((row, what)) => Err(format!("{}: {what}\n{}", self.backend.name(), context(row))),
            None => Ok(()),
        }
    }

    /// Checks every output of a batch under these plans, with room for all that is kept.
    ///
    /// # Panics
    /// At the first difference.
    pub fn check_plans(&mut self, batch: &Batch, plans: &[Plan]) {
        for duplicates in [true, false] {
            let plans: Vec<&Plan> = plans.iter().filter(|plan| plan.duplicates == duplicates).collect();
            if plans.is_empty() {
                continue;
            }
            let answers = oracle::answers(&batch.logits(), &batch.params(), plans[0]);
            let wanted = Wanted::all(answers.iter().map(|answer| answer.kept).max().unwrap_or(0));
            let mut right = Buffers::new(batch, &wanted);
            right.call(batch, &wanted, |input, outputs| oracle::write(&answers, input, &batch.params(), outputs));
            for plan in plans {
                self.compare_with(batch, &right, plan, &wanted).unwrap_or_else(|difference| panic!("{difference}"));
            }
        }
    }

    /// Checks every output of a batch under the plans that [`Suite::plans_for`] has for it.
    ///
    /// # Panics
    /// At the first difference.
    pub fn check(&mut self, batch: &Batch) {
        self.check_plans(batch, &self.plans_for(batch));
    }

    /// Checks a batch against the oracle, and each row's kept ids, as a set, against an answer worked out by hand.
    ///
    /// # Panics
    /// At the first difference.
    pub fn check_keeps(&mut self, batch: &Batch, right: &[Vec<u32>]) {
        self.check(batch);
        for plan in self.plans_for(batch) {
            // Without duplication handling all ties are kept: an answer under the default policy is not for that plan.
            if !plan.duplicates && batch.params.ties == Ties::LowestId {
                continue;
            }
            for (row, found) in self.filter(batch, &plan).iter().enumerate() {
                let mut ids = found.ids.clone();
                ids.sort_unstable();
                assert!(
                    ids == right[row],
                    "kept {ids:?} and must be {:?}\n{plan:?}\n{}",
                    right[row],
                    batch.describe(row)
                );
            }
        }
    }

    /// The kept tokens.
    ///
    /// # Panics
    /// If the backend refuses.
    pub fn filter(&mut self, batch: &Batch, plan: &Plan) -> Vec<Filtered> {
        self.backend
            .filter(&batch.logits(), &batch.params(), plan, &mut self.workspace)
            .unwrap_or_else(|error| panic!("{error}\n{plan:?}"))
    }

    /// The drawn tokens, draw `j` of row `r` at `r·draws + j`.
    ///
    /// # Panics
    /// If the backend refuses.
    pub fn sample(&mut self, batch: &Batch, plan: &Plan) -> Vec<Sampled> {
        self.backend
            .sample(&batch.logits(), &batch.params(), plan, &mut self.workspace)
            .unwrap_or_else(|error| panic!("{error}\n{plan:?}"))
    }

    /// The ids of the drawn tokens of rows that are not empty.
    ///
    /// # Panics
    /// If the backend refuses, or a row is empty.
    pub fn draw(&mut self, batch: &Batch) -> Vec<u32> {
        let sampled = self.sample(batch, &Plan::default());
        sampled.iter().map(|row| row.token.expect("the row has candidates")).collect()
    }
}
