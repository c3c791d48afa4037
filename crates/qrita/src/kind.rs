//! Which backends there are, and which of them this build and this machine can use.

use std::fmt;
use std::str::FromStr;

/// A choice of backend.
///
/// ```
/// use qrita::BackendKind;
/// assert_eq!("cpu".parse(), Ok(BackendKind::Cpu));
/// assert_eq!(BackendKind::Auto.to_string(), "auto");
/// let error = "cuda".parse::<BackendKind>().unwrap_err();
/// assert_eq!(error.to_string(), "the cuda backend is not part of this build: choose auto or cpu");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendKind {
    /// The fastest one that is usable here.
    #[default]
    Auto,
    /// All cores, with SIMD.
    Cpu,
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BackendKind::Auto => "auto",
            BackendKind::Cpu => "cpu",
        })
    }
}

impl FromStr for BackendKind {
    type Err = UnknownBackend;

    fn from_str(name: &str) -> Result<BackendKind, UnknownBackend> {
        match name {
            "auto" => Ok(BackendKind::Auto),
            "cpu" => Ok(BackendKind::Cpu),
            "cuda" => Err(UnknownBackend::NotBuilt("cuda")),
            "hip" => Err(UnknownBackend::NotBuilt("hip")),
            _ => Err(UnknownBackend::NoSuchName(name.to_owned())),
        }
    }
}

/// Why a name is not that of a usable [`BackendKind`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnknownBackend {
    /// The backend exists, but was not compiled in.
    #[error("the {0} backend is not part of this build: choose auto or cpu")]
    NotBuilt(&'static str),
    /// No backend has this name.
    #[error("there is no backend `{0}`: choose auto or cpu")]
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

const NOT_BUILT: &str = "not part of this build";

/// Every known backend, and whether it can be used here.
///
/// ```
/// let names: Vec<_> = qrita::available().iter().map(|a| a.backend).collect();
/// assert_eq!(names, ["cpu", "cuda", "hip"]);
/// ```
pub fn available() -> Vec<Availability> {
    let absent = |backend| Availability { backend, compiled: false, device: Err(NOT_BUILT.to_owned()) };
    vec![cpu().unwrap_or_else(|| absent("cpu")), absent("cuda"), absent("hip")]
}

#[cfg(feature = "cpu")]
fn cpu() -> Option<Availability> {
    use qrita_core::Backend as _;
    let device = qrita_cpu::CpuBackend::with_threads(0).map(|cpu| cpu.description()).map_err(|error| error.to_string());
    Some(Availability { backend: "cpu", compiled: true, device })
}

#[cfg(not(feature = "cpu"))]
fn cpu() -> Option<Availability> {
    None
}
