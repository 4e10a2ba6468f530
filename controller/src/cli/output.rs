//! Output of commands: data on stdout, messages on stderr.

use std::io::{self, Write};
use std::process::ExitCode;

use sluice_contract::text::truncate;
use sluice_runs::terminal::SanitizedWriter;

use super::error::CommandError;
use super::stderr_log;

/// Format of a command's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputFormat {
    /// Text for people.
    Text,
    /// One JSON object.
    Json,
}

impl From<bool> for OutputFormat {
    /// Returns the format for the flag `--json`.
    fn from(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

/// Prints the message of an error, and returns its exit code.
pub(super) fn fail(error: &CommandError) -> ExitCode {
    say(&error.message);
    ExitCode::from(error.code)
}

/// Prints a message to stderr, sanitized and truncated since it may contain foreign text.
pub(super) fn say(message: &str) {
    if !stderr_log::warn(message) {
        let _ = writeln!(io::stderr(), "sluice: {}", truncate(message));
    }
}

/// Writes data to stdout, sanitized since it may contain foreign text.
pub(super) fn put(bytes: &[u8]) -> io::Result<()> {
    SanitizedWriter::new(io::stdout().lock()).put(bytes)
}

/// Prints data to stdout. It is not an error if the reader has closed stdout.
pub(super) fn print(text: &str) {
    let _ = put(text.as_bytes());
}

/// Prints an object to stdout as indented JSON.
pub(super) fn print_json(value: &impl serde::Serialize) {
    let text = serde_json::to_string_pretty(value).expect("plain data");
    print(&format!("{text}\n"));
}

/// Returns a value for a table, or a dash.
pub(super) fn dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}
