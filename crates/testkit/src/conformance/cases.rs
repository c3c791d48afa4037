//! Faults that users of other samplers reported, or that were reproduced on shipped kernels: each with its smallest input
//! and the answer worked out by hand. The oracle answers the same, so each case also holds the oracle to the contract.

use half::slice::HalfBitsSliceExt;
use qrita_core::philox::{random, target};
use qrita_core::weight::{ONE, weight};
use qrita_core::{Backend, Dtype, Input, Logits, LogitsMut, Order, Outputs, Params, Plan, Status, Ties, bf16};

use super::harness::{Buffers, Suite, Wanted};
use crate::batch::{Batch, OwnedBitmask, Stored};
use crate::oracle::{self, OracleBackend};
use crate::rows::{self, Random, RowKind};

fn ln(probabilities: &[f32]) -> Vec<f32> {
    probabilities.iter().map(|p| p.ln()).collect()
}

fn ids(range: std::ops::Range<u32>) -> Vec<u32> {
    range.collect()
}

/// `count` numbers from `first` to `last`, evenly spread.
fn linspace(first: f32, last: f32, count: usize) -> Vec<f32> {
    (0..count).map(|i| first + (last - first) * (i as f32 / (count - 1) as f32)).collect()
}

/// Equal probabilities at the cut, alone and tiled over a batch (flashinfer#3774, vllm#50979).
pub fn ties_at_k<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    for tiles in [1, 7, 8, 64] {
        let batch = Batch::new(&vec![ln(&[0.4, 0.3, 0.3, 0.0]); tiles]).with(|params| params.top_k = vec![2]);
        suite.check_keeps(&batch, &vec![vec![0, 1]; tiles]);
        let batch = batch.with(|params| params.ties = Ties::KeepAll);
        suite.check_keeps(&batch, &vec![vec![0, 1, 2]; tiles]);
    }
}

/// Ties at the least value of the row, which a search must not run past (Qrita as shipped).
pub fn ties_at_the_minimum<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    let mut row = vec![3.0, 2.0, 1.0, 1.0, 1.0, 1.0];
    for vocab in [6, 7, 100, 1000] {
        row.resize(vocab, f32::NEG_INFINITY);
        suite.check_keeps(&Batch::new(&[&row]).with(|params| params.top_k = vec![4]), &[ids(0..4)]);
    }
}

/// A row that is one group of ties (Qrita as shipped).
pub fn ties_in_one_group<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    for value in [0.0, -0.0, 7.5, -1e30, f32::MAX, f32::INFINITY] {
        let batch = Batch::new(&[[value; 32]]);
        suite.check_keeps(&batch.clone().with(|params| params.top_k = vec![5]), &[ids(0..5)]);
        suite.check_keeps(&batch.with(|params| params.top_p = vec![0.5]), &[ids(0..16)]);
    }
}

/// A draw among ties that is found again by its value would be the first of them (tokenspeed#280).
pub fn ties_drawn_evenly<B: Backend>(make: impl Fn() -> B) {
    let draws = 40_000;
    let batch = Batch::new(&vec![[1.0; 4]; draws]).with(|params| params.position = (0..draws as u64).collect());
    let mut counts = [0; 4];
    for token in Suite::new(make).draw(&batch) {
        counts[token as usize] += 1;
    }
    for count in counts {
        assert!((f64::from(count) / draws as f64 - 0.25).abs() < 0.01, "{counts:?} of {draws}");
    }
}

/// Masks made of huge negative finite numbers ruin a mean and a deviation (Qrita as shipped). They are candidates all the
/// same: where k asks for more than the 40 others, the first of them are kept, at no weight.
pub fn huge_negative_masks<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    for mask in [-1e30, f32::MIN] {
        let mut row = vec![mask; 960];
        row.extend(linspace(0.0, 10.0, 40));
        let batch = |row: &Vec<f32>| Batch::new(&vec![row; 59]).with(|params| params.top_k = (1..60).collect());
        let last = |k: u32| ids(0..k.saturating_sub(40)).into_iter().chain(1000 - k.min(40)..1000).collect();
        suite.check_keeps(&batch(&row), &(1..60).map(last).collect::<Vec<_>>());
        row.reverse();
        suite.check_keeps(&batch(&row), &(1..60).map(|k| ids(0..k)).collect::<Vec<_>>());
    }
}

