//! The CPU backend against the oracle: any batch, any parameters, any plan, any outputs, the same bits.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::arbitrary::{Arbitrary, Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use qrita_core::{Backend, Dtype, Order, Outputs, Plan, RowParams, Ties};
use qrita_cpu::{CpuBackend, Isa};
use qrita_testkit::batch::{Batch, OwnedBitmask, OwnedParams, OwnedPenalties, OwnedSparse, OwnedStanding, Stored};
use qrita_testkit::conformance::{Suite, Wanted};
use qrita_testkit::oracle::{self, OracleBackend};
use qrita_testkit::rows::{self, RowKind};

/// Candidates a row that there is room for at most.
const CAPACITY: usize = 40;

const LOGITS: [f32; 14] = [
    0.0,
    -0.0,
    f32::MIN_POSITIVE,
    -f32::MIN_POSITIVE,
    f32::MAX,
    f32::MIN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    1e-40,
    -1e30,
    29.112,
    -29.112,
    6e4,
];

/// One call of one of the backends.
#[derive(Debug)]
struct Call {
    backend: usize,
    plan: Plan,
    wanted: Wanted,
    batch: Batch,
}

impl Arbitrary<'_> for Call {
    fn arbitrary(u: &mut Unstructured<'_>) -> Result<Call> {
        let backend = u.arbitrary::<u8>()?.into();
        let plan = Plan::all().nth(u.choose_index(Plan::all().count())?).unwrap_or_default();
        let wanted = Wanted::subset(u.arbitrary()?, u.int_in_range(0..=CAPACITY)?);
        Ok(Call { backend, plan, wanted, batch: batch(u)? })
    }
}

fn batch(u: &mut Unstructured<'_>) -> Result<Batch> {
    let dtype = *u.choose(&[Dtype::F32, Dtype::F16, Dtype::Bf16])?;
    let count = u.int_in_range(0..=4usize)?;
    // Short rows whose every logit comes from the input, or long ones of a kind with some of their logits replaced.
    let long = u.ratio(1, 4)?;
    let vocab = if long { u.int_in_range(1..=3000usize)? } else { u.int_in_range(1..=80usize)? };
    let palette = u.arbitrary::<[f32; 4]>()?;
    let mut values = Vec::new();
    for _ in 0..count {
        if long {
            let mut row = rows::row(*u.choose(&RowKind::ALL)?, vocab, u.arbitrary()?);
            for _ in 0..u.int_in_range(0..=16)? {
                row[u.choose_index(vocab)?] = logit(u, &palette)?;
            }
            values.extend(row);
        } else {
            for _ in 0..vocab {
                values.push(logit(u, &palette)?);
            }
        }
    }
    let mut batch = Batch::of(Stored::narrow(&values, dtype), vocab);
    batch.params = params(u, count, vocab)?;
    let (start, between, tail) = (u.int_in_range(0..=9)?, u.int_in_range(0..=9)?, u.int_in_range(0..=9)?);
    Ok(batch.laid_out(start, vocab + between, tail, &LOGITS))
}

/// A logit: often one of few, so that there are ties, and sometimes any.
fn logit(u: &mut Unstructured<'_>, palette: &[f32]) -> Result<f32> {
    let byte: u8 = u.arbitrary()?;
    Ok(match byte >> 6 {
        0 => f32::from(byte as i8 & 0x3F) / 4.0 - 8.0,
        1 => palette[usize::from(byte) % palette.len()],
        2 => LOGITS[usize::from(byte) % LOGITS.len()],
        _ => u.arbitrary()?,
    })
}

fn params(u: &mut Unstructured<'_>, count: usize, vocab: usize) -> Result<OwnedParams> {
    let each = if u.arbitrary()? { 1 } else { count.max(1) };
    let (ties, order) =
        (*u.choose(&[Ties::LowestId, Ties::KeepAll])?, *u.choose(&[Order::TopKThenTopP, Order::Joint])?);
    let rows = (0..each).map(|_| row_params(u, vocab, ties, order)).collect::<Result<Vec<_>>>()?;
    let mut params = OwnedParams::from_rows(&rows);
    params.draws = u.int_in_range(0..=3)?;
    if u.ratio(1, 4)? {
        params.valid_vocab = Some(u.int_in_range(0..=vocab + 1)?);
    }
    if u.ratio(1, 4)? {
        params.bitmask = Some(bitmask(u, count, vocab)?);
    }
    if u.ratio(1, 4)? {
        params.bias = Some(sparse(u, count, vocab, |u| logit(u, &[1.0, -1.0]))?);
    }
    if u.ratio(1, 4)? {
        params.penalties = Some(OwnedPenalties {
            repetition: vec![number(u, &[1.0, 1.1, 0.5])?],
            frequency: vec![number(u, &[0.0, 0.1, -0.3])?],
            presence: vec![number(u, &[0.0, 0.5, -1.5])?],
            counts: sparse(u, count, vocab, |u| u.int_in_range(0..=3))?,
        });
    }
    if u.ratio(1, 4)? {
        params.standing = Some(standing(u, count, vocab)?);
    }
    Ok(params)
}

