//! Errors of the start: the flag, the cause with its remedy, and the exit code.

use std::path::Path;

/// Error of the start.
#[derive(Debug, thiserror::Error)]
#[error("{flag}: {cause}")]
pub struct StartError {
    /// Flag at fault.
    pub flag: &'static str,
    /// Cause and remedy.
    pub cause: String,
    /// Exit code of the process.
    pub exit: ProxyExit,
}

/// Exit codes, after `sysexits.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ProxyExit {
    /// All calls ended, and everything is written.
    Ok = 0,
    /// Some calls were cut.
    Cut = 3,
    /// The command line is wrong.
    Usage = 64,
    /// A file does not exist.
    NoInput = 66,
    /// A bug, or a failure of the system in the middle of the run.
    Software = 70,
    /// A socket or a file cannot be created.
    CannotCreate = 73,
    /// The audit log cannot be used.
    Audit = 74,
    /// A permission is missing.
    Permission = 77,
    /// Flags contradict each other, or the files that they name.
    Config = 78,
}

impl StartError {
    /// Creates an error of one flag.
    pub fn new(flag: &'static str, exit: ProxyExit, cause: impl Into<String>) -> Self {
        Self { flag, cause: cause.into(), exit }
    }

    /// Creates an error of one flag from an error and the chain of its causes.
    pub fn caused(flag: &'static str, exit: ProxyExit, error: &dyn std::error::Error) -> Self {
        let mut cause = error.to_string();
        let mut next = error.source();
        while let Some(error) = next {
            cause.push_str(&format!(": {error}"));
            next = error.source();
        }
        Self { flag, cause, exit }
    }
}

/// Creates the error of a file that cannot be read.
#[must_use]
pub fn unreadable(flag: &'static str, path: &Path, error: &std::io::Error) -> StartError {
    let (exit, fix) = match error.kind() {
        std::io::ErrorKind::PermissionDenied => (ProxyExit::Permission, "let this user read it"),
        _ => (ProxyExit::NoInput, "name a file that can be read"),
    };
    StartError::new(flag, exit, format!("cannot read {}: {error}; {fix}", path.display()))
}