/// Distinct logits closer than a tolerance of 1e-9 (Qrita as shipped).
pub fn logits_closer_than_a_billionth<B: Backend>(make: impl Fn() -> B) {
    let row: Vec<f32> = (0..64).map(|i| i as f32 * 1e-10).collect();
    Suite::new(make).check_keeps(&Batch::new(&[row]).with(|params| params.top_k = vec![5]), &[ids(59..64)]);
}

/// +∞ takes all the mass, also from an estimate of mean and deviation (Qrita as shipped).
pub fn positive_infinity<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    let mut row = vec![f32::INFINITY, 3.0, 2.0, 1.0, 0.0];
    for vocab in [5, 100, 1000] {
        row.resize_with(vocab, || -1.0);
        let batch = Batch::new(&[&row]).with(|params| params.top_k = vec![2]);
        suite.check_keeps(&batch, &[vec![0, 1]]);
        let found = &suite.filter(&batch, &Plan::default())[0];
        assert_eq!((found.status, &found.logprobs[..]), (Status::POS_INF, &[0.0, f32::NEG_INFINITY][..]));
        let batch = Batch::new(&[&row]).with(|params| params.top_p = vec![0.9]);
        suite.check_keeps(&batch, &[vec![0]]);
        assert_eq!(suite.filter(&batch, &Plan::default())[0].status, Status::POS_INF);
    }
    // Several share the mass equally.
    let row = [0.0, f32::INFINITY, 5.0, f32::INFINITY, f32::INFINITY, f32::NAN];
    let batch = Batch::new(&[row]).with(|params| params.top_p = vec![0.6]);
    suite.check_keeps(&batch, &[vec![1, 3]]);
    let found = &suite.filter(&batch, &Plan::default())[0];
    // Without duplication handling all three are kept.
    let thirds = -(3f64.ln()) as f32;
    let right = if Plan::default().duplicates { vec![-std::f32::consts::LN_2; 2] } else { vec![thirds; 3] };
    assert_eq!(found.logprobs, right);
    assert_eq!(found.status, Status::POS_INF | Status::NAN);
}

/// A NaN is never kept, and hides nothing (colibri#369, rten#1089).
pub fn one_nan<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    let batch = Batch::new(&[[0.0, f32::NAN, 3.0]]).with(|params| params.temperature = vec![0.0]);
    suite.check_keeps(&batch, &[vec![2]]);
    let sampled = suite.sample(&batch, &Plan::default())[0];
    assert_eq!((sampled.token, sampled.status), (Some(2), Status::NAN));

    let mut random = Random::new(1);
    let is_nan = |id: u32| id % 20 == 7;
    let row: Vec<f32> = (0..400).map(|id| if is_nan(id) { f32::NAN } else { random.normal() as f32 }).collect();
    let all: Vec<u32> = (0..400).filter(|&id| !is_nan(id)).collect();
    suite.check_keeps(&Batch::new(&[&row]), &[all]);
    for (k, p) in [(50, 1.0), (0, 0.9), (50, 0.9)] {
        let batch = Batch::new(&vec![&row; 64]).with(|params| {
            (params.top_k, params.top_p, params.position) = (vec![k], vec![p], (0..64).collect());
        });
        suite.check(&batch);
        for sampled in suite.sample(&batch, &Plan::default()) {
            assert!(!is_nan(sampled.token.unwrap()) && sampled.status == Status::NAN);
        }
    }
}

