//! Errors of the registry.

use super::TransitionError;
use crate::store::StoreError;

/// Error of reading or changing agents.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The owner has no such agent.
    #[error("there is no agent {0}")]
    NotFound(String),
    /// The agent has a live run.
    #[error("agent {0} has a live run; wait for its end, or cancel it")]
    HasLiveRun(String),
    /// The agent is CONNECTED.
    #[error("agent {0} is CONNECTED; move it to IDLE or SUSPENDED before it is deleted")]
    Connected(String),
    /// The agent may not have runs.
    #[error("agent {0} may not have runs; register it with allow_sandbox")]
    NotAllowed(String),
    /// The agent is suspended.
    #[error("agent {0} is suspended; end the suspension before it gets a run")]
    Suspended(String),
    /// The move is refused.
    #[error(transparent)]
    Transition(#[from] TransitionError),
    /// The database cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<rusqlite::Error> for AgentError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(error.into())
    }
}
