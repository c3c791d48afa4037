//! A grid: one launch of one kernel on the machine.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// A kernel compiled for the host: what the C++ macro `SIMT_KERNEL` defines.
#[repr(C)]
#[derive(Debug)]
pub struct Kernel {
    call: Option<unsafe extern "C" fn(*const c_void)>,
    shared_start: *mut c_char,
    shared_end: *mut c_char,
}

// SAFETY: the pointers are constants of the program; what they point to is used only under a lock, see `Grid::run`.
unsafe impl Sync for Kernel {}

/// The switches that a device's build takes as macros and this one at run time: `SimtSwitches` in `machine/prelude.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Switches {
    pub truncation: u32,
    pub search: u32,
    pub adjusted: u32,
}

/// The shape of a launch, and its schedule.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// Lanes of a warp: 32 or 64, as the kernel was compiled.
    pub warp: u32,
    /// Threads of a block: a multiple of the warp, at most 1024.
    pub threads: u32,
    /// Blocks.
    pub blocks: u32,
    /// Chooses the schedule.
    pub seed: u64,
    /// Switches after which the launch is given up: a kernel that went wrong may never end.
    pub limit: u64,
}

/// What a launch did.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// How often the machine went from one thread to another.
    pub switches: u64,
}

/// Why a launch ended early: what the threads did, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault(String);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Fault {}

#[repr(C)]
struct RawMachine {
    _opaque: [u8; 0],
    _not_send: PhantomData<*mut ()>,
}

unsafe extern "C" {
    fn qrita_simt_new() -> *mut RawMachine;
    fn qrita_simt_run(
        machine: *mut RawMachine,
        kernel: *const Kernel,
        argument: *const c_void,
        switches: *const Switches,
        warp: u32,
        threads: u32,
        blocks: u32,
        order: *mut u32,
        seed: u64,
        limit: u64,
        count: *mut u64,
    ) -> *const c_char;
}

/// A machine: the fibres and their stacks. Machines are kept for the next launch, as many as ever ran at once.
struct Machine(NonNull<RawMachine>);

// SAFETY: a machine is bound to a host thread only while it runs.
unsafe impl Send for Machine {}

static IDLE: Mutex<Vec<Machine>> = Mutex::new(Vec::new());

/// Shared memory is the kernel's, so a kernel runs once at a time: a lock for each section of shared memory, by its address.
static LOCKS: Mutex<BTreeMap<usize, &'static Mutex<()>>> = Mutex::new(BTreeMap::new());

/// A copy that is free, or else the first, when it is.
fn first_free<'a>(copies: &[&'a Kernel]) -> (&'a Kernel, MutexGuard<'static, ()>) {
    // There are as many locks as kernels, so they may stay for ever.
    let lock_of = |kernel: &Kernel| -> &'static Mutex<()> {
        lock(&LOCKS).entry(kernel.shared_start.addr()).or_insert_with(|| Box::leak(Box::default()))
    };
    let free = copies.iter().find_map(|kernel| match lock_of(kernel).try_lock() {
        Ok(guard) => Some((*kernel, guard)),
        Err(TryLockError::Poisoned(error)) => Some((*kernel, error.into_inner())),
        Err(TryLockError::WouldBlock) => None,
    });
    free.unwrap_or_else(|| (copies[0], lock(lock_of(copies[0]))))
}

/// A test that failed in a launch says nothing about the next launch.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Grid {
    /// Runs the kernel to its end, in a copy of it that runs nowhere else.
    ///
    /// # Errors
    /// What the threads did wrong. Memory is then as they left it.
    ///
    /// # Panics
    /// If there is no copy, or the grid has no threads, more than 1024 in a block, or not whole warps.
    ///
    /// # Safety
    /// `copies` are of one kernel, which was defined by `SIMT_KERNEL` for this warp and an argument of type `T`, with room
    /// for `threads` threads; every address in `argument` is valid for what the kernel does with it.
    pub unsafe fn run<T>(&self, copies: &[&Kernel], argument: &T, switches: &Switches) -> Result<Report, Fault> {
        let Grid { warp, threads, blocks, seed, limit } = *self;
        assert!(warp == 32 || warp == 64, "a warp of {warp} lanes");
        assert!(threads > 0 && threads <= 1024 && threads.is_multiple_of(warp), "{threads} threads of warps of {warp}");
        let mut order = vec![0; blocks as usize];
        let mut count = 0;
        let (kernel, _alone) = first_free(copies);
        let machine = lock(&IDLE).pop().unwrap_or_else(|| {
            // SAFETY: it allocates, and asks for nothing.
            let machine = unsafe { qrita_simt_new() };
            Machine(NonNull::new(machine).expect("memory for a machine"))
        });
        // SAFETY: the machine is this call's alone, the pointers are to values that outlive the call, `order` has room for
        // all blocks; the kernel and its argument are as the caller promises.
        let message = unsafe {
            qrita_simt_run(
                machine.0.as_ptr(),
                kernel,
                std::ptr::from_ref(argument).cast(),
                switches,
                warp,
                threads,
                blocks,
                order.as_mut_ptr(),
                seed,
                limit,
                &raw mut count,
            )
        };
        let result = if message.is_null() {
            Ok(Report { switches: count })
        } else {
            // SAFETY: a message is a C string, in the machine or a constant, and the machine has not run again.
            let message = unsafe { CStr::from_ptr(message) };
            Err(Fault(message.to_string_lossy().into_owned()))
        };
        lock(&IDLE).push(machine);
        result
    }
}
