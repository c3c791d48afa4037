//! Faults that were planted: the machine must find each, and must not find fault with the right counterpart.

use qrita_core::Error;
use qrita_kernels::Device;
use qrita_simt::{Fault, Grid, Kernel, Report, SimtDevice, SimtMemory, Switches};

/// `ToyCall` of planted.cpp.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Toy {
    out: u64,
    wide: u64,
    count: u32,
    flag: u32,
}

macro_rules! toys {
    ($($name:ident: $narrow:ident, $wide:ident;)*) => {
        unsafe extern "C" {
            $(static $narrow: Kernel; static $wide: Kernel;)*
        }
        $(fn $name(warp: u32) -> &'static Kernel {
            // SAFETY: planted.cpp defines them, and nothing writes to them.
            unsafe { if warp == 32 { &$narrow } else { &$wide } }
        })*
    };
}
toys! {
    neighbour: toy_neighbour_32, toy_neighbour_64;
    rounds: toy_rounds_32, toy_rounds_64;
    warps_ahead: toy_warps_ahead_32, toy_warps_ahead_64;
    diverge: toy_diverge_32, toy_diverge_64;
    fill: toy_fill_32, toy_fill_64;
    lanes: toy_lanes_32, toy_lanes_64;
    stale: toy_stale_32, toy_stale_64;
    undefined: toy_undefined_32, toy_undefined_64;
    spin: toy_spin_32, toy_spin_64;
}

/// The kernel for a warp.
type Choose = fn(u32) -> &'static Kernel;

const WARPS: [u32; 2] = [32, 64];
const THREADS: u32 = 128;

fn run(kernel: &'static Kernel, warp: u32, blocks: u32, seed: u64, toy: &Toy) -> Result<Report, Fault> {
    // SAFETY: planted.cpp defines these kernels for this warp, and the tests give them memory of the size they need.
    unsafe { Grid { warp, threads: THREADS, blocks, seed, limit: 1 << 30 }.run(&[kernel], toy, &Switches::default()) }
}

/// Runs with memory for `words` words, and hands out what is in it afterwards.
fn words(kernel: Choose, warp: u32, blocks: u32, seed: u64, words: usize, toy: Toy) -> Vec<u32> {
    let device = SimtDevice::new(warp, THREADS, 0);
    let memory = device.allocate(words * 4).unwrap();
    let toy = Toy { out: device.address(&memory), wide: device.address(&memory), ..toy };
    run(kernel(warp), warp, blocks, seed, &toy).unwrap();
    read(&device, &memory).unwrap()
}

fn read(device: &SimtDevice, memory: &SimtMemory) -> Result<Vec<u32>, Error> {
    let mut bytes = vec![0; memory.bytes()];
    device.download(memory, &mut bytes)?;
    Ok(bytes.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect())
}

/// How many of these seeds give other results than `right`.
fn wrong(seeds: u64, right: &[u32], results: impl Fn(u64) -> Vec<u32>) -> usize {
    (0..seeds).filter(|&seed| results(seed) != right).count()
}

#[test]
fn a_missing_barrier_shows() {
    for warp in WARPS {
        let next: Vec<u32> = (0..THREADS).map(|i| (i + 1) % THREADS).collect();
        let sums = [190; THREADS as usize];
        let last = [9; THREADS as usize];
        let tries: [(Choose, u32, &[u32]); 3] = [(neighbour, 0, &next), (rounds, 20, &sums), (warps_ahead, 9, &last)];
        for (kernel, count, right) in tries {
            let results =
                |flag| move |seed| words(kernel, warp, 1, seed, right.len(), Toy { count, flag, ..Toy::default() });
            assert_eq!(wrong(300, right, results(1)), 0, "with the barrier");
            let found = wrong(300, right, results(0));
            assert!(found > 50, "{found} of 300 schedules show it");
        }
    }
}

/// The device source could not divide its work among them.
#[test]
fn blocks_that_the_device_source_does_not_allow_are_refused() {
    for (warp, threads) in [(32, 96), (32, 32), (64, 64), (64, 192), (32, 512), (32, 0)] {
        std::panic::catch_unwind(|| SimtDevice::new(warp, threads, 0)).expect_err("it is refused");
    }
}

#[test]
fn a_seed_repeats_its_schedule() {
    let result = |seed| words(neighbour, 32, 2, seed, 256, Toy::default());
    assert_eq!(result(7), result(7));
    assert!((0..20).any(|seed| result(seed) != result(7)));
}

#[test]
fn divergence_is_reported() {
    for warp in WARPS {
        let says = |flag, part: &str| {
            for seed in 0..50 {
                let fault = run(diverge(warp), warp, 1, seed, &with_wide(flag)).unwrap_err().to_string();
                assert!(fault.contains(part), "{fault}");
            }
        };
        says(0, "the threads diverge: ");
        says(1, "the threads diverge: ");
        says(2, "5..5 have ended; 6..127 wait in block_sync at ");
        says(3, "wait in warp_ballot at ");
        says(4, "the threads diverge: ");
        says(5, &format!("threads 0..{} have ended; {warp}..127 wait in block_sync", warp - 1));
        // Nothing is left behind: the next launch, on the same machine, is in order.
        assert!(run(diverge(warp), warp, 1, 0, &with_wide(6)).is_ok());
    }
}

