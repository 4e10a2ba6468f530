//! A reconciliation without a result.

use sluice_litellm::spend_log::SpendLogError;
use sluice_state::ledger::LedgerError;

/// A reconciliation without a result.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The ledger does not know the run.
    #[error("there is no run {0} in the ledger; sluice receipts lists those there are")]
    NoRun(String),
    /// The spend log cannot be read.
    #[error(transparent)]
    SpendLog(#[from] SpendLogError),
    /// The ledger cannot be read or written.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl ReconcileError {
    /// Returns whether the error lasts until LiteLLM's configuration is changed.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        matches!(self, Self::SpendLog(error) if error.is_lasting())
    }
}
