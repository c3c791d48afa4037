//! Hands each row's outputs, and each row's logits, to the one task that works on it.

use std::marker::PhantomData;

use half::{bf16, f16};
use qrita_core::{
    ChainOutputs, Chains, Decay, Input, Logit, Logits, NO_TOKEN, Outputs, Row, RowDecay, RowMut, Shape, Status,
};

use crate::chain::Walked;

/// The outputs of one row.
#[derive(Default)]
pub(crate) struct RowSink<'a> {
    pub(crate) status: Option<&'a mut Status>,
    pub(crate) kept: Option<&'a mut u32>,
    pub(crate) candidates: Option<RowCandidates<'a>>,
    /// One element a draw, as all that follow.
    pub(crate) token: Option<&'a mut [u32]>,
    pub(crate) logprob: Option<&'a mut [f32]>,
    pub(crate) raw_logprob: Option<&'a mut [f32]>,
    pub(crate) rank: Option<&'a mut [u32]>,
    pub(crate) top: Option<RowTop<'a>>,
    /// One element a token.
    pub(crate) probabilities: Option<&'a mut [f32]>,
}

/// The room for one row's first candidates.
pub(crate) struct RowTop<'a> {
    pub(crate) ids: &'a mut [u32],
    pub(crate) logprobs: &'a mut [f32],
}

/// The room for one row's candidates.
pub(crate) struct RowCandidates<'a> {
    pub(crate) ids: &'a mut [u32],
    pub(crate) logits: &'a mut [f32],
    pub(crate) logprobs: &'a mut [f32],
}

impl RowSink<'_> {
    /// Whether anything of a drawn token is asked for.
    pub(crate) fn is_drawn(&self) -> bool {
        self.token.is_some() || self.logprob.is_some() || self.raw_logprob.is_some() || self.rank.is_some()
    }

    /// What a row without a candidate yields.
    pub(crate) fn write_no_token(&mut self) {
        if let Some(out) = &mut self.probabilities {
            out.fill(0.0);
        }
        for out in [&mut self.token, &mut self.rank].into_iter().flatten() {
            out.fill(NO_TOKEN);
        }
        for out in [&mut self.logprob, &mut self.raw_logprob].into_iter().flatten() {
            out.fill(f32::NEG_INFINITY);
        }
    }
}

/// A slice of `each` elements a row, whose rows are lent out one by one.
struct Rows<'a, T> {
    start: *mut T,
    each: usize,
    rows: usize,
    lent: PhantomData<&'a mut [T]>,
}

// SAFETY: `Rows` only lends `&mut [T]`, of disjoint rows (see `row`), so that sharing it is sending those.
unsafe impl<T: Send> Sync for Rows<'_, T> {}

impl<'a, T> Rows<'a, T> {
    fn new(slice: &'a mut [T], each: usize, rows: usize) -> Self {
        assert_eq!(slice.len(), rows * each);
        Rows { start: slice.as_mut_ptr(), each, rows, lent: PhantomData }
    }

    /// # Safety
    /// No two loans of one row may live at the same time.
    #[allow(clippy::mut_from_ref)]
    unsafe fn row(&self, row: usize) -> &mut [T] {
        assert!(row < self.rows);
        // SAFETY: the slice given to `new` has `rows · each` elements and is borrowed mutably for 'a; rows do not
        // overlap, and the caller lends each once at a time.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.each), self.each) }
    }
}

/// The standing penalties of a batch, to be lent out row by row: to read, and then to write.
pub(crate) struct Penalties<'a> {
    start: *mut f32,
    len: usize,
    vocab: usize,
    /// Without the penalties themselves.
    decay: Decay<'a>,
    lent: PhantomData<&'a mut [f32]>,
}

// SAFETY: `Penalties` only lends rows, which do not overlap (see `row` and `row_mut`), so that sharing it is sending those.
unsafe impl Sync for Penalties<'_> {}

impl<'a> Penalties<'a> {
    /// The penalties were validated for rows of `vocab` logits.
    pub(crate) fn new(decay: &'a mut Decay<'_>, vocab: usize) -> Self {
        let Decay { stride, decay: factor, presence, repetition, .. } = *decay;
        Penalties {
            start: decay.penalties.as_mut_ptr(),
            len: decay.penalties.len(),
            vocab,
            decay: Decay { penalties: &mut [], stride, decay: factor, presence, repetition },
            lent: PhantomData,
        }
    }

    /// How those of a row go on.
    pub(crate) fn values(&self, row: usize) -> RowDecay {
        self.decay.row(row)
    }

    /// Where a row starts.
    fn at(&self, row: usize) -> usize {
        let (start, stride) = (row * self.decay.stride, self.decay.stride);
        assert!(stride >= self.vocab && start + self.vocab <= self.len);
        start
    }

