//! Messages on stderr as JSON lines, if the setting `log_format` requests them.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use sluice_contract::RunKey;
use sluice_contract::text::truncate;
use sluice_runs::event_log::{EventLog, LogLevel};

/// A process has one stderr.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Writes all messages from now on as JSON lines.
pub(super) fn write_json() {
    IS_JSON.store(true, Ordering::Relaxed);
}

/// Returns whether messages are JSON lines.
pub(super) fn is_json() -> bool {
    IS_JSON.load(Ordering::Relaxed)
}

/// Returns the log of a run on stderr; `None` if messages are text.
pub(super) fn of_run(key: &RunKey) -> Option<EventLog> {
    is_json().then(|| EventLog::to(io::stderr(), Some(key)))
}

/// Writes a message as a JSON line; false if messages are text.
pub(super) fn warn(message: &str) -> bool {
    event(LogLevel::Warning, "message", json!({ "message": truncate(message) }))
}

/// Writes an event that belongs to no single run; false if messages are text.
pub(super) fn event(level: LogLevel, name: &str, members: Value) -> bool {
    if is_json() {
        EventLog::to(io::stderr(), None).write(level, name, members);
    }
    is_json()
}
