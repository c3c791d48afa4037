//! The `qrita` command: filters, samples and studies logits in safetensors and npy files.
//!
//! Everything that is printed goes through a locked, buffered handle; every failure is one line on standard error and
//! an exit code. The files that the command reads are the library's business (`lib.rs`).

mod args;
mod commands;
mod drawn;
mod failure;
mod job;
mod output;
mod parameters;
mod source;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::failure::Failure;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // --help and --version come as errors too.
        Err(error) if !error.use_stderr() => return finish(print(&error.render().to_string())),
        Err(error) => return finish(Err(Failure::Usage(one_line(&error)))),
    };
    finish(match cli.command {
        Command::Filter(args) => commands::filter::run(args),
        Command::Sample(args) => commands::sample::run(args),
        Command::Stats(args) => commands::stats::run(args),
        Command::Ablate(args) => commands::ablate::run(args),
        Command::Tables(args) => commands::tables::run(args),
        #[cfg(feature = "cuda")]
        Command::Tune(args) => commands::tune::run(args),
        Command::Info(args) => commands::info::run(args),
    })
}

fn finish(result: Result<(), Failure>) -> ExitCode {
    let Err(failure) = result else { return ExitCode::SUCCESS };
    if failure.is_closed_pipe() {
        return ExitCode::SUCCESS;
    }
    // Names from files may hold anything; an error is one line.
    let message: String = failure.to_string().chars().flat_map(printable).collect();
    // Nothing is left to tell it to when standard error is gone.
    let _ = writeln!(io::stderr().lock(), "error: {message}");
    failure.exit_code()
}

fn printable(c: char) -> impl Iterator<Item = char> {
    let escaped = c.is_control().then(|| c.escape_default());
    let plain = (!c.is_control()).then_some(c);
    escaped.into_iter().flatten().chain(plain)
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::Stdout)
}

/// What clap prints as a paragraph, a usage and a hint.
fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let paragraph = paragraph.strip_prefix("error: ").unwrap_or(paragraph);
    format!("{}: see --help", paragraph.split_whitespace().collect::<Vec<_>>().join(" "))
}
