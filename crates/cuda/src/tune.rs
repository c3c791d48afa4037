//! Measures launch shapes on the present device.
//!
//! For each class of launches the search starts at the built-in shape and goes on to the fastest of its neighbours, which have
//! twice or half as many threads or blocks, until none is faster. No shape is timed before its results are those of a
//! reference backend. The shape that it ends at is then timed once more beside the built-in one, and taken if it is clearly
//! faster: else the built-in one is, so that noise has no say.

use bytemuck::Pod;
use qrita_core::{Backend, Dtype, Error, Filtered, Logit, Logits, LogitsMut, Outputs, Params, Plan, bf16, f16};

use crate::context::Context;
use crate::policy::{self, LaunchShape, STREAM_THREADS};
use crate::sampler::{CudaSampler, specializations};
use crate::timing::{Batches, Output, TimedLaunch, Timer};
use crate::tuning::{Operation, TunedCase, TunedEntry, TunedFilter, Tuning, TuningError};

/// Rows that differ; batches repeat them.
const DIFFERENT: usize = 8;

/// Launches of a replay, and replays of a shape while searching and at the end. A replay's time is a mean over its launches.
const MOST_LAUNCHES: usize = 32;
const SEARCH_REPLAYS: usize = 3;
const FINAL_REPLAYS: usize = 9;

/// How much faster a shape must be to be gone on to, or to be taken in the place of the built-in one.
const FASTER: f64 = 0.98;

/// Candidates that each row has room for: some of the rows below keep fewer, none many more.
const CAPACITY: usize = 1024;

const OPERATIONS: [Operation; 2] = [Operation::Mask, Operation::Read];
const FILTERS: [TunedFilter; 2] = [TunedFilter::TopK, TunedFilter::TopP];

/// What to measure: every combination of these, masked and read, under k = 50 with p = 0.9 and under p = 0.9 alone.
///
/// A launch is tuned where its dtype is, and a number of rows and a vocabulary of the same class as its own:
/// [`TunedCase::new`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TuneRequest {
    /// Types of the logits.
    pub dtypes: Vec<Dtype>,
    /// Logits in a row.
    pub vocabs: Vec<u32>,
    /// Rows of a batch.
    pub rows: Vec<u32>,
}

impl Default for TuneRequest {
    /// Vocabularies of 32 000, 128 256 and 262 144, every class of 1 to 1024 rows.
    fn default() -> TuneRequest {
        let rows = (0..=10).map(|shift| 1 << shift).collect();
        TuneRequest { dtypes: vec![Dtype::F32, Dtype::Bf16], vocabs: vec![32_000, 128_256, 262_144], rows }
    }
}

impl TuneRequest {
    /// A vocabulary of 128 256 and a few numbers of rows.
    pub fn quick() -> TuneRequest {
        TuneRequest { vocabs: vec![128_256], rows: vec![1, 8, 32, 128, 1024], ..TuneRequest::default() }
    }

    /// How many classes are measured.
    pub fn cases(&self) -> usize {
        self.groups().len() * OPERATIONS.len() * FILTERS.len()
    }

    /// Dtypes, vocabularies and numbers of rows, of each class the first one.
    fn groups(&self) -> Vec<(Dtype, u32, u32)> {
        let mut groups: Vec<(Dtype, u32, u32)> = Vec::new();
        let class = |dtype, vocab, rows| TunedCase::new(dtype, Operation::Mask, TunedFilter::TopK, vocab, rows);
        for &dtype in &self.dtypes {
            for &vocab in &self.vocabs {
                for &rows in &self.rows {
                    let of = class(dtype, vocab, rows);
                    if !groups.iter().any(|&(dtype, vocab, rows)| class(dtype, vocab, rows) == of) {
                        groups.push((dtype, vocab, rows));
                    }
                }
            }
        }
        groups
    }

    fn check(&self) -> Result<(), Error> {
        let refused = |what, value: u32, expected| Err(Error::Shape { what, value: value as usize, expected });
        if let Some(&vocab) = self.vocabs.iter().find(|&&vocab| !(1..=1 << 21).contains(&vocab)) {
            return refused("vocab to tune for", vocab, "from 1 to 2^21");
        }
        if let Some(&rows) = self.rows.iter().find(|&&rows| !(1..=1 << 16).contains(&rows)) {
            return refused("number of rows to tune for", rows, "from 1 to 65536");
        }
        Ok(())
    }
}

