//! The contract, literally: a stable sort, exact integers, one row at a time.
//!
//! Nothing here is fast and nothing here is shared with a backend. Of `qrita-core` it uses the types, the random bits,
//! and the two integer functions that are part of the contract as sequences of operations, `weight` and `ln_mass`.
//! Distances, top-p's need, the draw's target, the rounding of log-probabilities and the order are computed here a second
//! time, by other means: plain f32 operations, integers without a limit of size, a sort.
//!
//! What the contract's words leave open is decided as follows.
//! - At temperature 0 every logit equal to the maximum is at distance 0, every other at −∞, and the first maximum alone is
//!   kept, under every policy.
//! - A token that bitmask or valid vocab disallow is no candidate, whatever its logit: neither its NaN nor its +∞ shows
//!   in the status. Of an allowed token the *effective* logit counts, after bias and penalties.
//! - The effective −0 is +0. A masked row keeps the stored bits of what it keeps; all else in it becomes −∞, NaN too.
//! - Under `KeepAll`, and without duplication handling, each cut is extended to its whole group of equal values within
//!   what the filters before it left. Of two joint cuts the shorter one holds, each extended first.
//! - top-k that asks for all there is and top-p from 1 on are off. Without min-p a weight of zero is no reason to drop.
//! - A rank counts candidates: a token's rank is the number of candidates that precede it.
//! - Overflow is a matter of the candidates output: it is raised only where that is asked for.

use dashu_float::FBig;
use dashu_float::round::mode::HalfEven;
use dashu_int::UBig;
use qrita_core::logarithm::ln_mass;
use qrita_core::philox::random;
use qrita_core::weight::{ONE, weight};
use qrita_core::{
    Backend, Boundary, Candidate, ChainOutputs, Chains, Cut, Decay, Error, Features, Input, Key, Logits, LogitsMut,
    NO_TOKEN, Order, Outputs, Params, Plan, Row, RowAdjustments, RowMut, RowParams, Status, Ties, Truncated, bf16, f16,
};
use rayon::prelude::*;

pub mod chain;

/// A candidate of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// Effective logit.
    pub logit: f32,
    /// Token id.
    pub id: u32,
    /// Scaled distance from the row's largest logit.
    pub distance: f32,
    /// Weight.
    pub weight: u64,
}

/// The candidates of a row in the contract's order: everything that is above −∞, before any filter.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// The bits that the logits raise: NaN, +∞, empty.
    pub status: Status,
    /// The largest effective logit; −∞ for an empty row.
    pub max: f32,
    /// The candidates.
    pub candidates: Vec<Entry>,
}

/// The right answer for one row.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The row's candidates in order.
    pub ranked: Ranked,
    /// How many of them are kept: a prefix.
    pub kept: usize,
    /// How many of them a search must be given to find that: where top-k cuts, all that it leaves, since top-p may take
    /// its mass from them; else the kept.
    pub searched: usize,
    /// The sum of the weights of the kept.
    pub kept_mass: u64,
    /// The sum of the weights of all candidates.
    pub raw_mass: u64,
    /// The tokens drawn, as many as the row has draws; none of an empty row.
    pub drawn: Vec<Drawn>,
}

/// A drawn token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drawn {
    /// Its id.
    pub token: u32,
    /// How many candidates precede it.
    pub rank: u32,
    /// Its log-probability among the kept.
    pub logprob: f32,
    /// Its log-probability among all candidates.
    pub raw_logprob: f32,
}

/// The right answers for every row of a batch.
pub fn answers(logits: &Logits<'_>, params: &Params<'_>, plan: &Plan) -> Vec<Answer> {
    let answer = |row| answer(&logits.row(row), &params.row(row), &params.adjustments.row(row), plan);
    (0..logits.rows()).into_par_iter().map(answer).collect()
}

