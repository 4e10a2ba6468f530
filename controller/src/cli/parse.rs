//! Parsers of values of flags.

use std::time::{Duration, SystemTime};

use sluice_contract::time::unix_micros;
use sluice_contract::{RunKey, units};

use super::error::CommandError;
use crate::settings::InvalidValue;

/// Parses one name without blanks.
pub(super) fn one_word(text: &str) -> Result<String, InvalidValue> {
    if text.is_empty() || text.contains(char::is_whitespace) {
        return Err(InvalidValue::new("write one name without blanks, and repeat the flag for more"));
    }
    Ok(text.to_owned())
}

/// Maximum length of a reason in characters, as in the API.
const REASON_MAX: usize = 500;

/// Parses the reason of an operation.
pub(super) fn reason(text: &str) -> Result<String, InvalidValue> {
    if text.trim().is_empty() || text.chars().count() > REASON_MAX {
        return Err(InvalidValue::new(format!("write a text of 1 to {REASON_MAX} characters that says why")));
    }
    Ok(text.to_owned())
}

/// Parses one route. The sidecar checks the rest.
pub(super) fn one_route(text: &str) -> Result<String, InvalidValue> {
    if text.is_empty() || text.contains(';') {
        return Err(InvalidValue::new("write one route, such as 'POST /v1/rerank', and repeat the flag for more"));
    }
    Ok(text.to_owned())
}

/// Parses a time of at least one second.
pub(super) fn at_least_one_second(text: &str) -> Result<Duration, InvalidValue> {
    match units::time(text).map_err(InvalidValue::from)? {
        time if time < Duration::from_secs(1) => {
            Err(InvalidValue::new(format!("'{text}' is too short; give at least 1s")))
        }
        time => Ok(time),
    }
}

/// Parses RUN or RUN.ATTEMPT: a run, or one attempt of it.
pub(super) fn run_or_attempt(text: &str) -> (String, Option<u32>) {
    match text.parse::<RunKey>() {
        Ok(key) => (key.run_id.to_string(), Some(key.attempt)),
        Err(_) => (text.to_owned(), None),
    }
}

/// Parses the value of `--since` into microseconds since 1970.
pub(super) fn since(text: &str) -> Result<i64, CommandError> {
    time("--since", text)
}

/// Parses the time of a flag, or a duration before now, into microseconds since 1970. A day is its beginning in UTC.
pub(super) fn time(flag: &str, text: &str) -> Result<i64, CommandError> {
    let day = || humantime::parse_rfc3339(&format!("{text}T00:00:00Z"));
    let ago = || humantime::parse_duration(text).ok().and_then(|ago| SystemTime::now().checked_sub(ago));
    let time = humantime::parse_rfc3339_weak(text).or_else(|_| day()).ok().or_else(ago);
    time.and_then(unix_micros).ok_or_else(|| {
        CommandError::wrong_usage(format!(
            "{flag} {text}: want a day, a time such as 2026-11-20T16:00:00Z, or how long ago, such as 24h"
        ))
    })
}
