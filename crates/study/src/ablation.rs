//! The paper's ablation: its Table 4, runs A to J, and what each of them must keep.
//!
//! Run A is the paper's algorithm, I sorts what its truncation left, J sorts whole rows. The lettering of B to H is ours:
//! B to G switch one thing off, in the order truncation, search, duplication handling, autotune, and H switches all of
//! them off. The last run is the library's own default plan, which is none of the paper's.

use qrita_core::{Dtype, Error, Features, Params, Plan, Search, Truncation};
use qrita_testkit::batch::Stored;
use qrita_testkit::oracle;

use crate::Rows;

/// Run A in the paper, on an H100, in microseconds: 1024 rows of 128256 f32 logits, k = 50 and p = 0.9.
pub const PAPER_A: f64 = 919.0;

/// A run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// Its letter, or `default`.
    pub name: &'static str,
    /// What is off in it.
    pub off: &'static str,
    /// Its plan.
    pub plan: Plan,
}

/// A to J and the default, less those that this build has no code for.
pub fn runs() -> Vec<Run> {
    let paper = Plan {
        truncation: Truncation::Paper,
        force_fallback: false,
        search: Search::Quaternary,
        duplicates: true,
        autotune: true,
    };
    let run = |name, off, plan| Run { name, off, plan };
    let all_off = Plan {
        truncation: Truncation::Off,
        force_fallback: false,
        search: Search::Binary,
        duplicates: false,
        autotune: false,
    };
    let all = [
        run("A", "nothing", paper),
        run("B", "truncation's hits (forced fallback)", Plan { force_fallback: true, ..paper }),
        run("C", "truncation", Plan { truncation: Truncation::Off, ..paper }),
        run("D", "quaternary search: binary", Plan { search: Search::Binary, ..paper }),
        run("E", "pivot search: selection", Plan { search: Search::Select, ..paper }),
        run("F", "duplication handling", Plan { duplicates: false, ..paper }),
        run("G", "autotune", Plan { autotune: false, ..paper }),
        run("H", "all of these, binary search", all_off),
        run("I", "pivot search: sort", Plan { search: Search::Sort, ..paper }),
        run(
            "J",
            "truncation and pivot search: sort",
            Plan { truncation: Truncation::Off, search: Search::Sort, ..paper },
        ),
        run("default", "the library's own plan", Plan::default()),
    ];
    all.into_iter().filter(|run| run.plan.validate(Features::OF_CORE).is_ok()).collect()
}

/// What the rows must become when they are masked under a plan: by the oracle, which shares nothing with a backend. In bytes of the
/// machine's order.
///
/// # Errors
/// A parameter that is out of range.
pub fn masked(rows: &Rows, dtype: Dtype, params: &Params<'_>, plan: &Plan) -> Result<Vec<u8>, Error> {
    let (stored, vocab) = (rows.stored(dtype), rows.vocab());
    let logits = stored.logits(vocab)?;
    params.validate(&logits)?;
    let (size, pristine) = (dtype.size(), rows.bytes(dtype));
    let removed = crate::rows::bytes(&Stored::narrow(&[f32::NEG_INFINITY], dtype));
    let mut masked = removed.repeat(rows.count() * vocab);
    for (row, answer) in oracle::answers(&logits, params, plan).iter().enumerate() {
        for kept in answer.kept() {
            let at = (row * vocab + kept.id as usize) * size;
            masked[at..at + size].copy_from_slice(&pristine[at..at + size]);
        }
    }
    Ok(masked)
}

/// The first row of a batch that repeats `right` and is not as it must be; rows of `row` bytes.
pub fn first_wrong(found: &[u8], right: &[u8], row: usize) -> Option<usize> {
    found.chunks(row).zip(right.chunks(row).cycle()).position(|(found, right)| found != right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HostBatch, Kind};
    use qrita_core::{Backend, Outputs};
    use qrita_cpu::CpuBackend;

    #[test]
    fn every_run_is_another_plan() {
        let runs = runs();
        if Features::OF_CORE == (Features { truncation: true, quaternary: true, duplicates: true, autotune: true }) {
            let names: String = runs.iter().map(|run| run.name).collect();
            assert_eq!(names, "ABCDEFGHIJdefault");
            assert_eq!(runs[0].plan, Plan::paper());
        }
        for (at, run) in runs.iter().enumerate() {
            assert!(run.name == "default" || runs[..at].iter().all(|other| other.plan != run.plan), "{}", run.name);
        }
    }

    #[test]
    fn what_a_run_keeps_is_the_oracles_and_a_fault_is_found() {
        let backend = CpuBackend::with_threads(1).unwrap();
        let rows = Rows::new(Kind::Plateaus, 3000, 3);
        let params = Params::default().top_k(400).top_p(0.9);
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            let row = 3000 * dtype.size();
            for Run { name, plan, .. } in runs() {
                let right = masked(&rows, dtype, &params, &plan).unwrap();
                let mut batch = HostBatch::new(&rows, dtype, 7);
                let input = batch.logits_mut().unwrap().into();
                backend.run(input, &params, &plan, &mut Outputs::default(), &mut backend.workspace()).unwrap();
                let mut found = batch.bytes();
                assert_eq!(first_wrong(&found, &right, row), None, "{name}");
                found[5 * row + 3] ^= 1;
                assert_eq!(first_wrong(&found, &right, row), Some(5));
                batch.restore();
                assert_eq!(batch.bytes()[..3 * row], rows.bytes(dtype));
            }
        }
    }
}
