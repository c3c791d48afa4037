//! Steps in device memory, against the CPU's. Passes with a word where there is no device.
#![allow(clippy::print_stderr, reason = "a test that is left out says so")]

use cudarc::driver::{CudaSlice, CudaStream, DevicePtr};
use qrita_core::{Backend, Decay, Dtype, Error, Logits, Outputs, Params, Plan, RowDecay};
use qrita_cpu::CpuBackend;
use qrita_cuda::{
    Context, CudaSampler, DeviceAdjustments, DeviceBatch, DeviceOutputs, DeviceWorkspace, LaunchParams, cudarc,
};
use qrita_testkit::rows::{RowKind, row};

const ROWS: usize = 5;
const VOCAB: usize = 20_003;
const STRIDE: usize = VOCAB + 2;
const VALUES: RowDecay = RowDecay { decay: 0.75, presence: 3.0, repetition: 0.625 };

fn address<T>(slice: &CudaSlice<T>, stream: &CudaStream) -> u64 {
    slice.device_ptr(stream).0
}

fn logits() -> Vec<f32> {
    let kinds = [RowKind::LanguageModel, RowKind::Flat, RowKind::AllNegativeInfinity, RowKind::Equal, RowKind::Nans];
    kinds.into_iter().flat_map(|kind| row(kind, VOCAB, 6)).collect()
}

/// Every token has a penalty, and padding has its own.
fn penalties() -> Vec<f32> {
    (0..ROWS * STRIDE - 2).map(|place| if place % STRIDE < VOCAB { (place % 7) as f32 / 4.0 } else { -1.0 }).collect()
}

fn params(position: u64) -> Params<'static> {
    Params::default().top_k(50).temperature(0.9).seed(5).position(position)
}

#[test]
fn steps_are_those_of_the_cpu() {
    let context = match Context::new(0) {
        Ok(context) => context,
        Err(error) => return eprintln!("left out: {error}"),
    };
    let sampler = CudaSampler::new(&context, Dtype::F32, Plan::default(), true).unwrap();
    let stream = context.cuda().new_stream().unwrap();
    let logits = logits();
    let on_device = stream.clone_htod(&logits).unwrap();
    let mut right = penalties();
    let standing = stream.clone_htod(&right).unwrap();
    let token = stream.alloc_zeros::<u32>(ROWS).unwrap();
    let bytes = sampler.workspace_bytes(ROWS, VOCAB);
    let workspace = stream.alloc_zeros::<u8>(bytes).unwrap();
    let workspace = DeviceWorkspace { address: address(&workspace, &stream), bytes };
    let batch = DeviceBatch { logits: address(&on_device, &stream), index: 0, rows: ROWS, vocab: VOCAB, stride: VOCAB };
    let outputs = DeviceOutputs { token: address(&token, &stream), ..DeviceOutputs::default() };
    let adjustments = DeviceAdjustments {
        standing: address(&standing, &stream),
        standing_stride: STRIDE,
        ..DeviceAdjustments::default()
    };
    let cpu = CpuBackend::with_threads(1).unwrap();
    for position in 0..6 {
        let args = sampler.row_args(&params(position), 0, VOCAB).unwrap().decaying(VALUES).unwrap();
        let launch = LaunchParams::all(args).adjustments(adjustments);
        // SAFETY: addresses and lengths are of memory that outlives the launch.
        unsafe { sampler.step(stream.cu_stream(), &batch, &launch, &outputs, workspace) }.unwrap();
        let mut tokens = [0; ROWS];
        let RowDecay { decay, presence, repetition } = VALUES;
        let mut decay = Decay {
            penalties: &mut right,
            stride: STRIDE,
            decay: decay.into(),
            presence: presence.into(),
            repetition: repetition.into(),
        };
        let mut outputs = Outputs { token: Some(&mut tokens), ..Outputs::default() };
        let input = Logits::new(&logits, VOCAB).unwrap().into();
        cpu.step(input, &params(position), &mut decay, &Plan::default(), &mut outputs, &mut cpu.workspace()).unwrap();
        assert_eq!(stream.clone_dtoh(&token).unwrap(), tokens, "step {position}");
        let found = stream.clone_dtoh(&standing).unwrap();
        let differs = |place: &usize| found[*place].to_bits() != right[*place].to_bits();
        let place = (0..right.len()).find(differs).map(|place| (place / STRIDE, place % STRIDE));
        assert_eq!(place, None, "the row and id of a penalty that differs after step {position}");
    }
    // SAFETY: as above; what is refused is not launched.
    let refused = |launch, outputs| unsafe { sampler.step(stream.cu_stream(), &batch, &launch, &outputs, workspace) };
    let args = sampler.row_args(&params(0), 0, VOCAB).unwrap();
    assert!(args.decaying(RowDecay { decay: -1.0, ..VALUES }).is_err());
    let with_standing = LaunchParams::all(args).adjustments(adjustments);
    assert!(matches!(refused(LaunchParams::all(args), outputs), Err(Error::Unsupported { .. })));
    assert!(matches!(refused(with_standing, DeviceOutputs::default()), Err(Error::Unsupported { .. })));
    assert!(matches!(refused(with_standing.draws(2), outputs), Err(Error::Param { param: "draws", .. })));
}
