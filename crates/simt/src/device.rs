//! The machine as a device that the kernels' host side uses.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use qrita_core::Error;
use qrita_kernels::{
    Call, ChainCall, Device, SLOT_BYTES, Specialization, Split, Stage, search_index, truncation_index,
};

use crate::grid::{Grid, Kernel, Switches};
use crate::memory::{Heap, SimtMemory};

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

const NAME: &str = "simt";

/// Blocks of a launch: few, so that each takes several rows.
const BLOCKS: u32 = 3;

/// Switches that a row may take: a hundred times what one takes on average.
const ROW_LIMIT: u64 = 1 << 23;

/// A device without hardware: runs the kernel on the machine.
///
/// ```
/// use qrita_core::{Backend, Logits, Params, Plan};
/// use qrita_kernels::HostBackend;
/// use qrita_simt::SimtDevice;
///
/// let backend = HostBackend::new(SimtDevice::new(64, 128, 1));
/// let logits = [0.0, 3.0, 1.0, 3.0];
/// let batch = Logits::new(&logits, 4).unwrap();
/// let params = Params::default().top_k(2);
/// let kept = backend.filter(&batch, &params, &Plan::default(), &mut backend.workspace()).unwrap();
/// assert_eq!(kept[0].ids, [1, 3]);
/// ```
#[derive(Debug)]
pub struct SimtDevice {
    warp: u32,
    threads: u32,
    seed: u64,
    launches: AtomicU64,
    switches: AtomicU64,
    streamed: AtomicU64,
    missed: AtomicU64,
    heap: Arc<Mutex<Heap>>,
}

impl SimtDevice {
    /// A device with `warp` lanes in a warp and `threads` threads in a block. Each launch has a schedule of its own, which
    /// follows from the seed and the number of launches before.
    ///
    /// # Panics
    /// If the warp is neither 32 nor 64, or `threads` is no power of two, fewer than two warps or more than [`MAX_THREADS`]: the
    /// device source divides a row among warps, and candidates among threads by shifts.
    pub fn new(warp: u32, threads: u32, seed: u64) -> SimtDevice {
        assert!(warp == 32 || warp == 64, "a warp of {warp} lanes");
        assert!(
            threads.is_power_of_two() && (2 * warp..=MAX_THREADS).contains(&threads),
            "{threads} threads in a block of warps of {warp}"
        );
        SimtDevice {
            warp,
            threads,
            seed,
            launches: AtomicU64::new(0),
            switches: AtomicU64::new(0),
            streamed: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            heap: Arc::default(),
        }
    }

    /// How often it went from one thread to another, in all launches so far.
    pub fn switches(&self) -> u64 {
        self.switches.load(Ordering::Relaxed)
    }

    /// How many launches there were.
    pub fn launches(&self) -> u64 {
        self.launches.load(Ordering::Relaxed)
    }

    /// How many rows were streamed, and how many of them were left to be run whole.
    pub fn streamed_and_missed(&self) -> (u64, u64) {
        (self.streamed.load(Ordering::Relaxed), self.missed.load(Ordering::Relaxed))
    }

    /// Looks into the slots that a streaming launch has left.
    ///
    /// # Safety
    /// The call's slots are memory of this device, and the launch is over.
    unsafe fn count_missed(&self, call: &Call) {
        let slots = std::ptr::with_exposed_provenance::<u8>(call.slots as usize);
        let is_missed = |row: usize| {
            // SAFETY: there is a slot for each row, which starts with a word that was written.
            let state = unsafe { slots.add(row * SLOT_BYTES).cast::<u32>().read() };
            state == 0
        };
        let missed = (0..call.rows as usize).filter(|&row| is_missed(row)).count();
        self.streamed.fetch_add(call.rows.into(), Ordering::Relaxed);
        self.missed.fetch_add(missed as u64, Ordering::Relaxed);
    }

    fn error(message: String) -> Error {
        Error::Device { backend: NAME, message }
    }

