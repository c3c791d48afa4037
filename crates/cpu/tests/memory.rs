//! What a call allocates: nothing once the workspace has grown, and never more than a bound.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use qrita_core::{Backend, Candidates, ChainOutputs, Chains, Logits, LogitsMut, Outputs, Params, Plan, Side};
use qrita_cpu::{CpuBackend, Workspace};
use qrita_testkit::rows::{RowKind, row};

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is the system allocator's, with the arguments as they came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const VOCAB: usize = 50_257;

fn params() -> Vec<Params<'static>> {
    vec![
        Params::default(),
        Params::default().top_k(50),
        Params::default().top_k(20_000).top_p(0.9),
        Params::default().top_p(0.9),
        Params::default().top_p(0.01).temperature(3.0),
        Params::default().min_p(0.05),
        Params::default().temperature(0.0),
    ]
}

/// Runs every output of a row; the candidates kept.
fn run(backend: &CpuBackend, row: &[f32], params: &Params<'_>, room: &mut Room, workspace: &mut Workspace) -> usize {
    let candidates =
        Candidates { capacity: row.len(), ids: &mut room.ids, logits: &mut room.logits, logprobs: &mut room.logprobs };
    let mut outputs = Outputs {
        kept: Some(&mut room.kept),
        token: Some(&mut room.token),
        raw_logprob: Some(&mut room.raw_logprob),
        candidates: Some(candidates),
        ..Outputs::default()
    };
    let logits = Logits::new(row, row.len()).unwrap();
    backend.run(logits.into(), params, &Plan::default(), &mut outputs, workspace).unwrap();
    room.masked.copy_from_slice(row);
    let logits = LogitsMut::new(&mut room.masked, row.len()).unwrap();
    backend.run(logits.into(), params, &Plan::default(), &mut Outputs::default(), workspace).unwrap();
    room.kept[0] as usize
}

struct Room {
    ids: Vec<u32>,
    logits: Vec<f32>,
    logprobs: Vec<f32>,
    masked: Vec<f32>,
    kept: [u32; 1],
    token: [u32; 1],
    raw_logprob: [f32; 1],
}

impl Room {
    fn new(vocab: usize) -> Room {
        Room {
            ids: vec![0; vocab],
            logits: vec![0.0; vocab],
            logprobs: vec![0.0; vocab],
            masked: vec![0.0; vocab],
            kept: [0],
            token: [0],
            raw_logprob: [0.0],
        }
    }
}

const KINDS: [RowKind; 6] =
    [RowKind::LanguageModel, RowKind::Standard, RowKind::Flat, RowKind::Equal, RowKind::Plateaus, RowKind::Ascending];

#[test]
fn no_allocation_after_warm_up() {
    let backend = CpuBackend::with_threads(1).unwrap();
    let (mut workspace, mut room) = (backend.workspace(), Room::new(VOCAB));
    for kind in KINDS {
        let row = row(kind, VOCAB, 3);
        for params in params() {
            run(&backend, &row, &params, &mut room, &mut workspace);
            let before = ALLOCATIONS.get();
            run(&backend, &row, &params, &mut room, &mut workspace);
            assert_eq!(ALLOCATIONS.get(), before, "{kind:?} {params:?}");
        }
    }
}

#[test]
fn chains_do_not_allocate_after_warm_up() {
    let backend = CpuBackend::with_threads(1).unwrap();
    let mut workspace = backend.workspace();
    for kind in KINDS {
        let rows = row(kind, 2 * VOCAB, 3);
        for params in params() {
            let draft = Side { logits: Logits::new(&rows[..VOCAB], VOCAB).unwrap(), params };
            let target = Side { logits: Logits::new(&rows, VOCAB).unwrap(), params };
            let mut verify = |token| {
                let (mut accepted, mut tokens) = ([0], [0; 2]);
                let mut outputs =
                    ChainOutputs { accepted: Some(&mut accepted), tokens: Some(&mut tokens), status: None };
                let chains = Chains { offsets: &[0, 1], tokens: &[token], draft, target };
                backend.verify(&chains, &Plan::default(), &mut outputs, &mut workspace).unwrap();
            };
            // The first may be accepted; the second is no token.
            [0, u32::MAX].into_iter().for_each(&mut verify);
            let before = ALLOCATIONS.get();
            [0, u32::MAX].into_iter().for_each(&mut verify);
            assert_eq!(ALLOCATIONS.get(), before, "{kind:?} {params:?}");
        }
    }
}

/// At most 1 MiB and 8 bytes for each candidate kept, whatever the row and the filters.
#[test]
fn workspace_stays_within_its_bound() {
    let backend = CpuBackend::with_threads(1).unwrap();
    let vocab = 1 << 19;
    let mut room = Room::new(vocab);
    for kind in KINDS {
        let row = row(kind, vocab, 5);
        for params in params() {
            let mut workspace = backend.workspace();
            let kept = run(&backend, &row, &params, &mut room, &mut workspace);
            let bytes = workspace.bytes();
            assert!(bytes <= (1 << 20) + 8 * kept, "{kind:?} {params:?}: {bytes} bytes for {kept} kept");
        }
    }
}
