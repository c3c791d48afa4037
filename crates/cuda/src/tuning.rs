//! Measured launch shapes: what [`tune`](crate::tune()) finds, and a file that keeps it.
//!
//! A tuning is of one device, and chooses among shapes by what a launch is: its dtype, what is asked for, which filter decides,
//! and how wide and how many the rows are. What it does not have, the built-in policy chooses. A choice changes times, never an
//! output bit.
//!
//! The file is one JSON object, [marked](qrita_delta_tables::marked) as a table's is.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use qrita_core::{Dtype, Error};
use qrita_delta_tables::marked::{self, Fault};
use qrita_kernels::{Call, JOINT};
use serde::{Deserialize, Serialize};

use crate::policy::LaunchShape;

/// The most bytes that [`Tuning::load`] reads: an entry takes some two hundred.
const MAX_BYTES: u64 = 16 << 20;

/// What a launch is asked for, as far as its shape matters to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Logits are masked in place, whatever else is asked for.
    Mask,
    /// Logits are only read: for candidates, for a token. What is written of a row is little, and one block writes it.
    Read,
}

impl Operation {
    /// `mask` or `read`.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Mask => "mask",
            Operation::Read => "read",
        }
    }
}

/// Which filter decides, as far as a launch's shape matters to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TunedFilter {
    /// Any that needs no mass of the row but its candidates' own: top-k, also with top-p over what it leaves.
    TopK,
    /// Top-p over the whole row, whose mass is summed as it is read.
    ///
    /// Parameters that lie in device memory are not known when a launch is made: it is taken for one of these, which have more
    /// to do.
    TopP,
}

impl TunedFilter {
    /// `top-k` or `top-p`.
    pub fn name(self) -> &'static str {
        match self {
            TunedFilter::TopK => "top-k",
            TunedFilter::TopP => "top-p",
        }
    }
}

/// A class of launches that have the same shape: [`TunedCase::new`] says which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TunedCase {
    /// The logits' type.
    pub dtype: Dtype,
    /// What is asked for.
    pub operation: Operation,
    /// Which filter decides.
    pub filter: TunedFilter,
    /// Logits in a row: from more than half of this up to this, a power of two.
    pub vocab: u32,
    /// Rows, likewise.
    pub rows: u32,
}

impl TunedCase {
    /// The class of launches on `rows` of `vocab` logits.
    ///
    /// ```
    /// use qrita_core::Dtype;
    /// use qrita_cuda::{Operation, TunedCase, TunedFilter};
    ///
    /// let case = TunedCase::new(Dtype::Bf16, Operation::Mask, TunedFilter::TopK, 128_256, 33);
    /// assert_eq!((case.vocab, case.rows), (1 << 17, 64));
    /// ```
    pub fn new(dtype: Dtype, operation: Operation, filter: TunedFilter, vocab: u32, rows: u32) -> TunedCase {
        // Beyond the last power of two: a class that no tuning has.
        let bucket = |number: u32| number.checked_next_power_of_two().unwrap_or(u32::MAX);
        TunedCase { dtype, operation, filter, vocab: bucket(vocab), rows: bucket(rows) }
    }

    /// The class of a launch.
    pub(crate) fn of(dtype: Dtype, call: &Call) -> TunedCase {
        let args = &call.args;
        let is_greedy = args.temperature == 0.0;
        let sums_row = args.top_p < 1.0 && (args.top_k == 0 || args.flags & JOINT != 0) && !is_greedy;
        let filter = if call.row_args != 0 || sums_row { TunedFilter::TopP } else { TunedFilter::TopK };
        let operation = if call.mask != 0 { Operation::Mask } else { Operation::Read };
        TunedCase::new(dtype, operation, filter, call.vocab, call.rows)
    }

    /// The order of a tuning's entries.
    fn key(&self) -> (u32, Operation, TunedFilter, u32, u32) {
        (self.dtype as u32, self.operation, self.filter, self.vocab, self.rows)
    }
}

impl fmt::Display for TunedCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &TunedCase { dtype, operation, filter, vocab, rows } = self;
        let (dtype, operation, filter) = (dtype.name(), operation.name(), filter.name());
        write!(f, "{dtype}, {operation}, {filter}, up to {rows} rows of up to {vocab}")
    }
}