/// The right answer for one row.
pub fn answer(row: &Row<'_>, params: &RowParams, adjustments: &RowAdjustments<'_>, plan: &Plan) -> Answer {
    let ranked = rank(row, params, adjustments);
    let (kept, searched) = filter(&ranked.candidates, params, plan);
    complete(ranked, kept, searched, params)
}

/// The row's candidates in order.
pub fn rank(row: &Row<'_>, params: &RowParams, adjustments: &RowAdjustments<'_>) -> Ranked {
    let mut status = Status::OK;
    let mut candidates = Vec::new();
    for id in 0..row.len() {
        if !allowed(id, adjustments) {
            continue;
        }
        let logit = effective(row.get(id), id, adjustments);
        if logit.is_nan() {
            status |= Status::NAN;
        } else if logit > f32::NEG_INFINITY {
            candidates.push(Entry { logit, id: id as u32, distance: 0.0, weight: 0 });
        }
        if logit == f32::INFINITY {
            status |= Status::POS_INF;
        }
    }
    if candidates.is_empty() {
        return Ranked { status: status | Status::EMPTY, max: f32::NEG_INFINITY, candidates };
    }
    candidates.sort_by(|a, b| b.logit.partial_cmp(&a.logit).expect("no NaN is a candidate"));
    let max = candidates[0].logit;
    for candidate in &mut candidates {
        candidate.distance = distance(candidate.logit, max, params.temperature);
        candidate.weight = weight(candidate.distance);
    }
    Ranked { status, max, candidates }
}

fn allowed(id: usize, adjustments: &RowAdjustments<'_>) -> bool {
    let by_mask = match adjustments.allowed {
        Some((words, ids)) => id < ids && (words[id / 32] & (1 << (id % 32))) != 0,
        None => true,
    };
    id < adjustments.valid && by_mask
}

fn effective(stored: f32, id: usize, adjustments: &RowAdjustments<'_>) -> f32 {
    let mut y = stored;
    let (ids, biases) = adjustments.bias;
    if let Some(entry) = ids.iter().position(|&listed| listed as usize == id) {
        y += biases[entry];
    }
    if let Some(penalties) = &adjustments.penalties {
        let (ids, counts) = penalties.counts;
        if let Some(entry) = ids.iter().position(|&listed| listed as usize == id) {
            if y > 0.0 {
                y /= penalties.repetition;
            } else {
                y *= penalties.repetition;
            }
            if counts[entry] > 0 {
                let times = counts[entry] as f32;
                let frequency = penalties.frequency * times;
                y -= frequency;
                y -= penalties.presence;
            }
        }
    }
    if let Some(standing) = adjustments.standing {
        y -= standing[id];
    }
    if y == 0.0 { 0.0 } else { y }
}

fn distance(y: f32, max: f32, temperature: f32) -> f32 {
    if y == max {
        return 0.0;
    }
    if temperature == 0.0 {
        return f32::NEG_INFINITY;
    }
    let difference = y - max;
    difference / temperature
}

/// How many candidates are kept, and how many a search must be given: see [`Answer`].
fn filter(candidates: &[Entry], params: &RowParams, plan: &Plan) -> (usize, usize) {
    let extend = |kept: usize, universe: usize| {
        let mut kept = kept;
        if params.ties == Ties::KeepAll || !plan.duplicates {
            while kept > 0 && kept < universe && candidates[kept].logit == candidates[kept - 1].logit {
                kept += 1;
            }
        }
        kept
    };
    let min_p = || {
        let least = ceil_share(params.min_p, u128::from(ONE));
        candidates.iter().filter(|candidate| u128::from(candidate.weight) >= least).count()
    };
    let top_k = |universe: usize| {
        let k = params.top_k as usize;
        if k == 0 || k >= universe { universe } else { extend(k, universe) }
    };
    let top_p = |universe: usize| {
        if params.top_p >= 1.0 {
            return universe;
        }
        let need = ceil_share(params.top_p, mass(&candidates[..universe]));
        let mut gathered = 0;
        let mut kept = 0;
        while kept < universe && (kept == 0 || gathered < need) {
            gathered += u128::from(candidates[kept].weight);
            kept += 1;
        }
        extend(kept, universe)
    };
    if params.temperature == 0.0 {
        let first = candidates.len().min(1);
        return (first, first);
    }
    let universe = min_p();
    let after_k = top_k(universe);
    let kept = match params.order {
        Order::TopKThenTopP => top_p(after_k),
        Order::Joint => after_k.min(top_p(universe)),
    };
    (kept, if after_k < universe { after_k } else { kept })
}