/// A row of NaN beside a good one (flashinfer#2402, vllm#53029).
pub fn nan_row_among_good_rows<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    let good: Vec<f32> = (0..8u8).map(f32::from).collect();
    for (k, p) in [(0, 1.0), (3, 1.0), (0, 0.9), (3, 0.5)] {
        let set = |params: &mut crate::batch::OwnedParams| (params.top_k, params.top_p) = (vec![k], vec![p]);
        let batch = Batch::new(&[vec![f32::NAN; 8], good.clone()]).with(set);
        suite.check(&batch);
        for plan in suite.plans_for(&batch) {
            let sampled = suite.sample(&batch, &plan);
            assert_eq!((sampled[0].token, sampled[0].kept), (None, 0));
            assert_eq!(sampled[0].status, Status::NAN | Status::EMPTY);
            let alone = Batch::new(&[&good]).with(set);
            assert_eq!(sampled[1], suite.sample(&alone, &plan)[0]);
            assert_eq!(suite.filter(&batch, &plan)[1], suite.filter(&alone, &plan)[0]);
        }
    }
}

/// A row in which nothing is allowed yields nothing (mistral.rs#1647, TensorRT-LLM#18893).
pub fn all_negative_infinity<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    for vocab in [1, 2, 100, 5000] {
        for (k, p) in [(0, 1.0), (1, 1.0), (50, 1.0), (0, 0.9), (50, 0.9), (50, 0.0)] {
            let batch = Batch::new(&[vec![f32::NEG_INFINITY; vocab]])
                .with(|params| (params.top_k, params.top_p) = (vec![k], vec![p]));
            suite.check_keeps(&batch, &[vec![]]);
            let sampled = suite.sample(&batch, &Plan::default())[0];
            assert_eq!((sampled.token, sampled.status), (None, Status::EMPTY));
        }
    }
}

/// k beyond both ends (llama-cpp-python#220, sendnn-inference#542).
pub fn k_out_of_range<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    for k in [0, 3, 4, 9_999_999, u32::MAX] {
        suite.check_keeps(&Batch::new(&[[1.0, 2.0, 3.0]]).with(|params| params.top_k = vec![k]), &[ids(0..3)]);
    }
    let row: Vec<f32> = (0..128u8).map(|i| -f32::from(i) / 16.0).collect();
    let batch = Batch::new(&vec![row; 3]).with(|params| params.top_k = vec![0, 64, 1]);
    suite.check_keeps(&batch, &[ids(0..128), ids(0..64), ids(0..1)]);
}

/// p at both ends (candle, transformers#19839, vllm#1623).
pub fn p_at_its_ends<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    for (p, right) in
        [(0.0, ids(2..3)), (-0.0, ids(2..3)), (1e-4, ids(2..3)), (1.0, ids(0..3)), (f32::INFINITY, ids(0..3))]
    {
        suite.check_keeps(&Batch::new(&[[0.0, 1.0, 2.0]]).with(|params| params.top_p = vec![p]), &[right]);
    }
}

/// p so near to 1 that no token is left over (TensorRT-LLM#19485).
pub fn p_near_one<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    for p in [0.999_999_9, 1.0 - 2f32.powi(-24)] {
        suite.check_keeps(&Batch::new(&[[0.25; 8]]).with(|params| params.top_p = vec![p]), &[ids(0..8)]);
    }
}

/// p as the f32 that it is, on masses that it divides (flashinfer#2202, Megatron-LM#7182).
pub fn p_on_equal_mass<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    let equal = |count: usize, p: f32| Batch::new(&[vec![2.5; count]]).with(|params| params.top_p = vec![p]);
    suite.check_keeps(&equal(10, 0.9), &[ids(0..9)]);
    suite.check_keeps(&equal(4, 0.5), &[ids(0..2)]);
    suite.check_keeps(&equal(4, 0.500_001), &[ids(0..3)]);
    let wide = Batch::narrow(&[vec![2.5; 131_072]], Dtype::Bf16).with(|params| params.top_p = vec![0.9]);
    suite.check_keeps(&wide, &[ids(0..117_965)]);
}

