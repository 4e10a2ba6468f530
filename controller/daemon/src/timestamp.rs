//! Times in answers.
//!
//! Pure.

use sluice_contract::time::from_unix_micros;

/// Returns a time in UTC, of microseconds since 1970.
pub(crate) fn timestamp(us: i64) -> String {
    humantime::format_rfc3339_micros(from_unix_micros(us)).to_string()
}

/// Returns a time in UTC, if there is one.
pub(crate) fn timestamp_of(us: Option<i64>) -> Option<String> {
    us.map(timestamp)
}
