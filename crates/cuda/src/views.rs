//! The zero-copy way in for callers whose memory is cudarc's: views know their lengths, and streams wait for each other.

use cudarc::driver::{CudaStream, CudaView, CudaViewMut, SyncOnDrop};
use qrita_core::{Error, Logit, Shape};

use crate::NAME;
use crate::sampler::{
    CudaSampler, DeviceBatch, DeviceCandidates, DeviceOutputs, DeviceTop, DeviceWorkspace, LaunchParams,
};

/// Logits in device memory: to read only, to mask in place as one of the outputs, or to read by an index.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum ViewInput<'a, T> {
    Read(CudaView<'a, T>),
    /// Stored rows, and for each row of the batch the number of the one that it reads, as in
    /// [`Logits::indexed`](qrita_core::Logits::indexed).
    Indexed(CudaView<'a, T>, CudaView<'a, u32>),
    Mask(CudaViewMut<'a, T>),
}

/// The outputs asked for: [`Outputs`](qrita_core::Outputs) in device memory, one element a row, of the drawn tokens
/// [`LaunchParams::draws`] a row.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct ViewOutputs<'a> {
    /// The bits of a [`Status`](qrita_core::Status).
    pub status: Option<CudaViewMut<'a, u32>>,
    pub kept: Option<CudaViewMut<'a, u32>>,
    pub candidates: Option<ViewCandidates<'a>>,
    pub token: Option<CudaViewMut<'a, u32>>,
    pub logprob: Option<CudaViewMut<'a, f32>>,
    pub raw_logprob: Option<CudaViewMut<'a, f32>>,
    pub rank: Option<CudaViewMut<'a, u32>>,
    pub top: Option<ViewTop<'a>>,
    /// `vocab` elements a row.
    pub probabilities: Option<CudaViewMut<'a, f32>>,
}

/// Room for candidates: `capacity` elements a row.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct ViewCandidates<'a> {
    pub capacity: u32,
    pub ids: CudaViewMut<'a, u32>,
    pub logits: CudaViewMut<'a, f32>,
    pub logprobs: CudaViewMut<'a, f32>,
}

/// Room for the first candidates of every row: `n` elements a row.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct ViewTop<'a> {
    pub n: u32,
    pub ids: CudaViewMut<'a, u32>,
    pub logprobs: CudaViewMut<'a, f32>,
}

/// What keeps cudarc's book of reads and writes until the launch is queued.
type Guard<'a> = Option<SyncOnDrop<'a>>;

