//! Sizes, times and amounts as people write them in flags and settings.
//!
//! Pure. Both programs read them here, so that a value means the same in both.

use std::time::Duration;

/// A text that is not a value of its unit. The message names the text, and the expected form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnitError(String);

impl UnitError {
    /// Makes an error from a message that names the text, or the expected form.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// Parses a size in bytes: a number with b, k, m, g, or with kb, mb, gb, or with KiB, MiB, GiB. All count in powers of
/// 1024, as Docker does.
///
/// # Errors
/// [`UnitError`].
pub fn size(text: &str) -> Result<u64, UnitError> {
    let expected = || UnitError(format!("'{text}' is not a size; write a number of bytes, or 512m, 2g"));
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().map_err(|_| expected())?;
    let shift = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return Err(expected()),
    };
    number.checked_mul(1 << shift).filter(|bytes| i64::try_from(*bytes).is_ok()).ok_or_else(expected)
}

/// The longest time that can be given.
const TIME_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// Parses a time: a number of seconds, or 500ms, 2s, 10m, 1h; at most 365 days.
///
/// # Errors
/// [`UnitError`].
pub fn time(text: &str) -> Result<Duration, UnitError> {
    let parsed = match text.parse::<u64>() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => humantime::parse_duration(text).ok(),
    };
    parsed.filter(|time| *time <= TIME_MAX).ok_or_else(|| {
        UnitError(format!("'{text}' is not a time; write a number of seconds, or 500ms, 2s, 10m, at most 365 days"))
    })
}

/// Parses a number of processors, such as 1 or 0.5, into thousandths.
///
/// # Errors
/// [`UnitError`].
pub fn cpus(text: &str) -> Result<u64, UnitError> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let millis = || -> Option<u64> {
        if text.is_empty() || !digits(whole) || !digits(part) || part.len() > 3 || (whole.is_empty() && part.is_empty())
        {
            return None;
        }
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let part: u64 = format!("{part:0<3}").parse().ok()?;
        whole.checked_mul(1000)?.checked_add(part)
    };
    // The engine takes no less than a hundredth.
    millis()
        .filter(|millis| (10..=1_000_000).contains(millis))
        .ok_or_else(|| UnitError(format!("'{text}' is not a number of processors; write 1, 0.5, at least 0.01")))
}

/// Parses an amount of dollars, such as 0.25, 12 or 1e-6, into nano-USD. An amount that would round to 0 is refused,
/// since 0 means something else.
///
/// # Errors
/// [`UnitError`].
pub fn nano_usd(text: &str) -> Result<i64, UnitError> {
    let amount = crate::Usd::parse(text)
        .ok()
        .filter(|usd| usd.to_nanos() < i64::MAX)
        .ok_or_else(|| UnitError(format!("'{text}' is not an amount of dollars; write 0.25, at most nine billion")))?;
    match amount.to_nanos() {
        0 if !amount.is_zero() => {
            let message = "is less than a nano-dollar, which is the least that is counted; write 1e-9, or 0";
            Err(UnitError(format!("'{text}' {message}")))
        }
        nanos => Ok(nanos),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_count_in_1024() {
        let rows = [
            ("0", 0),
            ("512", 512),
            ("1k", 1024),
            ("512m", 512 << 20),
            ("2GiB", 2 << 30),
            ("10mb", 10 << 20),
            ("64 MB", 64 << 20),
        ];
        for (text, bytes) in rows {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "m", "-1", "1.5g", "1t", "99999999999g"] {
            size(bad).expect_err(bad);
        }
    }

    #[test]
    fn times_are_seconds_or_say_their_unit() {
        assert_eq!(time("120"), Ok(Duration::from_secs(120)));
        assert_eq!(time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(time("365d"), Ok(TIME_MAX));
        for bad in ["", "soon", "-1s", "366d", "99999d"] {
            time(bad).expect_err(bad);
        }
    }

    #[test]
    fn dollars_count_in_nanos_and_never_become_nothing() {
        let rows = [("0", 0), ("0.00", 0), ("1e-9", 1), ("1.4e-9", 1), ("6e-10", 1), ("0.25", 250_000_000)];
        for (text, nanos) in rows {
            assert_eq!(nano_usd(text), Ok(nanos), "{text}");
        }
        for little in ["1e-12", "0.0000000005", "0.0000000000000000001"] {
            assert!(
                nano_usd(little).is_err_and(|error| error.0.contains(little) && error.0.contains("nano-dollar")),
                "{little}"
            );
        }
        for bad in ["", "-1", "x", "1e30"] {
            assert!(nano_usd(bad).is_err_and(|error| error.0.contains("not an amount of dollars")), "{bad}");
        }
    }

    #[test]
    fn processors_come_in_thousandths() {
        for (text, millis) in [("1", 1000), ("0.5", 500), (".25", 250), ("2.125", 2125)] {
            assert_eq!(cpus(text), Ok(millis), "{text}");
        }
        for bad in ["", ".", "0", "0.001", "-1", "1.2345", "x", "1e3"] {
            cpus(bad).expect_err(bad);
        }
    }
}