    fn check(&self) -> Result<(), Error> {
        self.heap.lock().unwrap_or_else(PoisonError::into_inner).check().map_err(Self::error)
    }
}

impl Device for SimtDevice {
    type Memory = SimtMemory;

    fn name(&self) -> &'static str {
        NAME
    }

    fn description(&self) -> String {
        format!("SIMT machine, warps of {}, blocks of {}, seed {}", self.warp, self.threads, self.seed)
    }

    fn warp(&self) -> u32 {
        self.warp
    }

    fn threads(&self, _vocab: usize, _autotune: bool) -> u32 {
        self.threads
    }

    fn blocks(&self) -> u32 {
        BLOCKS
    }

    /// Any division will do: each launch has another, or none.
    fn split(&self, _whole: &Specialization, _call: &Call) -> Option<Split> {
        let number = self.launches.load(Ordering::Relaxed) as u32;
        (number % 5 != 4).then_some(Split {
            threads: self.threads,
            chunks: 1 << (number % 3),
            mask_chunks: 1 + number % 2,
        })
    }

    fn upload(&self, bytes: &[u8]) -> Result<SimtMemory, Error> {
        let mut memory = self.allocate(bytes.len())?;
        memory.write(bytes);
        Ok(memory)
    }

    fn allocate(&self, bytes: usize) -> Result<SimtMemory, Error> {
        self.check()?;
        Ok(SimtMemory::new(bytes, &self.heap))
    }

    fn download(&self, memory: &SimtMemory, bytes: &mut [u8]) -> Result<(), Error> {
        self.check()?;
        memory.read(bytes);
        Ok(())
    }

    fn address(&self, memory: &SimtMemory) -> u64 {
        memory.address()
    }

    fn launch(&self, specialization: &Specialization, blocks: u32, call: &Call) -> Result<(), Error> {
        assert_ne!(specialization.stage, Stage::Verify, "a kernel with another argument");
        // SAFETY: the addresses in the call are of memories of this device, which their owner holds until the launch is over.
        unsafe { self.run(specialization, blocks, call.rows, call) }?;
        if specialization.stage == Stage::Stream {
            // SAFETY: as above, and it is over.
            unsafe { self.count_missed(call) };
        }
        Ok(())
    }

    fn launch_chains(&self, specialization: &Specialization, call: &ChainCall) -> Result<(), Error> {
        assert_eq!(specialization.stage, Stage::Verify, "a kernel with another argument");
        // SAFETY: as in `launch`.
        unsafe { self.run(specialization, call.requests, call.target.rows, call) }
    }
}

impl SimtDevice {
    /// Runs a kernel over this many rows.
    ///
    /// # Safety
    /// `T` is the argument of the stage's kernel; the addresses in it are of memories of this device, which are held until
    /// the launch is over.
    unsafe fn run<T>(
        &self,
        specialization: &Specialization,
        blocks: u32,
        rows: u32,
        argument: &T,
    ) -> Result<(), Error> {
        let Specialization { dtype, plan, stage, adjusted, threads, warp } = *specialization;
        assert_eq!(warp, self.warp, "a kernel for another warp");
        assert!(threads <= MAX_THREADS, "{threads} threads in a block");
        let switches = Switches {
            truncation: truncation_index(plan.truncation),
            search: search_index(plan.search),
            adjusted: adjusted.into(),
        };
        let launch = self.launches.fetch_add(1, Ordering::Relaxed);
        let seed = self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(launch);
        let kernel = KERNELS[usize::from(warp == 64)][dtype as usize][stage as usize];
        let limit = ROW_LIMIT * u64::from(rows + 1);
        // SAFETY: the table's kernel is for this warp; its argument is as the caller promises.
        let report = unsafe { Grid { warp, threads, blocks, seed, limit }.run(kernel, argument, &switches) }
            .map_err(|fault| Self::error(format!("{fault} (launch {launch} of seed {})", self.seed)))?;
        self.switches.fetch_add(report.switches, Ordering::Relaxed);
        self.check()
    }
}