/// Which mass top-p is a share of after top-k (vllm#718).
pub fn k_then_p_renormalised<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    let batch =
        Batch::new(&[ln(&[0.4, 0.3, 0.2, 0.1])]).with(|params| (params.top_k, params.top_p) = (vec![2], vec![0.5]));
    suite.check_keeps(&batch, &[vec![0]]);
    suite.check_keeps(&batch.with(|params| params.order = Order::Joint), &[vec![0, 1]]);
}

/// The two orders tell each other apart (sglang#36173).
pub fn joint_order<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    let batch = Batch::new(&[ln(&[0.35, 0.25, 0.20, 0.05, 0.03, 0.03, 0.03, 0.03, 0.03])])
        .with(|params| (params.top_k, params.top_p) = (vec![4], vec![0.82]));
    suite.check_keeps(&batch, &[ids(0..3)]);
    suite.check_keeps(&batch.with(|params| params.order = Order::Joint), &[ids(0..4)]);
}

/// Probabilities that pass through a logarithm and back lose the tie (Qrita as shipped).
pub fn logarithm_round_trip<B: Backend>(make: impl Fn() -> B) {
    let mut row = vec![-1.7; 3];
    row.resize(103, -3.7);
    row.resize(2048, -12.7);
    Suite::new(make).check_keeps(&Batch::new(&[row]).with(|params| params.top_p = vec![0.6]), &[ids(0..55)]);
}

/// A mean that dwarfs the deviation (Qrita as shipped).
pub fn large_mean<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    let row: Vec<f32> = (0..64u8).map(|i| 1e6 + f32::from(i) / 16.0).collect();
    suite.check_keeps(&Batch::new(&[&row]).with(|params| params.top_p = vec![0.9]), &[ids(29..64)]);
    let both = Batch::new(&[&row]).with(|params| (params.top_k, params.top_p) = (vec![20], vec![0.5]));
    suite.check_keeps(&both, &[ids(56..64)]);
}

/// All finite logits where a sample may not look (Qrita as shipped).
pub fn finite_in_one_block<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    for level in [-200.0, 100.0] {
        let mut row = vec![f32::NEG_INFINITY; 32_768];
        for (y, step) in row[9000..9050].iter_mut().zip(linspace(0.0, 3.0, 50)) {
            *y = level + step;
        }
        suite.check_keeps(&Batch::new(&[&row]).with(|params| params.top_p = vec![0.5]), &[ids(9039..9050)]);
        suite.check_keeps(&Batch::new(&[&row]).with(|params| params.top_k = vec![50]), &[ids(9000..9050)]);
    }
}

/// A top token so heavy that the rest looks alike (FreeToken#345).
pub fn heavy_top_token<B: Backend>(make: impl Fn() -> B) {
    let batch = Batch::new(&[[5.0, 1.0, 1.0, 0.5, 0.5]]).with(|params| params.top_k = vec![3]);
    Suite::new(make).check_keeps(&batch, &[ids(0..3)]);
}

/// Top-p where a distance overflows that is small, and where 1/T does: sums in floating point are of no use there.
pub fn top_p_at_extreme_temperatures<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    // The maximum is where a sample of evenly spread runs does not look; the others are spread over the row.
    let row = |most: f32, many: [(usize, f32); 2], rest: f32| {
        let mut row = vec![rest; 128_256];
        let mut id = 0;
        for (count, value) in many {
            for _ in 0..count {
                id = (id + 50_021) % row.len();
                row[id] = value;
            }
        }
        row[100] = most;
        row
    };
    // What is kept, and what is without duplication handling.
    let cases = [
        (3e38, row(2e38, [(1100, 1e38), (400, -2e38)], f32::MIN), 881, 1101),
        (1e-39, row(2e-39, [(1100, 1e-39), (0, 0.0)], 0.0), 102_226, 128_256),
    ];
    for (temperature, row, kept, with_all_ties) in cases {
        let batch =
            Batch::new(&[row]).with(|params| (params.temperature, params.top_p) = (vec![temperature], vec![0.8]));
        let answers = oracle::answers(&batch.logits(), &batch.params(), &Plan::default());
        assert_eq!(answers[0].kept, if Plan::default().duplicates { kept } else { with_all_ties });
        suite.check_plans(&batch, &[Plan::default()]);
    }
}

