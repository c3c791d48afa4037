//! The suite fails for wrong backends: each of these is the oracle with one fault, of a kind that samplers have had.
//!
//! A suite that passes proves nothing if it can not fail. Every fault is put before the tests that are meant to see it,
//! and each of them must panic.
//!
//! In a build with every choice of a plan: some faults are of a choice, and show where it is.
#![cfg(all(feature = "truncation", feature = "quaternary", feature = "duplicates", feature = "autotune"))]

use std::panic::{AssertUnwindSafe, catch_unwind};

use qrita_core::logarithm::ln_mass;
use qrita_core::philox::random;
use qrita_core::{
    Backend, Boundary, ChainOutputs, Chains, Cut, Decay, Error, Input, Key, Logits, LogitsMut, NO_TOKEN, Order,
    Outputs, Params, Plan, RowMut, Search, Shape, Side, Status, Ties, Truncated, bf16, f16,
};
use qrita_testkit::conformance;
use qrita_testkit::oracle::chain::{self, Walked};
use qrita_testkit::oracle::{self, Answer, OracleBackend};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Nothing,
    HighestIdOfTies,
    OneMoreThanK,
    StrictTopP,
    FloatTopP,
    JointAlways,
    KeepAllForgotten,
    PlanKeepsAllForgotten,
    MinPDropsZeroWeights,
    DrawInSortedOrder,
    DrawByRow,
    DrawFirstOfTies,
    DrawsRepeat,
    DrawsOutOfPlace,
    IndexForgotten,
    TopOfKept,
    TopLogprobFiltered,
    TopRestUntouched,
    TopTiesReversed,
    ProbabilityByFloats,
    ProbabilityOfDropped,
    ProbabilityRaw,
    PositionForgotten,
    StreamForgotten,
    HighHalfOfSeedForgotten,
    PaddingWritten,
    FirstElementBeforeTheRowsWritten,
    NanForgotten,
    NanOfDisallowedReported,
    NanKeptInMask,
    PosInfForgotten,
    OverflowForgotten,
    OverflowWithoutCandidates,
    KeptCutToCapacity,
    TailOfCandidatesWritten,
    LogprobOneUlpOff,
    LogprobOfCandidatesOneUlpOff,
    RawLogprobFiltered,
    RankById,
    NegativeZeroKept,
    KeptRewritten,
    StatusLeaks,
    TokenOfEmptyRow,
    BinarySearchOffByOne,
    ForcedFallbackOffByOne,
    ErrorAfterWriting,
    LengthsUnchecked,
    ParamsUncheckedInDedup,
    TruncateLosesOne,
    TruncateGathersBelow,
    TruncateUnsorted,
    TruncateClaimsHit,
    SearchTrustsMisses,
    SearchQuota,
    DedupHighest,
    DedupIgnoresQuota,
    EmitIgnoresBoundary,
    EmitRepeatsStatus,
    DraftParamsForgotten,
    ExcessForgotten,
    ImpossibleDraftsAccepted,
    DraftsPastTheEndKept,
    StatusOfUnreachedRows,
    ChainLengthsUnchecked,
    StandingForgotten,
    StepAddsPresenceAgain,
    StepDecaysBehindTheToken,
    StepLeavesEmptyRows,
    StepWritesPadding,
    StepUnchecked,
}
use Fault::*;

struct Mutant(Fault);

/// What a faulty backend carries from one call to the next.
#[derive(Default)]
struct Leak(Status);

impl Mutant {
    fn is(&self, fault: Fault) -> bool {
        self.0 == fault
    }

