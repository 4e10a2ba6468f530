//! Refusals of the control socket.
//!
//! Pure.

use std::borrow::Cow;

use http::StatusCode;
use sluice_contract::control::{ControlFailure, ControlFault, INVALID_MEMBER};
use sluice_contract::reason::{AUDIT_UNAVAILABLE, DRAINING};

/// A request that is refused: nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ControlRefusal {
    /// Status of the answer.
    pub(super) status: StatusCode,
    /// Stable word.
    pub(super) code: &'static str,
    /// Message that says what was wrong, and what to do.
    pub(super) message: Cow<'static, str>,
}

impl ControlRefusal {
    /// Creates a refusal.
    #[must_use]
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, code, message: message.into() }
    }

    /// A member that is missing, unknown, or has another type or range.
    #[must_use]
    pub(super) fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, INVALID_MEMBER, message)
    }

    /// The run is ending: a change would have no effect.
    #[must_use]
    pub(super) fn draining() -> Self {
        Self::new(StatusCode::CONFLICT, DRAINING, "the run is ending; nothing can be changed any more")
    }

    /// The change cannot be recorded.
    #[must_use]
    pub(super) fn audit_unavailable() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            AUDIT_UNAVAILABLE,
            "the change cannot be recorded, so it is not made; free the disk of the audit log and start a new attempt",
        )
    }

    /// Returns the body of the answer.
    #[must_use]
    pub(super) fn body(&self) -> Vec<u8> {
        let error = ControlFault { code: self.code.to_owned(), message: self.message.clone().into_owned() };
        serde_json::to_vec(&ControlFailure { error }).expect("texts are JSON")
    }
}
