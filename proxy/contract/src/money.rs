//! Dollars without floats.
//!
//! Providers write amounts as JSON numbers (`0.0000054`, `5.4e-06`, `1.05e-05`). They are read from
//! their text: the audit log keeps every digit, sums are made in nano-USD.

use std::fmt;

/// Nano-USD in one dollar.
pub const NANOS_PER_USD: i128 = 1_000_000_000;

/// More digits than any provider writes; a longer text is not an amount.
const MAX_DIGITS: usize = 40;

/// An exact, non-negative amount of dollars: `digits` × 10^`-scale`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usd {
    digits: String,
    scale: usize,
}

/// A text that is not an amount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an amount of dollars: want a non-negative decimal number such as 0.25")]
pub struct NotAnAmount;

impl Usd {
    /// Parses a non-negative JSON number, exponents included.
    ///
    /// # Errors
    /// [`NotAnAmount`] for signs, blanks, NaN, infinities, or more than 40 digits.
    pub fn parse(text: &str) -> Result<Self, NotAnAmount> {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().map_err(|_| NotAnAmount)?),
            None => (text, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits_only = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        let dangling = mantissa.ends_with('.') || whole.is_empty();
        if dangling || !digits_only(whole) || !digits_only(fraction) || exponent.unsigned_abs() > 40 {
            return Err(NotAnAmount);
        }
        let mut digits = format!("{whole}{fraction}");
        let mut scale = i64::try_from(fraction.len()).map_err(|_| NotAnAmount)? - i64::from(exponent);
        while scale < 0 {
            digits.push('0');
            scale += 1;
        }
        let mut scale = usize::try_from(scale).map_err(|_| NotAnAmount)?;
        while scale > 0 && digits.ends_with('0') {
            digits.pop();
            scale -= 1;
        }
        let digits = digits.trim_start_matches('0').to_owned();
        if digits.len() > MAX_DIGITS || scale > MAX_DIGITS + 40 {
            return Err(NotAnAmount);
        }
        Ok(if digits.is_empty() { Self { digits, scale: 0 } } else { Self { digits, scale } })
    }

    /// Returns true for zero dollars.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    /// Returns whether nano-USD can count the amount: at most about nine billion dollars.
    #[must_use]
    pub fn is_countable(&self) -> bool {
        self.scaled(9) <= i64::MAX.into()
    }

    /// Returns the amount in nano-USD, rounded half-even. Saturates at [`i64::MAX`], about nine billion dollars.
    #[must_use]
    pub fn to_nanos(&self) -> i64 {
        i64::try_from(self.scaled(9)).unwrap_or(i64::MAX)
    }

    /// Returns the amount times 10^`places`, rounded half-even. Every rounding of an amount happens here.
    #[must_use]
    pub fn scaled(&self, places: u32) -> i128 {
        let mut value: i128 = 0;
        let keep = self.digits.len() as i64 - (self.scale as i64 - i64::from(places));
        if keep < 0 {
            return 0;
        }
        let (kept, lost) = self.digits.split_at((keep as usize).min(self.digits.len()));
        for b in kept.bytes() {
            value = value.saturating_mul(10).saturating_add(i128::from(b - b'0'));
        }
        for _ in self.digits.len()..keep as usize {
            value = value.saturating_mul(10);
        }
        if let Some(first) = lost.bytes().next() {
            let beyond = lost.bytes().skip(1).any(|b| b != b'0');
            if first > b'5' || (first == b'5' && (beyond || value % 2 == 1)) {
                value = value.saturating_add(1);
            }
        }
        value
    }

    /// Returns the amount of a whole number of nano-USD.
    #[must_use]
    pub fn from_nanos(nanos: i64) -> Self {
        Self::from_nano_sum(nanos.into())
    }

    /// Returns the amount of a sum in nano-USD, which may exceed the highest single amount.
    #[must_use]
    pub fn from_nano_sum(nanos: i128) -> Self {
        let text = format!("{:010}", nanos.max(0));
        let (whole, fraction) = text.split_at(text.len() - 9);
        Self::parse(&format!("{whole}.{fraction}")).unwrap_or(Self { digits: String::new(), scale: 0 })
    }
}

/// Plain decimal, no exponent, no trailing zeros: `0.0000054`.
impl fmt::Display for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.digits.is_empty() {
            return f.write_str("0");
        }
        if self.scale == 0 {
            return f.write_str(&self.digits);
        }
        if self.digits.len() > self.scale {
            let (whole, fraction) = self.digits.split_at(self.digits.len() - self.scale);
            return write!(f, "{whole}.{fraction}");
        }
        write!(f, "0.{}{}", "0".repeat(self.scale - self.digits.len()), self.digits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(of: &str) -> String {
        Usd::parse(of).map_or_else(|e| e.to_string(), |usd| usd.to_string())
    }

    #[test]
    fn every_digit_of_the_provider_is_kept() {
        for (given, kept) in [
            ("5.4e-06", "0.0000054"),
            ("0.0000054", "0.0000054"),
            ("1.05E-05", "0.0000105"),
            ("0.00010500000000000001", "0.00010500000000000001"),
            ("0", "0"),
            ("0.0", "0"),
            ("3", "3"),
            ("12.50", "12.5"),
            ("1e2", "100"),
            ("1.25e1", "12.5"),
        ] {
            assert_eq!(text(given), kept, "{given}");
        }
    }

    #[test]
    fn an_amount_beyond_every_count_stays_beyond_it() {
        let most = Usd::parse(&format!("{}.{}", "9".repeat(30), "9".repeat(10))).expect("40 digits are an amount");
        assert_eq!((most.scaled(9), most.is_countable(), most.to_nanos()), (i128::MAX, false, i64::MAX));
    }

    #[test]
    fn texts_that_are_not_amounts_are_refused() {
        for bad in ["", "-1", "+1", "NaN", "inf", "1.", ".5", "1,5", "0x1", "1e", "1e999", " 1", "1 ", &"9".repeat(60)]
        {
            assert_eq!(Usd::parse(bad), Err(NotAnAmount), "{bad:?}");
        }
    }

    #[test]
    fn nanos_are_rounded_half_even() {
        for (given, nanos) in [
            ("0.0000000005", 0),
            ("0.0000000015", 2),
            ("0.0000000025", 2),
            ("0.00000000250000001", 3),
            ("0.0000054", 5400),
            ("1", 1_000_000_000),
            ("123.456", 123_456_000_000),
            ("1e-30", 0),
            ("99999999999999999999", i64::MAX),
        ] {
            assert_eq!(Usd::parse(given).map(|usd| usd.to_nanos()), Ok(nanos), "{given}");
        }
    }

    proptest! {
        #[test]
        fn nanos_survive_a_round_trip(nanos in 0..i64::MAX) {
            let usd = Usd::from_nanos(nanos);
            prop_assert_eq!(usd.to_nanos(), nanos);
            prop_assert_eq!(Usd::parse(&usd.to_string()), Ok(usd));
        }

        #[test]
        fn sums_survive_a_round_trip(nanos in 0..i128::MAX) {
            let usd = Usd::from_nano_sum(nanos);
            prop_assert_eq!(usd.scaled(9), nanos);
            prop_assert_eq!(Usd::parse(&usd.to_string()), Ok(usd));
        }

        #[test]
        fn no_text_panics(text in "[0-9eE.+-]{0,50}") {
            if let Ok(usd) = Usd::parse(&text) {
                let _ = usd.to_nanos();
                prop_assert_eq!(Usd::parse(&usd.to_string()), Ok(usd));
            }
        }
    }
}
