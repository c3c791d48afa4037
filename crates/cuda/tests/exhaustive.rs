//! Weight, logarithm, log-probability, need and random bits: on the device as on the host, for every non-positive f32.
//! Needs a device: `--features gpu-tests`.

mod common;

use qrita_core::{Dtype, Plan};
use qrita_cuda::cudarc::driver::{CudaFunction, result};
use qrita_cuda::{Context, nvrtc};
use qrita_kernels::{Specialization, Stage};
use qrita_testkit::functions::{self, Call, Evaluate};

/// Random arguments of each function that takes more than can be exhausted.
const RANDOM: usize = 1 << 25;

/// The byte that memory holds where no thread wrote.
const UNTOUCHED: u8 = 0xA5;

struct Gpu {
    context: Context,
    kernel: CudaFunction,
}

impl Gpu {
    /// The functions as the library compiles them.
    fn new() -> Gpu {
        let context = common::context();
        let specialization = Specialization {
            dtype: Dtype::F32,
            plan: Plan::default(),
            stage: Stage::Run,
            adjusted: false,
            threads: 256,
            warp: 32,
        };
        let (major, minor) = context.capability();
        let options = nvrtc::options(&specialization, 10 * major + minor);
        let source = qrita_kernels::source() + functions::SOURCE;
        let kernel = common::load(&context, &source, &options, functions::ENTRY);
        Gpu { context, kernel }
    }
}

impl Evaluate for Gpu {
    fn evaluate(&self, call: Call, inputs: &[[u64; 3]], outputs: &mut [u64]) {
        // Callers are threads that work at once: each has a stream of its own.
        let stream = self.context.cuda().new_stream().unwrap();
        // SAFETY: every byte is set before it is read.
        let found = unsafe { stream.alloc::<u64>(outputs.len()) }.unwrap();
        let outputs_address = common::address(&found, &stream);
        // SAFETY: the address is that of memory with as many bytes.
        unsafe { result::memset_d8_async(outputs_address, UNTOUCHED, size_of_val(outputs), stream.cu_stream()) }
            .unwrap();
        let inputs = (!inputs.is_empty()).then(|| stream.clone_htod(inputs.as_flattened()).unwrap());
        let inputs_address = inputs.as_ref().map_or(0, |inputs| common::address(inputs, &stream));
        let mut call = Call { inputs: inputs_address, outputs: outputs_address, ..call };
        let blocks = call.count.div_ceil(256);
        // SAFETY: the kernel takes a `Call`, whose memory is freed in the order of the stream.
        unsafe { common::launch(&self.kernel, &stream, blocks, &mut [(&raw mut call).cast()]) };
        stream.memcpy_dtoh(&found, outputs).unwrap();
        stream.synchronize().unwrap();
    }
}

#[test]
fn every_weight() {
    functions::weights(&Gpu::new(), 1);
}

#[test]
fn every_logprob_of_five_laws() {
    functions::logprobs(&Gpu::new(), 1);
}

#[test]
fn logarithms() {
    functions::logarithms(&Gpu::new(), 1, RANDOM);
}

#[test]
fn needs() {
    functions::needs(&Gpu::new(), RANDOM);
}

#[test]
fn random_bits() {
    functions::random_bits(&Gpu::new(), RANDOM);
}

#[test]
fn quick_weights() {
    functions::quick_weights(&Gpu::new(), RANDOM);
}

#[test]
fn rest_bounds() {
    functions::rest_bounds(&Gpu::new(), RANDOM);
}

#[test]
fn probabilities() {
    functions::probabilities(&Gpu::new(), RANDOM);
}

#[test]
fn draft_decisions() {
    functions::draft_decisions(&Gpu::new(), RANDOM);
}