/// The shape of a class of launches, and what it was chosen by.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TunedEntry {
    /// The class.
    #[serde(flatten)]
    pub case: TunedCase,
    /// Its shape.
    pub shape: LaunchShape,
    /// Microseconds of a launch in this shape.
    pub us: f64,
    /// Microseconds of a launch in the built-in shape.
    pub default_us: f64,
}

/// The device that a tuning is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunedDevice {
    /// Its name.
    pub name: String,
    /// Its compute capability, major and minor.
    pub capability: (u32, u32),
    /// How many multiprocessors it has: a part of a device has fewer than the whole.
    pub multiprocessors: u32,
}

impl fmt::Display for TunedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TunedDevice { name, capability: (major, minor), multiprocessors } = self;
        // It comes from a file, and may go to a terminal.
        write!(f, "{}, compute capability {major}.{minor}, {multiprocessors} multiprocessors", name.escape_debug())
    }
}

/// Why a tuning cannot be read, made or used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TuningError {
    /// The operating system refused to read the file.
    #[error("cannot read the tuning {}: {message}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What kind of refusal.
        kind: io::ErrorKind,
        /// What the operating system said.
        message: String,
    },
    /// The bytes are no tuning at all: not JSON, cut short, or JSON of another program.
    #[error("not a tuning ({why}); give a file that `qrita tune` wrote")]
    NotATuning {
        /// What was found instead.
        why: String,
    },
    /// A tuning in a layout that this release does not read.
    #[error("tuning of version {found}, but this release reads version {expected}: tune again with this release")]
    Version {
        /// The version in the file.
        found: u64,
        /// The version that this release reads.
        expected: u32,
    },
    /// A tuning of the right version that breaks a rule.
    #[error("corrupt tuning: {what}; tune again")]
    Corrupt {
        /// The rule that is broken, and where.
        what: String,
    },
    /// A shape that no kernel is compiled for, or that is not tested: of another release, or made by hand.
    #[error(
        "the tuning has launches of {shape} ({case}), which this release does not make: tune again with this release"
    )]
    Shape {
        /// The shape.
        shape: LaunchShape,
        /// Where it is.
        case: TunedCase,
    },
    /// A tuning of another device. Its shapes would give the same bits here, but nobody knows how fast.
    #[error("the tuning is of {tuned}; this device is {present}: tune on this one")]
    Device {
        /// The tuning's device.
        tuned: TunedDevice,
        /// The device that it was to be used on.
        present: TunedDevice,
    },
    /// While tuning: a shape's results were not the reference's. It is a fault of the kernel or of the device.
    #[error("launches of {shape} ({case}) are wrong in row {row}: nothing was tuned")]
    Differs {
        /// The shape.
        shape: LaunchShape,
        /// What was launched.
        case: TunedCase,
        /// The first row that differs.
        row: usize,
    },
    /// The device failed, or a kernel could not be compiled.
    #[error(transparent)]
    Backend(#[from] Error),
}

/// Measured launch shapes of one device.
///
/// ```
/// use qrita_core::Dtype;
/// use qrita_cuda::{LaunchShape, Operation, TunedCase, TunedDevice, TunedEntry, TunedFilter, Tuning};
///
/// let device = TunedDevice { name: "NVIDIA H200".into(), capability: (9, 0), multiprocessors: 132 };
/// let case = TunedCase::new(Dtype::F32, Operation::Mask, TunedFilter::TopK, 128_256, 8);
/// let shape = LaunchShape { threads: 512, chunks: 16, mask_chunks: 16 };
/// let tuning = Tuning::new(device, vec![TunedEntry { case, shape, us: 17.5, default_us: 20.25 }])?;
///
/// let mut file = Vec::new();
/// tuning.to_writer(&mut file)?;
/// assert_eq!(Tuning::from_slice(&file)?.shape(&case), Some(shape));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Tuning {
    device: TunedDevice,
    /// In the order of their keys, which differ.
    entries: Vec<TunedEntry>,
}