/// Padding between the rows, and padding of the vocabulary (vllm#42684, mlx-vlm#1917).
pub fn strides_and_padding<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    let kinds = [RowKind::Standard, RowKind::LanguageModel, RowKind::Equal, RowKind::AllNegativeInfinity];
    for vocab in [1, 31, 100, 1000] {
        let rows: Vec<Vec<f32>> = kinds.iter().map(|&kind| rows::row(kind, vocab, 5)).collect();
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            let batch = Batch::narrow(&rows, dtype).laid_out(0, vocab + 64, 64, &[1e30]);
            for (k, p) in [(0, 1.0), (10, 1.0), (0, 0.9), (10, 0.9)] {
                suite.check(&batch.clone().with(|params| (params.top_k, params.top_p) = (vec![k], vec![p])));
            }
        }
    }
    let batch = Batch::new(&[[0.0, 1.0, 2.0, 3.0, 9.0, 9.0]])
        .with(|params| (params.valid_vocab, params.temperature) = (Some(4), vec![0.0]));
    suite.check_keeps(&batch, &[vec![3]]);
    let batch = batch.with(|params| params.temperature = vec![1.0]);
    suite.check_keeps(&batch, &[ids(0..4)]);
}

/// No multiple of anything, and starts that no vector load likes (exllamav2#778, tokenspeed#683).
pub fn alignment_and_odd_vocab<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    for vocab in [1, 2, 3, 5, 7, 9, 17, 111, 40_001] {
        let kinds = [RowKind::LanguageModel, RowKind::FewValues, RowKind::Flat];
        let rows: Vec<Vec<f32>> = kinds.iter().map(|&kind| rows::row(kind, vocab, 3)).collect();
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            for start in if vocab > 1000 { 1..2 } else { 0..9 } {
                let batch = Batch::narrow(&rows, dtype).laid_out(start, vocab + start % 3, start % 2, &[f32::NAN]);
                let batch = batch.with(|params| {
                    (params.top_k, params.top_p) = (vec![3, 50, 0], vec![1.0, 0.9, 0.7]);
                });
                suite.check_plans(&batch, &suite.few_plans());
            }
        }
    }
}

/// Rows further from the first than 2^31 and 2^32 elements (vllm#46560). The memory between them is never touched.
pub fn offsets_of_64_bits<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    let (vocab, stride, rows) = (1000, (1 << 30) + 16, 5);
    let row = Stored::narrow(&rows::row(RowKind::LanguageModel, vocab, 9), Dtype::Bf16);
    let Stored::Bf16(row) = &row else { unreachable!("narrowed to bf16") };
    let plain = Batch::of(Stored::Bf16(row.repeat(rows)), vocab).with(|params| {
        (params.top_k, params.top_p, params.position) = (vec![50], vec![0.9], (0..rows as u64).collect());
    });
    // Zeroed pages are not memory until they are written.
    let mut words = vec![0u16; (rows - 1) * stride + vocab];
    let data: &mut [bf16] = words.reinterpret_cast_mut();
    for index in 0..rows {
        data[index * stride..index * stride + vocab].copy_from_slice(row);
    }
    let (params, plan) = (plain.params(), Plan::default());
    let wide = Logits::strided(data, rows, vocab, stride).unwrap();
    let sampled = suite.backend.sample(&wide, &params, &plan, &mut suite.workspace).unwrap();
    assert_eq!(sampled, suite.sample(&plain, &plan));

    let mut masked = plain.stored.clone();
    OracleBackend.run(plain.logits_mut(&mut masked).into(), &params, &plan, &mut Outputs::default(), &mut ()).unwrap();
    let wide = LogitsMut::strided(data, rows, vocab, stride).unwrap();
    suite.backend.run(wide.into(), &params, &plan, &mut Outputs::default(), &mut suite.workspace).unwrap();
    for index in 0..rows {
        for id in 0..vocab {
            let (found, right) = (data[index * stride + id].to_bits(), masked.bits(index * vocab + id));
            assert_eq!(u32::from(found), right, "row {index}, id {id}");
        }
        if index + 1 < rows {
            let behind = &data[index * stride + vocab..][..64];
            assert!(behind.iter().all(|value| value.to_bits() == 0), "padding behind row {index}");
        }
    }
}