/// Measures launch shapes on this device; tells `each` of every entry as it is found.
///
/// `reference` is the backend whose bits a shape must give before it is timed: the CPU's.
///
/// # Errors
/// [`TuningError::Differs`] for a shape that gives other bits, [`TuningError::Backend`] for numbers outside the contract, or
/// when memory is short or the device fails.
pub fn tune<B: Backend>(
    context: &Context,
    request: &TuneRequest,
    reference: &B,
    mut each: impl FnMut(&TunedEntry),
) -> Result<Tuning, TuningError> {
    request.check()?;
    let timer = Timer::new(context)?.with_most_launches(MOST_LAUNCHES);
    // Every kernel there will be, side by side: the compiler takes seconds for each, the first time.
    let kernels = |&dtype: &Dtype| specializations(dtype, Plan::default(), false, &STREAM_THREADS);
    context.kernels(&request.dtypes.iter().flat_map(kernels).collect::<Vec<_>>())?;
    let mut entries = Vec::with_capacity(request.cases());
    let groups = request.groups();
    // Rows of one dtype and vocabulary at a time, and what the reference makes of them.
    for of_rows in groups.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        let (dtype, vocab, _) = of_rows[0];
        let counts: Vec<u32> = of_rows.iter().map(|&(.., rows)| rows).collect();
        let job = Job { timer: &timer, reference, dtype, vocab, counts: &counts };
        let mut found = |entry: TunedEntry| {
            each(&entry);
            entries.push(entry);
        };
        match dtype {
            Dtype::F32 => job.run(|y| y, &mut found),
            Dtype::F16 => job.run(f16::from_f32, &mut found),
            Dtype::Bf16 => job.run(bf16::from_f32, &mut found),
        }?;
    }
    Tuning::new(context.tuned_device(), entries)
}

/// What is measured of one dtype and vocabulary.
struct Job<'a, B> {
    timer: &'a Timer,
    reference: &'a B,
    dtype: Dtype,
    vocab: u32,
    counts: &'a [u32],
}

impl<B: Backend> Job<'_, B> {
    fn run<T: Logit + Pod>(&self, narrow: fn(f32) -> T, found: &mut impl FnMut(TunedEntry)) -> Result<(), TuningError> {
        let &Job { timer, dtype, vocab, .. } = self;
        let sampler = CudaSampler::with_threads(timer.context(), dtype, Plan::default(), false, &STREAM_THREADS)?;
        let rows: Vec<T> = rows(vocab as usize, DIFFERENT).into_iter().map(narrow).collect();
        let rights = FILTERS.map(|filter| Right::new(self.reference, &rows, vocab as usize, filter));
        for &count in self.counts {
            let batches = timer.batches(bytemuck::cast_slice(&rows), dtype, vocab as usize, count as usize)?;
            for operation in OPERATIONS {
                for (filter, right) in FILTERS.into_iter().zip(&rights) {
                    let right = right.as_ref().map_err(Clone::clone)?;
                    let case = TunedCase::new(dtype, operation, filter, vocab, count);
                    found(Search { batches: &batches, sampler: &sampler, right, case }.best(vocab)?);
                }
            }
        }
        Ok(())
    }
}

fn params(filter: TunedFilter) -> Params<'static> {
    match filter {
        TunedFilter::TopK => Params::default().top_k(50).top_p(0.9),
        TunedFilter::TopP => Params::default().top_p(0.9),
    }
}

/// What the rows that differ must become under a filter.
struct Right {
    masked: Vec<u8>,
    row_bytes: usize,
    kept: Vec<Filtered>,
}

impl Right {
    fn new<B: Backend, T: Logit + Pod>(
        reference: &B,
        rows: &[T],
        vocab: usize,
        filter: TunedFilter,
    ) -> Result<Right, Error> {
        let (params, plan, mut workspace) = (params(filter), Plan::default(), reference.workspace());
        let kept = reference.filter(&Logits::new(rows, vocab)?, &params, &plan, &mut workspace)?;
        let mut masked = rows.to_vec();
        let input = LogitsMut::new(&mut masked, vocab)?.into();
        reference.run(input, &params, &plan, &mut Outputs::default(), &mut workspace)?;
        Ok(Right { masked: bytemuck::cast_slice(&masked).to_vec(), row_bytes: vocab * size_of::<T>(), kept })
    }

