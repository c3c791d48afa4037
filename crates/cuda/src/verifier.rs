//! Chains of draft tokens in device memory: the zero-copy way in for speculative decoding.

use cudarc::driver::CudaFunction;
use cudarc::driver::sys::CUstream;
use qrita_core::{Error, Plan};
use qrita_kernels::{Call, ChainCall, LAW_BYTES, Specialization, Stage};

use crate::launch::{Start, launch_kernel};
use crate::sampler::{CudaSampler, DeviceBatch, DeviceOutputs, DeviceWorkspace, LaunchParams, is_aligned};

/// Verifies chains of draft tokens whose rows lie in device memory, as [`Backend::verify`](qrita_core::Backend::verify) does.
///
/// It is made of a [`CudaSampler`], whose dtype, plan and adjustments are those of both sides. As the sampler's, a launch
/// neither allocates, synchronises nor compiles, and a CUDA graph can capture it: five kernels at most.
///
/// ```no_run
/// use qrita_core::{Dtype, Params, Plan};
/// use qrita_cuda::{
///     Context, CudaSampler, CudaVerifier, DeviceBatch, DeviceChainOutputs, DeviceChains, DeviceWorkspace, LaunchParams,
/// };
///
/// # struct Engine { draft: u64, target: u64, args: [u64; 2], offsets: u64, tokens: u64, accepted: u64, emitted: u64,
/// #     workspace: u64, stream: cudarc::driver::sys::CUstream }
/// # fn engine_with_workspace_of(_bytes: usize) -> Engine { unimplemented!() }
/// let sampler = CudaSampler::new(&Context::new(0)?, Dtype::Bf16, Plan::default(), false)?;
/// let verifier = CudaVerifier::new(sampler)?;
/// // Eight requests of four draft tokens each.
/// let (drafts, targets, vocab) = (8 * 4, 8 * 5, 128_256);
/// let bytes = verifier.workspace_bytes(drafts, targets, vocab);
/// // The workspace is zeroed once, when it is allocated; the rows' parameters are made by `CudaSampler::row_args`.
/// let engine = engine_with_workspace_of(bytes);
///
/// let chains = DeviceChains {
///     draft: DeviceBatch { logits: engine.draft, index: 0, rows: drafts, vocab, stride: vocab },
///     target: DeviceBatch { logits: engine.target, index: 0, rows: targets, vocab, stride: vocab },
///     offsets: engine.offsets,
///     tokens: engine.tokens,
/// };
/// let params = engine.args.map(LaunchParams::per_row);
/// let outputs = DeviceChainOutputs { accepted: engine.accepted, tokens: engine.emitted, status: 0 };
/// let workspace = DeviceWorkspace { address: engine.workspace, bytes };
/// // SAFETY: the engine's memory is as `DeviceChains` and `DeviceChainOutputs` say.
/// unsafe { verifier.launch(engine.stream, &chains, &params[0], &params[1], &outputs, workspace) }?;
/// # Ok::<(), qrita_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CudaVerifier {
    sampler: CudaSampler,
    kernel: CudaFunction,
    kernel_is: Specialization,
}

/// [`Chains`](qrita_core::Chains) in device memory. There are as many requests as target rows beyond the draft rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceChains {
    /// One row a draft token.
    pub draft: DeviceBatch,
    /// One row a draft token, and one more a request.
    pub target: DeviceBatch,
    /// `u64`, one a request and one more: where each request's draft tokens start, and where the last one's end. They ascend
    /// from 0 to the number of draft rows.
    pub offsets: u64,
    /// `u32`: the draft tokens.
    pub tokens: u64,
}

/// [`ChainOutputs`](qrita_core::ChainOutputs) in device memory. What is 0 is not asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceChainOutputs {
    /// `u32`, one a request.
    pub accepted: u64,
    /// `u32`, one a target row.
    pub tokens: u64,
    /// `u32`, one a request: the bits of a [`Status`](qrita_core::Status).
    pub status: u64,
}

impl CudaVerifier {
    /// A verifier of rows that this sampler could run: compiles one more kernel, or loads it from the cache.
    ///
    /// # Errors
    /// [`Error::Device`] when the kernel cannot be compiled or loaded.
    pub fn new(sampler: CudaSampler) -> Result<CudaVerifier, Error> {
        // What a plan has of its own is done when a chain is walked.
        let kernel_is = Specialization { stage: Stage::Verify, plan: Plan::default(), ..*sampler.specialization() };
        let kernel = sampler.context().kernel(&kernel_is)?;
        Ok(CudaVerifier { sampler, kernel, kernel_is })
    }

