//! Exit codes of both programs. They are stable: scripts match on them.
//!
//! Pure.

/// Exit codes of the sidecar, after `sysexits.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum SidecarExit {
    /// All calls ended, and everything is written.
    Ok = 0,
    /// Some calls had to be cut.
    Cut = 3,
    /// The command line is wrong.
    Usage = 64,
    /// A file does not exist.
    NoInput = 66,
    /// A bug, or a system call that failed midway.
    Software = 70,
    /// A socket or a file cannot be created.
    CannotCreate = 73,
    /// The audit log cannot be opened, or is incomplete.
    Audit = 74,
    /// A permission is missing.
    Permission = 77,
    /// The flags contradict each other, or what they name.
    Config = 78,
}

impl SidecarExit {
    /// Returns true if a process that ended with this code has an incomplete audit log.
    #[must_use]
    pub fn is_audit_failure(code: i32) -> bool {
        code == i32::from(Self::Audit as u8)
    }
}

/// Exit code of `sluice` when a command failed, or an audit file was altered.
pub const FAILED: u8 = 1;
/// Exit code of `sluice` when the command line or the settings are wrong; 125 for `sluice run` and `sluice rerun`.
pub const USAGE: u8 = 2;
/// Exit code of `sluice audit verify` when a part of the file is missing, such as its end.
pub const INCOMPLETE: u8 = 3;
/// Exit code of `sluice audit verify` when there is no such file or run, or it cannot be read, or is not an audit file.
pub const UNREADABLE: u8 = 4;
/// Exit code of `sluice audit verify` when the file is valid, and the database does not know its run.
pub const UNKNOWN_RUN: u8 = 5;
/// Exit code of `sluice audit verify` when the key that signed the file is not trusted, or no key has signed it.
pub const UNKNOWN_KEY: u8 = 6;
/// Exit code of `sluice` when its output cannot be written (`EX_IOERR` of `sysexits.h`).
pub const OUTPUT_FAILED: u8 = 74;
/// Exit code of `sluice` when the reader of its output is gone: 128 and the number of SIGPIPE.
pub const READER_GONE: u8 = 141;
/// Exit code of `sluice run` when the audit log of the run is incomplete.
pub const AUDIT_INCOMPLETE: u8 = 120;
/// Exit code of `sluice run` when a cap is reached, or the account's budget has too little left.
pub const BUDGET: u8 = 121;
/// Exit code of `sluice ledger` and `sluice reconcile` when two accounts of the same calls differ.
pub const MISMATCH: u8 = 122;
/// Exit code of `sluice run` when the run lasted too long.
pub const TIMEOUT: u8 = 124;
/// Exit code of `sluice run` when the program did not start.
pub const NOT_STARTED: u8 = 125;
