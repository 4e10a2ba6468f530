//! Errors of the start: the flag, the cause with its remedy, and the exit code.

use std::path::Path;

pub use sluice_contract::SidecarExit;
use sluice_contract::text::error_chain;

/// Error of the start.
#[derive(Debug, thiserror::Error)]
#[error("{flag}: {cause}")]
pub struct StartError {
    /// Flag at fault.
    pub flag: &'static str,
    /// Cause and remedy.
    pub cause: String,
    /// Exit code of the process.
    pub exit: SidecarExit,
}

impl StartError {
    /// Creates an error of one flag.
    pub fn new(flag: &'static str, exit: SidecarExit, cause: impl Into<String>) -> Self {
        Self { flag, cause: cause.into(), exit }
    }

    /// Creates an error of one flag from an error and the chain of its causes.
    pub fn caused(flag: &'static str, exit: SidecarExit, error: &dyn std::error::Error) -> Self {
        Self { flag, cause: error_chain(error), exit }
    }
}

/// Creates the error of a file that cannot be read.
#[must_use]
pub fn unreadable(flag: &'static str, path: &Path, error: &std::io::Error) -> StartError {
    let (exit, fix) = match error.kind() {
        std::io::ErrorKind::PermissionDenied => (SidecarExit::Permission, "let this user read it"),
        _ => (SidecarExit::NoInput, "name a file that can be read"),
    };
    StartError::new(flag, exit, format!("cannot read {}: {error}; {fix}", path.display()))
}