fn mass(entries: &[Entry]) -> u128 {
    entries.iter().map(|entry| u128::from(entry.weight)).sum()
}

/// `ceil(share · mass)`, the share taken as the exact number that the f32 is.
fn ceil_share(share: f32, mass: u128) -> u128 {
    let (significand, exponent) = exact(share).into_repr().into_parts();
    let product = UBig::try_from(significand).expect("a share is not negative") * UBig::from(mass);
    let unit = UBig::ONE << exponent.min(0).unsigned_abs();
    let whole = product << exponent.max(0).unsigned_abs();
    let ceiling = (whole + &unit - UBig::ONE) / unit;
    ceiling.try_into().expect("a share of a mass is no larger than the mass")
}

/// The number that a finite f32 is, with no limit to the precision of what is computed from it.
fn exact(value: f32) -> FBig<HalfEven, 2> {
    FBig::try_from(value).expect("a finite number").with_precision(0).value()
}

/// `d − ln(mass / 2^42)`, rounded once. The logarithm is the contract's integer, in units of 2^-60.
pub fn logprob(distance: f32, mass: u64) -> f32 {
    if distance == f32::NEG_INFINITY {
        return distance;
    }
    let logarithm = FBig::<HalfEven, 2>::from_parts(ln_mass(mass).into(), -60).with_precision(0).value();
    let difference = exact(distance) - logarithm;
    // An exact zero has no sign of its own; the contract's is +0.
    difference.to_f32().value() + 0.0
}

/// `weight / mass`, rounded once: the quotient to more than a hundred bits, and whether there is more.
pub fn probability(weight: u64, mass: u64) -> f32 {
    let shifted = UBig::from(weight) << 200usize;
    let (quotient, rest) = (&shifted / UBig::from(mass), shifted % UBig::from(mass));
    let more = UBig::from(u8::from(rest > UBig::ZERO));
    let quotient = (quotient << 1usize) + more;
    FBig::<HalfEven, 2>::from_parts(quotient.into(), -201).with_precision(0).value().to_f32().value()
}

/// Adds what follows once it is known how many candidates are kept: the masses and the draw.
fn complete(ranked: Ranked, kept: usize, searched: usize, params: &RowParams) -> Answer {
    let kept_mass = mass(&ranked.candidates[..kept]) as u64;
    let raw_mass = mass(&ranked.candidates) as u64;
    let mut answer = Answer { ranked, kept, searched, kept_mass, raw_mass, drawn: Vec::new() };
    if kept > 0 {
        let bits = |draw| random(params.seed, params.position, params.stream, draw);
        let targets = (0..params.draws).map(|draw| (u128::from(bits(draw)) * u128::from(kept_mass)) >> 64);
        answer.drawn = targets.map(|target| answer.draw(target)).collect();
    }
    answer
}

impl Answer {
    /// The kept candidates in order.
    pub fn kept(&self) -> &[Entry] {
        &self.ranked.candidates[..self.kept]
    }

    /// The token whose interval holds `target` in the cumulative sum of the kept weights in token-id order.
    fn draw(&self, target: u128) -> Drawn {
        let mut by_id: Vec<(usize, &Entry)> = self.kept().iter().enumerate().collect();
        by_id.sort_by_key(|(_, entry)| entry.id);
        let mut sum = 0;
        for (rank, entry) in by_id {
            sum += u128::from(entry.weight);
            if target < sum {
                return Drawn {
                    token: entry.id,
                    rank: rank as u32,
                    logprob: logprob(entry.distance, self.kept_mass),
                    raw_logprob: logprob(entry.distance, self.raw_mass),
                };
            }
        }
        unreachable!("the target lies below the kept mass");
    }

