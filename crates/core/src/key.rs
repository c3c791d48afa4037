//! The ordered key of a logit, and a logit with its id as one integer.

use core::fmt;

/// The bits of an f32 rearranged so that comparing them as integers compares the numbers.
///
/// Positive numbers get the sign bit set, negative ones are inverted. −0 is canonical: it has the key of +0. NaN has the
/// key of −∞. Searching on keys is exact: an interval of 32-bit integers can be halved some 32 times or quartered
/// some 16 times, whatever the values are, with no tolerance and no iteration cap.
///
/// ```
/// use qrita_core::Key;
/// assert!(Key::new(1.0) > Key::new(0.5));
/// assert!(Key::new(-1.0) < Key::new(-0.5));
/// assert_eq!(Key::new(-0.0), Key::new(0.0));
/// assert_eq!(Key::new(f32::NAN), Key::NEG_INFINITY);
/// assert_eq!(Key::new(-3.25).value(), -3.25);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(u32);

impl Key {
    /// The key of −∞: no candidate has it.
    pub const NEG_INFINITY: Key = Key(0x007F_FFFF);
    /// The key of −f32::MAX, the least that a candidate can have.
    pub const LEAST: Key = Key(0x0080_0000);
    /// The key of +∞.
    pub const INFINITY: Key = Key(0xFF80_0000);

    /// The key of an effective logit.
    #[inline]
    pub fn new(y: f32) -> Key {
        if y.is_nan() {
            return Key::NEG_INFINITY;
        }
        let bits = (y + 0.0).to_bits();
        Key(bits ^ (((bits as i32 >> 31) as u32) | 0x8000_0000))
    }

    /// The logit that has this key; the inverse of [`Key::new`] but for −0 and NaN.
    #[inline]
    pub fn value(self) -> f32 {
        f32::from_bits(self.0 ^ ((!(self.0 as i32) >> 31) as u32 | 0x8000_0000))
    }

    /// The key as an integer.
    #[inline]
    pub fn bits(self) -> u32 {
        self.0
    }

    /// The key with these bits. Between the keys of −∞ and +∞ every integer is the key of a logit but one: `0x7FFF_FFFF`,
    /// below the key of 0, would be that of −0. Its [`value`](Key::value) compares equal to 0, whose key is one more.
    #[inline]
    pub fn from_bits(bits: u32) -> Key {
        Key(bits)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?})", self.value())
    }
}

/// A logit and its token id in one integer whose descending order is the contract's: by logit, ties by ascending id.
///
/// The upper half is the [`Key`], the lower half the inverted id. Sorting candidates as integers is therefore a stable
/// sort of the row, and no two candidates of a row are equal.
///
/// ```
/// use qrita_core::{Candidate, Key};
/// let (a, b) = (Candidate::new(Key::new(2.0), 7), Candidate::new(Key::new(2.0), 9));
/// assert!(a > b && b > Candidate::new(Key::new(1.0), 0));
/// assert_eq!((a.key().value(), a.id()), (2.0, 7));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Candidate(u64);

impl Candidate {
    /// The candidate of a key and a token id.
    #[inline]
    pub fn new(key: Key, id: u32) -> Candidate {
        Candidate(u64::from(key.bits()) << 32 | u64::from(!id))
    }

    /// Its key.
    #[inline]
    pub fn key(self) -> Key {
        Key((self.0 >> 32) as u32)
    }

    /// Its token id.
    #[inline]
    pub fn id(self) -> u32 {
        !(self.0 as u32)
    }

    /// Its logit.
    #[inline]
    pub fn logit(self) -> f32 {
        self.key().value()
    }

    /// The integer itself.
    #[inline]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// The candidate with these bits.
    #[inline]
    pub fn from_bits(bits: u64) -> Candidate {
        Candidate(bits)
    }
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Candidate({:?}, id {})", self.logit(), self.id())
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::Key;

    #[test]
    fn order_and_inverse_around_every_boundary() {
        let mut values = vec![f32::NEG_INFINITY, f32::INFINITY, f32::MAX, -f32::MAX, 1.0, -1.0, 0.0];
        for bits in [1u32, 2, 0x007F_FFFF, 0x0080_0000, 0x0080_0001] {
            values.extend([f32::from_bits(bits), -f32::from_bits(bits)]);
        }
        for &a in &values {
            assert_eq!(Key::new(a).value(), a);
            for &b in &values {
                assert_eq!(Key::new(a).cmp(&Key::new(b)), a.partial_cmp(&b).unwrap());
            }
        }
        assert_eq!(Key::LEAST, Key::new(-f32::MAX));
        assert_eq!(Key::INFINITY, Key::new(f32::INFINITY));
        assert_eq!(Key::NEG_INFINITY, Key::new(f32::NEG_INFINITY));
    }
}