/// No rows: nothing to do, and no error (mlc-llm#2234).
pub fn empty_batch<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    for vocab in [1, 1000] {
        let batch = Batch::of(Stored::F32(Vec::new()), vocab);
        suite.check(&batch);
        let (logits, params, plan) = (batch.logits(), batch.params(), Plan::default());
        let (backend, workspace) = (&suite.backend, &mut suite.workspace);
        assert_eq!(backend.truncate(&logits, &params, &plan, workspace), Ok(vec![]));
        assert_eq!(backend.search(&logits, &params, &plan, &[], workspace), Ok(vec![]));
        assert_eq!(backend.dedup(&logits, &params, &[], workspace), Ok(vec![]));
        assert_eq!(backend.emit(logits.into(), &params, &[], &mut Outputs::default(), workspace), Ok(()));
        assert!(suite.filter(&batch, &plan).is_empty() && suite.sample(&batch, &plan).is_empty());
    }
}

/// A temperature that overflows a division by it (vllm#890).
pub fn f16_with_tiny_temperature<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    let draws = 100;
    for temperature in [1e-5, 1e-38, f32::from_bits(1)] {
        for dtype in [Dtype::F16, Dtype::Bf16, Dtype::F32] {
            let batch = Batch::narrow(&vec![[11.06, 11.0]; draws], dtype).with(|params| {
                (params.temperature, params.position) = (vec![temperature], (0..draws as u64).collect());
            });
            suite.check(&batch);
            for sampled in suite.sample(&batch, &Plan::default()) {
                // bf16 can not tell the two apart.
                let tied = dtype == Dtype::Bf16;
                assert!(tied || (sampled.token, sampled.logprob) == (Some(0), 0.0), "{sampled:?}");
                assert!(!sampled.logprob.is_nan() && !sampled.raw_logprob.is_nan());
            }
        }
    }
}

/// A seeded row draws the same token whatever lies beside it (flashinfer#4861, sglang#35697, vllm#51226).
pub fn seeds_and_batch_mates<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    for vocab in [100, 5000] {
        let mates = 9;
        let row = rows::row(RowKind::LanguageModel, vocab, 4);
        let batch = Batch::new(&vec![row; mates]).with(|params| {
            params.temperature = vec![1.0, 2.0, 1.0, 0.0, 0.7, 1.0, 5.0, 1.0, 1.0];
            params.top_k = vec![50, 0, 1, 0, 20, 0, 50, 0, 5];
            params.top_p = vec![0.9, 1.0, 1.0, 1.0, 0.5, 0.99, 1.0, 0.0, 1.0];
            params.seed = vec![7, 7, 7, 0, 1 << 40, u64::MAX, 8, 9, 7];
            params.position = vec![3, 3, 3, 3, 1 << 33, 0, u64::MAX, 1, 3];
        });
        let together = suite.sample(&batch, &Plan::default());
        for (index, beside) in together.iter().enumerate() {
            let alone = suite.sample(&batch.select(&[index]), &Plan::default());
            assert_eq!(beside, &alone[0], "row {index} alone");
        }
        let rotated: Vec<usize> = (0..mates).map(|index| (index + 4) % mates).collect();
        let found = suite.sample(&batch.select(&rotated), &Plan::default());
        for (place, &index) in rotated.iter().enumerate() {
            assert_eq!(found[place], together[index], "row {index} at place {place}");
        }
        suite.check(&batch);
    }
}

