//! Stages that run alone take what the caller hands them: whatever that is, they do not panic, and a search finds the
//! right cut.

use proptest::prelude::*;
use qrita_core::{Backend, Boundary, Candidate, Cut, Key, Logits, Outputs, Params, Plan, Status, Top, Truncated};
use qrita_cpu::CpuBackend;
#[cfg(feature = "truncation")]
use qrita_testkit::rows::{self, RowKind};

fn key() -> impl Strategy<Value = Key> {
    prop_oneof![any::<u32>().prop_map(Key::from_bits), (-3.0f32..3.0).prop_map(Key::new)]
}

fn truncated() -> impl Strategy<Value = Truncated> {
    let gathered = prop::collection::vec((key(), 0u32..40), 0..30);
    (key(), any::<f32>(), gathered, any::<bool>()).prop_map(|(max, threshold, gathered, hit)| Truncated {
        status: Status::OK,
        max,
        threshold,
        gathered: gathered.into_iter().map(|(key, id)| Candidate::new(key, id)).collect(),
        hit,
    })
}

proptest! {
    #[test]
    fn foreign_input_is_no_panic(
        row in prop::collection::vec(-3.0f32..3.0, 1..40),
        truncated in truncated(),
        cut in (key(), key(), any::<u32>(), any::<u32>(), any::<u32>()),
        boundary in (key(), key(), any::<u32>(), any::<u32>()),
        (top_k, top_p) in (0u32..50, 0.0f32..1.2),
        plan in prop::sample::select(Plan::all().collect::<Vec<_>>()),
    ) {
        let backend = CpuBackend::with_threads(1).unwrap();
        let mut workspace = backend.workspace();
        let logits = Logits::new(&row, row.len()).unwrap();
        let params = Params::default().top_k(top_k).top_p(top_p);

        let right = backend.truncate(&logits, &params, &plan, &mut workspace).unwrap();
        let right = backend.search(&logits, &params, &plan, &right, &mut workspace).unwrap();
        prop_assert_eq!(backend.search(&logits, &params, &plan, &[truncated], &mut workspace).unwrap(), right);

        let (max, key, above, tied, quota) = cut;
        backend.dedup(&logits, &params, &[Cut { max, key, above, tied, quota }], &mut workspace).unwrap();

        let (max, key, id, kept) = boundary;
        let (mut token, mut logprob, mut rank) = ([0], [0.0], [0]);
        let mut probabilities = vec![0.0; row.len()];
        let mut outputs = Outputs {
            token: Some(&mut token),
            logprob: Some(&mut logprob),
            rank: Some(&mut rank),
            top: Some(Top { n: 5, ids: &mut [0; 5], logprobs: &mut [0.0; 5] }),
            probabilities: Some(&mut probabilities),
            ..Outputs::default()
        };
        let boundary = Boundary { max, key, id, kept };
        backend.emit(logits.into(), &params, &[boundary], &mut outputs, &mut workspace).unwrap();
    }
}

/// The bounds of the mass leave open which token a share ends with that is a token's to the last bit; and no other.
#[cfg(feature = "truncation")]
#[test]
fn a_share_that_ends_where_a_token_does() {
    use qrita_core::Outcome;

    let row = rows::row(RowKind::Standard, 20_000, 1);
    let mut weights: Vec<f64> = row.iter().map(|&y| f64::from(y).exp()).collect();
    weights.sort_by(|a, b| b.total_cmp(a));
    let share = (weights[..100].iter().sum::<f64>() / weights.iter().sum::<f64>()) as f32;
    let backend = CpuBackend::new();
    let logits = Logits::new(&row, row.len()).unwrap();
    let gather =
        |params: Params<'_>| backend.gather(&logits, &params, &Plan::default(), &mut backend.workspace()).unwrap()[0];
    assert_eq!(gather(Params::default().top_p(share)).outcome, Outcome::Straddled);
    assert_eq!(gather(Params::default().top_p(share + 1e-4)).outcome, Outcome::Hit);
    // Of what top-k leaves the mass is exact. Without duplicate handling the whole group of ties at top-k's cut is needed, which
    // is not known to be gathered.
    let of_top_k = if cfg!(feature = "duplicates") { Outcome::Hit } else { Outcome::Missed };
    assert_eq!(gather(Params::default().top_p(share).top_k(200)).outcome, of_top_k);
    let missed = gather(Params::default().top_p(0.9));
    assert_eq!((missed.outcome, missed.count), (Outcome::Missed, 512));
}
