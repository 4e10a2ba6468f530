//! Errors of the start: the flag, the cause with its remedy, and the exit code.

use std::path::Path;

/// A start that cannot be: which flag, why, what to do, and the exit code.
#[derive(Debug, thiserror::Error)]
#[error("{flag}: {cause}")]
pub struct StartError {
    /// The flag at fault.
    pub flag: &'static str,
    /// What is wrong, and what to do.
    pub cause: String,
    /// Its exit code.
    pub exit: ProxyExit,
}

/// Exit codes, after `sysexits.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ProxyExit {
    /// All calls ended, everything is written.
    Ok = 0,
    /// Calls had to be cut.
    Cut = 3,
    /// The command line.
    Usage = 64,
    /// A file that is not there.
    NoInput = 66,
    /// A bug, or a system that fails in the middle.
    Software = 70,
    /// A socket or a file that cannot be made.
    CannotCreate = 73,
    /// The audit log.
    Audit = 74,
    /// A question of permission.
    Permission = 77,
    /// Flags that contradict each other or what they name.
    Config = 78,
}

impl StartError {
    /// An error of one flag.
    pub fn new(flag: &'static str, exit: ProxyExit, cause: impl Into<String>) -> Self {
        Self { flag, cause: cause.into(), exit }
    }

    /// An error with the chain of its causes.
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

/// A file that is named and cannot be read.
#[must_use]
pub fn unreadable(flag: &'static str, path: &Path, error: &std::io::Error) -> StartError {
    let (exit, fix) = match error.kind() {
        std::io::ErrorKind::PermissionDenied => (ProxyExit::Permission, "let this user read it"),
        _ => (ProxyExit::NoInput, "name a file that can be read"),
    };
    StartError::new(flag, exit, format!("cannot read {}: {error}; {fix}", path.display()))
}