    /// The cut, as the search stage hands it on.
    pub fn cut(&self) -> Cut {
        let Some(last) = self.kept().last() else { return Cut::EMPTY };
        let count =
            |is: &dyn Fn(f32) -> bool| self.ranked.candidates.iter().filter(|entry| is(entry.logit)).count() as u32;
        let above = count(&|logit| logit > last.logit);
        Cut {
            max: key(self.ranked.max),
            key: key(last.logit),
            above,
            tied: count(&|logit| logit == last.logit),
            quota: self.kept as u32 - above,
        }
    }

    /// The last token kept, as the dedup stage hands it on.
    pub fn boundary(&self) -> Boundary {
        let Some(last) = self.kept().last() else { return Boundary::EMPTY };
        Boundary { max: key(self.ranked.max), key: key(last.logit), id: last.id, kept: self.kept as u32 }
    }

    /// A truncation of the row that gathers every candidate from `threshold` on.
    pub fn truncated(&self, threshold: f32, hit: bool) -> Truncated {
        let above = self.ranked.candidates.iter().filter(|entry| entry.logit >= threshold);
        let mut gathered: Vec<&Entry> = above.collect();
        gathered.sort_by_key(|entry| entry.id);
        Truncated {
            status: self.ranked.status,
            max: key(self.ranked.max),
            threshold,
            gathered: gathered.iter().map(|entry| Candidate::new(key(entry.logit), entry.id)).collect(),
            hit,
        }
    }
}

/// The ordered key of an effective logit, by the other of the two well-known formulas.
pub(crate) fn key(logit: f32) -> Key {
    let bits = logit.to_bits();
    Key::from_bits(if logit.is_sign_negative() { !bits } else { bits + 0x8000_0000 })
}

/// A call, or with `decay` a step.
fn run(
    input: Input<'_>,
    params: &Params<'_>,
    decay: Option<&mut Decay<'_>>,
    plan: &Plan,
    outputs: &mut Outputs<'_>,
) -> Result<(), Error> {
    let logits = input.logits();
    params.validate(&logits)?;
    let mut all = *params;
    if let Some(decay) = &decay {
        decay.validate(&logits, params)?;
        all.adjustments.standing = Some(decay.standing());
    }
    plan.validate(Features::OF_CORE)?;
    outputs.validate(&logits, params)?;
    let (answers, vocab) = (answers(&logits, &all, plan), logits.vocab());
    write(&answers, input, params, outputs);
    if let Some(decay) = decay {
        self::decay(&answers, vocab, decay);
    }
    Ok(())
}

/// Takes standing penalties on to the next step, behind the tokens drawn.
pub fn decay(answers: &[Answer], vocab: usize, decay: &mut Decay<'_>) {
    for (row, answer) in answers.iter().enumerate() {
        let token = answer.drawn.first().map(|drawn| drawn.token as usize);
        for id in 0..vocab {
            let penalty = &mut decay.penalties[row * decay.stride + id];
            let is_first = *penalty == 0.0;
            *penalty *= decay.decay.get(row);
            if Some(id) == token {
                *penalty += if is_first { decay.presence.get(row) } else { decay.repetition.get(row) };
            }
            if penalty.is_nan() {
                *penalty = f32::from_bits(0x7FC0_0000);
            }
        }
    }
}

/// Writes the outputs asked for, the mask among them.
///
/// # Panics
/// If the outputs do not fit the batch.
pub fn write(answers: &[Answer], input: Input<'_>, params: &Params<'_>, outputs: &mut Outputs<'_>) {
    write_outputs(answers, params, outputs);
    if let Input::Mask(mut logits) = input {
        mask(answers, &mut logits);
    }
}

