//! The integers that decide about draft tokens: whether one is accepted, and what is drawn in its place.
//!
//! Speculative decoding accepts a draft token with probability `min(1, (p/P) / (q/Q))` and else draws from what the target
//! law has in excess of the draft's. With integer weights and masses both are integers of at most 128 bits: a weight is at
//! most 2^42, a mass at most 2^63, the sum of all excesses at most `P·Q ≤ 2^126`.
//!
//! ```
//! use qrita_core::verify::{Share, accepts, excess};
//! let (draft, target) = (Share { weight: 3, mass: 4 }, Share { weight: 1, mass: 2 });
//! // Accepted two times of three.
//! assert!(accepts(2 * (u64::MAX / 3), draft, target) && !accepts(2 * (u64::MAX / 3) + 1, draft, target));
//! // The target law has less of this token than the draft's, and of all others together that much more.
//! assert_eq!(excess(draft, target), 0);
//! assert_eq!(excess(Share { weight: 1, mass: 4 }, target), 1 * 4 - 1 * 2);
//! ```

/// The [`draw`](crate::philox::random) word of the random bits that accept or reject a draft token.
pub const ACCEPT_DRAW: u32 = u32::MAX;

/// The [`draw`](crate::philox::random) word of the random bits that draw a token in place of a rejected one.
///
/// Not that of an ordinary draw: the draft row may have the same seed, position and stream as the target row, and its
/// ordinary draw made the very token that was rejected.
pub const REJECT_DRAW: u32 = u32::MAX - 1;

/// A token's part of a law: its weight, 0 if it is not kept, and the kept mass of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// At most 2^42.
    pub weight: u64,
    /// At most 2^63, and at least the weight.
    pub mass: u64,
}

impl Share {
    /// The part that every token has of a law of none: what the target law has in excess of it is all of it.
    pub const NONE: Share = Share { weight: 0, mass: 1 };
}

/// Whether a draft token is accepted: `random · q · P < 2^64 · p · Q`. One with no weight in the draft law is not.
#[inline]
pub fn accepts(random: u64, draft: Share, target: Share) -> bool {
    // The right side is a multiple of 2^64: comparing what is above it is the same.
    draft.weight > 0 && upper(random, product(draft.weight, target.mass)) < product(target.weight, draft.mass)
}

/// What the target law has of a token in excess of the draft's: `p·Q − q·P`, or 0.
#[inline]
pub fn excess(draft: Share, target: Share) -> u128 {
    product(target.weight, draft.mass).saturating_sub(product(draft.weight, target.mass))
}

/// The upper 128 bits of a product of 64 by 128 bits. Of `random` and the sum of all excesses: where a draw falls, uniform
/// below the sum to within 2^-64 of it.
///
/// ```
/// use qrita_core::verify::upper;
/// assert_eq!(upper(1 << 63, 10), 5);
/// assert_eq!(upper(u64::MAX, u128::MAX), u128::MAX - (1 << 64));
/// ```
#[inline]
pub fn upper(random: u64, whole: u128) -> u128 {
    let (high, low) = ((whole >> 64) as u64, whole as u64);
    // At most (2^64 − 1)^2 + 2^64 − 2: no overflow.
    product(random, high) + (product(random, low) >> 64)
}

fn product(a: u64, b: u64) -> u128 {
    u128::from(a) * u128::from(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends() {
        let share = |weight, mass| Share { weight, mass };
        let (one, all) = (1u64 << 42, 1u64 << 63);
        for random in [0, 1, u64::MAX] {
            // Equal laws accept always, also the largest.
            assert!(accepts(random, share(one, all), share(one, all)));
            assert!(accepts(random, share(1, all), share(1, all)));
            assert!(!accepts(random, share(one, all), share(0, all)));
            assert!(!accepts(random, share(0, all), share(one, all)));
            assert!(!accepts(random, share(one, one), share(0, 0)));
        }
        assert!(accepts(0, share(one, one), share(1, all)));
        // p/P = 2^-63: accepted by 0 and 1 of 2^64.
        assert!(accepts(1, share(one, one), share(1, all)) && !accepts(2, share(one, one), share(1, all)));
        assert_eq!(excess(share(0, all), share(one, all)), 1 << 105);
        assert_eq!(excess(Share::NONE, share(7, 9)), 7);
    }
}
