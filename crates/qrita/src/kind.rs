//! Which backends there are, and which of them this build and this machine can use.

use std::fmt;
use std::str::FromStr;

/// A choice of backend.
///
/// ```
/// use qrita::BackendKind;
/// assert_eq!("cpu".parse(), Ok(BackendKind::Cpu));
/// assert_eq!(BackendKind::Auto.to_string(), "auto");
/// let error = "hip".parse::<BackendKind>().unwrap_err();
/// assert!(error.to_string().starts_with("the hip backend is not part of this build: choose auto"));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendKind {
    /// The fastest one that is usable here: CUDA, else the CPU.
    #[default]
    Auto,
    /// All cores, with SIMD.
    Cpu,
    /// A CUDA device.
    Cuda,
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BackendKind::Auto => "auto",
            BackendKind::Cpu => "cpu",
            BackendKind::Cuda => "cuda",
        })
    }
}

impl FromStr for BackendKind {
    type Err = UnknownBackend;

    fn from_str(name: &str) -> Result<BackendKind, UnknownBackend> {
        match name {
            "auto" => Ok(BackendKind::Auto),
            "cpu" => Ok(BackendKind::Cpu),
            "cuda" if cfg!(feature = "cuda") => Ok(BackendKind::Cuda),
            "cuda" => Err(UnknownBackend::NotBuilt("cuda")),
            "hip" => Err(UnknownBackend::NotBuilt("hip")),
            _ => Err(UnknownBackend::NoSuchName(name.to_owned())),
        }
    }
}

/// The names that can be parsed, for errors.
const CHOICES: &str = if cfg!(feature = "cuda") { "auto, cpu or cuda" } else { "auto or cpu" };

/// Why a name is not that of a usable [`BackendKind`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnknownBackend {
    /// The backend exists, but was not compiled in.
    #[error("the {0} backend is not part of this build: choose {choices}", choices = CHOICES)]
    NotBuilt(&'static str),
    /// No backend has this name.
    #[error("there is no backend `{0}`: choose {choices}", choices = CHOICES)]
    NoSuchName(String),
}

/// Whether a backend can be used, and if not, why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Availability {
    /// The backend's name: `cpu`, `cuda`, `hip`.
    pub backend: &'static str,
    /// Whether this build has it.
    pub compiled: bool,
    /// What it would run on, or why it can not run.
    pub device: Result<String, String>,
}

impl Availability {
    /// Whether it can be used here and now.
    pub fn is_usable(&self) -> bool {
        self.device.is_ok()
    }
}

/// Every known backend, and whether it can be used here. Of CUDA's devices, the first is looked at; that starts it, which
/// takes a moment.
///
/// ```
/// let names: Vec<_> = qrita::available().iter().map(|a| a.backend).collect();
/// assert_eq!(names, ["cpu", "cuda", "hip"]);
/// ```
pub fn available() -> Vec<Availability> {
    vec![cpu(), cuda(), absent("hip")]
}

fn absent(backend: &'static str) -> Availability {
    Availability { backend, compiled: false, device: Err("not part of this build".to_owned()) }
}

/// What a backend of this build runs on, or why it could not start.
#[cfg(any(feature = "cpu", feature = "cuda"))]
fn present<B: qrita_core::Backend>(name: &'static str, backend: Result<B, qrita_core::Error>) -> Availability {
    let device = match backend {
        Ok(backend) => Ok(backend.description()),
        // Whose device it is, is said already.
        Err(qrita_core::Error::Device { message, .. }) => Err(message),
        Err(error) => Err(error.to_string()),
    };
    Availability { backend: name, compiled: true, device }
}

#[cfg(feature = "cpu")]
fn cpu() -> Availability {
    present("cpu", qrita_cpu::CpuBackend::with_threads(0))
}

#[cfg(not(feature = "cpu"))]
fn cpu() -> Availability {
    absent("cpu")
}

#[cfg(feature = "cuda")]
fn cuda() -> Availability {
    present("cuda", qrita_cuda::backend(0))
}

#[cfg(not(feature = "cuda"))]
fn cuda() -> Availability {
    absent("cuda")
}