/// Writes the outputs asked for.
///
/// # Panics
/// If the outputs do not fit the batch.
pub fn write_outputs(answers: &[Answer], params: &Params<'_>, outputs: &mut Outputs<'_>) {
    for (row, answer) in answers.iter().enumerate() {
        let mut status = answer.ranked.status;
        if let Some(candidates) = &mut outputs.candidates {
            if answer.kept > candidates.capacity {
                status |= Status::OVERFLOW;
            }
            for (place, entry) in answer.kept().iter().take(candidates.capacity).enumerate() {
                let place = row * candidates.capacity + place;
                candidates.ids[place] = entry.id;
                candidates.logits[place] = entry.logit;
                candidates.logprobs[place] = logprob(entry.distance, answer.kept_mass);
            }
        }
        if let Some(statuses) = &mut outputs.status {
            statuses[row] = status;
        }
        if let Some(kept) = &mut outputs.kept {
            kept[row] = answer.kept as u32;
        }
        if let Some(top) = &mut outputs.top {
            let places = row * top.n..(row + 1) * top.n;
            let (ids, logprobs) = (&mut top.ids[places.clone()], &mut top.logprobs[places]);
            ids.fill(NO_TOKEN);
            logprobs.fill(f32::NEG_INFINITY);
            for (place, entry) in answer.ranked.candidates.iter().take(top.n).enumerate() {
                ids[place] = entry.id;
                logprobs[place] = logprob(entry.distance, answer.raw_mass);
            }
        }
        if let Some(probabilities) = &mut outputs.probabilities {
            let vocab = probabilities.len() / answers.len();
            let probabilities = &mut probabilities[row * vocab..(row + 1) * vocab];
            probabilities.fill(0.0);
            for entry in answer.kept() {
                probabilities[entry.id as usize] = probability(entry.weight, answer.kept_mass);
            }
        }
        let nothing =
            Drawn { token: NO_TOKEN, rank: NO_TOKEN, logprob: f32::NEG_INFINITY, raw_logprob: f32::NEG_INFINITY };
        for draw in 0..params.draws as usize {
            let drawn = answer.drawn.get(draw).unwrap_or(&nothing);
            let place = row * params.draws as usize + draw;
            if let Some(token) = &mut outputs.token {
                token[place] = drawn.token;
            }
            if let Some(logprob) = &mut outputs.logprob {
                logprob[place] = drawn.logprob;
            }
            if let Some(raw_logprob) = &mut outputs.raw_logprob {
                raw_logprob[place] = drawn.raw_logprob;
            }
            if let Some(rank) = &mut outputs.rank {
                rank[place] = drawn.rank;
            }
        }
    }
}

/// Makes −∞ of everything in the rows that is not kept.
///
/// # Panics
/// If there are fewer rows than answers.
pub fn mask(answers: &[Answer], logits: &mut LogitsMut<'_>) {
    let shape = logits.shape();
    for (row, answer) in answers.iter().enumerate() {
        let start = row * shape.stride;
        let mut kept = vec![false; shape.vocab];
        for entry in answer.kept() {
            kept[entry.id as usize] = true;
        }
        for (id, kept) in kept.into_iter().enumerate() {
            if !kept {
                match logits.data_mut() {
                    RowMut::F32(data) => data[start + id] = f32::NEG_INFINITY,
                    RowMut::F16(data) => data[start + id] = f16::NEG_INFINITY,
                    RowMut::Bf16(data) => data[start + id] = bf16::NEG_INFINITY,
                }
            }
        }
    }
}

/// The oracle as a backend, for the suite's own test and for whoever wants answers rather than speed.
///
/// Its stages are the simplest that the contract of each allows: it truncates nothing, and searches by the answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct OracleBackend;

impl Backend for OracleBackend {
    type Workspace = ();

