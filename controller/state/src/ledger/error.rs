//! Errors of the ledger, and which of them are temporary.

use std::io;
use std::path::PathBuf;

use sluice_contract::RunKey;

use crate::decisions::DecisionError;
use crate::store::{StoreError, is_damage, is_retryable_io};

/// Error of reading or writing the ledger.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The ledger has other content under this name. Neither is changed; a person has to decide.
    #[error("the ledger has another {reference}: its hash is {known}, and the audit file's is {found}")]
    Conflict {
        /// Name of the row.
        reference: String,
        /// Hash in the ledger.
        known: String,
        /// Hash of the new content.
        found: String,
    },
    /// The call has another end in the ledger.
    #[error("the ledger has {reference} as {status} already, which this cannot follow")]
    Late {
        /// Name of the new entry.
        reference: String,
        /// Status of the receipt.
        status: &'static str,
    },
    /// SQLite found the file to be damaged.
    #[error("the database is damaged: {0}; restore a backup, then sluice ledger rebuild")]
    Damaged(String),
    /// An audit file cannot be read.
    #[error("cannot read the audit file of run {0}")]
    UnreadableAudit(RunKey, #[source] io::Error),
    /// The directory of the audit files cannot be read.
    #[error("cannot list {0}")]
    UnreadableDirectory(PathBuf, #[source] io::Error),
    /// The backup cannot be written.
    #[error("cannot write {0}")]
    Backup(PathBuf, #[source] io::Error),
    /// The log of decisions cannot be used.
    #[error(transparent)]
    Decisions(#[from] DecisionError),
    /// The database cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl LedgerError {
    /// Returns true if the ledger refused content that contradicts its rows.
    #[must_use]
    pub fn is_contradiction(&self) -> bool {
        matches!(self, Self::Conflict { .. } | Self::Late { .. })
    }

    /// Returns true if the same request may succeed later without a change by the operator: the database is locked, or
    /// the disk or the memory is full.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Store(error) => error.is_retryable(),
            Self::Decisions(error) => error.is_retryable(),
            Self::UnreadableAudit(_, error) | Self::UnreadableDirectory(_, error) | Self::Backup(_, error) => {
                is_retryable_io(error)
            }
            Self::Conflict { .. } | Self::Late { .. } | Self::Damaged(_) => false,
        }
    }
}

impl From<rusqlite::Error> for LedgerError {
    fn from(error: rusqlite::Error) -> Self {
        if is_damage(&error) { Self::Damaged(error.to_string()) } else { Self::Store(error.into()) }
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn only_passing_faults_are_retryable() {
        let sqlite = |code| LedgerError::from(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
        assert!(sqlite(ffi::SQLITE_BUSY).is_retryable());
        assert!(sqlite(ffi::SQLITE_FULL).is_retryable());
        assert!(!sqlite(ffi::SQLITE_CORRUPT).is_retryable());
        assert!(LedgerError::Backup("copy".into(), io::ErrorKind::StorageFull.into()).is_retryable());
        assert!(!LedgerError::Backup("copy".into(), io::ErrorKind::AlreadyExists.into()).is_retryable());
        assert!(!LedgerError::Late { reference: "r1/0/a".into(), status: "settled" }.is_retryable());
    }
}