    /// The first row of the launch's first batch that is not what it must be: each row that differs is looked at, and of the
    /// others the number of kept tokens.
    fn first_wrong(&self, launch: &TimedLaunch<'_>) -> Result<Option<usize>, Error> {
        launch.run()?;
        let kept = launch.kept()?;
        let different = kept.len().min(self.kept.len());
        let is_wrong = |row: usize| kept[row] as usize != self.kept[row % self.kept.len()].ids.len();
        if let Some(row) = (0..kept.len()).find(|&row| is_wrong(row)) {
            return Ok(Some(row));
        }
        if launch.masks() {
            let masked = launch.rows(0, different)?;
            let rows = masked.chunks(self.row_bytes).zip(self.masked.chunks(self.row_bytes));
            return Ok(rows.map(|(found, right)| found == right).position(|same| !same));
        }
        for (row, right) in self.kept.iter().enumerate().take(different) {
            let found = launch.candidates(row, right.ids.len())?;
            let len = found.ids.len();
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            let same = found.ids == right.ids[..len]
                && bits(&found.logits) == bits(&right.logits[..len])
                && bits(&found.logprobs) == bits(&right.logprobs[..len]);
            if !same {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }
}

/// The search for the shape of one class.
struct Search<'a> {
    batches: &'a Batches<'a>,
    sampler: &'a CudaSampler,
    right: &'a Right,
    case: TunedCase,
}

impl Search<'_> {
    fn best(&self, vocab: u32) -> Result<TunedEntry, TuningError> {
        let case = self.case;
        let rows = self.batches.count();
        let default = policy::shape(rows, vocab as usize, &self.sampler.plan(), self.sampler.machine());
        let masks = case.operation == Operation::Mask;
        let neighbours = |shape: LaunchShape| shape.neighbours(rows, masks);
        let time = |shape, replays| Ok::<f64, TuningError>(self.launch(shape)?.time(replays)?);
        let found = descend(default, neighbours, |shape| time(shape, SEARCH_REPLAYS))?;

        let default_us = time(default, FINAL_REPLAYS)?;
        let us = if found == default { default_us } else { time(found, FINAL_REPLAYS)? };
        let (shape, us) = if us < FASTER * default_us { (found, us) } else { (default, default_us) };
        Ok(TunedEntry { case, shape, us, default_us })
    }

    /// A launch in a shape, whose results are right.
    fn launch(&self, shape: LaunchShape) -> Result<TimedLaunch<'_>, TuningError> {
        let output = match self.case.operation {
            Operation::Mask => Output::Mask,
            Operation::Read => Output::Candidates { capacity: CAPACITY },
        };
        let sampler = self.sampler.clone().with_shape(shape)?;
        let launch = self.batches.launch(sampler, &params(self.case.filter), output)?;
        match self.right.first_wrong(&launch)? {
            None => Ok(launch),
            Some(row) => Err(TuningError::Differs { shape, case: self.case, row }),
        }
    }
}

/// From a shape on to the fastest neighbour, again and again, until none is clearly faster. No shape is timed twice.
fn descend<E>(
    start: LaunchShape,
    neighbours: impl Fn(LaunchShape) -> Vec<LaunchShape>,
    mut time: impl FnMut(LaunchShape) -> Result<f64, E>,
) -> Result<LaunchShape, E> {
    let mut seen = vec![start];
    let (mut best, mut best_us) = (start, time(start)?);
    loop {
        let mut fastest: Option<(LaunchShape, f64)> = None;
        for shape in neighbours(best) {
            if seen.contains(&shape) {
                continue;
            }
            seen.push(shape);
            let us = time(shape)?;
            if fastest.is_none_or(|(_, fastest_us)| us < fastest_us) {
                fastest = Some((shape, us));
            }
        }
        match fastest {
            Some((shape, us)) if us < FASTER * best_us => (best, best_us) = (shape, us),
            _ => return Ok(best),
        }
    }
}

