//! Parsers of single values.
//!
//! Pure.

use std::time::Duration;

use sluice_contract::{Account, units};
use sluice_runs::sidecar_user::{self, UidRange};
use sluice_runs::virtual_key::KeyMode;

use super::error::InvalidValue;
use super::{LogFormat, ReconcileMode};

type Parsed<T> = Result<T, InvalidValue>;

/// Minimum memory of a container that the engine accepts.
const MEMORY_MIN: u64 = 6 << 20;
/// Minimum memory of a sidecar.
const SIDECAR_MEMORY_MIN: u64 = 64 << 20;
/// Minimum time for which events are kept.
const EVENT_KEEP_MIN: Duration = Duration::from_secs(3600);
/// Maximum stored output of a run.
const OUTPUT_MAX: u64 = 1 << 30;

fn invalid<T>(reason: String) -> Parsed<T> {
    Err(InvalidValue::new(reason))
}

pub(super) fn duration(value: &str) -> Parsed<Duration> {
    units::time(value).map_err(InvalidValue::from)
}

pub(super) fn positive_duration(value: &str) -> Parsed<Duration> {
    match duration(value)? {
        time if time.is_zero() => invalid(format!("'{value}' is too short; give more than 0")),
        time => Ok(time),
    }
}

pub(super) fn size(value: &str) -> Parsed<u64> {
    units::size(value).map_err(InvalidValue::from)
}

pub(super) fn memory(value: &str) -> Parsed<u64> {
    match size(value)? {
        bytes if bytes < MEMORY_MIN => {
            invalid(format!("'{value}' is {bytes} bytes, which is too little; give at least 6m, such as 512m"))
        }
        bytes => Ok(bytes),
    }
}

/// Returns the value of the sidecar's `--max-memory`.
pub(super) fn sidecar_memory(value: &str) -> Parsed<String> {
    if value == "none" {
        return Ok(value.to_owned());
    }
    match size(value)? {
        bytes if bytes < SIDECAR_MEMORY_MIN => {
            invalid(format!("'{value}' is {bytes} bytes, which is too little for a sidecar; give at least 64m"))
        }
        bytes => Ok(bytes.to_string()),
    }
}

pub(super) fn output_max(value: &str) -> Parsed<usize> {
    let bytes = Some(size(value)?).filter(|bytes| *bytes <= OUTPUT_MAX);
    bytes
        .and_then(|bytes| usize::try_from(bytes).ok())
        .ok_or_else(|| InvalidValue::new(format!("'{value}' is more than 1g")))
}

pub(super) fn record_output(value: &str) -> Parsed<usize> {
    output_max(value)
}

pub(super) fn artifacts_max(value: &str) -> Parsed<u64> {
    size(value)
}

pub(super) fn log_format(value: &str) -> Parsed<LogFormat> {
    match value {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => invalid(format!("'{value}' is neither text nor json")),
    }
}

pub(super) fn cpus(value: &str) -> Parsed<u64> {
    units::cpus(value).map_err(InvalidValue::from)
}

pub(super) fn pids(value: &str) -> Parsed<u64> {
    match value.parse() {
        Ok(pids @ 16..=1_000_000) => Ok(pids),
        _ => invalid(format!("'{value}' is not a number of processes; give 16 to 1000000")),
    }
}

pub(super) fn nano_usd(value: &str) -> Parsed<i64> {
    units::nano_usd(value).map_err(InvalidValue::from)
}

pub(super) fn number(value: &str) -> Parsed<u64> {
    value.parse().or_else(|_| invalid(format!("'{value}' is not a number")))
}

/// Returns a number that is not zero.
pub(super) fn count(value: &str) -> Parsed<u32> {
    match value.parse() {
        Ok(count @ 1..) => Ok(count),
        _ => invalid(format!("'{value}' is not a number; give at least 1")),
    }
}

/// Returns the time for which events are kept.
pub(super) fn event_keep(value: &str) -> Parsed<Duration> {
    match duration(value)? {
        // A client that follows a run comes back within this time.
        time if time < EVENT_KEEP_MIN => invalid(format!("'{value}' is too short; give at least 1h")),
        time => Ok(time),
    }
}

/// Returns the part of the disk that has to be free, in percent.
pub(super) fn event_disk_free(value: &str) -> Parsed<u8> {
    match value.parse() {
        Ok(percent @ 0..=50) => Ok(percent),
        _ => invalid(format!("'{value}' is not a number of percent; give 0 to 50")),
    }
}

pub(super) fn boolean(value: &str) -> Parsed<bool> {
    value.parse().or_else(|_| invalid(format!("'{value}' is neither true nor false")))
}

pub(super) fn account(value: &str) -> Parsed<Account> {
    value.parse().map_err(|error| InvalidValue::new(format!("'{value}': {error}")))
}

/// Returns the words of a list that is not empty.
pub(super) fn words(value: &str) -> Parsed<Vec<String>> {
    let words: Vec<_> = value.split_whitespace().map(str::to_owned).collect();
    if words.is_empty() { invalid("it is empty; write HOST:PORT".to_owned()) } else { Ok(words) }
}

/// Returns the names of models. An empty list is refused, since it would allow all models.
pub(super) fn models(value: &str) -> Parsed<Vec<String>> {
    let names: Vec<_> = value.split_whitespace().map(str::to_owned).collect();
    if names.is_empty() { invalid("it names no model".to_owned()) } else { Ok(names) }
}

pub(super) fn uids(value: &str) -> Parsed<UidRange> {
    value.parse().map_err(InvalidValue::new)
}

pub(super) fn gid(value: &str) -> Parsed<u32> {
    sidecar_user::id(value).ok_or_else(|| InvalidValue::new(format!("'{value}' is not a group id other than root's")))
}

pub(super) fn key_mode(value: &str) -> Parsed<KeyMode> {
    match value {
        "master" => Ok(KeyMode::Master),
        "per-run" => Ok(KeyMode::PerRun),
        "auto" => Ok(KeyMode::Auto),
        _ => invalid(format!("'{value}' is none of master, per-run, auto")),
    }
}

pub(super) fn reconcile_mode(value: &str) -> Parsed<ReconcileMode> {
    match value {
        "auto" => Ok(ReconcileMode::Auto),
        "off" => Ok(ReconcileMode::Off),
        _ => invalid(format!("'{value}' is neither auto nor off")),
    }
}

pub(super) fn audit_sync(value: &str) -> Parsed<String> {
    match value {
        "call" | "off" => Ok(value.to_owned()),
        _ => invalid(format!("'{value}' is neither call nor off")),
    }
}
