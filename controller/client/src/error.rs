//! A request without a usable answer.

use std::io;
use std::time::Duration;

use serde_json::Value;
use sluice_upstream::ConnectError;

/// Reason that a request has no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nothing was sent.
    #[error("cannot connect to {0}")]
    Unreachable(String, #[source] io::Error),
    /// The request was sent, at least in part, and its answer is incomplete.
    #[error("{0} broke off its answer to {1}")]
    Interrupted(String, String, #[source] io::Error),
    /// The answer did not come in time.
    #[error("{0} did not answer {1} within {2:?}")]
    Late(String, String, Duration),
    /// The answer, or one line of it, is too long.
    #[error("the answer of {0} to {1} is longer than {2} bytes; is it a sluice daemon?")]
    TooLong(String, String, usize),
    /// The answer is not one of this API.
    #[error("the answer of {0} to {1} is not one of this API; is it a sluice daemon of this version?")]
    Malformed(String, String, #[source] serde_json::Error),
    /// An answer that is neither a success nor an error of this API.
    #[error("{0} answered {1} with status {2}, and not as this API does; is it a sluice daemon?")]
    Status(String, String, u16),
    /// The API refused the request.
    #[error(transparent)]
    Api(ApiFailure),
}

/// An error of the API. Its texts are sanitised.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiFailure {
    /// Status of the answer.
    pub status: u16,
    /// Stable word.
    pub code: String,
    /// Message with the fault and the fix.
    pub message: String,
    /// Facts for programs.
    pub details: Option<Value>,
}

impl ClientError {
    /// Returns whether the same request may succeed later: the server was not reachable, broke off its answer, did not
    /// answer in time, or was busy.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable(..) | Self::Interrupted(..) | Self::Late(..) => true,
            Self::Api(failure) => matches!(failure.status, 429 | 502 | 503 | 504),
            Self::Status(.., status) => matches!(status, 502..=504),
            Self::TooLong(..) | Self::Malformed(..) => false,
        }
    }

    /// Returns whether the server may have made a requested change although its answer is missing.
    #[must_use]
    pub fn may_be_done(&self) -> bool {
        match self {
            Self::Interrupted(_, request, _) | Self::Late(_, request, _) => !request.starts_with("GET "),
            _ => false,
        }
    }

    /// Returns whether the client does not trust the authority that signed the server's certificate.
    #[must_use]
    pub fn is_unknown_authority(&self) -> bool {
        let Self::Unreachable(_, error) = self else { return false };
        let Some(cause) = error.get_ref() else { return false };
        cause.downcast_ref::<ConnectError>().is_some_and(ConnectError::is_unknown_authority)
    }

    /// Returns the error of the API, if it is one.
    #[must_use]
    pub fn failure(&self) -> Option<&ApiFailure> {
        match self {
            Self::Api(failure) => Some(failure),
            _ => None,
        }
    }
}