/// The layout of the file.
#[derive(Serialize, Deserialize)]
struct TuningFile {
    format: String,
    version: u64,
    device: TunedDevice,
    entries: Vec<TunedEntry>,
}

impl Tuning {
    /// The marker in the file.
    pub const FORMAT: &'static str = "qrita-tuning";
    /// The version of the layout: it also rises when the same shapes come to mean other launches.
    pub const VERSION: u32 = 1;

    /// A tuning of these entries.
    ///
    /// # Errors
    /// [`TuningError::Shape`] for a shape that is not launched, [`TuningError::Corrupt`] for a class that does not end at
    /// powers of two, or that is there twice.
    pub fn new(device: TunedDevice, mut entries: Vec<TunedEntry>) -> Result<Tuning, TuningError> {
        entries.sort_by_key(|entry| entry.case.key());
        for &TunedEntry { case, shape, .. } in &entries {
            if !shape.is_tunable() {
                return Err(TuningError::Shape { shape, case });
            }
            if !(case.vocab.is_power_of_two() && case.rows.is_power_of_two()) {
                return Err(TuningError::Corrupt { what: format!("{case}: not powers of two") });
            }
        }
        if let Some(pair) = entries.windows(2).find(|pair| pair[0].case == pair[1].case) {
            return Err(TuningError::Corrupt { what: format!("{}: it is there twice", pair[0].case) });
        }
        Ok(Tuning { device, entries })
    }

    /// The device that it is of.
    pub fn device(&self) -> &TunedDevice {
        &self.device
    }

    /// All that it has.
    pub fn entries(&self) -> &[TunedEntry] {
        &self.entries
    }

    /// The shape of a class of launches; `None` where the built-in policy chooses.
    pub fn shape(&self, case: &TunedCase) -> Option<LaunchShape> {
        let at = self.entries.binary_search_by_key(&case.key(), |entry| entry.case.key()).ok()?;
        Some(self.entries[at].shape)
    }

    /// The shapes of launches on logits of this type, again and again.
    pub(crate) fn shapes(&self, dtype: Dtype) -> impl Iterator<Item = LaunchShape> {
        self.entries.iter().filter(move |entry| entry.case.dtype == dtype).map(|entry| entry.shape)
    }

    /// Refuses a tuning of another device.
    pub(crate) fn check_device(&self, present: &TunedDevice) -> Result<(), TuningError> {
        if self.device == *present {
            return Ok(());
        }
        Err(TuningError::Device { tuned: self.device.clone(), present: present.clone() })
    }

    /// Writes it as JSON.
    ///
    /// # Errors
    /// The writer's.
    pub fn to_writer(&self, writer: impl Write) -> io::Result<()> {
        let file = TuningFile {
            format: Tuning::FORMAT.to_owned(),
            version: Tuning::VERSION.into(),
            device: self.device.clone(),
            entries: self.entries.clone(),
        };
        serde_json::to_writer_pretty(writer, &file).map_err(io::Error::from)
    }

    /// Reads one from the bytes of its JSON. Any bytes are safe to pass.
    ///
    /// # Errors
    /// [`TuningError::NotATuning`], [`TuningError::Version`], or as [`Tuning::new`].
    pub fn from_slice(bytes: &[u8]) -> Result<Tuning, TuningError> {
        let file: TuningFile = marked::from_slice(bytes, Tuning::FORMAT, Tuning::VERSION)?;
        Tuning::new(file.device, file.entries)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`TuningError::Io`] when it cannot be read, else those of [`Tuning::from_slice`].
    pub fn load(path: impl AsRef<Path>) -> Result<Tuning, TuningError> {
        Tuning::from_slice(&marked::read(path.as_ref(), MAX_BYTES)?)
    }
}

impl From<Fault> for TuningError {
    fn from(fault: Fault) -> TuningError {
        match fault {
            Fault::Io { path, source } => TuningError::Io { path, kind: source.kind(), message: source.to_string() },
            Fault::Foreign(why) => TuningError::NotATuning { why },
            Fault::Version(found) => TuningError::Version { found, expected: Tuning::VERSION },
            Fault::Corrupt(what) => TuningError::Corrupt { what },
        }
    }
}

#[cfg(test)]
mod tests {
    use qrita_core::Plan;
    use qrita_kernels::{Specialization, Stage};

