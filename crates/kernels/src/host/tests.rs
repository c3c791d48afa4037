//! The host backend over a device that only remembers what it was asked for.

use std::cell::RefCell;

use qrita_core::{
    Adjustments, Bitmask, Candidates, Dtype, LogitsMut, NO_TOKEN, Penalties, Search, Standing, Truncation, bf16,
};

use super::*;

/// What a launch does to the memories that its call has addresses of.
type Kernel = fn(&Call, &Fake);

/// A device whose memory is a list of byte vectors, and whose addresses are places in it, from 1.
struct Fake {
    memories: RefCell<Vec<Vec<u8>>>,
    launches: RefCell<Vec<(Specialization, u32, Call)>>,
    chains: RefCell<Vec<(Specialization, ChainCall)>>,
    kernel: Kernel,
}

impl Fake {
    fn backend(kernel: Kernel) -> HostBackend<Fake> {
        HostBackend::new(Fake {
            memories: RefCell::default(),
            launches: RefCell::default(),
            chains: RefCell::default(),
            kernel,
        })
    }

    fn read<T: Pod>(&self, address: u64) -> Vec<T> {
        let memory = &self.memories.borrow()[address as usize - 1];
        memory.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
    }

    fn write<T: Pod>(&self, address: u64, at: usize, items: &[T]) {
        let bytes: &[u8] = bytemuck::cast_slice(items);
        let start = at * size_of::<T>();
        self.memories.borrow_mut()[address as usize - 1][start..start + bytes.len()].copy_from_slice(bytes);
    }

    fn only_launch(&self) -> (Specialization, u32, Call) {
        let launches = self.launches.borrow();
        assert_eq!(launches.len(), 1);
        launches[0]
    }

    fn is_untouched(&self) -> bool {
        self.memories.borrow().is_empty() && self.launches.borrow().is_empty()
    }
}

impl Device for Fake {
    type Memory = u64;

    fn name(&self) -> &'static str {
        "fake"
    }

    fn description(&self) -> String {
        "nothing".into()
    }

    fn warp(&self) -> u32 {
        32
    }

    fn threads(&self, vocab: usize, autotune: bool) -> u32 {
        if autotune && vocab < 100 { 64 } else { 256 }
    }

    fn blocks(&self) -> u32 {
        2
    }

    /// Rows of five logits or more take two kernels; of three blocks for a row two are left.
    fn split(&self, _whole: &Specialization, call: &Call) -> Option<Split> {
        (call.vocab >= 5).then_some(Split { threads: 32, chunks: 3, mask_chunks: 2 })
    }

    fn upload(&self, bytes: &[u8]) -> Result<u64, Error> {
        self.memories.borrow_mut().push(bytes.to_vec());
        Ok(self.memories.borrow().len() as u64)
    }

    fn allocate(&self, bytes: usize) -> Result<u64, Error> {
        self.upload(&vec![0xA5; bytes])
    }

    fn download(&self, memory: &u64, bytes: &mut [u8]) -> Result<(), Error> {
        bytes.copy_from_slice(&self.memories.borrow()[*memory as usize - 1][..bytes.len()]);
        Ok(())
    }

    fn address(&self, memory: &u64) -> u64 {
        *memory
    }

    fn launch(&self, specialization: &Specialization, blocks: u32, call: &Call) -> Result<(), Error> {
        self.launches.borrow_mut().push((*specialization, blocks, *call));
        (self.kernel)(call, self);
        Ok(())
    }

    fn launch_chains(&self, specialization: &Specialization, call: &ChainCall) -> Result<(), Error> {
        assert_eq!(specialization.stage, Stage::Verify);
        self.chains.borrow_mut().push((*specialization, *call));
        // As many as there are tokens, in place of those.
        self.write(call.accepted, 0, &vec![1u32; call.requests as usize]);
        self.write(call.emitted, 0, &vec![2u32; call.target.rows as usize]);
        self.write(call.status, 0, &vec![5u32; call.requests as usize]);
        Ok(())
    }
}