impl CudaSampler {
    /// Launches on a stream of cudarc's, and returns before it is done. A batch of no rows is a no-op. `shape` is that of the
    /// stored rows.
    ///
    /// cudarc orders streams by events that it records beside memory. A stream that captures a graph cannot wait for an
    /// event from outside the capture: capture with event tracking off, as cudarc asks, or use
    /// [`launch`](CudaSampler::launch).
    ///
    /// # Errors
    /// As [`launch`](CudaSampler::launch); views that are shorter than the batch; logits of another type than the
    /// sampler's.
    ///
    /// # Safety
    /// The workspace was zeroed as [`DeviceWorkspace`] says, every number of an index is that of a stored row, and what [`LaunchParams`] has the address of is as [`launch`](CudaSampler::launch) asks. All else is checked.
    pub unsafe fn run<T: Logit>(
        &self,
        stream: &CudaStream,
        input: ViewInput<'_, T>,
        shape: Shape,
        params: &LaunchParams,
        outputs: ViewOutputs<'_>,
        workspace: CudaViewMut<'_, u8>,
    ) -> Result<(), Error> {
        if T::DTYPE != self.dtype() {
            let what = format!("{} logits in a sampler of {}", T::DTYPE.name(), self.dtype().name());
            return Err(Error::Unsupported { backend: NAME, what });
        }
        let len = match &input {
            ViewInput::Read(view) | ViewInput::Indexed(view, _) => view.len(),
            ViewInput::Mask(view) => view.len(),
        };
        let Shape { rows: stored_rows, vocab, stride } = shape.validate(len)?;
        let rows = match &input {
            ViewInput::Indexed(_, index) => index.len(),
            _ => stored_rows,
        };

        let mask = matches!(input, ViewInput::Mask(_));
        let ((logits, _logits), index) = match input {
            ViewInput::Read(view) => (view.view_ptr(stream), None),
            ViewInput::Indexed(view, index) => (view.view_ptr(stream), Some(index.view_ptr(stream))),
            ViewInput::Mask(view) => (view.view_ptr_mut(stream), None),
        };
        let (index, _index) = index.map_or((0, None), |(address, guard)| (address, Some(guard)));
        let draws = rows.saturating_mul(params.draws as usize);
        let ViewOutputs { status, kept, candidates, token, logprob, raw_logprob, rank, top, probabilities } = outputs;
        let (status, _status) = address("status", status, rows, stream)?;
        let (kept, _kept) = address("kept", kept, rows, stream)?;
        let (token, _token) = address("token", token, draws, stream)?;
        let (logprob, _logprob) = address("logprob", logprob, draws, stream)?;
        let (raw_logprob, _raw_logprob) = address("raw_logprob", raw_logprob, draws, stream)?;
        let (rank, _rank) = address("rank", rank, draws, stream)?;
        let (candidates, _candidates): (_, Option<[Guard<'_>; 3]>) = match candidates {
            None => (None, None),
            Some(ViewCandidates { capacity, ids, logits, logprobs }) => {
                let room = rows.saturating_mul(capacity as usize);
                let (ids, of_ids) = address("candidate ids", Some(ids), room, stream)?;
                let (logits, of_logits) = address("candidate logits", Some(logits), room, stream)?;
                let (logprobs, of_logprobs) = address("candidate logprobs", Some(logprobs), room, stream)?;
                (Some(DeviceCandidates { capacity, ids, logits, logprobs }), Some([of_ids, of_logits, of_logprobs]))
            }
        };
        let dense = rows.saturating_mul(vocab);
        let (probabilities, _probabilities) = address("probabilities", probabilities, dense, stream)?;
        let (top, _top): (_, Option<[Guard<'_>; 2]>) = match top {
            None => (None, None),
            Some(ViewTop { n, ids, logprobs }) => {
                let room = rows.saturating_mul(n as usize);
                let (ids, of_ids) = address("top ids", Some(ids), room, stream)?;
                let (logprobs, of_logprobs) = address("top logprobs", Some(logprobs), room, stream)?;
                (Some(DeviceTop { n, ids, logprobs }), Some([of_ids, of_logprobs]))
            }
        };
        let bytes = workspace.len();
        let (workspace, _workspace) = workspace.view_ptr_mut(stream);

        let batch = DeviceBatch { logits, index, rows, vocab, stride };
        let outputs =
            DeviceOutputs { mask, status, kept, candidates, token, logprob, raw_logprob, rank, top, probabilities };
        let workspace = DeviceWorkspace { address: workspace, bytes };
        // SAFETY: the views are lent until cudarc has noted, when the guards are dropped, that this stream uses them; their
        // lengths were checked. The rest is the caller's promise.
        unsafe { self.launch(stream.cu_stream(), &batch, params, &outputs, workspace) }
    }
}

/// The address of a view that must hold `len` elements; 0 for none.
fn address<'a, T>(
    what: &'static str,
    view: Option<CudaViewMut<'a, T>>,
    len: usize,
    stream: &'a CudaStream,
) -> Result<(u64, Guard<'a>), Error> {
    let Some(view) = view else { return Ok((0, None)) };
    if view.len() < len {
        return Err(Error::Length { what, found: view.len(), expected: len });
    }
    let (address, guard) = view.view_ptr_mut(stream);
    Ok((address, Some(guard)))
}
