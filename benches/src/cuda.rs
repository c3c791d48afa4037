//! Rows of a benchmark on a CUDA device: uploaded, launched on, compared with the CPU backend, and timed as
//! [`qrita_cuda::timing`] says.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use qrita_core::{Dtype, Params, Plan};
use qrita_cuda::timing::{self, FoundCandidates, Timer};
use qrita_cuda::{Context, CudaSampler};

pub use qrita_cuda::timing::Output;

use crate::Rows;

/// What can fail: the device, or a check.
pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The exit code of a program that ended so; says on stderr what went wrong.
pub fn exit_code(ended: Result<()>) -> ExitCode {
    let Err(error) = ended else { return ExitCode::SUCCESS };
    // Where stderr is closed the exit code has to do.
    let _ = writeln!(io::stderr(), "error: {error}");
    ExitCode::FAILURE
}

/// Parses `f32`, `f16` and `bf16` on a command line.
pub fn dtype_parser() -> impl TypedValueParser<Value = Dtype> {
    const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];
    PossibleValuesParser::new(DTYPES.map(Dtype::name))
        .try_map(|name| DTYPES.into_iter().find(|dtype| dtype.name() == name).ok_or("no such dtype"))
}

/// A device to measure on.
pub struct Bench {
    timer: Timer,
    replays: usize,
}

impl Bench {
    /// The device of this number. A time is the median of `replays`, at least one.
    ///
    /// # Errors
    /// What is missing: the driver, NVRTC, the device.
    pub fn new(ordinal: usize, replays: usize) -> Result<Bench> {
        Ok(Bench { timer: Timer::new(&Context::new(ordinal)?)?, replays })
    }

    /// The device's name.
    pub fn device(&self) -> &str {
        self.timer.context().name()
    }

    /// Uploads batches of `count` rows, cut from the repetition of these.
    ///
    /// # Errors
    /// The device's, when memory does not suffice.
    pub fn batches<'b>(&'b self, rows: &'b Rows, count: usize, dtype: Dtype) -> Result<Batches<'b>> {
        let uploaded = self.timer.batches(&rows.bytes(dtype), dtype, rows.vocab(), count)?;
        Ok(Batches { bench: self, rows, dtype, uploaded })
    }
}

/// Copies of a batch in device memory, each with its own rows: the ones to work on, and what they were.
pub struct Batches<'b> {
    bench: &'b Bench,
    rows: &'b Rows,
    dtype: Dtype,
    uploaded: timing::Batches<'b>,
}

impl Batches<'_> {
    /// How many there are.
    pub fn copies(&self) -> usize {
        self.uploaded.copies()
    }

    /// Microseconds to copy one, device to device.
    ///
    /// # Errors
    /// The device's.
    pub fn time_copy(&self) -> Result<f64> {
        Ok(self.uploaded.time_copy(self.bench.replays)?)
    }

    /// Microseconds to read one.
    ///
    /// # Errors
    /// The device's.
    pub fn time_read(&self) -> Result<f64> {
        Ok(self.uploaded.time_read(self.bench.replays)?)
    }

    /// What is needed to launch the kernel on these batches: compiles it if it has to.
    ///
    /// # Errors
    /// A parameter that is out of range, or the device's.
    pub fn call(&self, plan: Plan, params: &Params<'_>, output: Output) -> Result<Call<'_>> {
        let context = self.bench.timer.context();
        let sampler = CudaSampler::new(context, self.dtype, plan, false)?;
        let before = context.memory_use()?.allocated;
        let launch = self.uploaded.launch(sampler, params, output)?;
        let allocated = context.memory_use()?.allocated.saturating_sub(before);
        Ok(Call { batches: self, launch, allocated })
    }
}

/// A launch on batches, ready to be made and timed.
pub struct Call<'b> {
    batches: &'b Batches<'b>,
    launch: timing::TimedLaunch<'b>,
    /// Bytes of device memory that it was given.
    allocated: u64,
}

impl Call<'_> {
    /// Microseconds of a launch on one batch.
    ///
    /// # Errors
    /// The device's.
    pub fn time(&self) -> Result<f64> {
        Ok(self.launch.time(self.batches.bench.replays)?)
    }

    /// Bytes of device memory that a call takes beside the logits, as the driver counts them: workspace and outputs, and what
    /// a launch takes by itself.
    ///
    /// # Errors
    /// The device's.
    pub fn memory(&self) -> Result<u64> {
        // A first launch loads code.
        self.launch.run()?;
        let context = self.batches.bench.timer.context();
        let before = context.memory_use()?.taken;
        self.launch.run()?;
        Ok(self.allocated + context.memory_use()?.taken.saturating_sub(before))
    }

    /// The first batch after a launch, in bytes.
    ///
    /// # Errors
    /// The device's.
    pub fn masked(&self) -> Result<Vec<u8>> {
        self.launch.run()?;
        Ok(self.launch.rows(0, self.batches.uploaded.count())?)
    }

    /// Compares `sample` rows of the first batch, spread over it, with what the CPU backend makes of them under the same
    /// plan: every byte of a mask, or ids, logits and log-probabilities in order.
    ///
    /// # Errors
    /// The first row that differs, or the device's.
    pub fn check(&self, params: &Params<'_>, sample: usize) -> Result<()> {
        let Batches { rows, dtype, uploaded, .. } = self.batches;
        let (count, plan) = (uploaded.count(), self.launch.sampler().plan());
        self.launch.run()?;
        let kept = self.launch.kept()?;
        for at in 0..sample.min(count) {
            let row = at * (count - 1) / (sample.min(count) - 1).max(1);
            let same = if self.launch.masks() {
                self.launch.rows(row, 1)? == rows.masked(row, *dtype, params, &plan)?
            } else {
                let right = rows.kept(row, *dtype, params, &plan)?;
                let FoundCandidates { ids, logits, logprobs } = self.launch.candidates(row, right.ids.len())?;
                let len = ids.len();
                kept[row] as usize == right.ids.len()
                    && ids == right.ids[..len]
                    && logits == right.logits[..len]
                    && logprobs.iter().zip(&right.logprobs).all(|(a, b)| a.to_bits() == b.to_bits())
            };
            if !same {
                return Err(format!("row {row} of {count}, {plan:?}: not what the CPU backend makes of it").into());
            }
        }
        Ok(())
    }
}
