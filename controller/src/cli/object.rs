//! The JSON object of a command.
//!
//! Pure. Its members are a promise: `docs/reference/json.md`.

use serde::Serialize;

use super::error::CommandError;

/// The JSON object of a command: the members of all objects, then the command's own.
#[derive(Debug, Serialize)]
pub(super) struct CommandObject<'a, D> {
    ok: bool,
    error_code: Option<&'a str>,
    error_message: Option<&'a str>,
    exit_code: u8,
    #[serde(flatten)]
    data: D,
}

/// Data without members.
#[derive(Debug, Serialize)]
pub(super) struct NoData {}

impl<'a, D: Serialize> CommandObject<'a, D> {
    /// Makes the object of a command that did its work. `data` is an object without the members of this one.
    pub(super) fn done(data: D) -> Self {
        Self { ok: true, error_code: None, error_message: None, exit_code: 0, data }
    }

    /// Makes the object of a command that did its work and found a fault, or could do only a part of its work.
    pub(super) fn failed(error: &'a CommandError, data: D) -> Self {
        Self::failed_with(error.word(), error, data)
    }

    /// Makes the same object with an `error_code` that is more specific than the exit code.
    pub(super) fn failed_with(word: &'a str, error: &'a CommandError, data: D) -> Self {
        Self { ok: false, error_code: Some(word), error_message: Some(&error.message), exit_code: error.code, data }
    }

    /// Makes the object of a command that found a fault, or none.
    pub(super) fn of(error: Option<&'a CommandError>, data: D) -> Self {
        match error {
            None => Self::done(data),
            Some(error) => Self::failed(error, data),
        }
    }
}

impl CommandError {
    /// Returns the JSON object of a command that has no data.
    pub(super) fn object(&self) -> CommandObject<'_, NoData> {
        CommandObject::failed(self, NoData {})
    }
}
