//! `qrita tune`: which launch shapes are fastest on the CUDA device.

use std::io::{self, Write};

use qrita::cpu::CpuBackend;
use qrita::cuda::{Context, TuneRequest, TunedEntry, Tuning, tune};

use crate::args::TuneArgs;
use crate::failure::Failure;
use crate::job::Progress;
use crate::output::sink::Sink;

pub(crate) fn run(args: TuneArgs) -> Result<(), Failure> {
    let context = Context::new(args.device)?;
    // Before anything is measured, lest it be for nothing.
    let file = args.output.as_deref().map(|path| Sink::open(Some(path))).transpose()?;
    let request = request(&args);
    let progress = Progress::of_measurements(request.cases());
    let tuning = tune(&context, &request, &CpuBackend::new(), |_| progress.advance(1))?;
    drop(progress);

    if let Some(mut file) = file {
        file.write(|out| {
            tuning.to_writer(&mut *out)?;
            out.write_all(b"\n")
        })?;
        file.finish()?;
    }
    let mut sink = Sink::open(None)?;
    sink.write(|out| {
        table(out, &tuning)?;
        match &args.output {
            Some(path) => writeln!(out, "written to {}", path.display()),
            None => Ok(()),
        }
    })?;
    sink.finish()
}

/// What the flags ask for, and where they do not say, the library's choice.
fn request(args: &TuneArgs) -> TuneRequest {
    let mut request = if args.quick { TuneRequest::quick() } else { TuneRequest::default() };
    if !args.dtype.is_empty() {
        request.dtypes = args.dtype.iter().map(|&dtype| dtype.into()).collect();
    }
    if !args.vocab.is_empty() {
        request.vocabs.clone_from(&args.vocab);
    }
    if !args.rows.is_empty() {
        request.rows.clone_from(&args.rows);
    }
    request
}

fn table(out: &mut dyn Write, tuning: &Tuning) -> io::Result<()> {
    writeln!(out, "{}", tuning.device())?;
    let [vocab, rows, default, tuned, faster] = ["vocab", "rows", "default \u{b5}s", "tuned \u{b5}s", "faster"];
    writeln!(out, "dtype  operation  filter  {vocab:>8}  {rows:>6}  {default:>10}  {tuned:>10}  {faster:>6}  shape")?;
    for TunedEntry { case, shape, us, default_us } in tuning.entries() {
        writeln!(
            out,
            "{:5}  {:9}  {:6}  {:8}  {:6}  {default_us:10.1}  {us:10.1}  {:6.2}  {shape}",
            case.dtype.name(),
            case.operation.name(),
            case.filter.name(),
            case.vocab,
            case.rows,
            default_us / us,
        )?;
    }
    let faster = tuning.entries().iter().filter(|entry| entry.us < entry.default_us).count();
    writeln!(out, "{} of {} classes are faster than by default", faster, tuning.entries().len())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use qrita::Dtype;
    use qrita::cuda::{LaunchShape, Operation, TunedCase, TunedDevice, TunedFilter};

    use super::*;
    use crate::args::{Cli, Command};

    fn requested(flags: &str) -> TuneRequest {
        let cli = Cli::try_parse_from(["qrita", "tune"].into_iter().chain(flags.split_whitespace())).unwrap();
        match cli.command {
            Command::Tune(args) => request(&args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flags_take_the_place_of_defaults() {
        assert_eq!(requested(""), TuneRequest::default());
        assert_eq!(requested("--quick"), TuneRequest::quick());
        let narrow = requested("--quick --dtype f16,bf16 --vocab 151936 --rows 1,64");
        let expected = TuneRequest { dtypes: vec![Dtype::F16, Dtype::Bf16], vocabs: vec![151_936], rows: vec![1, 64] };
        assert_eq!(narrow, expected);
        assert_eq!(requested("--rows 3").vocabs, TuneRequest::default().vocabs);
    }

    #[test]
    fn the_table_has_a_line_for_each_class() {
        let device = TunedDevice { name: "a device".to_owned(), capability: (9, 0), multiprocessors: 132 };
        let entry = |rows, threads, us| {
            let case = TunedCase::new(Dtype::Bf16, Operation::Mask, TunedFilter::TopP, 128_256, rows);
            TunedEntry { case, shape: LaunchShape { threads, chunks: 16, mask_chunks: 4 }, us, default_us: 20.0 }
        };
        let tuning = Tuning::new(device, vec![entry(8, 512, 16.0), entry(1, 256, 20.0)]).unwrap();
        let mut out = Vec::new();
        table(&mut out, &tuning).unwrap();
        let expected = "\
a device, compute capability 9.0, 132 multiprocessors
dtype  operation  filter     vocab    rows  default \u{b5}s    tuned \u{b5}s  faster  shape
bf16   mask       top-p     131072       1        20.0        20.0    1.00  256 threads x 16 blocks a row, 4 to mask
bf16   mask       top-p     131072       8        20.0        16.0    1.25  512 threads x 16 blocks a row, 4 to mask
1 of 2 classes are faster than by default
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
