//! What is drawn of some rows: their tokens, and with `--top` the first candidates of the whole row.

use qrita::{Error, Logits, NO_TOKEN, Outputs, Params, Sampler, Status, Top};

use crate::args::DrawArgs;

/// How much is asked for of a row. It gives the outputs their form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// Tokens a row, where they are asked for by number: a list then, also of one. Else a single one.
    pub(crate) draws: Option<usize>,
    /// First candidates a row; `None` where there are none to list.
    pub(crate) top: Option<usize>,
}

impl Asked {
    pub(crate) fn new(args: &DrawArgs) -> Asked {
        let top = Some(args.top as usize).filter(|&top| top > 0);
        Asked { draws: args.draws.map(|draws| draws as usize), top }
    }

    fn sizes(self) -> (usize, usize) {
        (self.draws.unwrap_or(1), self.top.unwrap_or(0))
    }

    /// Bytes of a row's outputs in memory: four numbers a draw, two a first candidate.
    pub(crate) fn row_bytes(self) -> usize {
        let (draws, top) = self.sizes();
        16 * draws + 8 * top
    }
}

/// What is drawn of some rows.
#[derive(Debug)]
pub(crate) struct Drawn {
    asked: Asked,
    status: Vec<Status>,
    kept: Vec<u32>,
    token: Vec<u32>,
    logprob: Vec<f32>,
    raw_logprob: Vec<f32>,
    rank: Vec<u32>,
    top_ids: Vec<u32>,
    top_logprobs: Vec<f32>,
}

/// What is drawn of one row, as the library writes it: without a candidate, [`NO_TOKEN`] and −∞.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DrawnRow<'a> {
    pub(crate) asked: Asked,
    pub(crate) status: Status,
    pub(crate) kept: u32,
    /// One element a draw, as the next three.
    pub(crate) token: &'a [u32],
    pub(crate) logprob: &'a [f32],
    pub(crate) raw_logprob: &'a [f32],
    pub(crate) rank: &'a [u32],
    /// One element a first candidate asked for, as the next.
    pub(crate) top_ids: &'a [u32],
    pub(crate) top_logprobs: &'a [f32],
}

impl Drawn {
    /// Draws. `params` has as many draws as are asked for.
    pub(crate) fn of(
        sampler: &mut Sampler,
        asked: Asked,
        logits: &Logits<'_>,
        params: &Params<'_>,
    ) -> Result<Drawn, Error> {
        let rows = logits.rows();
        let (draws, top) = asked.sizes();
        let mut drawn = Drawn {
            asked,
            status: vec![Status::OK; rows],
            kept: vec![0; rows],
            token: vec![0; rows * draws],
            logprob: vec![0.0; rows * draws],
            raw_logprob: vec![0.0; rows * draws],
            rank: vec![0; rows * draws],
            top_ids: vec![0; rows * top],
            top_logprobs: vec![0.0; rows * top],
        };
        let (ids, logprobs) = (&mut drawn.top_ids[..], &mut drawn.top_logprobs[..]);
        let mut outputs = Outputs {
            status: Some(&mut drawn.status),
            kept: Some(&mut drawn.kept),
            token: Some(&mut drawn.token),
            logprob: Some(&mut drawn.logprob),
            raw_logprob: Some(&mut drawn.raw_logprob),
            rank: Some(&mut drawn.rank),
            top: asked.top.map(|n| Top { n, ids, logprobs }),
            ..Outputs::default()
        };
        sampler.run((*logits).into(), params, &mut outputs)?;
        Ok(drawn)
    }

    /// What is drawn of row `row` of these.
    pub(crate) fn row(&self, row: usize) -> DrawnRow<'_> {
        let (draws, top) = self.asked.sizes();
        let (draws, top) = (row * draws..(row + 1) * draws, row * top..(row + 1) * top);
        DrawnRow {
            asked: self.asked,
            status: self.status[row],
            kept: self.kept[row],
            token: &self.token[draws.clone()],
            logprob: &self.logprob[draws.clone()],
            raw_logprob: &self.raw_logprob[draws.clone()],
            rank: &self.rank[draws],
            top_ids: &self.top_ids[top.clone()],
            top_logprobs: &self.top_logprobs[top],
        }
    }
}

impl<'a> DrawnRow<'a> {
    /// The first candidates that there are: a row may have fewer than are asked for.
    pub(crate) fn top(&self) -> (&'a [u32], &'a [f32]) {
        let there = self.top_ids.iter().position(|&id| id == NO_TOKEN).unwrap_or(self.top_ids.len());
        (&self.top_ids[..there], &self.top_logprobs[..there])
    }
}
