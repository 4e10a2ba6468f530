//! Answers to errors of agents, runs and idempotency keys.

use http::StatusCode;
use serde_json::json;
use sluice_state::agents::{AgentError, TransitionError};
use sluice_state::chats::{ChatCapError, SessionBusy};
use sluice_state::creation::CreationError;
use sluice_state::events::EventFault;
use sluice_state::idempotency::IdempotencyError;
use sluice_state::messages::MessageError;
use sluice_state::sandboxes::SandboxError;

use crate::api_error::ApiError;
use crate::event_intake::EventRefusal;

/// Seconds after which a session turn without a client may have ended.
const SESSION_RETRY_S: u64 = 2;

fn conflict(code: &'static str, error: &dyn std::error::Error) -> ApiError {
    ApiError::new(StatusCode::CONFLICT, code, error.to_string())
}

impl From<SandboxError> for ApiError {
    fn from(error: SandboxError) -> Self {
        match error {
            SandboxError::NotFound(_) => Self::not_found(),
            SandboxError::NameTaken(_) => conflict("name_taken", &error),
            SandboxError::UnknownDependency(_) => unknown_dependency(),
            SandboxError::QueueFull(_) => Self::too_many("queue_full", error.to_string(), 60),
            SandboxError::StaleGeneration { .. } => conflict("stale_generation", &error),
            SandboxError::IllegalStep(step) => {
                conflict("invalid_state", &step).with_details(json!({ "state": step.state.as_str() }))
            }
            SandboxError::RetriesSpent(_) => conflict("retries_spent", &error),
            SandboxError::CapSpent => conflict("cap_spent", &error),
            SandboxError::Agent(error) => error.into(),
            SandboxError::Budget(error) => error.into(),
            SandboxError::Idempotency(error) => error.into(),
            SandboxError::Store(error) => error.into(),
        }
    }
}

impl From<CreationError> for ApiError {
    fn from(error: CreationError) -> Self {
        match error {
            CreationError::Sandbox(error) => error.into(),
            CreationError::Chat(error) => error.into(),
            CreationError::Session(error) => error.into(),
        }
    }
}

/// Returns the answer to a dependency that the owner does not have. It is the same for one of another owner.
pub(super) fn unknown_dependency() -> ApiError {
    let message = "depends_on names a run that you do not have; list your runs";
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "unknown_dependency", message)
        .with_details(json!({ "field": "depends_on" }))
}

impl From<ChatCapError> for ApiError {
    fn from(error: ChatCapError) -> Self {
        match error {
            ChatCapError::Runs { wait_us, .. } => {
                let seconds = u64::try_from(wait_us / 1_000_000).unwrap_or_default();
                Self::too_many("chat_runs_spent", error.to_string(), seconds.saturating_add(1))
            }
            ChatCapError::Cost | ChatCapError::OneChat { .. } => {
                Self::new(StatusCode::PAYMENT_REQUIRED, "insufficient_credits", error.to_string())
            }
        }
    }
}

impl From<SessionBusy> for ApiError {
    fn from(error: SessionBusy) -> Self {
        conflict("session_busy", &error).retry_after(SESSION_RETRY_S)
    }
}

impl From<MessageError> for ApiError {
    fn from(error: MessageError) -> Self {
        match error {
            MessageError::NoRun(_) | MessageError::NotFound(_) => Self::not_found(),
            MessageError::RunFinished => conflict("run_finished", &error),
            MessageError::NotChangeable(_) => conflict("message_delivered", &error),
            MessageError::Content => Self::invalid("content", error.to_string()),
            MessageError::QueueFull => Self::too_many("message_queue_full", error.to_string(), 5),
            MessageError::Idempotency(error) => error.into(),
            MessageError::Store(error) => error.into(),
        }
    }
}

impl From<AgentError> for ApiError {
    fn from(error: AgentError) -> Self {
        match error {
            AgentError::NotFound(_) => Self::not_found(),
            AgentError::HasLiveRun { .. } => conflict("agent_busy", &error),
            AgentError::Connected(_) => conflict("agent_connected", &error),
            AgentError::NotAllowed(_) => Self::new(StatusCode::FORBIDDEN, "sandbox_not_allowed", error.to_string()),
            AgentError::Suspended(_) => Self::new(StatusCode::FORBIDDEN, "agent_suspended", error.to_string()),
            AgentError::Transition(TransitionError::AdminOnly) => {
                Self::new(StatusCode::FORBIDDEN, "admin_only", TransitionError::AdminOnly.to_string())
            }
            AgentError::Transition(error @ TransitionError::StaleGeneration { .. }) => {
                conflict("stale_generation", &error)
            }
            AgentError::Transition(error) => conflict("invalid_transition", &error),
            AgentError::Store(error) => error.into(),
        }
    }
}

impl From<EventRefusal> for ApiError {
    fn from(error: EventRefusal) -> Self {
        let full = |error: &EventRefusal| {
            Self::new(StatusCode::SERVICE_UNAVAILABLE, "event_store_full", format!("{error}; send it again later"))
        };
        match error {
            EventRefusal::TooMany { wait } => {
                Self::too_many("event_rate", error.to_string(), wait.as_secs().saturating_add(1))
            }
            EventRefusal::Full => full(&error),
            EventRefusal::Fault(fault) => fault.into(),
            EventRefusal::Store(error) => error.into(),
        }
    }
}

impl From<EventFault> for ApiError {
    fn from(fault: EventFault) -> Self {
        match fault {
            EventFault::Type => Self::invalid("event_type", fault.to_string()),
            EventFault::ReservedType => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "reserved_event_type", fault.to_string())
            }
            EventFault::TooLarge(_) | EventFault::OverQuota { .. } => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "event_too_large", fault.to_string())
            }
            EventFault::Json(_) => Self::invalid("event_data", fault.to_string()),
        }
    }
}

impl From<IdempotencyError> for ApiError {
    fn from(error: IdempotencyError) -> Self {
        match error {
            IdempotencyError::Invalid => Self::invalid("Idempotency-Key", error.to_string()),
            IdempotencyError::OtherRequest => conflict("idempotency_conflict", &error),
            IdempotencyError::InUse | IdempotencyError::Lost => conflict("idempotency_in_use", &error),
            IdempotencyError::TooMany => Self::too_many("idempotency_keys", error.to_string(), 3600),
            IdempotencyError::Store(error) => error.into(),
        }
    }
}
