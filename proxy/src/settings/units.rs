//! Values of flags: the contract's units with the sidecar's limits, and rates and modes.

use std::time::Duration;

use sluice_contract::control::HOLD_MAX_S;
use sluice_contract::record::INTEGER_MAX;
use sluice_contract::units::{self, UnitError};

/// Parses a size above 0, such as `32MiB`.
pub(super) fn size(text: &str) -> Result<u64, UnitError> {
    match units::size(text)? {
        0 => Err(UnitError::new("want a size above 0, such as 32MiB")),
        bytes => Ok(bytes),
    }
}

/// Value of `--max-memory`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryLimit {
    /// Limit in bytes.
    Bytes(u64),
    /// No limit but the kernel's own.
    Unlimited,
}

/// Parses `400MiB` or `none`.
pub(super) fn memory(text: &str) -> Result<MemoryLimit, UnitError> {
    if text == "none" {
        return Ok(MemoryLimit::Unlimited);
    }
    match size(text)? {
        // What is recorded must be an integer that every reader of JSON takes exactly.
        bytes if bytes > INTEGER_MAX => Err(UnitError::new("want less than 8 PiB, or none")),
        bytes => Ok(MemoryLimit::Bytes(bytes)),
    }
}

/// Parses a time above 0, such as `90` (seconds), `90s`, `2m` or `500ms`.
pub(super) fn nonzero_duration(text: &str) -> Result<Duration, UnitError> {
    let duration = units::time(text)?;
    if duration.is_zero() { Err(UnitError::new("want more than 0")) } else { Ok(duration) }
}

/// Parses a time above 0 for which a client waits for an answer.
pub(super) fn hold(text: &str) -> Result<Duration, UnitError> {
    let most = Duration::from_secs(HOLD_MAX_S);
    match nonzero_duration(text)? {
        time if time > most => {
            Err(UnitError::new("want at most 290s: Node's fetch and Claude Code give up on an answer after 300s"))
        }
        time => Ok(time),
    }
}

/// Parses calls per second: `5/s` or `5`.
pub(super) fn rate(text: &str) -> Result<u64, UnitError> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    number
        .parse()
        .ok()
        .filter(|rate| (1..=1_000_000).contains(rate))
        .ok_or_else(|| UnitError::new("want calls a second, such as 5/s"))
}

/// Parses an octal mode, as `chmod` takes it.
pub(super) fn mode(text: &str) -> Result<u32, UnitError> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o777)
        .ok_or_else(|| UnitError::new("want an octal mode up to 0777, such as 0660"))
}

/// Parses an amount of dollars.
pub(super) fn usd(text: &str) -> Result<sluice_contract::Usd, UnitError> {
    sluice_contract::Usd::parse(text).map_err(|error| UnitError::new(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read_as_people_write_them() {
        assert_eq!((size("32MiB"), size("1k"), size("10mb")), (Ok(32 << 20), Ok(1024), Ok(10 << 20)));
        assert_eq!((memory("1MiB"), memory("none")), (Ok(MemoryLimit::Bytes(1 << 20)), Ok(MemoryLimit::Unlimited)));
        assert!(memory("0").is_err() && memory("unlimited").is_err() && memory("8192TiB").is_err());
        assert!([size("0"), size("x"), size("5x"), size("99999999999GiB"), size("-1")].iter().all(Result::is_err));
        assert_eq!(
            (nonzero_duration("5"), nonzero_duration("2m")),
            (Ok(Duration::from_secs(5)), Ok(Duration::from_secs(120)))
        );
        assert!(nonzero_duration("x").is_err() && nonzero_duration("500y").is_err() && nonzero_duration("0s").is_err());
        assert_eq!((rate("5/s"), rate("5")), (Ok(5), Ok(5)));
        assert!(rate("0").is_err() && rate("5/m").is_err());
        assert_eq!((mode("0666"), mode("660")), (Ok(0o666), Ok(0o660)));
        assert!(mode("9").is_err() && mode("7777").is_err());
    }
}
