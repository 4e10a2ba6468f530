//! Errors of budgets and of their log.

use std::io;
use std::path::PathBuf;

use sluice_contract::{Account, RunKey};

use super::Shortfall;
use super::log::LineFault;
use crate::keys::KeyError;
use crate::ledger::LedgerError;
use crate::store::StoreError;

/// Why a budget cannot be told or changed, or a run not be admitted.
#[derive(Debug, thiserror::Error)]
pub enum BudgetError {
    /// There is not enough of it.
    #[error(transparent)]
    Short(Box<Shortfall>),
    /// There is none.
    #[error("account {0} has no budget; sluice budget set {0} USD gives it one")]
    None(Account),
    /// It cannot be counted.
    #[error("a budget of more than nine billion dollars cannot be counted")]
    TooMuch,
    /// The ledger cannot tell.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// It is not known what accounts may spend.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Why it is not known what accounts may spend.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The database is older than the log.
    #[error(
        "the budget log {path} has {lines} changes that the database does not know: it is a new one, or an old copy; \
         sluice ledger rebuild restores budgets and receipts"
    )]
    Ahead {
        /// The log.
        path: PathBuf,
        /// How many.
        lines: usize,
    },
    /// Both are gone.
    #[error(
        "there are audit files, and neither the database nor the budget log {0} says what accounts may spend; bring one of \
         both back, or: sluice ledger rebuild, sluice budget set ACCOUNT USD for each account with a limit, then sluice \
         budget confirm"
    )]
    Lost(PathBuf),
    /// The database knows another log.
    #[error(
        "the budget log {path} is damaged: {reason}; the database has all budgets, and sluice budget confirm writes the log \
         anew"
    )]
    Damaged {
        /// The log.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Lines that the database does not know cannot be trusted.
    #[error(
        "the budget log {0} cannot be trusted; bring back the right one, or move it away, set the budgets that hold, and \
         sluice budget confirm"
    )]
    Forged(PathBuf, #[source] LineFault),
    /// What an account has spent is not all in the database.
    #[error(
        "the database does not know {runs} of the audit files, such as {example}, so what account {account} has spent is not \
         known; sluice ledger rebuild reads them"
    )]
    Behind {
        /// Whose budget.
        account: String,
        /// How many.
        runs: usize,
        /// One of them.
        example: RunKey,
    },
    /// The file cannot be used.
    #[error("cannot use the budget log {0}")]
    Io(PathBuf, #[source] io::Error),
    /// It cannot be signed.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The database does not answer.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
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
