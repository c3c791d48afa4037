//! What a row's data had to say: bits that never disturb another row.

use core::fmt;
use core::ops::{BitOr, BitOrAssign};

/// The status bits of one row.
///
/// ```
/// use qrita_core::Status;
/// let status = Status::NAN | Status::EMPTY;
/// assert!(status.contains(Status::NAN) && !status.contains(Status::OVERFLOW));
/// assert_eq!(status.to_string(), "nan+empty");
/// assert_eq!(Status::OK.to_string(), "ok");
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Status(u32);

impl Status {
    /// Nothing to report.
    pub const OK: Status = Status(0);
    /// An allowed logit is NaN; it counts as −∞.
    pub const NAN: Status = Status(1);
    /// An allowed logit is +∞; all +∞ entries share the mass equally.
    pub const POS_INF: Status = Status(2);
    /// No candidate is left: the row yields no token.
    pub const EMPTY: Status = Status(4);
    /// More candidates are kept than the caller gave room for.
    pub const OVERFLOW: Status = Status(8);

    const NAMES: [(Status, &'static str); 4] =
        [(Status::NAN, "nan"), (Status::POS_INF, "pos_inf"), (Status::EMPTY, "empty"), (Status::OVERFLOW, "overflow")];

    /// Whether all bits of `other` are set.
    #[inline]
    pub fn contains(self, other: Status) -> bool {
        self.0 & other.0 == other.0
    }

    /// The bits.
    #[inline]
    pub fn bits(self) -> u32 {
        self.0
    }

    /// The status with these bits; unknown ones are dropped.
    #[inline]
    pub fn from_bits(bits: u32) -> Status {
        Status(bits & 15)
    }

    /// The names of the bits that are set: `nan`, `pos_inf`, `empty`, `overflow`.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(bit, _)| self.contains(*bit)).map(|(_, name)| name)
    }
}

impl BitOr for Status {
    type Output = Status;

    #[inline]
    fn bitor(self, other: Status) -> Status {
        Status(self.0 | other.0)
    }
}

impl BitOrAssign for Status {
    #[inline]
    fn bitor_assign(&mut self, other: Status) {
        self.0 |= other.0;
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Status::OK {
            return f.write_str("ok");
        }
        for (i, name) in self.names().enumerate() {
            if i > 0 {
                f.write_str("+")?;
            }
            f.write_str(name)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({self})")
    }
}
