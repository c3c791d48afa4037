//! The trait that a backend implements: the paper's stages, each alone, and the whole call.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::chains::{ChainOutputs, Chains};
use crate::decay::Decay;
use crate::error::Error;
use crate::logits::{Input, Logits};
use crate::outputs::{Candidates, NO_TOKEN, Outputs};
use crate::params::Params;
use crate::plan::Plan;
use crate::stages::{Boundary, Cut, Gathering, Truncated};
use crate::status::Status;

/// A way to run the contract: on the CPU, on CUDA, on HIP.
///
/// The trait speaks of memory that the host can read, so that one oracle and one suite (`qrita-testkit`) hold every
/// backend to the same bits. A device backend copies there and back for it; its own entry points, which take device
/// memory and a stream, are its own types.
///
/// Every method validates first, its plan too ([`Plan::validate`]): an error means that nothing was launched or written. A
/// batch of no rows is a no-op.
pub trait Backend {
    /// Scratch memory of the caller's. It grows to what the largest call needs, and no call after that allocates.
    type Workspace;

    /// The backend's name: `cpu`, `cuda`, `hip`.
    fn name(&self) -> &'static str;

    /// What it runs on, for people.
    fn description(&self) -> String;

    /// An empty workspace.
    fn workspace(&self) -> Self::Workspace;

    /// Stage 1: gathers the candidates above a threshold (paper, σ-truncation).
    ///
    /// # Errors
    /// Parameters out of range, a plan that is not compiled in, or a device's failure.
    fn truncate(
        &self,
        logits: &Logits<'_>,
        params: &Params<'_>,
        plan: &Plan,
        workspace: &mut Self::Workspace,
    ) -> Result<Vec<Truncated>, Error>;

    /// What [`run`](Backend::run) gathers of each row under this plan, and whether that decides the row (paper, Table 1). For
    /// tools: it may take as long as several calls.
    ///
    /// By default that is what stage 1 does alone. A backend whose whole call is fused says what that does.
    ///
    /// # Errors
    /// As [`truncate`](Backend::truncate).
    fn gather(
        &self,
        logits: &Logits<'_>,
        params: &Params<'_>,
        plan: &Plan,
        workspace: &mut Self::Workspace,
    ) -> Result<Vec<Gathering>, Error> {
        Ok(self.truncate(logits, params, plan, workspace)?.iter().map(Gathering::from).collect())
    }

    /// Stage 2: finds each row's cut, in the gathered set after a hit, else in the whole row (paper, pivot search).
    ///
    /// # Errors
    /// Parameters out of range, a plan that is not compiled in, `truncated` not one a row, or a device's failure.
    fn search(
        &self,
        logits: &Logits<'_>,
        params: &Params<'_>,
        plan: &Plan,
        truncated: &[Truncated],
        workspace: &mut Self::Workspace,
    ) -> Result<Vec<Cut>, Error>;

    /// Stage 3: finds the last token kept among those equal to the cut (paper, duplication handling). Without the feature
    /// `duplicates` the cut's quota is not looked at: all are kept or, at temperature 0, the first.
    ///
    /// # Errors
    /// Parameters out of range, `cuts` not one a row, or a device's failure.
    fn dedup(
        &self,
        logits: &Logits<'_>,
        params: &Params<'_>,
        cuts: &[Cut],
        workspace: &mut Self::Workspace,
    ) -> Result<Vec<Boundary>, Error>;

    /// Stage 4: writes the outputs asked for. The status written has no bit but [`Status::OVERFLOW`]: the others are
    /// stage 1's.
    ///
    /// # Errors
    /// Parameters out of range, slices that do not fit the batch, or a device's failure.
    fn emit(
        &self,
        input: Input<'_>,
        params: &Params<'_>,
        boundaries: &[Boundary],
        outputs: &mut Outputs<'_>,
        workspace: &mut Self::Workspace,
    ) -> Result<(), Error>;

    /// The whole call: all stages, fused as the backend likes, and every output asked for.
    ///
    /// # Errors
    /// Parameters out of range, a plan that is not compiled in, slices that do not fit the batch, or a device's failure.
    fn run(
        &self,
        input: Input<'_>,
        params: &Params<'_>,
        plan: &Plan,
        outputs: &mut Outputs<'_>,
        workspace: &mut Self::Workspace,
    ) -> Result<(), Error>;

    /// One step of decoding: as [`run`](Backend::run) with the [standing penalties](crate::Standing) of `decay`, which it then
    /// takes on to the next step, behind the token that each row draws, be that asked for or not.
    ///
    /// # Errors
    /// As [`run`](Backend::run); those of [`Decay::validate`]. The penalties are as they were.
    fn step(
        &self,
        input: Input<'_>,
        params: &Params<'_>,
        decay: &mut Decay<'_>,
        plan: &Plan,
        outputs: &mut Outputs<'_>,
        workspace: &mut Self::Workspace,
    ) -> Result<(), Error>;

