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
    #[error("agent {agent} has a live run, {run}; wait for its end, or cancel it")]
    HasLiveRun {
        /// The agent.
        agent: String,
        /// Id of the run.
        run: String,
    },
    /// The agent is CONNECTED.
    #[error("agent {0} is CONNECTED; wait for the end of its run, or cancel it; suspend the agent if it has no run")]
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