/// A tail of a quarter of a million tokens that together are drawn once in three thousand times (vllm#43150).
///
/// Of the 100 000 draws the hits are counted by the contract's arithmetic, which needs no row; every hit, and as many
/// misses, are then drawn by the backend.
pub fn far_tail<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    let (tail, seed) = (262_144u64, 2026);
    let mut row = vec![0.0; tail as usize + 1];
    row[0] = 20.5;
    let light = weight(-20.5);
    let mass = ONE + tail * light;
    let place = |position| target(random(seed, position, 0, 0), mass);
    let hits: Vec<u64> = (0..100_000).filter(|&position| place(position) >= ONE).collect();
    // 32.8 are expected: five standard deviations to either side.
    assert!((5..=61).contains(&hits.len()), "{} hits", hits.len());
    let positions: Vec<u64> = (0..hits.len() as u64).chain(hits).collect();
    let right: Vec<u32> = positions
        .iter()
        .map(|&position| place(position).checked_sub(ONE).map_or(0, |r| 1 + (r / light) as u32))
        .collect();
    for (positions, right) in positions.chunks(8).zip(right.chunks(8)) {
        let batch = Batch::new(&vec![&row; positions.len()])
            .with(|params| (params.seed, params.position) = (vec![seed], positions.to_vec()));
        assert_eq!(suite.draw(&batch), right, "at positions {positions:?}");
    }
}

/// What has no weight is never drawn, also where the random number is at its ends (pytorch#48841).
///
/// 200 000 draws of each row, and those of the smallest and largest of ten million random numbers.
pub fn zero_weight<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    let (seed, draws) = (17, 200_000u64);
    let place = |position: &u64| random(seed, *position, 0, 0);
    let least = (0..10_000_000).min_by_key(place).unwrap();
    let most = (0..10_000_000).max_by_key(place).unwrap();
    let positions: Vec<u64> = (0..draws).chain([least, most]).collect();
    let light = [[-100.0, 0.0, -100.0], [-30.0, 3.0, -30.0]];
    for row in
        [ln(&[0.0, 1.0]), ln(&[0.33, 0.34, 0.0, 0.33]), ln(&[0.0, 0.5, 0.5, 0.0]), light[0].into(), light[1].into()]
    {
        let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let batch = Batch::new(&vec![&row; positions.len()])
            .with(|params| (params.seed, params.position) = (vec![seed], positions.clone()));
        for (token, position) in suite.draw(&batch).into_iter().zip(&positions) {
            assert!(weight(row[token as usize] - max) > 0, "token {token} of {row:?} at position {position}");
        }
    }
}

/// Each position has random bits of its own, and the same ones every time (TensorRT-Edge-LLM#211).
pub fn position_advances<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    let draws = 10_000;
    let batch = Batch::new(&vec![[0.5, 0.5]; draws]).with(|params| params.position = (0..draws as u64).collect());
    let tokens = suite.draw(&batch);
    // The runs test: fair coins have (n + 1) / 2 runs on average, with a deviation of √n / 2. Four of them are allowed.
    let runs = 1 + tokens.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!((4800..=5200).contains(&runs), "{runs} runs");
    let ones: u32 = tokens.iter().sum();
    assert!((4800..=5200).contains(&ones), "{ones} ones");
    assert_eq!(tokens, suite.draw(&batch));
}

