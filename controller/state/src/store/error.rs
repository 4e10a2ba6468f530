//! Errors of the database, and which of them are temporary.

use std::io;
use std::path::PathBuf;

use rusqlite::ErrorCode;
use sluice_contract::RunKey;

use super::migrations::SCHEMA;

/// Error of the database.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database cannot be opened.
    #[error("cannot open the database {0}")]
    Open(PathBuf, #[source] rusqlite::Error),
    /// A newer build wrote the database.
    #[error("the database {path} has schema {found}, and this build knows {SCHEMA}; use the newer sluice")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Schema of the file.
        found: u32,
    },
    /// An older build wrote the database, or the file is not a database of runs.
    #[error("the database {path} has schema {found}, and this build reads {SCHEMA}; the next run upgrades its own")]
    Older {
        /// The file.
        path: PathBuf,
        /// Schema of the file.
        found: u32,
    },
    /// SQLite found the file to be damaged.
    #[error(
        "the database {path} is damaged: {why}; restore a copy that sluice ledger backup made, then run sluice ledger rebuild"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// SQLite's message.
        why: String,
    },
    /// A run of this name exists.
    #[error("there is a run {0} already; a run id is used once")]
    Exists(RunKey),
    /// Another controller has taken over the run.
    #[error("run {0} is driven by another controller now")]
    Stale(RunKey),
    /// SQLite reported an error.
    #[error("cannot use the database")]
    Sqlite(#[from] rusqlite::Error),
    /// The thread of the database has ended.
    #[error("the database is closed")]
    Closed,
}

impl StoreError {
    /// Returns true if the same request may succeed later without a change by the operator: the database is locked, or
    /// the disk or the memory is full.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Open(_, error) | Self::Sqlite(error) => is_retryable_sqlite(error),
            Self::Newer { .. }
            | Self::Older { .. }
            | Self::Damaged { .. }
            | Self::Exists(_)
            | Self::Stale(_)
            | Self::Closed => false,
        }
    }
}

/// Returns true if SQLite reports that the file itself is damaged.
pub(crate) fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

// A failed write or sync of the disk is final: afterwards, the content of the file is unknown.
fn is_retryable_sqlite(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    code.is_some_and(|code| {
        matches!(
            code,
            ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::DiskFull
                | ErrorCode::OutOfMemory
                | ErrorCode::FileLockingProtocolFailed
        )
    })
}

/// Returns true if the same use of a file may succeed later without a change by the operator.
pub(crate) fn is_retryable_io(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, OutOfMemory, QuotaExceeded, ResourceBusy, StorageFull, TimedOut, WouldBlock};
    matches!(
        error.kind(),
        Interrupted | OutOfMemory | QuotaExceeded | ResourceBusy | StorageFull | TimedOut | WouldBlock
    )
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn locks_and_full_disks_are_retryable() {
        let sqlite = |code| StoreError::from(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
        for (code, expected) in [
            (ffi::SQLITE_BUSY, true),
            (ffi::SQLITE_BUSY_SNAPSHOT, true),
            (ffi::SQLITE_LOCKED, true),
            (ffi::SQLITE_FULL, true),
            (ffi::SQLITE_NOMEM, true),
            (ffi::SQLITE_IOERR_FSYNC, false),
            (ffi::SQLITE_CORRUPT, false),
            (ffi::SQLITE_READONLY, false),
            (ffi::SQLITE_CONSTRAINT, false),
        ] {
            assert_eq!(sqlite(code).is_retryable(), expected, "{code}");
        }
        let key: RunKey = "r1.0".parse().expect("a key");
        for error in [StoreError::Stale(key.clone()), StoreError::Exists(key), StoreError::Closed] {
            assert!(!error.is_retryable(), "{error}");
        }
    }

    #[test]
    fn full_disks_are_retryable_and_missing_files_are_not() {
        for (kind, expected) in [
            (io::ErrorKind::StorageFull, true),
            (io::ErrorKind::QuotaExceeded, true),
            (io::ErrorKind::Interrupted, true),
            (io::ErrorKind::NotFound, false),
            (io::ErrorKind::PermissionDenied, false),
        ] {
            assert_eq!(is_retryable_io(&kind.into()), expected, "{kind}");
        }
    }
}