    /// The penalties of one row, to read.
    ///
    /// # Safety
    /// No loan of the same row to write may live at the same time.
    pub(crate) unsafe fn row(&self, row: usize) -> &[f32] {
        // SAFETY: `at` has seen that the row lies within the memory, which is borrowed mutably for 'a; nobody writes to it
        // meanwhile.
        unsafe { std::slice::from_raw_parts(self.start.add(self.at(row)), self.vocab) }
    }

    /// The penalties of one row, to write.
    ///
    /// # Safety
    /// No other loan of the same row may live at the same time.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn row_mut(&self, row: usize) -> &mut [f32] {
        // SAFETY: as above; rows do not overlap, since the stride is at least the vocab, and the caller lends each once at a
        // time.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(self.at(row)), self.vocab) }
    }
}

/// The outputs of a batch, to be lent out row by row.
pub(crate) struct Sink<'a> {
    status: Option<Rows<'a, Status>>,
    kept: Option<Rows<'a, u32>>,
    candidates: Option<(Rows<'a, u32>, Rows<'a, f32>, Rows<'a, f32>)>,
    token: Option<Rows<'a, u32>>,
    logprob: Option<Rows<'a, f32>>,
    raw_logprob: Option<Rows<'a, f32>>,
    rank: Option<Rows<'a, u32>>,
    top: Option<(Rows<'a, u32>, Rows<'a, f32>)>,
    probabilities: Option<Rows<'a, f32>>,
}

impl<'a> Sink<'a> {
    /// The outputs were validated for `rows` rows of `vocab` logits, each of which has as many draws.
    pub(crate) fn new(outputs: &'a mut Outputs<'_>, (rows, vocab): (usize, usize), draws: usize) -> Self {
        Sink {
            status: outputs.status.as_deref_mut().map(|out| Rows::new(out, 1, rows)),
            kept: outputs.kept.as_deref_mut().map(|out| Rows::new(out, 1, rows)),
            candidates: outputs.candidates.as_mut().map(|out| {
                let each = out.capacity;
                (
                    Rows::new(&mut *out.ids, each, rows),
                    Rows::new(&mut *out.logits, each, rows),
                    Rows::new(&mut *out.logprobs, each, rows),
                )
            }),
            token: outputs.token.as_deref_mut().map(|out| Rows::new(out, draws, rows)),
            logprob: outputs.logprob.as_deref_mut().map(|out| Rows::new(out, draws, rows)),
            raw_logprob: outputs.raw_logprob.as_deref_mut().map(|out| Rows::new(out, draws, rows)),
            rank: outputs.rank.as_deref_mut().map(|out| Rows::new(out, draws, rows)),
            top: outputs
                .top
                .as_mut()
                .map(|out| (Rows::new(&mut *out.ids, out.n, rows), Rows::new(&mut *out.logprobs, out.n, rows))),
            probabilities: outputs.probabilities.as_deref_mut().map(|out| Rows::new(out, vocab, rows)),
        }
    }

    /// The outputs of one row.
    ///
    /// # Safety
    /// No two loans of one row may live at the same time.
    pub(crate) unsafe fn row(&self, row: usize) -> RowSink<'_> {
        // SAFETY: the caller's promise is handed on to every slice.
        unsafe {
            RowSink {
                status: self.status.as_ref().map(|out| &mut out.row(row)[0]),
                kept: self.kept.as_ref().map(|out| &mut out.row(row)[0]),
                candidates: self.candidates.as_ref().map(|(ids, logits, logprobs)| RowCandidates {
                    ids: ids.row(row),
                    logits: logits.row(row),
                    logprobs: logprobs.row(row),
                }),
                token: self.token.as_ref().map(|out| out.row(row)),
                logprob: self.logprob.as_ref().map(|out| out.row(row)),
                raw_logprob: self.raw_logprob.as_ref().map(|out| out.row(row)),
                rank: self.rank.as_ref().map(|out| out.row(row)),
                top: self.top.as_ref().map(|(ids, logprobs)| RowTop { ids: ids.row(row), logprobs: logprobs.row(row) }),
                probabilities: self.probabilities.as_ref().map(|out| out.row(row)),
            }
        }
    }
}

/// The outputs of chains, to be written request by request.
pub(crate) struct ChainSink<'a> {
    accepted: Option<Rows<'a, u32>>,
    tokens: Option<Rows<'a, u32>>,
    status: Option<Rows<'a, Status>>,
}

impl<'a> ChainSink<'a> {
    /// The outputs were validated for these chains.
    pub(crate) fn new(outputs: &'a mut ChainOutputs<'_>, chains: &Chains<'_>) -> Self {
        let requests = chains.requests();
        ChainSink {
            accepted: outputs.accepted.as_deref_mut().map(|out| Rows::new(out, 1, requests)),
            tokens: outputs.tokens.as_deref_mut().map(|out| Rows::new(out, 1, chains.target.logits.rows())),
            status: outputs.status.as_deref_mut().map(|out| Rows::new(out, 1, requests)),
        }
    }