/// Ids beyond the end of a bitmask are disallowed (xgrammar#694).
pub fn bitmask_shorter_than_vocab<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    let (vocab, ids) = (151_936, 151_669);
    let mut row = rows::row(RowKind::LanguageModel, vocab, 6);
    row[ids..].fill(50.0);
    let words = ids.div_ceil(32);
    for (fill, allowed) in [(u32::MAX, ids), (0, 0)] {
        let bitmask = OwnedBitmask { words: vec![fill; words], ids, stride: 0 };
        let batch = Batch::narrow(&[&row], Dtype::Bf16).with(|params| params.bitmask = Some(bitmask));
        suite.check_keeps(&batch, &[(0..allowed as u32).collect()]);
        suite.check(&batch.clone().with(|params| params.top_k = vec![50]));
        suite.check(&batch.with(|params| params.top_p = vec![0.9]));
    }
}

/// The log-probability of what filters leave, and of what was there before (TGI#2108).
pub fn logprob_after_filtering<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    let batch = Batch::new(&[ln(&[0.6, 0.3, 0.1])]).with(|params| params.top_p = vec![0.5]);
    suite.check_keeps(&batch, &[vec![0]]);
    for plan in suite.plans_for(&batch) {
        let sampled = suite.sample(&batch, &plan)[0];
        assert_eq!((sampled.token, sampled.rank, sampled.logprob), (Some(0), 0, 0.0));
        assert!((sampled.raw_logprob - 0.6f32.ln()).abs() < 1e-6, "{sampled:?}");
    }
}

/// Temperature 0 keeps the first maximum alone, under every policy.
pub fn greedy<B: Backend>(make: impl Fn() -> B) {
    let mut suite = Suite::new(make);
    for ties in [Ties::LowestId, Ties::KeepAll] {
        for order in [Order::TopKThenTopP, Order::Joint] {
            let batch = Batch::new(&[[1.0, 7.0, 3.0, 7.0, 7.0], [f32::INFINITY, 0.0, f32::INFINITY, 1.0, f32::NAN]])
                .with(|params| {
                    (params.temperature, params.ties, params.order) = (vec![0.0], ties, order);
                    params.top_k = vec![3];
                });
            suite.check_keeps(&batch, &[vec![1], vec![0]]);
            let sampled = suite.sample(&batch, &Plan::default());
            let thirds = -(3f64.ln()) as f32;
            assert_eq!((sampled[0].token, sampled[0].logprob, sampled[0].raw_logprob), (Some(1), 0.0, thirds));
            assert_eq!((sampled[1].token, sampled[1].raw_logprob), (Some(0), -std::f32::consts::LN_2));
            for plan in suite.plans().to_vec() {
                assert_eq!(suite.filter(&batch, &plan)[0].ids, [1]);
            }
        }
    }
}

/// A parameter out of range in one row of eight (TensorRT-LLM#17158, kir-ai#160).
pub fn parameters_out_of_range<B: Backend>(make: impl Fn() -> B) {
    let Suite { backend, mut workspace, .. } = Suite::new(make);
    let batch = Batch::new(&[[1.0, 2.0, 3.0]; 8]);
    let row_3 = |plain: f32, value: f32| [plain, plain, plain, value, plain, plain, plain, plain];
    let (p, hot, cold, min_p) = (row_3(1.0, f32::NAN), row_3(1.0, f32::NAN), row_3(1.0, -1.0), row_3(0.0, 2.0));
    let refused = [
        ("top_p is NaN in row 3", Params::default().top_p(&p)),
        ("temperature is NaN in row 3", Params::default().temperature(&hot)),
        ("temperature is -1 in row 3", Params::default().temperature(&cold)),
        ("min_p is 2 in row 3", Params::default().min_p(&min_p)),
    ];
    for (message, params) in refused {
        let wanted = Wanted::all(3);
        let mut buffers = Buffers::new(&batch, &wanted);
        let result = buffers.call(&batch, &wanted, |input: Input<'_>, outputs| {
            backend.run(input, &params, &Plan::default(), outputs, &mut workspace)
        });
        let error = result.expect_err(message).to_string();
        assert!(error.starts_with(message), "{error}");
        assert!(buffers.difference(&Buffers::new(&batch, &wanted), &batch, &wanted).is_none(), "{message}: written");
    }
}
