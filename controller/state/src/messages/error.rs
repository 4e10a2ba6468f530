//! Errors of messages.

use sluice_contract::RunId;

use super::{CONTENT_MAX, PENDING_MAX};
use crate::idempotency::IdempotencyError;
use crate::store::StoreError;

/// Error of sending, changing or delivering a message.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// The run does not exist.
    #[error("there is no run {}", .0.as_str())]
    NoRun(RunId),
    /// The run no longer takes messages.
    #[error("the run has finished, and takes no messages; send them to a run that goes on")]
    RunFinished,
    /// The run has no such message.
    #[error("the run has no message {0}; list its messages")]
    NotFound(String),
    /// The message is being delivered, or no longer exists.
    #[error("the message is {0}, so it cannot be changed any more")]
    NotChangeable(&'static str),
    /// The text is not valid.
    #[error("content is 1 to {CONTENT_MAX} characters; control characters other than tab and newline are left out")]
    Content,
    /// The run has too many messages that wait.
    #[error("{PENDING_MAX} messages of the run wait for their delivery, which is the limit; wait, or delete some")]
    QueueFull,
    /// The idempotency key prevents it.
    #[error(transparent)]
    Idempotency(#[from] IdempotencyError),
    /// The database cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<rusqlite::Error> for MessageError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(error.into())
    }
}
