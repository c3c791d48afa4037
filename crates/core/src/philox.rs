//! Random bits: Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
//!
//! A counter-based generator has no state to keep or to share: the bits are a function of the row's seed and position.
//! The row's index in the batch is never part of it, so a request draws the same tokens alone or in any batch.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// One block of Philox4x32-10.
///
/// ```
/// use qrita_core::philox::philox4x32_10;
/// // The first of the published known-answer vectors.
/// assert_eq!(philox4x32_10([0; 4], [0; 2]), [0x6627_E8D5, 0xE169_C58D, 0xBC57_AC4C, 0x9B00_DBD8]);
/// ```
pub fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let ([mut a, mut b, mut c, mut d], [mut k0, mut k1]) = (counter, key);
    for _ in 0..10 {
        let left = u64::from(a) * u64::from(MULTIPLIERS[0]);
        let right = u64::from(c) * u64::from(MULTIPLIERS[1]);
        (a, b, c, d) = ((right >> 32) as u32 ^ b ^ k0, right as u32, (left >> 32) as u32 ^ d ^ k1, left as u32);
        (k0, k1) = (k0.wrapping_add(WEYL[0]), k1.wrapping_add(WEYL[1]));
    }
    [a, b, c, d]
}

/// The 64 random bits of one draw: key = `seed`, counter = (`position`, `stream`, `draw`), low words first.
///
/// `position` is the row's place in its own sequence, `stream` tells apart independent uses of one seed, `draw` counts
/// several draws at one position; its last two words are those of [`verify`](crate::verify).
pub fn random(seed: u64, position: u64, stream: u32, draw: u32) -> u64 {
    let [low, high, ..] =
        philox4x32_10([position as u32, (position >> 32) as u32, stream, draw], [seed as u32, (seed >> 32) as u32]);
    u64::from(high) << 32 | u64::from(low)
}

/// Where in the kept mass a draw falls: the upper 64 bits of `random · mass`, uniform on `0 .. mass` to within 2^-64.
///
/// The token drawn is the one whose interval holds it in the cumulative sum of kept weights in token-id order.
///
/// ```
/// use qrita_core::philox::target;
/// assert_eq!(target(0, 10), 0);
/// assert_eq!(target(u64::MAX, 10), 9);
/// assert_eq!(target(1 << 63, 10), 5);
/// ```
#[inline]
pub fn target(random: u64, mass: u64) -> u64 {
    ((u128::from(random) * u128::from(mass)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::philox4x32_10;

    /// The known-answer vectors that the authors publish with Random123 (file `kat_vectors`, philox 4x32, 10 rounds).
    #[test]
    fn known_answers() {
        let cases = [
            ([0; 4], [0; 2], [0x6627_E8D5, 0xE169_C58D, 0xBC57_AC4C, 0x9B00_DBD8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408F_276D, 0x41C8_3B0E, 0xA20B_C7C6, 0x6D54_51FD]),
            (
                [0x243F_6A88, 0x85A3_08D3, 0x1319_8A2E, 0x0370_7344],
                [0xA409_3822, 0x299F_31D0],
                [0xD16C_FE09, 0x94FD_CCEB, 0x5001_E420, 0x2412_6EA1],
            ),
        ];
        for (counter, key, answer) in cases {
            assert_eq!(philox4x32_10(counter, key), answer);
        }
    }

    #[test]
    fn each_argument_matters() {
        let base = super::random(1, 2, 3, 4);
        assert_ne!(base, super::random(1 << 32 | 1, 2, 3, 4));
        assert_ne!(base, super::random(1, 1 << 32 | 2, 3, 4));
        assert_ne!(base, super::random(1, 2, 4, 4));
        assert_ne!(base, super::random(1, 2, 3, 5));
    }
}
