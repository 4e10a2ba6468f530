//! Errors of approvals.

use crate::budget::BudgetError;
use crate::sandboxes::SandboxError;
use crate::store::StoreError;

/// Error of asking for an approval, or of deciding about one.
#[derive(Debug, thiserror::Error)]
pub enum ApprovalError {
    /// The run has no such approval.
    #[error("there is no such approval")]
    NotFound,
    /// The digest does not match the approval, or its cap has changed.
    #[error("the approval has changed since it was read: read it again, and decide on its present digest")]
    Changed,
    /// Another decision came first.
    #[error("the approval was decided already: {0}; read it again")]
    Decided(&'static str),
    /// The new value is not above the present one, which is named as people read it.
    #[error("a cap is only raised: name a value above the present one, {0}")]
    NotRaised(String),
    /// The remaining budget of the account is too small.
    #[error(transparent)]
    Budget(#[from] BudgetError),
    /// The run prevents it.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The database cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<rusqlite::Error> for ApprovalError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(error.into())
    }
}
