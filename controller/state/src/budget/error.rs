//! Errors of budgets and of their log.

use std::io;
use std::path::PathBuf;

use sluice_contract::{Account, RunKey};

use super::Shortfall;
use super::log::LineFault;
use crate::keys::KeyError;
use crate::ledger::LedgerError;
use crate::store::{StoreError, is_retryable_io};

/// Error of reading or changing a budget, or of admitting a run.
#[derive(Debug, thiserror::Error)]
pub enum BudgetError {
    /// The remaining budget is too small.
    #[error(transparent)]
    Insufficient(Box<Shortfall>),
    /// The account has no budget.
    #[error("account {0} has no budget; sluice budget set {0} USD gives it one")]
    NoBudget(Account),
    /// The account has no budget that could be removed.
    #[error("account {0} has no budget, so nothing limits it; sluice budget show lists the accounts that have one")]
    NothingToRemove(Account),
    /// The amount is too large.
    #[error("a budget of more than nine billion dollars cannot be counted")]
    TooMuch,
    /// The ledger cannot be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The budget log prevents it.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Reason that the budgets of accounts are not known.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The database is older than the log.
    #[error(
        "the budget log {path} has {lines} changes that the database does not know: it is a new one, or an old copy; \
         sluice ledger rebuild restores budgets and receipts"
    )]
    Ahead {
        /// The file of the log.
        path: PathBuf,
        /// Number of changes that the database does not have.
        lines: usize,
    },
    /// Database and log are missing.
    #[error(
        "there are audit files, and neither the database nor the budget log {0} says what accounts may spend; bring one of \
         both back, or: sluice ledger rebuild, sluice budget set ACCOUNT USD for each account with a limit, then sluice \
         budget confirm"
    )]
    Lost(PathBuf),
    /// The log differs from the one that the database recorded.
    #[error(
        "the budget log {path} is damaged: {reason}; the database has all budgets, and sluice budget confirm writes the log \
         anew"
    )]
    Damaged {
        /// The file of the log.
        path: PathBuf,
        /// Description of the damage.
        reason: String,
    },
    /// The log has a line that is not valid, and more records than the database knows.
    #[error(
        "the budget log {0} cannot be trusted, and may have changes that the database does not know; bring back the \
         right one, or, if sluice budget show lists all budgets, sluice budget confirm writes the log anew with these"
    )]
    Forged(PathBuf, #[source] LineFault),
    /// Some spending of the account is not in the database.
    #[error(
        "the database does not know {runs} of the audit files, such as {example}, so what account {account} has spent is not \
         known; sluice ledger rebuild reads them"
    )]
    Behind {
        /// Account with the budget.
        account: String,
        /// Number of runs that the database does not know.
        runs: usize,
        /// One of these runs.
        example: RunKey,
    },
    /// Some spending of the account was in receipts of a lost database, and their files were pruned.
    #[error(
        "the audit files of {runs} runs, such as {example}, were pruned, and the database does not have their receipts, so \
         what account {account} has spent is not known; bring the database back from a backup, or the files from their \
         archive to STATE/audit, then: sluice ledger rebuild; or set what holds from now on: sluice budget set {account} USD"
    )]
    Pruned {
        /// Account with the budget.
        account: String,
        /// Number of pruned runs that the database does not know.
        runs: usize,
        /// One of these runs.
        example: RunKey,
    },
    /// The file of the log cannot be used.
    #[error("cannot use the budget log {0}")]
    Io(PathBuf, #[source] io::Error),
    /// The key of the log cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The database cannot be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl BudgetError {
    /// Returns true if the same request may succeed later without a change by the operator.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            // The holds of other runs end, but no time is known: the caller decides.
            Self::Insufficient(_) | Self::NoBudget(_) | Self::NothingToRemove(_) | Self::TooMuch => false,
            Self::Ledger(error) => error.is_retryable(),
            Self::Log(error) => error.is_retryable(),
        }
    }
}

impl LogError {
    /// Returns true if the same request may succeed later without a change by the operator.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Io(_, error) => is_retryable_io(error),
            Self::Key(error) => error.is_retryable(),
            Self::Ledger(error) => error.is_retryable(),
            Self::Ahead { .. } | Self::Lost(_) | Self::Damaged { .. } | Self::Forged(..) => false,
            Self::Behind { .. } | Self::Pruned { .. } => false,
        }
    }
}

impl From<StoreError> for BudgetError {
    fn from(error: StoreError) -> Self {
        Self::Ledger(error.into())
    }
}

impl From<rusqlite::Error> for BudgetError {
    fn from(error: rusqlite::Error) -> Self {
        StoreError::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn only_passing_faults_are_retryable() {
        let busy = || rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_BUSY), None);
        let io = |kind: io::ErrorKind| LogError::Io("log".into(), kind.into());
        assert!(BudgetError::from(busy()).is_retryable());
        assert!(BudgetError::from(LogError::from(LedgerError::from(busy()))).is_retryable());
        assert!(BudgetError::from(io(io::ErrorKind::StorageFull)).is_retryable());
        assert!(!BudgetError::from(io(io::ErrorKind::NotFound)).is_retryable());
        assert!(!BudgetError::TooMuch.is_retryable());
        assert!(!BudgetError::from(LogError::Lost("log".into())).is_retryable());
        let shortfall = Shortfall { account: "acct".into(), asked: None, balance: super::super::Balance::default() };
        assert!(!BudgetError::Insufficient(Box::new(shortfall)).is_retryable());
    }
}
