//! What a streamed call gathers, from the slots that its first kernel leaves to the second.

use qrita_core::{Error, Gathering, Logits, Order, Outcome, Outputs, Params, Plan, RowParams};

use super::{FEATURES, HostBackend, OutputMemory, download};
use crate::device::Device;
use crate::source::{KEPT_CAPACITY, STREAM_CAPACITY, Stage, is_streamed};
use crate::workspace::{SLOT_BYTES, SlotHead};

impl<D: Device> HostBackend<D> {
    /// Runs the batch as it is run for outputs, and reads what was gathered. `None` where it is not streamed: under another plan,
    /// and where one kernel is faster than two.
    pub(super) fn gather_streaming(
        &self,
        logits: &Logits<'_>,
        params: &Params<'_>,
        plan: &Plan,
    ) -> Result<Option<Vec<Gathering>>, Error> {
        params.validate(logits)?;
        plan.validate(FEATURES)?;
        let (rows, vocab, device) = (logits.rows(), logits.vocab(), &self.device);
        if rows == 0 || !is_streamed(plan) {
            return Ok(None);
        }
        let mut job = self.prepare(logits, params, None, plan, Stage::Run)?;
        if device.split(&job.specialization, &job.call).is_none() {
            return Ok(None);
        }
        let mut kept = vec![0; rows];
        let outputs = Outputs { kept: Some(&mut kept), ..Outputs::default() };
        let memory = OutputMemory::new(&mut job, &outputs, vocab, false)?;
        job.launch()?;
        // Slots are the first part of the memory that they lie in.
        let Some(slots) = job.held.iter().find(|held| device.address(held) == job.call.slots) else { return Ok(None) };
        let slots: Vec<u8> = download(device, slots, rows * SLOT_BYTES)?;
        memory.download(device, &job.call)?.write(&mut Outputs { kept: Some(&mut kept), ..Outputs::default() });
        let gathering = |(row, (slot, &kept)): (usize, (&[u8], &u32))| {
            let slot: SlotHead = bytemuck::pod_read_unaligned(&slot[..size_of::<SlotHead>()]);
            Gathering { count: slot.gathered, outcome: outcome(&slot, kept, &params.row(row), vocab) }
        };
        Ok(Some(slots.chunks(SLOT_BYTES).zip(&kept).enumerate().map(gathering).collect()))
    }
}

/// What came of a row that keeps `kept` tokens.
fn outcome(slot: &SlotHead, kept: u32, params: &RowParams, vocab: usize) -> Outcome {
    if slot.state != 0 {
        return Outcome::Hit;
    }
    let is_off = params.top_k == 0 || params.top_k as usize >= vocab;
    let by_bounds = params.top_p < 1.0
        && params.temperature != 0.0
        && params.min_p == 0.0
        && (is_off || (params.order == Order::Joint && slot.gathered >= params.top_k));
    let has_room = slot.gathered as usize <= STREAM_CAPACITY && kept as usize <= KEPT_CAPACITY;
    // All of the row above a threshold: of as many as are kept, all that are.
    let has_kept = kept > 0 && kept <= slot.gathered;
    if by_bounds && has_room && has_kept { Outcome::Straddled } else { Outcome::Missed }
}