    /// Writes the token of a target row.
    ///
    /// # Safety
    /// Nobody else writes that of the same row at the same time.
    pub(crate) unsafe fn write_token(&self, row: usize, token: u32) {
        if let Some(tokens) = &self.tokens {
            // SAFETY: the loan ends here, and by the caller's promise it is the row's only one.
            unsafe { tokens.row(row)[0] = token };
        }
    }

    /// Writes what came of a request.
    ///
    /// # Safety
    /// Nobody else writes that of the same request at the same time.
    pub(crate) unsafe fn write_end(&self, request: usize, walked: Walked) {
        if let Some(accepted) = &self.accepted {
            // SAFETY: the loan ends here, and by the caller's promise it is the request's only one.
            unsafe { accepted.row(request)[0] = walked.accepted };
        }
        if let Some(status) = &self.status {
            // SAFETY: as above.
            unsafe { status.row(request)[0] = walked.status };
        }
    }
}

/// The logits of a batch, to be lent out row by row: to read, and where they are masked in place, to write.
pub(crate) enum Source<'a> {
    Read(Logits<'a>),
    Mask(Stored<'a>),
}

/// The elements of a batch that is masked in place.
pub(crate) struct Stored<'a> {
    start: Start,
    shape: Shape,
    lent: PhantomData<&'a mut ()>,
}

#[derive(Clone, Copy)]
enum Start {
    F32(*mut f32),
    F16(*mut f16),
    Bf16(*mut bf16),
}

// SAFETY: `Stored` only lends rows, which do not overlap (see `Source::row` and `Source::row_mut`), so that sharing it
// is sending those.
unsafe impl Sync for Stored<'_> {}

impl<'a> Source<'a> {
    pub(crate) fn new(input: &'a mut Input<'_>) -> Self {
        match input {
            Input::Read(logits) => Source::Read(*logits),
            Input::Mask(logits) => {
                let shape = logits.shape();
                let start = match logits.data_mut() {
                    RowMut::F32(data) => Start::F32(data.as_mut_ptr()),
                    RowMut::F16(data) => Start::F16(data.as_mut_ptr()),
                    RowMut::Bf16(data) => Start::Bf16(data.as_mut_ptr()),
                };
                Source::Mask(Stored { start, shape, lent: PhantomData })
            }
        }
    }

    pub(crate) fn is_masked(&self) -> bool {
        matches!(self, Source::Mask(_))
    }

    /// The logits of row `row`, to read.
    ///
    /// # Safety
    /// No loan of the same row to write may live at the same time.
    pub(crate) unsafe fn row(&self, row: usize) -> Row<'_> {
        match self {
            Source::Read(logits) => logits.row(row),
            Source::Mask(stored) => {
                // SAFETY: the row lies within the batch that was validated, and nobody writes to it meanwhile.
                unsafe {
                    match stored.at(row) {
                        Start::F32(start) => Row::F32(std::slice::from_raw_parts(start, stored.shape.vocab)),
                        Start::F16(start) => Row::F16(std::slice::from_raw_parts(start, stored.shape.vocab)),
                        Start::Bf16(start) => Row::Bf16(std::slice::from_raw_parts(start, stored.shape.vocab)),
                    }
                }
            }
        }
    }

    /// The logits of row `row`, to write, where the batch is masked in place.
    ///
    /// # Safety
    /// No other loan of the same row may live at the same time.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn row_mut(&self, row: usize) -> Option<RowMut<'_>> {
        let Source::Mask(stored) = self else { return None };
        let vocab = stored.shape.vocab;
        // SAFETY: the row lies within the batch that was validated and is borrowed mutably for 'a; rows do not overlap,
        // since the stride is at least the vocab, and the caller lends each once at a time.
        Some(unsafe {
            match stored.at(row) {
                Start::F32(start) => Logit::wrap_mut(std::slice::from_raw_parts_mut(start, vocab)),
                Start::F16(start) => Logit::wrap_mut(std::slice::from_raw_parts_mut(start, vocab)),
                Start::Bf16(start) => Logit::wrap_mut(std::slice::from_raw_parts_mut(start, vocab)),
            }
        })
    }
}

impl Stored<'_> {
    /// Where a row starts.
    ///
    /// # Safety
    /// The shape must be the one that was validated with the memory.
    unsafe fn at(&self, row: usize) -> Start {
        assert!(row < self.shape.rows);
        let offset = row * self.shape.stride;
        // SAFETY: a valid shape keeps the start of every row within the memory.
        unsafe {
            match self.start {
                Start::F32(start) => Start::F32(start.add(offset)),
                Start::F16(start) => Start::F16(start.add(offset)),
                Start::Bf16(start) => Start::Bf16(start.add(offset)),
            }
        }
    }
}
