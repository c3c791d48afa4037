//! The probability of a kept token, rounded once.
//!
//! Weight and mass are exact integers, so that a probability is a quotient of integers and its nearest f32 a number that needs no
//! further rule. A division of doubles would round twice: masses above 2^53 to begin with, the quotient, and then the f32.

/// The f32 nearest to `weight / mass`, ties to even: the probability of a token of this weight among tokens of this mass.
///
/// For weights up to the mass and masses from 1 to 2^63: from 2^-63 on a quotient is a normal f32, so that there is no other
/// case. 0 for a weight of 0; 1 for a weight beyond the mass, which no token of it has.
///
/// ```
/// use qrita_core::probability::probability;
/// assert_eq!(probability(1 << 42, 3 << 42), 1.0 / 3.0);
/// assert_eq!((probability(7, 7), probability(0, 7)), (1.0, 0.0));
/// // 1 + 2^-24 parts of 2: halfway between two floats, but for one in 2^63.
/// let half = (1u64 << 62) + (1 << 38);
/// assert_eq!(probability(half, 1 << 63).to_bits(), 0.5f32.to_bits());
/// assert_eq!(probability(half + 1, 1 << 63).to_bits(), 0.5f32.to_bits() + 1);
/// ```
pub fn probability(weight: u64, mass: u64) -> f32 {
    if weight == 0 {
        return 0.0;
    }
    if weight >= mass {
        return 1.0;
    }
    // With `shift` more bits than needed to be as long as the mass, the weight is between 2^25 and 2^27 times the mass: two bits
    // or more behind the 24 that are kept, the last of which stands for all that is left.
    let shift = 26 + weight.leading_zeros() - mass.leading_zeros();
    let (weight, mass) = (u128::from(weight) << shift, u128::from(mass));
    let quotient = (weight / mass) as u32 | u32::from(weight % mass != 0);
    // One rounding, and a power of two.
    quotient as f32 * f32::from_bits((127 - shift) << 23)
}