    /// Verifies chains of draft tokens (speculative decoding): the contract's section 11. The plan is that of both sides'
    /// rows.
    ///
    /// # Errors
    /// Offsets, rows or parameters out of range, a plan that is not compiled in, slices that do not fit the batch, or a
    /// device's failure.
    fn verify(
        &self,
        chains: &Chains<'_>,
        plan: &Plan,
        outputs: &mut ChainOutputs<'_>,
        workspace: &mut Self::Workspace,
    ) -> Result<(), Error>;

    /// The kept tokens of every row, in memory of their own. For tools and tests: it allocates.
    ///
    /// # Errors
    /// As [`run`](Backend::run).
    fn filter(
        &self,
        logits: &Logits<'_>,
        params: &Params<'_>,
        plan: &Plan,
        workspace: &mut Self::Workspace,
    ) -> Result<Vec<Filtered>, Error> {
        // The counts first, then room for the widest row of the batch.
        let mut kept = vec![0; logits.rows()];
        let mut status = vec![Status::OK; logits.rows()];
        let mut outputs = Outputs { kept: Some(&mut kept), status: Some(&mut status), ..Outputs::default() };
        self.run(Input::Read(*logits), params, plan, &mut outputs, workspace)?;
        let capacity = kept.iter().copied().max().unwrap_or(0) as usize;
        let room = capacity * logits.rows();
        let (mut ids, mut values, mut logprobs) = (vec![0; room], vec![0.0; room], vec![0.0; room]);
        if capacity > 0 {
            let candidates = Candidates { capacity, ids: &mut ids, logits: &mut values, logprobs: &mut logprobs };
            let mut outputs = Outputs { candidates: Some(candidates), ..Outputs::default() };
            self.run(Input::Read(*logits), params, plan, &mut outputs, workspace)?;
        }
        let filtered = |row: usize| {
            let range = row * capacity..row * capacity + kept[row] as usize;
            Filtered {
                status: status[row],
                ids: ids[range.clone()].to_vec(),
                logits: values[range.clone()].to_vec(),
                logprobs: logprobs[range].to_vec(),
            }
        };
        Ok((0..logits.rows()).map(filtered).collect())
    }

    /// The tokens drawn from every row, in memory of their own: draw `j` of row `r` at `r·draws + j`. For tools and tests: it
    /// allocates.
    ///
    /// # Errors
    /// As [`run`](Backend::run).
    fn sample(
        &self,
        logits: &Logits<'_>,
        params: &Params<'_>,
        plan: &Plan,
        workspace: &mut Self::Workspace,
    ) -> Result<Vec<Sampled>, Error> {
        // Before any memory is taken for them.
        params.validate(logits)?;
        let rows = logits.rows();
        let draws = params.draws as usize;
        let all = rows.saturating_mul(draws);
        let (mut status, mut kept) = (vec![Status::OK; rows], vec![0; rows]);
        let (mut token, mut rank) = (vec![0; all], vec![0; all]);
        let (mut logprob, mut raw_logprob) = (vec![0.0; all], vec![0.0; all]);
        let mut outputs = Outputs {
            status: Some(&mut status),
            kept: Some(&mut kept),
            token: Some(&mut token),
            logprob: Some(&mut logprob),
            raw_logprob: Some(&mut raw_logprob),
            rank: Some(&mut rank),
            ..Outputs::default()
        };
        self.run(Input::Read(*logits), params, plan, &mut outputs, workspace)?;
        let sampled = |draw: usize| Sampled {
            status: status[draw / draws],
            kept: kept[draw / draws],
            token: Some(token[draw]).filter(|&token| token != NO_TOKEN),
            logprob: logprob[draw],
            raw_logprob: raw_logprob[draw],
            rank: rank[draw],
        };
        Ok((0..all).map(sampled).collect())
    }
}

/// The kept tokens of one row, in the contract's order.
#[derive(Clone, Debug, PartialEq)]
pub struct Filtered {
    /// The row's status.
    pub status: Status,
    /// Token ids.
    pub ids: Vec<u32>,
    /// Their effective logits.
    pub logits: Vec<f32>,
    /// Their log-probabilities among the kept tokens.
    pub logprobs: Vec<f32>,
}

/// A token drawn from one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampled {
    /// The row's status.
    pub status: Status,
    /// How many tokens the row keeps.
    pub kept: u32,
    /// The token; `None` for a row without a candidate.
    pub token: Option<u32>,
    /// Its log-probability among the kept tokens.
    pub logprob: f32,
    /// Its log-probability in the whole row.
    pub raw_logprob: f32,
    /// How many tokens precede it in the order.
    pub rank: u32,
}