    use super::*;
    use crate::policy::{self, Machine};

    const UNUSUAL: LaunchShape = LaunchShape { threads: 512, chunks: 2, mask_chunks: 64 };

    fn device() -> TunedDevice {
        TunedDevice { name: "NVIDIA H200".to_owned(), capability: (9, 0), multiprocessors: 132 }
    }

    fn entry(dtype: Dtype, operation: Operation, filter: TunedFilter, shape: LaunchShape) -> TunedEntry {
        let case = TunedCase::new(dtype, operation, filter, 128_256, 8);
        TunedEntry { case, shape, us: 17.3, default_us: 20.1 }
    }

    fn tuning() -> Tuning {
        let narrow = LaunchShape { threads: 128, chunks: 64, mask_chunks: 1 };
        Tuning::new(
            device(),
            vec![
                entry(Dtype::F32, Operation::Read, TunedFilter::TopP, narrow),
                entry(Dtype::F32, Operation::Mask, TunedFilter::TopK, UNUSUAL),
                entry(Dtype::Bf16, Operation::Mask, TunedFilter::TopK, narrow),
            ],
        )
        .unwrap()
    }

    fn file(tuning: &Tuning) -> String {
        let mut bytes = Vec::new();
        tuning.to_writer(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tuning.json");
        std::fs::write(&path, file(&tuning())).unwrap();
        assert_eq!(Tuning::load(&path).unwrap(), tuning());
        let none = Tuning::new(device(), Vec::new()).unwrap();
        assert_eq!(Tuning::from_slice(file(&none).as_bytes()).unwrap(), none);
    }

    #[test]
    fn files_that_are_refused() {
        let good = file(&tuning());
        let read = |text: &str| Tuning::from_slice(text.as_bytes()).unwrap_err();
        let changed = |from: &str, to: &str| {
            assert!(good.contains(from), "{from}");
            read(&good.replacen(from, to, 1))
        };
        for foreign in ["", "[1]", "{\"vocab\": 7}", "{\"format\": \"qrita-delta-tables\"}", &good[..good.len() / 2]] {
            assert!(matches!(read(foreign), TuningError::NotATuning { .. }), "{foreign}");
        }
        assert_eq!(changed("\"version\": 1", "\"version\": 2"), TuningError::Version { found: 2, expected: 1 });
        for (from, to) in [
            ("\"version\": 1", "\"version\": \"1\""),
            ("\"rows\": 8", "\"rows\": 7"),
            ("\"rows\": 8", "\"rows\": 0"),
            ("\"rows\": 8", "\"rows\": -8"),
            ("\"vocab\": 131072", "\"vocab\": 128256"),
            ("\"mask\"", "\"paint\""),
            ("\"f32\"", "\"f64\""),
            ("\"threads\"", "\"fibres\""),
            ("\"multiprocessors\": 132", "\"multiprocessors\": null"),
        ] {
            let error = changed(from, to);
            assert!(matches!(error, TuningError::Corrupt { .. }), "{to}: {error}");
        }
        // The same class twice: of the third entry's, the first has only another dtype.
        assert!(matches!(changed("\"bf16\"", "\"f32\""), TuningError::Corrupt { .. }));
        for (from, to) in [
            ("\"threads\": 128", "\"threads\": 96"),
            ("\"threads\": 512", "\"threads\": 1024"),
            ("\"chunks\": 64", "\"chunks\": 48"),
            ("\"chunks\": 2", "\"chunks\": 0"),
            ("\"mask_chunks\": 64", "\"mask_chunks\": 4294967295"),
        ] {
            let error = changed(from, to);
            assert!(matches!(error, TuningError::Shape { .. }), "{to}: {error}");
        }
        let missing = Tuning::load("no/such/tuning.json").unwrap_err();
        assert!(matches!(missing, TuningError::Io { kind: io::ErrorKind::NotFound, .. }), "{missing}");
    }

    #[test]
    fn another_device_is_refused() {
        assert_eq!(tuning().check_device(&device()), Ok(()));
        for present in [
            TunedDevice { name: "NVIDIA H100".to_owned(), ..device() },
            TunedDevice { capability: (8, 9), ..device() },
            TunedDevice { multiprocessors: 66, ..device() },
        ] {
            let error = tuning().check_device(&present).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, TuningError::Device { .. }), "{text}");
            assert!(text.contains("132 multiprocessors") && text.contains(&present.to_string()), "{text}");
        }
    }

    #[test]
    fn a_launch_is_of_one_class() {
        let mut call = Call { rows: 5, vocab: 100_000, mask: 1, ..Call::default() };
        call.args = qrita_kernels::RowArgs { temperature: 1.0, top_k: 50, top_p: 0.9, ..call.args };
        let of = |call: &Call| TunedCase::of(Dtype::F16, call);
        let case = TunedCase::new(Dtype::F16, Operation::Mask, TunedFilter::TopK, 131_072, 8);
        assert_eq!(of(&call), case);
        assert_eq!(of(&Call { mask: 0, token: 64, ..call }), TunedCase { operation: Operation::Read, ..case });
        let with = |change: fn(&mut qrita_kernels::RowArgs)| {
            let mut changed = call;
            change(&mut changed.args);
            of(&changed).filter
        };
        assert_eq!(with(|args| args.flags = JOINT), TunedFilter::TopP);
        assert_eq!(with(|args| args.top_k = 0), TunedFilter::TopP);
        assert_eq!(with(|args| (args.top_k, args.top_p) = (0, 1.0)), TunedFilter::TopK);
        assert_eq!(with(|args| (args.top_k, args.temperature) = (0, 0.0)), TunedFilter::TopK);
        // What lies in device memory is not known.
        assert_eq!(of(&Call { row_args: 64, ..call }).filter, TunedFilter::TopP);
        let rows = |rows| of(&Call { rows, ..call }).rows;
        assert_eq!([1, 2, 3, 4, 5, 1024, 1025].map(rows), [1, 2, 4, 4, 8, 1024, 2048]);
        assert_eq!(rows(u32::MAX), u32::MAX);
    }

    #[test]
    fn what_is_not_tuned_is_as_it_was() {
        let machine = Machine::new(132, (9, 0), 228 << 10, Dtype::F32);
        let specialization = |plan| {
            let threads = policy::threads(true);
            Specialization { dtype: Dtype::F32, plan, stage: Stage::Run, adjusted: false, threads, warp: 32 }
        };
        let whole = specialization(Plan::default());
        let mut call = Call { rows: 8, vocab: 128_256, mask: 1, ..Call::default() };
        call.args.top_k = 50;
        let choose = |whole: &Specialization, call: &Call| {
            let tuned = policy::choose(Some(&tuning()), whole, call, machine);
            (tuned, tuned == policy::choose(None, whole, call, machine))
        };
        assert_eq!(choose(&whole, &call), (UNUSUAL, false));
        assert_eq!(choose(&whole, &Call { rows: 5, vocab: 70_000, ..call }), (UNUSUAL, false));
        // Another class of rows, of vocab, of operation, of filter.
        for other in [
            Call { rows: 9, ..call },
            Call { rows: 4, ..call },
            Call { vocab: 65_536, ..call },
            Call { vocab: 131_073, ..call },
            Call { mask: 0, ..call },
            Call { row_args: 64, ..call },
        ] {
            assert!(choose(&whole, &other).1, "{other:?}");
        }
        // Another dtype, adjustments, and plans without autotune or without streams.
        for other in [
            Specialization { dtype: Dtype::F16, ..whole },
            Specialization { adjusted: true, ..whole },
            specialization(Plan { autotune: false, ..Plan::default() }),
            specialization(Plan { force_fallback: true, ..Plan::default() }),
            specialization(Plan::paper()),
        ] {
            assert!(choose(&other, &call).1, "{other:?}");
            assert!(!policy::shapes(Some(&tuning()), &other, machine).contains(&UNUSUAL));
        }
        let all = policy::shapes(Some(&tuning()), &whole, machine);
        assert!(all.is_superset(&policy::shapes(None, &whole, machine)));
        assert!(all.contains(&UNUSUAL) && tuning().shapes(Dtype::F32).all(|shape| all.contains(&shape)));
    }
}
