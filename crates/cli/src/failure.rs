//! Every way in which the command fails, the line it prints and its exit code.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use qrita::BuildError;
#[cfg(feature = "cuda")]
use qrita::cuda::TuningError;
use qrita_cli::{ParamsError, ReadError, SelectError};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    Usage(String),
    #[error("cannot read {}: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("cannot read {}: it is a directory, give a file in it", .0.display())]
    Directory(PathBuf),
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: ReadError },
    #[error("{}: {source}", path.display())]
    Select { path: PathBuf, source: SelectError },
    #[error("{}: {source}", path.display())]
    ParamsFile { path: PathBuf, source: ParamsError },
    #[error(
        "{} has {lines} lines, but tensor `{tensor}` {needs}: write one JSON object a row, {{}} for the flags' values",
        path.display()
    )]
    ParamsLines { path: PathBuf, lines: usize, tensor: String, needs: String },
    #[error("--rows {range} is outside tensor `{tensor}`, which has {rows} rows")]
    Rows { range: String, tensor: String, rows: usize },
    #[error("{0}")]
    Build(BuildError),
    #[error("{0}")]
    Compute(qrita::Error),
    #[error("{0}")]
    Tables(qrita_delta_tables::Error),
    #[cfg(feature = "cuda")]
    #[error("{0}")]
    Tuning(TuningError),
    #[error("run {run} on {backend}: row {row} is not what the oracle keeps of it: this is a fault, please report it")]
    Ablation { run: &'static str, backend: String, row: usize },
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot write to standard output: {0}")]
    Stdout(io::Error),
}

impl Failure {
    /// Whether the reader of standard output has had enough, as `head` does.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        matches!(self, Failure::Stdout(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// 1: the system or the device failed. 2: what was asked, or a file's content, must be changed.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Ablation { .. } => 1,
            Failure::Open { .. } | Failure::Directory(_) | Failure::Write { .. } | Failure::Stdout(_) => 1,
            Failure::Tables(qrita_delta_tables::Error::Io { .. }) => 1,
            Failure::Compute(qrita::Error::Device { .. }) => 1,
            Failure::Build(BuildError::Backend(qrita::Error::Device { .. })) => 1,
            #[cfg(feature = "cuda")]
            Failure::Tuning(
                TuningError::Io { .. }
                | TuningError::Differs { .. }
                | TuningError::Backend(qrita::Error::Device { .. }),
            ) => 1,
            _ => 2,
        }
        .into()
    }
}

impl From<qrita::Error> for Failure {
    fn from(error: qrita::Error) -> Failure {
        Failure::Compute(error)
    }
}

impl From<qrita_delta_tables::Error> for Failure {
    fn from(error: qrita_delta_tables::Error) -> Failure {
        Failure::Tables(error)
    }
}

#[cfg(feature = "cuda")]
impl From<TuningError> for Failure {
    fn from(error: TuningError) -> Failure {
        Failure::Tuning(error)
    }
}
