//! Weight, logarithm, log-probability, need and random bits of the device source against core's: one in 4099 of what
//! the test of the CUDA backend exhausts.

use qrita_kernels::Device;
use qrita_simt::{Grid, Kernel, SimtDevice, Switches};
use qrita_testkit::functions::{self, Call, Evaluate};

unsafe extern "C" {
    static qrita_simt_functions: Kernel;
}

const STEP: u64 = 4099;
const RANDOM: usize = 1 << 18;

struct Simt(SimtDevice);

impl Evaluate for Simt {
    fn evaluate(&self, call: Call, inputs: &[[u64; 3]], outputs: &mut [u64]) {
        let Simt(device) = self;
        let bytes = |values: &[u64]| -> Vec<u8> { values.iter().flat_map(|value| value.to_ne_bytes()).collect() };
        let found = device.allocate(size_of_val(outputs)).unwrap();
        let given = (!inputs.is_empty()).then(|| device.upload(&bytes(inputs.as_flattened())).unwrap());
        let inputs = given.as_ref().map_or(0, |given| device.address(given));
        let call = Call { inputs, outputs: device.address(&found), ..call };
        let grid = Grid { warp: 32, threads: 256, blocks: call.count.div_ceil(256), seed: 0, limit: 1 << 30 };
        // SAFETY: build.rs defines this kernel for a warp of 32 and a `Call`, whose memory lives to the end of this call.
        unsafe { grid.run(&[&qrita_simt_functions], &call, &Switches::default()) }.unwrap();
        let mut read = bytes(outputs);
        device.download(&found, &mut read).unwrap();
        let words = read.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
        outputs.iter_mut().zip(words).for_each(|(output, word)| *output = word);
    }
}

fn device() -> Simt {
    Simt(SimtDevice::new(32, 256, 0))
}

#[test]
fn weights() {
    functions::weights(&device(), STEP);
}

#[test]
fn logprobs() {
    functions::logprobs(&device(), STEP);
}

#[test]
fn logarithms() {
    functions::logarithms(&device(), STEP, RANDOM);
}

#[test]
fn needs() {
    functions::needs(&device(), RANDOM);
}

#[test]
fn random_bits() {
    functions::random_bits(&device(), RANDOM);
}

#[test]
fn quick_weights() {
    functions::quick_weights(&device(), RANDOM);
}

#[test]
fn rest_bounds() {
    functions::rest_bounds(&device(), RANDOM);
}

#[test]
fn probabilities() {
    functions::probabilities(&device(), RANDOM);
}

#[test]
fn draft_decisions() {
    functions::draft_decisions(&device(), RANDOM);
}
