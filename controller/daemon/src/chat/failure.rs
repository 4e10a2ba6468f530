//! Failures of chats, with the words and statuses of the chat routes.
//!
//! Pure. The text of a failed program is left out, because it may contain anything.

use http::StatusCode;

/// A kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChatFailureKind {
    InvalidRequest,
    InsufficientCredits,
    Timeout,
    Aborted,
    RateLimit,
    Internal,
    ProviderUnavailable,
}

/// A failed chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChatFailure {
    pub(crate) kind: ChatFailureKind,
    pub(crate) message: String,
}

impl ChatFailureKind {
    /// Returns the stable word.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::InsufficientCredits => "insufficient_credits",
            Self::Timeout => "timeout",
            Self::Aborted => "aborted",
            Self::RateLimit => "rate_limit",
            Self::Internal => "internal",
            Self::ProviderUnavailable => "provider_unavailable",
        }
    }

    /// Returns the HTTP status of an answer that has only this failure.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::InvalidRequest => StatusCode::BAD_REQUEST,
            Self::InsufficientCredits => StatusCode::PAYMENT_REQUIRED,
            Self::Timeout | Self::Aborted => StatusCode::REQUEST_TIMEOUT,
            Self::RateLimit => StatusCode::TOO_MANY_REQUESTS,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::ProviderUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl ChatFailure {
    /// Returns the failure of a run that ended with this failure code.
    pub(crate) fn of_code(code: &str) -> Self {
        use ChatFailureKind::{Aborted, InsufficientCredits, Internal, Timeout};
        let (kind, message) = match code {
            "timeout" | "idle_timeout" | "ttl_expired" | "stuck_running" | "heartbeat_timeout" | "stale_start" => {
                (Timeout, "the agent took too long, and was ended")
            }
            "interrupted" | "cancelled" => (Aborted, "the run was ended before it had answered"),
            "insufficient_credits" | "budget_exceeded" => {
                (InsufficientCredits, "the account has no credits left for this chat")
            }
            "creation_failed" => (Internal, "the sandbox of the agent could not be made; try again"),
            "bad_envelope" => (Internal, "the agent printed something else than its answer"),
            "oom_killed" => (Internal, "the agent needed more memory than it has"),
            _ => (Internal, "the agent failed before it had answered"),
        };
        Self { kind, message: format!("{message} ({code})") }
    }

    /// Returns the failure of a run whose program failed after its last call got this status; `None` if that call succeeded.
    pub(crate) fn of_last_call(status: Option<u16>) -> Option<Self> {
        use ChatFailureKind::{InsufficientCredits, InvalidRequest, ProviderUnavailable, RateLimit};
        let (kind, message) = match status {
            Some(200..=299) => return None,
            Some(402) => (InsufficientCredits, "the account has no credits left for this chat"),
            Some(408 | 429) => (RateLimit, "the model takes no more calls now; try again later"),
            Some(400 | 404 | 413 | 422) => (InvalidRequest, "the model refused what the agent asked of it"),
            _ => (ProviderUnavailable, "the model cannot be reached now; try again later"),
        };
        Some(Self { kind, message: message.to_owned() })
    }

    /// Returns the failure of an answer that was cut off: the daemon stops, the token was revoked, or the state cannot be
    /// read. The run itself may continue.
    pub(crate) fn broken_off() -> Self {
        let message =
            "the answer broke off, and its run may go on; send the request again with the same Idempotency-Key";
        Self { kind: ChatFailureKind::Internal, message: message.to_owned() }
    }

    /// Returns the failure of an answer that is too large without streaming.
    pub(crate) fn too_large() -> Self {
        let message = "the answer has more than 16 MiB; ask for a stream (\"stream\": true)";
        Self { kind: ChatFailureKind::Internal, message: message.to_owned() }
    }

    /// Returns the failure of a run that was cancelled.
    pub(crate) fn cancelled() -> Self {
        Self { kind: ChatFailureKind::Aborted, message: "the run was cancelled before it had answered".to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_its_status() {
        for (code, status) in [
            ("timeout", 408),
            ("cancelled", 408),
            ("insufficient_credits", 402),
            ("container_failed", 500),
            ("no_such_code", 500),
            ("bad_envelope", 500),
        ] {
            let failure = ChatFailure::of_code(code);
            assert_eq!(failure.kind.status(), status, "{code}");
            assert!(failure.message.ends_with(&format!("({code})")), "{failure:?}");
        }
    }
    #[test]
    fn a_failed_call_explains_a_failed_program() {
        let kind = |status| ChatFailure::of_last_call(status).map(|failure| failure.kind.as_str());
        assert_eq!(kind(Some(200)), None);
        assert_eq!((kind(Some(402)), kind(Some(429))), (Some("insufficient_credits"), Some("rate_limit")));
        assert_eq!((kind(Some(502)), kind(None)), (Some("provider_unavailable"), Some("provider_unavailable")));
        assert_eq!(kind(Some(400)), Some("invalid_request"));
    }
}
