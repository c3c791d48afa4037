//! Chains of draft tokens in device memory, against the oracle. Passes with a word where there is no device.
#![allow(clippy::print_stderr, reason = "a test that is left out says so")]

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DeviceRepr};
use qrita_core::{Error, Plan, Status};
use qrita_cuda::{
    Context, CudaSampler, CudaVerifier, DeviceBatch, DeviceChainOutputs, DeviceChains, DeviceWorkspace, LaunchParams,
    RowArgs, cudarc,
};
use qrita_testkit::batch::{Batch, Stored};
use qrita_testkit::chains::{ChainBatch, chains};
use qrita_testkit::oracle::chain::{self, Walked};
use qrita_testkit::rows::Size;

/// The byte that memory holds where nothing was written.
const UNTOUCHED: u32 = 0xA5A5_A5A5;

/// Random chains without adjustments.
fn plain_chains(seed: u64) -> ChainBatch {
    let mut batch = chains(seed, Size { rows: 8, vocab: if seed.is_multiple_of(3) { 9000 } else { 300 } });
    for params in [&mut batch.draft.params, &mut batch.target.params] {
        (params.valid_vocab, params.bitmask, params.bias, params.penalties) = (None, None, None, None);
    }
    batch
}

/// An engine's memory on a stream of its own.
struct Memory {
    stream: Arc<CudaStream>,
    /// What only has to live.
    held: Vec<CudaSlice<u8>>,
}

impl Memory {
    fn put<T: DeviceRepr + bytemuck::NoUninit>(&mut self, items: &[T]) -> u64 {
        let bytes: &[u8] = bytemuck::cast_slice(items);
        // No allocation is empty.
        let slice = self.stream.clone_htod(&[bytes, &[0; 8]].concat()).unwrap();
        let address = slice.device_ptr(&self.stream).0;
        self.held.push(slice);
        address
    }

    fn batch(&mut self, batch: &Batch) -> DeviceBatch {
        let address = match &batch.stored {
            Stored::F32(values) => self.put(values),
            Stored::F16(values) => self.put(&values.iter().map(|y| y.to_bits()).collect::<Vec<_>>()),
            Stored::Bf16(values) => self.put(&values.iter().map(|y| y.to_bits()).collect::<Vec<_>>()),
        };
        let logits = address + (batch.start * batch.dtype().size()) as u64;
        let index = batch.index.as_ref().map_or(0, |index| self.put(index));
        DeviceBatch { logits, index, rows: batch.rows, vocab: batch.vocab, stride: batch.stride }
    }

    fn params(&mut self, sampler: &CudaSampler, batch: &Batch) -> LaunchParams {
        let of_row = |row| sampler.row_args(&batch.params(), row, batch.vocab).unwrap();
        let args: Vec<RowArgs> = (0..batch.rows).map(of_row).collect();
        LaunchParams::per_row(self.put(bytemuck::cast_slice::<RowArgs, u8>(&args)))
    }
}

#[test]
fn chains_in_device_memory_are_walked_as_the_oracle_does() {
    let Ok(context) = Context::new(0).inspect_err(|error| eprintln!("left out: {error}")) else { return };
    for seed in 0..60 {
        let batch = plain_chains(seed);
        let plan = Plan::default();
        let right = chain::walks(&batch.chains(), &plan);
        let sampler = CudaSampler::new(&context, batch.target.dtype(), plan, false).unwrap();
        let verifier = CudaVerifier::new(sampler).unwrap();
        let stream = context.cuda().new_stream().unwrap();
        let mut memory = Memory { stream: stream.clone(), held: Vec::new() };
        let requests = right.len();
        let offsets: Vec<u64> = batch.offsets.iter().map(|&offset| offset as u64).collect();
        let chains = DeviceChains {
            draft: memory.batch(&batch.draft),
            target: memory.batch(&batch.target),
            offsets: memory.put(&offsets),
            tokens: memory.put(&batch.tokens),
        };
        let (draft, target) =
            (memory.params(verifier.sampler(), &batch.draft), memory.params(verifier.sampler(), &batch.target));
        let found =
            [requests, batch.target.rows, requests].map(|len| stream.clone_htod(&vec![UNTOUCHED; len]).unwrap());
        let [accepted, tokens, status] = found.each_ref().map(|slice| slice.device_ptr(&stream).0);
        let outputs = DeviceChainOutputs { accepted, tokens, status };
        let vocab = batch.draft.vocab.max(batch.target.vocab);
        let bytes = verifier.workspace_bytes(batch.draft.rows, batch.target.rows, vocab);
        let room: CudaSlice<u8> = stream.alloc_zeros(bytes).unwrap();
        let workspace = DeviceWorkspace { address: room.device_ptr(&stream).0, bytes };
        // SAFETY: here and below, addresses and lengths are of memory that outlives every launch.
        let launch = |chains: &DeviceChains, workspace| unsafe {
            verifier.launch(stream.cu_stream(), chains, &draft, &target, &outputs, workspace)
        };
        let short = DeviceWorkspace { bytes: bytes - 1, ..workspace };
        assert!(matches!(launch(&chains, short), Err(Error::Length { what: "workspace", .. })));
        let few = DeviceChains {
            target: DeviceBatch { rows: batch.draft.rows.saturating_sub(1), ..chains.target },
            ..chains
        };
        assert!(batch.draft.rows == 0 || matches!(launch(&few, workspace), Err(Error::Length { .. })));
        // Twice: the workspace is as it was.
        for _ in 0..2 {
            launch(&chains, workspace).unwrap();
            let [accepted, tokens, status] = found.each_ref().map(|slice| stream.clone_dtoh(slice).unwrap());
            for (request, right) in right.iter().enumerate() {
                let found = Walked {
                    accepted: accepted[request],
                    tokens: tokens[batch.chains().target_rows(request)].to_vec(),
                    status: Status::from_bits(status[request]),
                };
                assert_eq!(&found, right, "seed {seed}\n{}", batch.describe(request));
            }
        }
    }
}
