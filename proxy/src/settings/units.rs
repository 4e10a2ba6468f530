//! Parsers of sizes, times and rates as people write them.

use std::time::Duration;

use sluice_contract::record::INTEGER_MAX;

/// Parses a size: `32MiB`, `500kB`, `1000`.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1000,
        "k" | "kib" => 1 << 10,
        "mb" => 1_000_000,
        "m" | "mib" => 1 << 20,
        "gb" => 1_000_000_000,
        "g" | "gib" => 1 << 30,
        _ => return Err("want bytes, or a number with KiB, MiB or GiB".to_owned()),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| "want a size above 0, such as 32MiB".to_owned())
}

/// `--max-memory`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryLimit {
    /// At most this many bytes.
    Bytes(u64),
    /// Only the kernel's own limits.
    Unlimited,
}

/// Parses `400MiB` or `none`.
pub(super) fn memory(text: &str) -> Result<MemoryLimit, String> {
    if text == "none" {
        return Ok(MemoryLimit::Unlimited);
    }
    match size(text)? {
        // A recorded number must be an integer that every JSON reader takes exactly.
        bytes if bytes > INTEGER_MAX => Err("want less than 8 PiB, or none".to_owned()),
        bytes => Ok(MemoryLimit::Bytes(bytes)),
    }
}

/// Parses a duration: `90` (seconds), `90s`, `2m`, `500ms`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let duration = match text.parse::<u32>() {
        Ok(seconds) => Duration::from_secs(seconds.into()),
        Err(_) => humantime::parse_duration(text)
            .map_err(|_| "want seconds, or a time such as 90s, 2m or 500ms".to_owned())?,
    };
    // tokio's timers end after about two years.
    if duration > Duration::from_secs(365 * 24 * 3600) { Err("want at most a year".to_owned()) } else { Ok(duration) }
}

/// Parses a duration over zero.
pub(super) fn nonzero_duration(text: &str) -> Result<Duration, String> {
    duration(text).and_then(
        |duration| {
            if duration.is_zero() { Err("want more than 0".to_owned()) } else { Ok(duration) }
        },
    )
}

/// Parses a rate: `5/s` or `5`.
pub(super) fn rate(text: &str) -> Result<u64, String> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    number
        .parse()
        .ok()
        .filter(|rate| (1..=1_000_000).contains(rate))
        .ok_or_else(|| "want calls a second, such as 5/s".to_owned())
}

/// Parses a mode such as `0666`, as `chmod` does.
pub(super) fn mode(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o777)
        .ok_or_else(|| "want an octal mode up to 0777, such as 0660".to_owned())
}

/// Parses an amount in dollars.
pub(super) fn usd(text: &str) -> Result<sluice_contract::Usd, String> {
    sluice_contract::Usd::parse(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read_as_people_write_them() {
        assert_eq!((size("32MiB"), size("1k"), size("5")), (Ok(32 << 20), Ok(1024), Ok(5)));
        assert_eq!((memory("1MiB"), memory("none")), (Ok(MemoryLimit::Bytes(1 << 20)), Ok(MemoryLimit::Unlimited)));
        assert!(memory("0").is_err() && memory("unlimited").is_err() && memory("8192TiB").is_err());
        assert!([size("0"), size("x"), size("5x"), size("99999999999GiB"), size("-1")].iter().all(Result::is_err));
        assert_eq!((duration("5"), duration("2m")), (Ok(Duration::from_secs(5)), Ok(Duration::from_secs(120))));
        assert!(duration("x").is_err() && duration("500y").is_err() && nonzero_duration("0s").is_err());
        assert_eq!((rate("5/s"), rate("5")), (Ok(5), Ok(5)));
        assert!(rate("0").is_err() && rate("5/m").is_err());
        assert_eq!((mode("0666"), mode("660")), (Ok(0o666), Ok(0o660)));
        assert!(mode("9").is_err() && mode("7777").is_err());
    }
}
