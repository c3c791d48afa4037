//! What the host makes of a row's parameters, so that the device has neither tables nor 128-bit integers to read them by.

use qrita_core::weight::{LAST_DISTANCE_BITS, ONE, need, weight};
use qrita_core::{Order, Params, Plan, Ties};
use qrita_delta_tables::DeltaTables;

use crate::call::{DELTA_SIGMAS, JOINT, KEEP_ALL, RowArgs};

/// Candidates that an order statistic aims at beyond top-k's own, for the error of the sample it is taken from.
const SPARE: u32 = 256;

/// Candidates that an order statistic aims at where no count is known. At p = 0.9 rows of real models keep a median of 36 to 134,
/// and one in fifty to one in seven more than this: those are run whole, which takes several times as long, and more
/// candidates make every other row slower.
const UNKNOWN_COUNT: u32 = 1250;

/// The kernel's parameters of row `row`, which the caller has validated ([`Params::validate`]).
///
/// For callers with device memory of their own: an array with one of these a row is what
/// [`Call::row_args`](crate::Call::row_args) points at. Panics outside the batch, as slices do.
///
/// ```
/// use qrita_core::{Params, Plan};
/// use qrita_delta_tables::DeltaTables;
/// use qrita_kernels::row_args;
///
/// let args = row_args(&Params::default().top_k(50), 0, 128_256, &DeltaTables::normal(), &Plan::default());
/// assert_eq!((args.top_k, args.top_p, args.farthest, args.wanted), (50, 1.0, u32::MAX, 306));
/// ```
pub fn row_args(params: &Params<'_>, row: usize, vocab: usize, tables: &DeltaTables, plan: &Plan) -> RowArgs {
    let parameters = params.row(row);
    let top_k = if (parameters.top_k as usize) < vocab { parameters.top_k } else { 0 };
    let top_p = parameters.top_p.min(1.0);
    let penalties = params.adjustments.penalties;
    let penalty = |one_a_row: fn(&qrita_core::Penalties<'_>, usize) -> f32, off| {
        penalties.as_ref().map_or(off, |penalties| one_a_row(penalties, row))
    };
    let mut flags = 0;
    // Without duplication handling nothing divides a group of ties.
    if !cfg!(feature = "duplicates") || parameters.ties == Ties::KeepAll || !plan.duplicates {
        flags |= KEEP_ALL;
    }
    if parameters.order == Order::Joint {
        flags |= JOINT;
    }
    RowArgs {
        // As long as no step is to be: the penalties stay.
        decay: 1.0,
        standing_presence: 0.0,
        standing_repetition: 0.0,
        unused: 0,
        seed: parameters.seed,
        position: parameters.position,
        stream: parameters.stream,
        temperature: parameters.temperature,
        top_k,
        top_p,
        farthest: farthest(parameters.min_p),
        flags,
        repetition: penalty(|penalties, row| penalties.repetition.get(row), 1.0),
        frequency: penalty(|penalties, row| penalties.frequency.get(row), 0.0),
        presence: penalty(|penalties, row| penalties.presence.get(row), 0.0),
        // Without truncation nobody reads them.
        delta: if cfg!(feature = "truncation") { deltas(top_k, top_p, vocab, tables) } else { [0.0; DELTA_SIGMAS] },
        wanted: if top_k > 0 { top_k.saturating_mul(2).max(top_k.saturating_add(SPARE)) } else { UNKNOWN_COUNT },
    }
}

/// Bits of the greatest distance that min-p keeps; all ones where it is off.
///
/// The weight is monotone in the distance, and the bits of a positive f32 are in the order of the numbers.
fn farthest(min_p: f32) -> u32 {
    if min_p == 0.0 {
        return u32::MAX;
    }
    let least = need(min_p, ONE);
    // Distance 0 has enough weight: min-p is at most 1.
    let (mut low, mut high) = (0, LAST_DISTANCE_BITS);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if weight(f32::from_bits(middle)) >= least {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

/// δ for each deviation of [`DELTA_SIGMAS`]: of top-k, which does not depend on it, or of top-p, the lower of both ends of
/// the half unit that starts there, so that a lookup rounded down stays on the side where an error is cheap.
fn deltas(top_k: u32, top_p: f32, vocab: usize, tables: &DeltaTables) -> [f32; DELTA_SIGMAS] {
    if top_k > 0 {
        return [tables.top_k(top_k, vocab); DELTA_SIGMAS];
    }
    let at = |half_units: usize| tables.top_p(top_p, half_units as f32 / 2.0);
    std::array::from_fn(|i| at(i).min(at(i + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(params: &Params<'_>, vocab: usize) -> RowArgs {
        row_args(params, 0, vocab, &DeltaTables::normal(), &Plan::default())
    }

    #[test]
    fn farthest_is_the_last_distance_with_enough_weight() {
        for min_p in [1.0, 0.999_999_94, 0.5, 0.1, 1e-3, 1e-9, 1e-12, f32::MIN_POSITIVE, f32::from_bits(1)] {
            let bits = args(&Params::default().min_p(min_p), 10).farthest;
            let least = need(min_p, ONE);
            assert!(weight(f32::from_bits(bits)) >= least, "min_p {min_p:e}");
            assert!(weight(f32::from_bits(bits + 1)) < least, "min_p {min_p:e}");
        }
        assert_eq!(args(&Params::default(), 10).farthest, u32::MAX);
    }

    #[cfg(feature = "truncation")]
    #[test]
    fn deltas_stay_on_the_safe_side() {
        let tables = DeltaTables::normal();
        let top_p = args(&Params::default().top_p(0.9), 1000).delta;
        for (i, delta) in top_p.into_iter().enumerate() {
            for sixteenth in 0..8 {
                let sigma = i as f32 / 2.0 + sixteenth as f32 / 16.0;
                assert!(delta <= tables.top_p(0.9, sigma), "σ {sigma}");
            }
        }
        let top_k = args(&Params::default().top_k(50).top_p(0.9), 1000).delta;
        assert_eq!(top_k, [tables.top_k(50, 1000); DELTA_SIGMAS]);
        assert_eq!(args(&Params::default(), 1000).delta, [f32::NEG_INFINITY; DELTA_SIGMAS]);
    }

    #[test]
    fn filters_that_are_off_look_alike() {
        let off = args(&Params::default(), 7);
        assert_eq!(args(&Params::default().top_k(7).top_p(f32::INFINITY), 7), off);
        let flags = if cfg!(feature = "duplicates") { 0 } else { KEEP_ALL };
        assert_eq!((off.top_k, off.top_p, off.wanted, off.flags), (0, 1.0, UNKNOWN_COUNT, flags));
        assert_eq!((off.repetition, off.frequency, off.presence), (1.0, 0.0, 0.0));
        assert_eq!(args(&Params::default().top_k(u32::MAX - 1), usize::MAX).wanted, u32::MAX);
    }

    #[test]
    fn flags_of_policies_and_plan() {
        let flags = |ties, order, duplicates| {
            let plan = Plan { duplicates, ..Plan::default() };
            let params = Params::default().ties(ties).order(order);
            row_args(&params, 0, 7, &DeltaTables::normal(), &plan).flags
        };
        #[cfg(feature = "duplicates")]
        assert_eq!(flags(Ties::LowestId, Order::TopKThenTopP, true), 0);
        assert_eq!(flags(Ties::KeepAll, Order::TopKThenTopP, true), KEEP_ALL);
        assert_eq!(flags(Ties::LowestId, Order::Joint, false), KEEP_ALL | JOINT);
    }
}