    fn name(&self) -> &'static str {
        "oracle"
    }

    fn description(&self) -> String {
        "a stable sort and exact integers".into()
    }

    fn workspace(&self) {}

    fn truncate(
        &self,
        logits: &Logits<'_>,
        params: &Params<'_>,
        plan: &Plan,
        _: &mut (),
    ) -> Result<Vec<Truncated>, Error> {
        params.validate(logits)?;
        plan.validate(Features::OF_CORE)?;
        let whole = |answer: &Answer| answer.truncated(f32::NEG_INFINITY, true);
        Ok(answers(logits, params, plan).iter().map(whole).collect())
    }

    fn search(
        &self,
        logits: &Logits<'_>,
        params: &Params<'_>,
        plan: &Plan,
        truncated: &[Truncated],
        _: &mut (),
    ) -> Result<Vec<Cut>, Error> {
        params.validate(logits)?;
        plan.validate(Features::OF_CORE)?;
        Error::check_length("truncated", truncated.len(), logits.rows())?;
        Ok(answers(logits, params, plan).iter().map(Answer::cut).collect())
    }

    fn dedup(
        &self,
        logits: &Logits<'_>,
        params: &Params<'_>,
        cuts: &[Cut],
        _: &mut (),
    ) -> Result<Vec<Boundary>, Error> {
        params.validate(logits)?;
        Error::check_length("cuts", cuts.len(), logits.rows())?;
        let boundary = |(row, cut): (usize, &Cut)| {
            if cut.quota == 0 {
                return Boundary::EMPTY;
            }
            // A build without duplication handling keeps all that are tied, or one.
            let quota = match params.row(row).temperature {
                _ if Features::OF_CORE.duplicates => cut.quota,
                0.0 => 1,
                _ => cut.tied,
            };
            let ranked = rank(&logits.row(row), &params.row(row), &params.adjustments.row(row));
            let tied = ranked.candidates.iter().filter(|entry| key(entry.logit) == cut.key);
            let last = tied.take(quota as usize).last().expect("a cut lies on a logit of the row");
            Boundary { max: cut.max, key: cut.key, id: last.id, kept: cut.above + quota }
        };
        Ok(cuts.iter().enumerate().map(boundary).collect())
    }

    fn emit(
        &self,
        input: Input<'_>,
        params: &Params<'_>,
        boundaries: &[Boundary],
        outputs: &mut Outputs<'_>,
        _: &mut (),
    ) -> Result<(), Error> {
        let logits = input.logits();
        params.validate(&logits)?;
        outputs.validate(&logits, params)?;
        Error::check_length("boundaries", boundaries.len(), logits.rows())?;
        let answer = |(row, boundary): (usize, &Boundary)| {
            let mut ranked = rank(&logits.row(row), &params.row(row), &params.adjustments.row(row));
            ranked.status = Status::OK;
            let last = ranked.candidates.iter().position(|entry| entry.id == boundary.id && boundary.kept > 0);
            let kept = last.map_or(0, |last| last + 1);
            complete(ranked, kept, kept, &params.row(row))
        };
        let answers: Vec<Answer> = boundaries.iter().enumerate().map(answer).collect();
        write(&answers, input, params, outputs);
        Ok(())
    }

    fn run(
        &self,
        input: Input<'_>,
        params: &Params<'_>,
        plan: &Plan,
        outputs: &mut Outputs<'_>,
        _: &mut (),
    ) -> Result<(), Error> {
        run(input, params, None, plan, outputs)
    }

    fn step(
        &self,
        input: Input<'_>,
        params: &Params<'_>,
        decay: &mut Decay<'_>,
        plan: &Plan,
        outputs: &mut Outputs<'_>,
        _: &mut (),
    ) -> Result<(), Error> {
        run(input, params, Some(decay), plan, outputs)
    }

    fn verify(
        &self,
        chains: &Chains<'_>,
        plan: &Plan,
        outputs: &mut ChainOutputs<'_>,
        _: &mut (),
    ) -> Result<(), Error> {
        chains.validate()?;
        plan.validate(Features::OF_CORE)?;
        outputs.validate(chains)?;
        chain::write(&chain::walks(chains, plan), outputs);
        Ok(())
    }
}
