//! A command that failed.

use serde_json::{Value, json};
use sluice_contract::exit;
use sluice_contract::text::error_chain;

/// The `error_code` of wrong usage.
pub(super) const WRONG_USAGE: &str = "usage";

/// A command that failed: its exit code, and a message.
#[derive(Debug)]
pub(super) struct CommandError {
    pub(super) code: u8,
    pub(super) message: String,
}

impl CommandError {
    pub(super) fn new(code: u8, error: &dyn std::error::Error) -> Self {
        Self { code, message: error_chain(error) }
    }

    /// Returns the error of a command line, or of settings, that is not valid.
    pub(super) fn usage(error: &dyn std::error::Error) -> Self {
        Self::new(exit::USAGE, error)
    }

    /// Returns the error of a command that could not do its work.
    pub(super) fn failed(error: &dyn std::error::Error) -> Self {
        Self::new(exit::FAILED, error)
    }

    /// Returns the error of a run or a reconciliation that did not start.
    pub(super) fn not_started(error: &dyn std::error::Error) -> Self {
        Self::new(exit::NOT_STARTED, error)
    }

    pub(super) fn to_json(&self) -> Value {
        let word = if self.code == exit::USAGE { WRONG_USAGE } else { "failed" };
        error_object(word, self.code, &self.message)
    }
}

/// Returns the JSON object that a failed command prints with `--json`.
pub(super) fn error_object(word: &str, code: u8, message: &str) -> Value {
    json!({ "ok": false, "error_code": word, "error_message": message, "exit_code": code })
}