    /// The parameters as the faulty backend understands them.
    fn params<'a>(&self, mut params: Params<'a>) -> Params<'a> {
        match self.0 {
            JointAlways => params.order = Order::Joint,
            KeepAllForgotten => params.ties = Ties::LowestId,
            PositionForgotten => params.position = 0.into(),
            StandingForgotten => params.adjustments.standing = None,
            StreamForgotten => params.stream = 0.into(),
            NanOfDisallowedReported => params.adjustments.bitmask = None,
            _ => {}
        }
        params
    }

    fn answers(&self, logits: &Logits<'_>, params: &Params<'_>, plan: &Plan) -> Vec<Answer> {
        let mut plan = *plan;
        if self.is(PlanKeepsAllForgotten) {
            plan.duplicates = true;
        }
        let in_order: Vec<u32> = (0..).take(logits.rows()).collect();
        let logits = &match logits.indexed(&in_order) {
            Ok(unshared) if self.is(IndexForgotten) => unshared,
            _ => *logits,
        };
        let mut answers = oracle::answers(logits, params, &plan);
        for (row, answer) in answers.iter_mut().enumerate() {
            self.spoil(answer, row, logits, params, &plan);
        }
        answers
    }

    fn spoil(&self, answer: &mut Answer, row: usize, logits: &Logits<'_>, params: &Params<'_>, plan: &Plan) {
        let of_row = params.row(row);
        let len = answer.ranked.candidates.len();
        let (k, p) = (of_row.top_k as usize, of_row.top_p);
        let candidates = &mut answer.ranked.candidates;
        match self.0 {
            HighestIdOfTies if answer.kept > 0 => {
                let last = candidates[answer.kept - 1].logit;
                let tied: Vec<usize> = (0..len).filter(|&place| candidates[place].logit == last).collect();
                candidates[tied[0]..=tied[tied.len() - 1]].reverse();
            }
            OneMoreThanK if k == answer.kept && k < len => answer.kept += 1,
            StrictTopP | FloatTopP if p < 1.0 && (k == 0 || k >= len) && of_row.min_p == 0.0 && answer.kept < len => {
                let sum = |count: usize| candidates[..count].iter().map(|entry| entry.weight).sum::<u64>();
                let more = match self.0 {
                    StrictTopP => sum(answer.kept) == (f64::from(p) * sum(len) as f64).ceil() as u64,
                    _ => (sum(answer.kept) as f32 / sum(len) as f32) < p,
                };
                answer.kept += usize::from(more);
            }
            MinPDropsZeroWeights => {
                let weighty = candidates.iter().filter(|entry| entry.weight > 0).count();
                answer.kept = answer.kept.min(weighty);
            }
            BinarySearchOffByOne if plan.search == Search::Binary && answer.kept > 1 => answer.kept -= 1,
            ForcedFallbackOffByOne if plan.force_fallback && answer.kept > 1 => answer.kept -= 1,
            NanForgotten => answer.ranked.status = Status::from_bits(answer.ranked.status.bits() & !Status::NAN.bits()),
            PosInfForgotten => {
                answer.ranked.status = Status::from_bits(answer.ranked.status.bits() & !Status::POS_INF.bits());
            }
            NegativeZeroKept => {
                for entry in candidates.iter_mut().filter(|entry| entry.logit == 0.0) {
                    entry.logit = logits.row(row).get(entry.id as usize);
                }
            }
            _ => {}
        }
        answer.kept_mass = answer.kept().iter().map(|entry| entry.weight).sum();
        let kept = &answer.ranked.candidates[..answer.kept];
        let seed = if self.is(HighHalfOfSeedForgotten) { u64::from(of_row.seed as u32) } else { of_row.seed };
        let seed = if self.is(DrawByRow) { seed.wrapping_add(row as u64) } else { seed };
        let mut order: Vec<usize> = (0..kept.len()).collect();
        if !self.is(DrawInSortedOrder) {
            order.sort_by_key(|&place| kept[place].id);
        }
        for (draw, drawn) in (0..).zip(&mut answer.drawn) {
            let draw = if self.is(DrawsRepeat) { 0 } else { draw };
            let bits = random(seed, of_row.position, of_row.stream, draw);
            let target = ((u128::from(bits) * u128::from(answer.kept_mass)) >> 64) as u64;
            let mut sum = 0;
            let mut rank = order.iter().copied().find(|&place| {
                sum += kept[place].weight;
                target < sum
            });
            if self.is(DrawFirstOfTies) {
                rank = rank.and_then(|rank| kept.iter().position(|entry| entry.logit == kept[rank].logit));
            }
            let rank = rank.unwrap();
            let entry = kept[rank];
            drawn.token = entry.id;
            drawn.rank = if self.is(RankById) { entry.id } else { rank as u32 };
            drawn.logprob = oracle::logprob(entry.distance, answer.kept_mass);
            drawn.raw_logprob = oracle::logprob(entry.distance, answer.raw_mass);
            match self.0 {
                LogprobOneUlpOff if ln_mass(answer.kept_mass) % 7 == 3 => drawn.logprob = drawn.logprob.next_down(),
                RawLogprobFiltered => drawn.raw_logprob = drawn.logprob,
                _ => {}
            }
        }
    }

    fn write(
        &self,
        answers: &[Answer],
        input: Input<'_>,
        params: &Params<'_>,
        outputs: &mut Outputs<'_>,
        leak: &mut Leak,
    ) {
        self.write_outputs(answers, params, outputs, leak);
        if let Input::Mask(mut logits) = input {
            let data = logits.as_ref().data();
            let stored: Vec<f32> = (0..data.len()).map(|index| data.get(index)).collect();
            oracle::mask(answers, &mut logits);
            self.spoil_mask(answers, &mut logits, &stored);
        }
    }

    fn write_outputs(&self, answers: &[Answer], params: &Params<'_>, outputs: &mut Outputs<'_>, leak: &mut Leak) {
        oracle::write_outputs(answers, params, outputs);
        self.spoil_top(answers, outputs);
        self.spoil_probabilities(answers, outputs);
        let asked = outputs.candidates.as_ref().map(|candidates| candidates.capacity);
        for (row, answer) in answers.iter().enumerate() {
            let overflow = asked.is_some_and(|capacity| answer.kept > capacity);
            if let Some(status) = outputs.status.as_deref_mut() {
                match self.0 {
                    OverflowForgotten => status[row] = answer.ranked.status,
                    OverflowWithoutCandidates if asked.is_none() && answer.kept > 100 => {
                        status[row] |= Status::OVERFLOW
                    }
                    StatusLeaks => {
                        status[row] |= leak.0;
                        leak.0 = status[row];
                    }
                    _ => {}
                }
            }
            match (self.0, &mut outputs.kept, &mut outputs.token, &mut outputs.candidates) {
                (KeptCutToCapacity, Some(kept), _, _) if overflow => kept[row] = asked.unwrap() as u32,
                (TokenOfEmptyRow, _, Some(token), _) => {
                    token.iter_mut().filter(|token| **token == NO_TOKEN).for_each(|token| *token = 0);
                }
                // As if the draws lay one batch behind the other.
                (DrawsOutOfPlace, _, Some(token), _) => {
                    for (draw, drawn) in answer.drawn.iter().enumerate() {
                        token[draw * answers.len() + row] = drawn.token;
                    }
                }
                (TailOfCandidatesWritten, _, _, Some(c)) if answer.kept < c.capacity => {
                    c.ids[row * c.capacity + answer.kept] = NO_TOKEN;
                }
                (LogprobOfCandidatesOneUlpOff, _, _, Some(c)) if answer.kept > 4 && c.capacity > 4 => {
                    let place = row * c.capacity + 4;
                    c.logprobs[place] = c.logprobs[place].next_down();
                }
                _ => {}
            }
        }
    }

    fn spoil_top(&self, answers: &[Answer], outputs: &mut Outputs<'_>) {
        let Some(top) = &mut outputs.top else { return };
        if top.n == 0 {
            return;
        }
        let rows = top.ids.chunks_mut(top.n).zip(top.logprobs.chunks_mut(top.n));
        for (answer, (ids, logprobs)) in answers.iter().zip(rows) {
            let shown = answer.ranked.candidates.len().min(top.n);
            match self.0 {
                TopOfKept if answer.kept < shown => ids[answer.kept] = NO_TOKEN,
                TopLogprobFiltered => {
                    for (logprob, entry) in logprobs.iter_mut().zip(answer.kept()) {
                        *logprob = oracle::logprob(entry.distance, answer.kept_mass);
                    }
                }
                TopRestUntouched if shown < top.n => ids[shown] = 7,
                TopTiesReversed => {
                    for place in 1..shown {
                        if answer.ranked.candidates[place - 1].logit == answer.ranked.candidates[place].logit {
                            ids.swap(place - 1, place);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn spoil_probabilities(&self, answers: &[Answer], outputs: &mut Outputs<'_>) {
        let Some(probabilities) = &mut outputs.probabilities else { return };
        let vocab = probabilities.len() / answers.len().max(1);
        for (answer, probabilities) in answers.iter().zip(probabilities.chunks_mut(vocab.max(1))) {
            let of = |weight: u64, mass: u64| (weight as f64 / mass as f64) as f32;
            match self.0 {
                ProbabilityByFloats => {
                    for entry in answer.kept() {
                        probabilities[entry.id as usize] = entry.weight as f32 / answer.kept_mass as f32;
                    }
                }
                ProbabilityOfDropped => {
                    for entry in &answer.ranked.candidates[answer.kept..] {
                        probabilities[entry.id as usize] = of(entry.weight, answer.raw_mass);
                    }
                }
                ProbabilityRaw => {
                    for entry in answer.kept() {
                        probabilities[entry.id as usize] = of(entry.weight, answer.raw_mass);
                    }
                }
                _ => {}
            }
        }
    }

    fn spoil_mask(&self, answers: &[Answer], logits: &mut LogitsMut<'_>, stored: &[f32]) {
        let Shape { vocab, stride, .. } = logits.shape();
        let len = stored.len();
        for (row, answer) in answers.iter().enumerate() {
            let start = row * stride;
            match self.0 {
                PaddingWritten if start + vocab < len => put(logits, start + vocab, f32::NEG_INFINITY),
                FirstElementBeforeTheRowsWritten if row > 0 && stride > vocab => put(logits, start - 1, 0.0),
                NanKeptInMask => {
                    for id in (0..vocab).filter(|&id| stored[start + id].is_nan()) {
                        put(logits, start + id, f32::NAN);
                    }
                }
                KeptRewritten => {
                    for entry in answer.kept() {
                        put(logits, start + entry.id as usize, entry.logit);
                    }
                }
                _ => {}
            }
        }
    }
}

fn put(logits: &mut LogitsMut<'_>, index: usize, value: f32) {
    match logits.data_mut() {
        RowMut::F32(data) => data[index] = value,
        RowMut::F16(data) => data[index] = f16::from_f32(value),
        RowMut::Bf16(data) => data[index] = bf16::from_f32(value),
    }
}

impl Backend for Mutant {
    type Workspace = Leak;

    fn name(&self) -> &'static str {
        "mutant"
    }

    fn description(&self) -> String {
        format!("the oracle with a fault: {:?}", self.0)
    }

    fn workspace(&self) -> Leak {
        Leak::default()
    }

    fn truncate(
        &self,
        logits: &Logits<'_>,
        params: &Params<'_>,
        plan: &Plan,
        _: &mut Leak,
    ) -> Result<Vec<Truncated>, Error> {
        let mut all = OracleBackend.truncate(logits, params, plan, &mut ())?;
        for truncated in &mut all {
            match self.0 {
                TruncateLosesOne if truncated.gathered.len() > 3 => {
                    truncated.gathered.remove(2);
                    truncated.hit = false;
                }
                TruncateGathersBelow => truncated.threshold = f32::INFINITY,
                TruncateUnsorted => truncated.gathered.sort_by(|a, b| b.cmp(a)),
                TruncateClaimsHit => {
                    truncated.threshold = f32::INFINITY;
                    truncated.gathered.retain(|candidate| candidate.key() == Key::INFINITY);
                }
                _ => {}
            }
        }
        Ok(all)
    }

    fn search(
        &self,
        logits: &Logits<'_>,
        params: &Params<'_>,
        plan: &Plan,
        truncated: &[Truncated],
        _: &mut Leak,
    ) -> Result<Vec<Cut>, Error> {
        let mut cuts = OracleBackend.search(logits, params, plan, truncated, &mut ())?;
        for (cut, truncated) in cuts.iter_mut().zip(truncated) {
            match self.0 {
                SearchTrustsMisses if !truncated.hit && truncated.gathered.len() < cut.kept() as usize => {
                    *cut = Cut::EMPTY
                }
                SearchQuota if cut.quota > 1 => cut.quota -= 1,
                _ => {}
            }
        }
        Ok(cuts)
    }

    fn dedup(
        &self,
        logits: &Logits<'_>,
        params: &Params<'_>,
        cuts: &[Cut],
        _: &mut Leak,
    ) -> Result<Vec<Boundary>, Error> {
        let plain = Params::default();
        let params = if self.is(ParamsUncheckedInDedup) { &plain } else { params };
        let whole: Vec<Cut> = cuts.iter().map(|cut| Cut { quota: cut.tied, ..*cut }).collect();
        let last = OracleBackend.dedup(logits, params, &whole, &mut ())?;
        let mut boundaries = OracleBackend.dedup(logits, params, cuts, &mut ())?;
        for (boundary, last) in boundaries.iter_mut().zip(last) {
            match self.0 {
                DedupHighest => boundary.id = last.id,
                DedupIgnoresQuota => *boundary = last,
                _ => {}
            }
        }
        Ok(boundaries)
    }

    fn emit(
        &self,
        input: Input<'_>,
        params: &Params<'_>,
        boundaries: &[Boundary],
        outputs: &mut Outputs<'_>,
        leak: &mut Leak,
    ) -> Result<(), Error> {
        if self.is(EmitIgnoresBoundary) && boundaries.len() == input.logits().rows() {
            return self.run(input, params, &Plan::default(), outputs, leak);
        }
        let status = input.logits();
        let repeated = params.validate(&status).map(|()| oracle::answers(&status, params, &Plan::default()));
        OracleBackend.emit(input, params, boundaries, outputs, &mut ())?;
        if let (EmitRepeatsStatus, Ok(answers), Some(status)) = (self.0, repeated, outputs.status.as_deref_mut()) {
            for (status, answer) in status.iter_mut().zip(answers) {
                *status |= answer.ranked.status;
            }
        }
        Ok(())
    }

    fn run(
        &self,
        mut input: Input<'_>,
        params: &Params<'_>,
        plan: &Plan,
        outputs: &mut Outputs<'_>,
        leak: &mut Leak,
    ) -> Result<(), Error> {
        if let (ErrorAfterWriting, Input::Mask(logits)) = (self.0, &mut input) {
            put(logits, 0, f32::NEG_INFINITY);
        }
        let logits = input.logits();
        params.validate(&logits)?;
        if self.is(LengthsUnchecked) && outputs.validate(&logits, params).is_err() {
            return Ok(());
        }
        outputs.validate(&logits, params)?;
        let mut answers = self.answers(&logits, &self.params(*params), plan);
        if self.is(NanOfDisallowedReported) {
            let right = oracle::answers(&logits, params, plan);
            for (answer, right) in answers.iter_mut().zip(right) {
                let status = answer.ranked.status.bits() & Status::NAN.bits();
                *answer = right;
                answer.ranked.status |= Status::from_bits(status);
            }
        }
        self.write(&answers, input, params, outputs, leak);
        Ok(())
    }

    fn step(
        &self,
        input: Input<'_>,
        params: &Params<'_>,
        decay: &mut Decay<'_>,
        plan: &Plan,
        outputs: &mut Outputs<'_>,
        leak: &mut Leak,
    ) -> Result<(), Error> {
        let logits = input.logits();
        params.validate(&logits)?;
        let vocab = logits.vocab();
        if let (StepUnchecked, Err(error)) = (self.0, decay.validate(&logits, params)) {
            decay.penalties[0] = 1.0;
            return Err(error);
        }
        decay.validate(&logits, params)?;
        outputs.validate(&logits, params)?;
        let mut with_standing = *params;
        with_standing.adjustments.standing = Some(decay.standing());
        let answers = self.answers(&logits, &self.params(with_standing), plan);
        self.write(&answers, input, params, outputs, leak);
        let before = decay.penalties.to_vec();
        oracle::decay(&answers, vocab, decay);
        for (row, answer) in answers.iter().enumerate() {
            let start = row * decay.stride;
            let values = decay.row(row);
            let penalties = &mut *decay.penalties;
            let token = answer.drawn.first().map(|drawn| start + drawn.token as usize);
            match (self.0, token) {
                (StepAddsPresenceAgain, Some(at)) => penalties[at] = before[at] * values.decay + values.presence,
                (StepDecaysBehindTheToken, Some(at)) => {
                    let more = if before[at] == 0.0 { values.presence } else { values.repetition };
                    penalties[at] = (before[at] + more) * values.decay;
                }
                (StepLeavesEmptyRows, None) => {
                    penalties[start..start + vocab].copy_from_slice(&before[start..start + vocab]);
                }
                (StepWritesPadding, _) if decay.stride > vocab && start + vocab < penalties.len() => {
                    penalties[start + vocab] = 0.25;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn verify(
        &self,
        chains: &Chains<'_>,
        plan: &Plan,
        outputs: &mut ChainOutputs<'_>,
        _: &mut Leak,
    ) -> Result<(), Error> {
        chains.validate()?;
        if self.is(ChainLengthsUnchecked) && outputs.validate(chains).is_err() {
            return Ok(());
        }
        outputs.validate(chains)?;
        let mut walks = chain::walks(chains, plan);
        match self.0 {
            DraftParamsForgotten => {
                let mut chains = *chains;
                chains.draft.params = Params::default();
                walks = chain::walks(&chains, plan);
            }
            // A token that is none is replaced by one of the whole target law.
            ExcessForgotten => {
                let mut tokens = chains.tokens.to_vec();
                for (request, walked) in walks.iter().enumerate() {
                    chains.draft_rows(request).skip(walked.accepted as usize).for_each(|row| tokens[row] = NO_TOKEN);
                }
                walks = chain::walks(&Chains { tokens: &tokens, ..*chains }, plan);
            }
            _ => {
                for (request, walked) in walks.iter_mut().enumerate() {
                    self.spoil_chain(walked, chains, request, plan);
                }
            }
        }
        chain::write(&walks, outputs);
        Ok(())
    }
}

impl Mutant {
    fn spoil_chain(&self, walked: &mut Walked, chains: &Chains<'_>, request: usize, plan: &Plan) {
        let (drafts, targets) = (chains.draft_rows(request), chains.target_rows(request));
        let end = walked.accepted as usize;
        match self.0 {
            ImpossibleDraftsAccepted if end < drafts.len() => {
                let token = chains.tokens[drafts.start + end];
                let of = |side: &Side<'_>, row| {
                    let answer = oracle::answers(&side.logits, &side.params, plan).swap_remove(row);
                    answer.kept().iter().any(|entry| entry.id == token && entry.weight > 0)
                };
                if !of(&chains.draft, drafts.start + end) && of(&chains.target, targets.start + end) {
                    walked.tokens[end] = token;
                    walked.accepted += 1;
                }
            }
            DraftsPastTheEndKept => {
                for i in end + 1..drafts.len() {
                    walked.tokens[i] = chains.tokens[drafts.start + i];
                }
            }
            StatusOfUnreachedRows => {
                let answers = oracle::answers(&chains.target.logits, &chains.target.params, plan);
                targets.for_each(|row| walked.status |= answers[row].ranked.status);
            }
            _ => {}
        }
    }
}

type Test = fn(Fault);

macro_rules! tests {
    ($($name:ident)*) => {
        &[$((stringify!($name), (|fault| conformance::$name(|| Mutant(fault))) as Test)),*]
    };
}

fn must_fail(fault: Fault, tests: &[(&str, Test)]) {
    for (name, test) in tests {
        let passed = catch_unwind(AssertUnwindSafe(|| test(fault))).is_ok();
        assert!(!passed, "{name} does not see {fault:?}");
    }
}

/// The wrapper itself is not what the tests fail for.
#[test]
fn without_a_fault() {
    let tests: &[(&str, Test)] = tests!(
        ties_at_k one_nan strides_and_padding seeds_and_batch_mates position_advances all_negative_infinity
        invalid_parameters invalid_adjustments wrong_lengths parameters_out_of_range
        every_plan every_subset_of_outputs overflow_is_never_silent batch_invariance workspace_keeps_nothing
        random_rows shrinking_batches stage_truncate stage_search stage_dedup stage_emit
        chains_by_hand drafts_that_cannot_be random_chains wide_chains chains_and_batch_mates invalid_chains
        steps_by_hand random_steps invalid_steps
    );
    for (_, test) in tests {
        test(Nothing);
    }
}

#[test]
fn kept_sets() {
    must_fail(HighestIdOfTies, tests!(ties_at_k ties_in_one_group every_plan random_rows shrinking_batches));
    must_fail(OneMoreThanK, tests!(heavy_top_token k_out_of_range random_rows shrinking_batches));
    must_fail(StrictTopP, tests!(ties_in_one_group p_on_equal_mass random_rows));
    must_fail(FloatTopP, tests!(random_rows));
    must_fail(JointAlways, tests!(joint_order k_then_p_renormalised random_rows shrinking_batches));
    must_fail(KeepAllForgotten, tests!(ties_at_k random_rows shrinking_batches));
    must_fail(PlanKeepsAllForgotten, tests!(every_plan random_rows shrinking_batches));
    must_fail(MinPDropsZeroWeights, tests!(huge_negative_masks positive_infinity random_rows));
    must_fail(BinarySearchOffByOne, tests!(every_plan random_rows real_rows shrinking_batches));
    must_fail(ForcedFallbackOffByOne, tests!(every_plan random_rows large_rows));
}

#[test]
fn draws() {
    must_fail(DrawInSortedOrder, tests!(random_rows shrinking_batches seeds_and_batch_mates));
    must_fail(DrawByRow, tests!(seeds_and_batch_mates batch_invariance random_rows));
    must_fail(DrawFirstOfTies, tests!(ties_drawn_evenly random_rows));
    must_fail(DrawsRepeat, tests!(several_draws random_rows shrinking_batches));
    must_fail(DrawsOutOfPlace, tests!(several_draws random_rows shrinking_batches));
    must_fail(PositionForgotten, tests!(position_advances ties_drawn_evenly random_rows));
    must_fail(StreamForgotten, tests!(random_rows shrinking_batches));
    must_fail(HighHalfOfSeedForgotten, tests!(random_rows shrinking_batches seeds_and_batch_mates));
    must_fail(LogprobOneUlpOff, tests!(random_rows shrinking_batches));
    must_fail(RawLogprobFiltered, tests!(logprob_after_filtering random_rows));
    must_fail(RankById, tests!(random_rows every_subset_of_outputs));
    must_fail(TokenOfEmptyRow, tests!(all_negative_infinity nan_row_among_good_rows random_rows));
}

#[test]
fn whole_rows() {
    must_fail(TopOfKept, tests!(first_candidates random_rows shrinking_batches));
    must_fail(TopLogprobFiltered, tests!(first_candidates random_rows shrinking_batches));
    must_fail(TopRestUntouched, tests!(first_candidates random_rows shrinking_batches));
    must_fail(TopTiesReversed, tests!(first_candidates random_rows shrinking_batches));
    must_fail(ProbabilityByFloats, tests!(renormalised_probabilities random_rows shrinking_batches));
    must_fail(ProbabilityOfDropped, tests!(renormalised_probabilities random_rows shrinking_batches));
    must_fail(ProbabilityRaw, tests!(renormalised_probabilities random_rows shrinking_batches));
}

#[test]
fn memory() {
    must_fail(IndexForgotten, tests!(rows_that_share_logits random_rows shrinking_batches));
    must_fail(PaddingWritten, tests!(strides_and_padding random_rows shrinking_batches));
    must_fail(FirstElementBeforeTheRowsWritten, tests!(strides_and_padding random_rows));
    must_fail(NanKeptInMask, tests!(one_nan random_rows));
    must_fail(KeptRewritten, tests!(every_plan random_rows));
    must_fail(NegativeZeroKept, tests!(every_plan random_rows shrinking_batches));
    must_fail(OverflowForgotten, tests!(overflow_is_never_silent every_subset_of_outputs random_rows));
    must_fail(OverflowWithoutCandidates, tests!(every_subset_of_outputs random_rows));
    must_fail(KeptCutToCapacity, tests!(overflow_is_never_silent every_subset_of_outputs random_rows));
    must_fail(TailOfCandidatesWritten, tests!(every_subset_of_outputs random_rows));
    must_fail(LogprobOfCandidatesOneUlpOff, tests!(every_subset_of_outputs random_rows));
    must_fail(ErrorAfterWriting, tests!(parameters_out_of_range invalid_parameters invalid_adjustments wrong_lengths));
    must_fail(LengthsUnchecked, tests!(wrong_lengths));
}

#[test]
fn steps() {
    must_fail(StandingForgotten, tests!(steps_by_hand random_steps random_rows));
    must_fail(StepAddsPresenceAgain, tests!(steps_by_hand random_steps));
    must_fail(StepDecaysBehindTheToken, tests!(steps_by_hand random_steps));
    must_fail(StepLeavesEmptyRows, tests!(steps_by_hand random_steps));
    must_fail(StepWritesPadding, tests!(random_steps));
    must_fail(StepUnchecked, tests!(invalid_steps));
}

#[test]
fn status() {
    must_fail(NanForgotten, tests!(one_nan nan_row_among_good_rows random_rows));
    must_fail(NanOfDisallowedReported, tests!(random_rows));
    must_fail(PosInfForgotten, tests!(positive_infinity random_rows));
    must_fail(StatusLeaks, tests!(nan_row_among_good_rows batch_invariance workspace_keeps_nothing random_rows));
}

#[test]
fn stages() {
    must_fail(TruncateLosesOne, tests!(stage_truncate));
    must_fail(TruncateGathersBelow, tests!(stage_truncate));
    must_fail(TruncateUnsorted, tests!(stage_truncate));
    must_fail(TruncateClaimsHit, tests!(stage_truncate));
    must_fail(SearchTrustsMisses, tests!(stage_search));
    must_fail(SearchQuota, tests!(stage_search));
    must_fail(DedupHighest, tests!(stage_dedup));
    must_fail(DedupIgnoresQuota, tests!(stage_dedup));
    must_fail(ParamsUncheckedInDedup, tests!(invalid_parameters invalid_adjustments));
    must_fail(EmitIgnoresBoundary, tests!(stage_emit));
    must_fail(EmitRepeatsStatus, tests!(stage_emit));
}

#[test]
fn chains() {
    must_fail(DraftParamsForgotten, tests!(random_chains wide_chains));
    must_fail(ExcessForgotten, tests!(chains_by_hand random_chains wide_chains));
    must_fail(ImpossibleDraftsAccepted, tests!(drafts_that_cannot_be random_chains));
    must_fail(DraftsPastTheEndKept, tests!(chains_by_hand random_chains));
    must_fail(StatusOfUnreachedRows, tests!(drafts_that_cannot_be random_chains));
    must_fail(ChainLengthsUnchecked, tests!(invalid_chains));
}
