//! Errors of the daemon's runs.

use sluice_contract::RunId;

use super::lifecycle::IllegalStep;
use crate::agents::AgentError;
use crate::budget::BudgetError;
use crate::idempotency::IdempotencyError;
use crate::store::StoreError;

/// Error of reading or changing a run.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The run does not exist.
    #[error("there is no run {}", .0.as_str())]
    NotFound(RunId),
    /// Another live run of the owner has the name.
    #[error("a live run has the name {0}; wait for its end, or choose another name")]
    NameTaken(String),
    /// A run depends on a run that its owner does not have.
    #[error("depends_on names {0}, which is not a run of this owner")]
    UnknownDependency(String),
    /// The owner has too many runs in the queue.
    #[error("the owner has {0} runs in the queue, which is the limit; wait until some have begun")]
    QueueFull(u32),
    /// The run has changed since the caller has seen it.
    #[error("the run has changed: its generation is {found}; read it, and decide anew")]
    StaleGeneration {
        /// Present generation.
        found: u64,
    },
    /// The step is not possible.
    #[error(transparent)]
    IllegalStep(#[from] IllegalStep),
    /// All automatic attempts were made.
    #[error("the run has had all its {0} retries")]
    RetriesSpent(u32),
    /// The cap is completely spent.
    #[error("the attempts before have spent or still hold the whole cap of the run; a new run needs a cap of its own")]
    CapSpent,
    /// The agent prevents it.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The budget prevents it.
    #[error(transparent)]
    Budget(#[from] BudgetError),
    /// The idempotency key prevents it.
    #[error(transparent)]
    Idempotency(#[from] IdempotencyError),
    /// The database cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<rusqlite::Error> for SandboxError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(error.into())
    }
}
