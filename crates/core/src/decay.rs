//! Penalties that decay over steps: read with the other adjustments, and taken on to the next step when the token is drawn.

use alloc::string::ToString;

use crate::adjust::Standing;
use crate::error::Error;
use crate::logits::Logits;
use crate::params::{Param, Params};

/// What a [step](crate::Backend::step) does to [standing penalties](Standing): it subtracts them from the logits, draws, and
/// then takes them on to the next step.
///
/// Every penalty of a row is multiplied by `decay`; to that of the token drawn is added `presence` if it was 0, which is a token's
/// first time, else `repetition`. A row that draws no token only decays.
///
/// ```
/// use qrita_core::{Decay, Logits, Params};
/// let logits = Logits::new(&[0.0f32; 8], 4)?;
/// // Both rows start without penalties. The second one's fade faster.
/// let mut penalties = [0.0; 8];
/// let decay = Decay {
///     penalties: &mut penalties,
///     stride: 4,
///     decay: (&[0.98, 0.5]).into(),
///     presence: 0.5.into(),
///     repetition: f32::NAN.into(),
/// };
/// assert_eq!(
///     decay.validate(&logits, &Params::default()).unwrap_err().to_string(),
///     "standing repetition is NaN for all rows: it must be finite and at least 0",
/// );
/// # Ok::<(), qrita_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Decay<'a> {
    /// What is subtracted: as [`Standing::penalties`].
    pub penalties: &'a mut [f32],
    /// Elements from one row's first penalty to the next row's: at least the vocab.
    pub stride: usize,
    /// What every penalty is multiplied by: finite, at least 0.
    pub decay: Param<'a, f32>,
    /// What the first time of a token adds: finite, at least 0.
    pub presence: Param<'a, f32>,
    /// What each further time adds: finite, at least 0.
    pub repetition: Param<'a, f32>,
}

impl Decay<'_> {
    /// The penalties as the adjustments of a call, to read.
    pub fn standing(&self) -> Standing<'_> {
        Standing { penalties: self.penalties, stride: self.stride }
    }

    /// Checks that the memory holds the batch, that every value is in its range, and that the step is of one draw and no other
    /// standing penalties.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::Length`] or [`Error::Param`], which names row, parameter and value; the last also for
    /// [`standing`](crate::Adjustments::standing) penalties among the adjustments.
    pub fn validate(&self, logits: &Logits<'_>, params: &Params<'_>) -> Result<(), Error> {
        let rows = logits.rows();
        self.standing().validate(rows, logits.vocab())?;
        for (name, param) in NAMES.into_iter().zip([&self.decay, &self.presence, &self.repetition]) {
            param.check(name, rows, EXPECTED, is_valid)?;
        }
        Decay::check_draws(params.draws)?;
        if params.adjustments.standing.is_some() {
            let (value, expected) = ("given".to_string(), "left to the step, which has its own");
            return Err(Error::Param { row: None, param: "standing", value, expected });
        }
        Ok(())
    }

    /// Refuses another number of draws than 1: penalties go on behind one token.
    ///
    /// # Errors
    /// [`Error::Param`] with their number.
    pub fn check_draws(draws: u32) -> Result<(), Error> {
        Param::All(draws).check("draws", 1, "1 where penalties decay", |&draws| draws == 1)
    }

    /// The values of one row. Panics outside the batch, as slices do.
    pub fn row(&self, row: usize) -> RowDecay {
        RowDecay { decay: self.decay.get(row), presence: self.presence.get(row), repetition: self.repetition.get(row) }
    }
}

const NAMES: [&str; 3] = ["decay", "standing presence", "standing repetition"];
const EXPECTED: &str = "finite and at least 0";

fn is_valid(value: &f32) -> bool {
    *value >= 0.0 && value.is_finite()
}

/// How the standing penalties of one row go on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowDecay {
    /// What every penalty is multiplied by.
    pub decay: f32,
    /// What the first time of a token adds.
    pub presence: f32,
    /// What each further time adds.
    pub repetition: f32,
}

impl RowDecay {
    /// Checks that every value is in its range.
    ///
    /// # Errors
    /// [`Error::Param`] names the one that is not.
    pub fn validate(&self) -> Result<(), Error> {
        for (name, value) in NAMES.into_iter().zip([self.decay, self.presence, self.repetition]) {
            Param::All(value).check(name, 1, EXPECTED, is_valid)?;
        }
        Ok(())
    }

    /// What becomes of a penalty; of a NaN, or where infinity meets a decay of 0, the NaN with the bits `0x7FC00000`.
    #[inline]
    pub fn faded(&self, penalty: f32) -> f32 {
        canonical(penalty * self.decay)
    }

    /// What becomes of the penalty of the token drawn: it fades, and grows.
    ///
    /// ```
    /// use qrita_core::RowDecay;
    /// let row = RowDecay { decay: 0.5, presence: 1.0, repetition: 0.25 };
    /// assert_eq!([row.raised(0.0), row.raised(1.0)], [1.0, 0.75]);
    /// ```
    #[inline]
    pub fn raised(&self, penalty: f32) -> f32 {
        let more = if penalty == 0.0 { self.presence } else { self.repetition };
        canonical(self.faded(penalty) + more)
    }
}

/// One NaN for all: which one an operation makes depends on the machine.
#[inline]
fn canonical(penalty: f32) -> f32 {
    if penalty.is_nan() { f32::from_bits(0x7FC0_0000) } else { penalty }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_of_a_penalty() {
        let row = RowDecay { decay: 0.5, presence: 2.0, repetition: 0.75 };
        let bits = |penalties: [f32; 6]| penalties.map(f32::to_bits);
        let penalties = [0.0, 1.0, -0.0, f32::INFINITY, f32::from_bits(3), -4.0];
        let faded = [0.0, 0.5, -0.0, f32::INFINITY, f32::from_bits(2), -2.0];
        assert_eq!(bits(penalties.map(|penalty| row.faded(penalty))), bits(faded));
        let raised = [2.0, 1.25, 2.0, f32::INFINITY, 0.75, -1.25];
        assert_eq!(bits(penalties.map(|penalty| row.raised(penalty))), bits(raised));
        let zero = RowDecay { decay: 0.0, ..row };
        for penalty in [-f32::NAN, f32::from_bits(0x7F80_0001), f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!([zero.faded(penalty), zero.raised(penalty)].map(f32::to_bits), [0x7FC0_0000; 2]);
        }
    }
}