const NOTHING: Kernel = |_, _| {};

#[test]
fn a_mask_never_reaches_the_padding() {
    let backend = Fake::backend(|call, fake| {
        let all = fake.read::<f32>(call.logits).len();
        fake.write(call.logits, 0, &vec![9.0f32; all]);
    });
    let mut data = [0.0f32, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
    let logits = LogitsMut::strided(&mut data, 2, 3, 4).unwrap();
    let plan = Plan::default();
    backend.run(logits.into(), &Params::default(), &plan, &mut Outputs::default(), &mut ()).unwrap();
    assert_eq!(data, [9.0, 9.0, 9.0, 3.0, 9.0, 9.0, 9.0, 7.0, 8.0]);

    let (specialization, blocks, call) = backend.device().only_launch();
    assert_eq!((call.rows, call.vocab, call.stride, call.mask, blocks), (2, 3, 4, 1, 2));
    assert_eq!((call.status, call.token, call.candidate_ids, call.row_args, call.bitmask), (0, 0, 0, 0, 0));
    let threads = if plan.autotune { 64 } else { 256 };
    assert_eq!((specialization.stage, specialization.threads, specialization.adjusted), (Stage::Run, threads, false));
    assert_eq!((call.scratch, call.scratch_stride), (0, 0));
}

#[cfg(feature = "truncation")]
#[test]
fn scratch_is_one_for_each_block() {
    let backend = Fake::backend(NOTHING);
    let logits = Logits::new(&[1.0f32; 12], 4).unwrap();
    backend.run(logits.into(), &Params::default(), &Plan::paper(), &mut Outputs::default(), &mut ()).unwrap();
    let (_, blocks, call) = backend.device().only_launch();
    assert_eq!((blocks, call.scratch_stride), (2, 32));
    // Addresses of the fake are numbers of memories: slots and scratch lie in one.
    let memory = backend.device().read::<u8>(call.slots);
    assert_eq!(memory.len() as u64, call.scratch - call.slots + 2 * 32);
}

#[cfg(all(feature = "truncation", feature = "autotune"))]
#[test]
fn wide_rows_are_two_launches() {
    let run = |plan: Plan, mask: bool, raw: bool, vocab: usize| {
        let backend = Fake::backend(NOTHING);
        let mut data = vec![1.0f32; 2 * vocab];
        let mut raw_logprob = [0.0; 2];
        let mut outputs = Outputs { raw_logprob: raw.then_some(&mut raw_logprob[..]), ..Outputs::default() };
        let logits = LogitsMut::new(&mut data, vocab).unwrap();
        let input = if mask { logits.into() } else { logits.as_ref().into() };
        backend.run(input, &Params::default(), &plan, &mut outputs, &mut ()).unwrap();
        let launches = backend.device().launches.borrow();
        let call = launches[0].2;
        assert!(backend.device().read::<u8>(call.arrivals).iter().all(|&byte| byte == 0));
        assert!(launches.iter().all(|(.., other)| *other == call));
        launches
            .iter()
            .map(|(specialization, blocks, _)| (specialization.stage, specialization.threads, *blocks))
            .collect::<Vec<_>>()
    };
    let plan = Plan::default();
    assert_eq!(run(plan, true, false, 4), [(Stage::Run, 64, 2)]);
    assert_eq!(run(plan, true, false, 5), [(Stage::Stream, 32, 4), (Stage::Finish, 64, 4)]);
    // Only a mask is divided, and only where nobody reads the row before it.
    assert_eq!(run(plan, false, false, 5), [(Stage::Stream, 32, 4), (Stage::Finish, 64, 2)]);
    assert_eq!(run(plan, true, true, 5), [(Stage::Stream, 32, 4), (Stage::Finish, 64, 2)]);
    assert_eq!(run(Plan::paper(), true, false, 5), [(Stage::Cut, 32, 2), (Stage::Finish, 64, 4)]);
}

#[test]
fn outputs_come_back_and_unused_room_is_as_it_was() {
    let backend = Fake::backend(|call, fake| {
        fake.write(call.status, 0, &[1u32, 15]);
        fake.write(call.token, 0, &[5u32, NO_TOKEN]);
        fake.write(call.logprob, 0, &[-1.5f32, f32::NEG_INFINITY]);
        // One candidate in each row.
        for row in 0..2 {
            let at = row * call.capacity as usize;
            fake.write(call.candidate_ids, at, &[10 + row as u32]);
            fake.write(call.candidate_logits, at, &[20.0 + row as f32]);
            fake.write(call.candidate_logprobs, at, &[-1.0 - row as f32]);
        }
    });
    let data = [bf16::ONE; 6];
    // More room than a row can use.
    let plan = Plan::paper();
    for capacity in [2, 3, 5] {
        let (mut status, mut token, mut logprob) = ([Status::OK; 2], [0; 2], [0.0; 2]);
        let (mut ids, mut logits) = (vec![7; 2 * capacity], vec![7.0; 2 * capacity]);
        let mut logprobs = vec![7.0; 2 * capacity];
        let mut outputs = Outputs {
            status: Some(&mut status),
            token: Some(&mut token),
            logprob: Some(&mut logprob),
            candidates: Some(Candidates { capacity, ids: &mut ids, logits: &mut logits, logprobs: &mut logprobs }),
            ..Outputs::default()
        };
        let input = Logits::new(&data, 3).unwrap();
        backend.run(input.into(), &Params::default(), &plan, &mut outputs, &mut ()).unwrap();
        assert_eq!((status, token), ([Status::NAN, Status::from_bits(15)], [5, NO_TOKEN]));
        assert_eq!(logprob, [-1.5, f32::NEG_INFINITY]);
        let tail = vec![7; capacity - 1];
        assert_eq!(ids, [&[10], &tail[..], &[11], &tail[..]].concat());
        let tail = vec![7.0; capacity - 1];
        assert_eq!(logits, [&[20.0], &tail[..], &[21.0], &tail[..]].concat());
        assert_eq!(logprobs, [&[-1.0], &tail[..], &[-2.0], &tail[..]].concat());
    }
    let launches = backend.device().launches.borrow();
    assert_eq!(launches.iter().map(|(_, _, call)| call.capacity).collect::<Vec<_>>(), [2, 3, 3]);
    assert!(launches.iter().all(|(specialization, ..)| specialization.dtype == Dtype::Bf16));
}

#[test]
fn no_room_is_told_from_nothing_asked() {
    let backend = Fake::backend(NOTHING);
    let candidates = Candidates { capacity: 0, ids: &mut [], logits: &mut [], logprobs: &mut [] };
    let mut outputs = Outputs { candidates: Some(candidates), ..Outputs::default() };
    let input = Logits::new(&[1.0f32; 3], 3).unwrap();
    backend.run(input.into(), &Params::default(), &Plan::default(), &mut outputs, &mut ()).unwrap();
    let call = backend.device().only_launch().2;
    assert!(call.candidate_ids != 0 && call.capacity == 0);
}

#[test]
fn parameters_of_each_row_and_adjustments_are_uploaded() {
    let backend = Fake::backend(NOTHING);
    let penalties = Penalties {
        repetition: 1.5.into(),
        frequency: (&[0.0, 0.25]).into(),
        presence: 0.5.into(),
        counts: Sparse { offsets: &[0, 0, 2], ids: &[1, 2], values: &[3, 0] },
    };
    let adjustments = Adjustments {
        valid_vocab: Some(2),
        bitmask: Some(Bitmask { words: &[1, 2, 3], ids: 3, stride: 1 }),
        bias: Some(Sparse { offsets: &[0, 1, 1], ids: &[2], values: &[-1.0] }),
        penalties: Some(penalties),
        standing: Some(Standing { penalties: &[0.5; 8], stride: 4 }),
    };
    let params = Params::default().top_k(&[1, 2]).adjustments(adjustments);
    let input = Logits::new(&[1.0f32; 6], 3).unwrap();
    backend.run(input.into(), &params, &Plan::paper(), &mut Outputs::default(), &mut ()).unwrap();

    let device = backend.device();
    let (specialization, _, call) = device.only_launch();
    assert!(specialization.adjusted && specialization.plan == Plan::paper());
    assert_eq!(call.args, RowArgs::default());
    let args = device.read::<RowArgs>(call.row_args);
    let expected = [0, 1].map(|row| row_args(&params, row, 3, &DeltaTables::normal(), &Plan::paper()));
    assert_eq!(args, expected);
    assert_eq!((args[1].top_k, args[1].repetition, args[1].frequency), (2, 1.5, 0.25));
    assert_eq!((call.valid_vocab, call.bitmask_ids, call.bitmask_stride), (2, 3, 1));
    assert_eq!(device.read::<u32>(call.bitmask), [1, 2]);
    assert_eq!(device.read::<u64>(call.bias_offsets), [0, 1, 1]);
    assert_eq!(device.read::<u32>(call.bias_ids), [2]);
    assert_eq!(device.read::<f32>(call.bias_values), [-1.0]);
    assert_eq!(device.read::<u64>(call.penalty_offsets), [0, 0, 2]);
    assert_eq!(device.read::<u32>(call.penalty_ids), [1, 2]);
    assert_eq!(device.read::<u32>(call.penalty_counts), [3, 0]);
    assert_eq!((device.read::<f32>(call.standing), call.standing_stride), (vec![0.5; 7], 4));
}

#[test]
fn a_step_is_a_run_and_what_it_leaves() {
    let backend = Fake::backend(|call, fake| {
        if fake.launches.borrow().len() == 2 {
            let all = fake.read::<f32>(call.standing).len();
            fake.write(call.standing, 0, &vec![9.0f32; all]);
        }
    });
    let mut penalties = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
    let (decay, presence) = ((&[0.5, 0.25]).into(), 0.5.into());
    let mut decay = Decay { penalties: &mut penalties, stride: 4, decay, presence, repetition: 0.25.into() };
    let input = Logits::new(&[1.0f32; 6], 3).unwrap();
    let (params, plan) = (Params::default(), Plan::default());
    backend.step(input.into(), &params, &mut decay, &plan, &mut Outputs::default(), &mut ()).unwrap();
    assert_eq!(penalties, [9.0, 9.0, 9.0, 4.0, 9.0, 9.0, 9.0, 8.0]);
    let device = backend.device();
    let launches = device.launches.borrow();
    let [(run, _, call), (left, blocks, of_decay)] = launches[..] else { panic!("two launches") };
    assert!((run.stage, left.stage) == (Stage::Run, Stage::Decay) && run.adjusted);
    assert_eq!((of_decay, blocks), (Call { chunks: 1, ..call }, 2));
    // Nobody asked for the tokens: the second launch does.
    assert_eq!(device.read::<u32>(call.token).len(), 2);
    let args = device.read::<RowArgs>(call.row_args);
    let values = |row: &RowArgs| (row.decay, row.standing_presence, row.standing_repetition);
    assert_eq!((values(&args[0]), values(&args[1])), ((0.5, 0.5, 0.25), (0.25, 0.5, 0.25)));
}

#[test]
fn blocks_of_a_decay_launch() {
    let whole = Specialization {
        dtype: Dtype::Bf16,
        plan: Plan::default(),
        stage: Stage::Run,
        adjusted: true,
        threads: 256,
        warp: 32,
    };
    for (rows, vocab, chunks) in [(1, 1, 1), (3, 2048, 1), (3, 128_256, 62), (1 << 21, 1 << 21, 1023)] {
        let launch = decay_launch(&whole, &Call { rows, vocab, ..Call::default() });
        assert_eq!((launch.call.chunks, launch.blocks), (chunks, rows * chunks));
    }
}

#[test]
fn stages_speak_the_core_types() {
    let (three, one) = (Key::new(3.0), Key::new(1.0));
    let (a, b) = (Candidate::new(three, 0), Candidate::new(one, 1));
    let input = Logits::new(&[3.0f32, 1.0], 2).unwrap();
    let (params, plan) = (Params::default().top_k(1), Plan::default());
    let empty = Truncated {
        status: Status::EMPTY,
        max: Key::NEG_INFINITY,
        threshold: f32::INFINITY,
        gathered: vec![],
        hit: false,
    };

    let backend = Fake::backend(|call, fake| {
        // Out of order, as threads append.
        let gathered = [Candidate::new(Key::new(1.0), 1), Candidate::new(Key::new(3.0), 0)];
        fake.write(call.gathered, 0, &gathered.map(Candidate::bits));
        let max = Key::new(3.0).bits();
        let row = StageRow { status: 2, max, covered_above: Key::new(0.5).bits(), gathered: 2, hit: 1, ..empty_row() };
        fake.write(call.stage_rows, 0, &[row]);
    });
    let found = backend.truncate(&input, &params, &plan, &mut ()).unwrap();
    let truncated = Truncated { status: Status::POS_INF, max: three, threshold: 0.5, gathered: vec![a, b], hit: true };
    assert_eq!(found, std::slice::from_ref(&truncated));

    let backend = Fake::backend(|call, fake| {
        let mut rows = fake.read::<StageRow>(call.stage_rows);
        assert_eq!((rows[0].gathered, rows[0].hit, rows[0].covered_above), (2, 1, Key::new(0.5).bits()));
        assert_eq!(fake.read::<u64>(call.gathered).len(), 2 * call.gathered_stride as usize);
        rows[0] = StageRow { key: rows[0].max, above: 0, tied: 1, quota: 1, ..rows[0] };
        fake.write(call.stage_rows, 0, &rows);
    });
    let two = Logits::new(&[3.0f32, 1.0, f32::NAN, f32::NAN], 2).unwrap();
    let cuts = backend.search(&two, &params, &plan, &[truncated, empty], &mut ()).unwrap();
    assert_eq!(cuts, [Cut { max: three, key: three, above: 0, tied: 1, quota: 1 }, Cut::EMPTY]);

    let backend = Fake::backend(|call, fake| {
        let mut rows = fake.read::<StageRow>(call.stage_rows);
        rows[0] = StageRow { id: 1, kept: rows[0].above + rows[0].quota, ..rows[0] };
        fake.write(call.stage_rows, 0, &rows);
    });
    let boundaries = backend.dedup(&two, &params, &cuts, &mut ()).unwrap();
    assert_eq!(boundaries, [Boundary { max: three, key: three, id: 1, kept: 1 }, Boundary::EMPTY]);

    let backend = Fake::backend(|call, fake| {
        let rows = fake.read::<StageRow>(call.stage_rows);
        fake.write(call.kept, 0, &rows.iter().map(|row| row.kept).collect::<Vec<_>>());
    });
    let mut kept = [7; 2];
    let mut outputs = Outputs { kept: Some(&mut kept), ..Outputs::default() };
    backend.emit(two.into(), &params, &boundaries, &mut outputs, &mut ()).unwrap();
    assert_eq!(kept, [1, 0]);
    assert_eq!(backend.device().only_launch().0.stage, Stage::Emit);
}

#[test]
fn refused_calls_and_empty_batches_leave_the_device_alone() {
    let backend = Fake::backend(NOTHING);
    let input = Logits::new(&[1.0f32; 6], 3).unwrap();
    let (none, plan) = (&mut Outputs::default(), Plan::default());
    let (good, bad) = (Params::default(), Params::default().temperature(f32::NAN));
    let missing =
        Plan { truncation: Truncation::Adaptive, search: Search::Quaternary, duplicates: true, autotune: true, ..plan };
    if Plan::all().all(|other| other != missing) {
        assert!(matches!(backend.truncate(&input, &good, &missing, &mut ()), Err(Error::NotCompiled { .. })));
        assert!(matches!(backend.run(input.into(), &good, &missing, none, &mut ()), Err(Error::NotCompiled { .. })));
    }
    assert!(backend.run(input.into(), &bad, &plan, none, &mut ()).is_err());
    assert!(backend.truncate(&input, &bad, &plan, &mut ()).is_err());
    assert!(backend.search(&input, &good, &plan, &[], &mut ()).is_err());
    assert!(backend.dedup(&input, &bad, &[Cut::EMPTY; 2], &mut ()).is_err());
    assert!(backend.emit(input.into(), &good, &[Boundary::EMPTY], none, &mut ()).is_err());
    let mut short = [0; 1];
    let mut outputs = Outputs { kept: Some(&mut short), ..Outputs::default() };
    assert!(backend.run(input.into(), &good, &plan, &mut outputs, &mut ()).is_err());

    let empty = Logits::new::<f32>(&[], 3).unwrap();
    assert_eq!(backend.truncate(&empty, &good, &plan, &mut ()).unwrap(), []);
    assert_eq!(backend.search(&empty, &good, &plan, &[], &mut ()).unwrap(), []);
    assert_eq!(backend.dedup(&empty, &good, &[], &mut ()).unwrap(), []);
    backend.emit(empty.into(), &good, &[], none, &mut ()).unwrap();
    backend.run(empty.into(), &good, &plan, none, &mut ()).unwrap();
    assert!(backend.device().is_untouched());
}

#[test]
fn chains_are_two_batches_and_a_walk() {
    const DRAFT: [f32; 6] = [1.0; 6];
    const TARGET: [f32; 12] = [1.0; 12];
    let backend = Fake::backend(NOTHING);
    let device = backend.device();
    let side = |rows: &'static [f32], vocab| Side {
        logits: Logits::new(rows, vocab).unwrap(),
        params: Params::default().top_k(2),
    };
    let valid = Adjustments { valid_vocab: Some(2), ..Adjustments::default() };
    let mut draft = side(&DRAFT, 3);
    draft.params = draft.params.adjustments(valid);
    let chains = Chains { offsets: &[0, 2], tokens: &[7, 8], draft, target: side(&TARGET, 4) };
    let (mut accepted, mut tokens, mut status) = ([0; 1], [0; 3], [Status::OK; 1]);
    let mut outputs =
        ChainOutputs { accepted: Some(&mut accepted), tokens: Some(&mut tokens), status: Some(&mut status) };
    backend.verify(&chains, &Plan::default(), &mut outputs, &mut ()).unwrap();
    assert_eq!((accepted, tokens, status), ([1], [2; 3], [Status::NAN | Status::EMPTY]));
    {
        let (launches, walks) = (device.launches.borrow(), device.chains.borrow());
        let [(.., draft), (.., target)] = launches[..] else { panic!("two batches") };
        let [(specialization, call)] = walks[..] else { panic!("one walk") };
        assert_eq!((draft.rows, draft.vocab, target.rows, target.vocab), (2, 3, 3, 4));
        assert_eq!((call.draft, call.target, call.requests), (draft, target, 1));
        // Either side's adjustments are read.
        assert!(specialization.adjusted && specialization.plan == Plan::default());
        assert_eq!(device.read::<u8>(draft.laws).len(), 2 * LAW_BYTES);
        assert_eq!(device.read::<u64>(call.offsets), [0, 2]);
        assert_eq!(device.read::<u32>(call.tokens), [7, 8]);
    }

    // Without drafts there is one batch, and no draft call.
    let none = Side { logits: Logits::new::<f32>(&[], 3).unwrap(), params: Params::default() };
    let chains = Chains { offsets: &[0, 0, 0, 0], tokens: &[], draft: none, target: side(&TARGET, 4) };
    backend.verify(&chains, &Plan::default(), &mut ChainOutputs::default(), &mut ()).unwrap();
    assert_eq!(device.launches.borrow().len(), 3);
    let call = device.chains.borrow()[1].1;
    assert_eq!((call.draft, call.requests), (Call::default(), 3));
}