fn row_params(u: &mut Unstructured<'_>, vocab: usize, ties: Ties, order: Order) -> Result<RowParams> {
    let top_k = if u.ratio(7, 8)? { u.int_in_range(0..=vocab as u32 + 1)? } else { u.arbitrary()? };
    Ok(RowParams {
        temperature: number(u, &[1.0, 0.0, 0.7, 1.5])?,
        top_k,
        top_p: number(u, &[1.0, 0.0, 0.5, 0.9, 0.95, 0.999, f32::from_bits(0x3F7F_FFFF)])?,
        min_p: number(u, &[0.0, 0.05, 1e-13, 1.0])?,
        seed: u.arbitrary()?,
        position: u.arbitrary()?,
        stream: u.arbitrary()?,
        draws: 1,
        ties,
        order,
    })
}

/// One of the usual numbers, a share, or any number at all: NaN and what the contract refuses as well.
fn number(u: &mut Unstructured<'_>, usual: &[f32]) -> Result<f32> {
    Ok(match u.int_in_range(0..=15)? {
        0..8u8 => *u.choose(usual)?,
        8..15 => f32::from(u.arbitrary::<u16>()?) / f32::from(u16::MAX),
        _ => u.arbitrary()?,
    })
}

fn bitmask(u: &mut Unstructured<'_>, count: usize, vocab: usize) -> Result<OwnedBitmask> {
    let ids = u.int_in_range(0..=vocab + 40)?;
    let row = ids.div_ceil(32);
    let stride = *u.choose(&[0, row, row + 1])?;
    let length = count.saturating_sub(1) * stride + row;
    let words = (0..length).map(|_| u.arbitrary()).collect::<Result<_>>()?;
    Ok(OwnedBitmask { words, ids, stride })
}

/// Some penalties among many that are 0.
fn standing(u: &mut Unstructured<'_>, count: usize, vocab: usize) -> Result<OwnedStanding> {
    let stride = vocab + u.int_in_range(0..=3)?;
    let mut penalties = vec![0.0; count.saturating_sub(1) * stride + vocab];
    for _ in 0..u.int_in_range(0..=60)? {
        let place = u.choose_index(penalties.len())?;
        penalties[place] = logit(u, &[0.5, 1.0])?;
    }
    Ok(OwnedStanding { penalties, stride })
}

fn sparse<T: Copy>(
    u: &mut Unstructured<'_>,
    count: usize,
    vocab: usize,
    mut value: impl FnMut(&mut Unstructured<'_>) -> Result<T>,
) -> Result<OwnedSparse<T>> {
    let mut rows = Vec::new();
    for _ in 0..count {
        let mut row = Vec::new();
        let mut id = u.int_in_range(0..=9)?;
        while id < vocab as u32 && row.len() < 50 {
            row.push((id, value(u)?));
            id += u.int_in_range(1..=40)?;
        }
        rows.push(row);
    }
    Ok(OwnedSparse::new(&rows))
}

thread_local! {
    /// The backend on each instruction set of this machine, on one thread and on three.
    static SUITES: RefCell<Vec<Suite<CpuBackend>>> = RefCell::new(
        Isa::available()
            .flat_map(|isa| [(isa, 1), (isa, 3)])
            .map(|(isa, threads)| {
                Suite::new(|| CpuBackend::with_threads(threads).and_then(|backend| backend.with_isa(isa)).unwrap())
            })
            .collect(),
    );
}

fn check(suite: &mut Suite<CpuBackend>, call: &Call) {
    let Call { plan, wanted, batch, .. } = call;
    let (logits, params) = (batch.logits(), batch.params());
    let right = OracleBackend.run(logits.into(), &params, plan, &mut Outputs::default(), &mut ());
    if right.is_err() {
        let found = suite.backend.run(logits.into(), &params, plan, &mut Outputs::default(), &mut suite.workspace);
        assert_eq!(found, right);
        return;
    }
    let answers = oracle::answers(&logits, &params, plan);
    suite.compare(batch, &answers, plan, wanted).unwrap_or_else(|difference| panic!("{difference}"));
}

fuzz_target!(|call: Call| {
    SUITES.with_borrow_mut(|suites| {
        let index = call.backend % suites.len();
        check(&mut suites[index], &call);
    });
});