fn with_wide(flag: u32) -> Toy {
    // The fault comes before anything is written.
    Toy { flag, ..Toy::default() }
}

#[test]
fn a_launch_without_an_end_is_given_up() {
    let toy = Toy { count: u32::MAX, flag: 1, ..Toy::default() };
    // SAFETY: the kernel touches no memory.
    let run = unsafe {
        Grid { warp: 64, threads: THREADS, blocks: 1, seed: 1, limit: 100_000 }.run(
            &[spin(64)],
            &toy,
            &Switches::default(),
        )
    };
    let fault = run.unwrap_err().to_string();
    assert!(fault.contains("no end is in sight: threads 0..127 wait in block_sync at "), "{fault}");
}

#[test]
fn a_write_outside_memory_is_reported() {
    for (words, count, flag, at) in [(100, 101, 0, 400), (100, 100, 1, -4), (1, 40, 0, 4)] {
        let device = SimtDevice::new(32, THREADS, 0);
        let memory = device.allocate(words * 4).unwrap();
        let toy = Toy { out: device.address(&memory), count, flag, ..Toy::default() };
        run(fill(32), 32, 1, 0, &toy).unwrap();
        let text = format!("simt: a write outside memory: at byte {at} of an allocation of {} bytes", words * 4);
        assert_eq!(read(&device, &memory).unwrap_err().to_string(), text);
        drop(memory);
        assert_eq!(device.allocate(1).unwrap_err().to_string(), text);
        assert!(device.allocate(1).is_ok());
    }
    let device = SimtDevice::new(32, THREADS, 0);
    let memory = device.allocate(400).unwrap();
    let toy = Toy { out: device.address(&memory), count: 99, ..Toy::default() };
    run(fill(32), 32, 1, 0, &toy).unwrap();
    // The last word was not written to, and says so.
    let right: Vec<u32> = (0..99).chain([0xA5A5_A5A5]).collect();
    assert_eq!(read(&device, &memory).unwrap(), right);
}

#[test]
fn ballots_and_shuffles_are_those_of_a_warp() {
    for warp in WARPS {
        for seed in 0..100 {
            let found = words(lanes, warp, 1, seed, THREADS as usize * 12, Toy::default());
            let wide: Vec<u64> = found.chunks(2).map(|pair| u64::from(pair[0]) | u64::from(pair[1]) << 32).collect();
            let thirds: u64 = (0..warp).step_by(3).map(|lane| 1 << lane).sum();
            for (i, found) in wide.chunks(6).enumerate() {
                let (i, size) = (i as u64, u64::from(warp));
                let (first, lane) = (i - i % size, i % size);
                let right = [
                    thirds,
                    u64::from(first == 0),
                    (i ^ 1) * 0x1_0000_0001,
                    first + (lane + 5) % size,
                    first + (lane + size - 1) % size,
                    (first..first + size).sum(),
                ];
                assert_eq!(found, right, "thread {i} of warps of {warp}, seed {seed}");
            }
        }
    }
}

#[test]
fn shared_memory_starts_spoiled_in_every_block() {
    for warp in WARPS {
        let found = words(stale, warp, 4, 3, 4 * THREADS as usize, Toy::default());
        assert!(found.iter().all(|&word| word == 0xA5A5_A5A5));
    }
}

#[test]
fn undefined_behaviour_is_reported() {
    let device = SimtDevice::new(32, THREADS, 0);
    let memory = device.allocate(64).unwrap();
    let says = |flag, count, part: &str| {
        let toy = Toy { out: device.address(&memory), flag, count, ..Toy::default() };
        let fault = run(undefined(32), 32, 1, 0, &toy).unwrap_err().to_string();
        assert!(fault.contains("planted.cpp:") && fault.contains(part), "{fault}");
    };
    says(0, 8, "an index is outside its array (operand 8)");
    says(1, 32, "a shift is negative or as wide as its operand");
    says(2, 0, "a division by zero");
    says(3, 0, "a conversion to an integer that can not hold the value");
    says(4, 2, "a null or misaligned access");
    says(5, 0, "a null or misaligned access");
    for (flag, count) in [(0, 7), (1, 31), (2, 1), (4, 4)] {
        let toy = Toy { out: device.address(&memory), flag, count, ..Toy::default() };
        assert!(run(undefined(32), 32, 1, 0, &toy).is_ok());
    }
}

/// `cargo test -p qrita-simt --release -- --ignored --nocapture` says how fast it switches.
#[test]
#[ignore = "a measurement"]
#[allow(clippy::print_stderr, reason = "a measurement")]
fn speed() {
    for (warp, flag) in [(32, 0), (32, 1), (64, 0), (64, 1)] {
        let toy = Toy { count: 100_000, flag, ..Toy::default() };
        let start = std::time::Instant::now();
        let switches = run(spin(warp), warp, 1, 1, &toy).unwrap().switches;
        let each = start.elapsed().as_secs_f64() / switches as f64;
        let what = if flag == 1 { "barriers" } else { "ballots" };
        eprintln!("warps of {warp}, {what}: {switches} switches, {:.1} ns each", each * 1e9);
    }
}