    /// The sampler that runs the rows.
    pub fn sampler(&self) -> &CudaSampler {
        &self.sampler
    }

    /// The workspace that a launch of this shape needs, in bytes; `vocab` is that of the wider side. It does not fall with any
    /// of them, so that one for the largest batch serves all.
    pub fn workspace_bytes(&self, draft_rows: usize, target_rows: usize, vocab: usize) -> usize {
        let laws = draft_rows.saturating_add(target_rows).saturating_mul(LAW_BYTES);
        self.laws_at(draft_rows.max(target_rows), vocab).saturating_add(laws)
    }

    /// Where the laws lie in a workspace: behind what both sides' rows are run in, one side after the other.
    fn laws_at(&self, rows: usize, vocab: usize) -> usize {
        self.sampler.workspace_bytes(rows, vocab).next_multiple_of(16)
    }

    /// Launches on a stream of the device, and returns before it is done. Chains of no request are a no-op.
    ///
    /// # Errors
    /// As [`CudaSampler::launch`], [`Error::Draft`] for the draft rows; no more target rows than draft rows. In all of them
    /// nothing is launched.
    ///
    /// # Safety
    /// As in [`CudaSampler::launch`], of both sides; the offsets, tokens and outputs are as [`DeviceChains`] and
    /// [`DeviceChainOutputs`] say, and the outputs are nobody else's until the launch is done.
    pub unsafe fn launch(
        &self,
        stream: CUstream,
        chains: &DeviceChains,
        draft_params: &LaunchParams,
        target_params: &LaunchParams,
        outputs: &DeviceChainOutputs,
        workspace: DeviceWorkspace,
    ) -> Result<(), Error> {
        let &DeviceChains { draft, target, offsets, tokens } = chains;
        // One more for each request, without which there are no drafts.
        let Some(requests) = target.rows.checked_sub(draft.rows).filter(|&requests| requests > 0 || draft.rows == 0)
        else {
            return Err(Error::Length { what: "target rows", found: target.rows, expected: draft.rows + 1 });
        };
        is_aligned("offsets' address", offsets, 8)?;
        is_aligned("tokens' address", tokens, 4)?;
        // Of a side without rows nothing is looked at.
        let vocab = if draft.rows == 0 { target.vocab } else { draft.vocab.max(target.vocab) };
        let needed = self.workspace_bytes(draft.rows, target.rows, vocab);
        if requests > 0 && workspace.bytes < needed {
            return Err(Error::Length { what: "workspace", found: workspace.bytes, expected: needed });
        }
        let of_side = |side, params| self.sampler.call(side, params, &DeviceOutputs::default(), workspace);
        let of_draft = if draft.rows == 0 {
            None
        } else {
            of_side(&draft, draft_params).map_err(|error| Error::Draft(Box::new(error)))?
        };
        let of_target = of_side(&target, target_params)?;
        let Some(mut of_target) = of_target.filter(|_| requests > 0) else { return Ok(()) };
        of_target.laws = workspace.address + self.laws_at(target.rows, vocab) as u64;
        let after = of_target.laws + (target.rows * LAW_BYTES) as u64;
        let of_draft = of_draft.map(|call| Call { laws: after, ..call });
        let call = ChainCall {
            draft: of_draft.unwrap_or_default(),
            target: of_target,
            offsets,
            tokens,
            accepted: outputs.accepted,
            emitted: outputs.tokens,
            status: outputs.status,
            // No more than target rows, which fit.
            requests: requests as u32,
            unused: 0,
        };
        // SAFETY: the caller's promise; the laws lie in the workspace, behind what these launches use of it, which is free again
        // when each is done, as they are in the order of the stream.
        unsafe {
            if let Some(of_draft) = &of_draft {
                self.sampler.launch_call(stream, of_draft)?;
            }
            self.sampler.launch_call(stream, &of_target)?;
            launch_kernel(&self.kernel, stream, call.requests, self.kernel_is.threads, &call, Start::InOrder)
        }
    }
}