/// Rows as the head of a language model has them: a normal bulk, and some logits far above it, the first of which have most of
/// the mass. The same in every run.
fn rows(vocab: usize, count: usize) -> Vec<f32> {
    let mut state = 0x51_17_A0_u64;
    // SplitMix64, in 0 .. 1.
    let mut unit = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 40) as f32 / (1u64 << 24) as f32
    };
    let mut rows = Vec::with_capacity(count * vocab);
    for _ in 0..count {
        let start = rows.len();
        // Four uniform numbers, scaled to a deviation of 2, are nearly normal.
        rows.extend((0..vocab).map(|_| 2.0 * 3f32.sqrt() * (unit() + unit() + unit() + unit() - 2.0)));
        for rank in 1..=vocab.min(100) {
            let id = (unit() * vocab as f32) as usize;
            // About a twentieth of the mass is the bulk's, however wide the row.
            rows[start + id.min(vocab - 1)] = 4.2 + (vocab as f32).ln() - 1.5 * (rank as f32).ln() + unit();
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use qrita_cpu::CpuBackend;

    use super::*;

    #[test]
    fn a_request_has_each_class_once() {
        let request =
            TuneRequest { dtypes: vec![Dtype::F32, Dtype::F32], vocabs: vec![100_000, 128_256], rows: vec![3, 4, 5] };
        assert_eq!(request.groups(), [(Dtype::F32, 100_000, 3), (Dtype::F32, 100_000, 5)]);
        assert_eq!(request.cases(), 8);
        assert_eq!((TuneRequest::default().cases(), TuneRequest::quick().cases()), (264, 40));
        for (vocabs, rows) in
            [(vec![0], vec![1]), (vec![(1 << 21) + 1], vec![1]), (vec![7], vec![0]), (vec![7], vec![65_537])]
        {
            let request = TuneRequest { vocabs, rows, ..TuneRequest::default() };
            assert!(matches!(request.check(), Err(Error::Shape { .. })), "{request:?}");
        }
        assert_eq!(TuneRequest::default().check(), Ok(()));
    }

    #[test]
    fn the_search_finds_the_valley_and_times_nothing_twice() {
        let best = LaunchShape { threads: 512, chunks: 2, mask_chunks: 16 };
        let start = LaunchShape { threads: 128, chunks: 64, mask_chunks: 1 };
        let mut timed = Vec::new();
        let steps = |a: u32, b: u32| f64::from(a.ilog2().abs_diff(b.ilog2()));
        let found = descend(
            start,
            |shape| shape.neighbours(8, true),
            |shape| {
                assert!(!timed.contains(&shape), "{shape} again");
                timed.push(shape);
                let far = match shape.split() {
                    None => 20.0,
                    Some(_) => {
                        steps(shape.threads, best.threads)
                            + steps(shape.chunks, best.chunks)
                            + steps(shape.mask_chunks, best.mask_chunks)
                    }
                };
                Ok::<f64, Error>(10.0 + far)
            },
        );
        assert_eq!(found.unwrap(), best);
        // Not every shape there is.
        assert!(timed.len() < 60, "{}", timed.len());
        // What is hardly faster is not gone on to, and an error ends it.
        let flat = descend(
            start,
            |shape| shape.neighbours(8, true),
            |shape| Ok::<f64, Error>(if shape == start { 1.0 } else { 0.99 }),
        );
        assert_eq!(flat.unwrap(), start);
        assert!(descend(start, |_| Vec::new(), |_| Err::<f64, _>(crate::failed("no"))).is_err());
    }

    #[test]
    fn rows_are_a_models() {
        let rows = rows(32_000, 4);
        assert_eq!((rows.len(), rows.iter().all(|y| y.is_finite())), (4 * 32_000, true));
        assert_eq!(super::rows(1, 3).len(), 3);
        assert_ne!(rows[..32_000], rows[32_000..64_000]);
        for (vocab, filter) in [(32_000, FILTERS[0]), (32_000, FILTERS[1]), (1 << 20, FILTERS[1])] {
            let right = Right::new(&CpuBackend::new(), &super::rows(vocab, 2), vocab, filter).unwrap();
            for kept in &right.kept {
                assert!((2..=200).contains(&kept.ids.len()), "{filter:?} of {vocab} keeps {}", kept.ids.len());
            }
        }
    }
}
