//! Withdrawal of a message from the queue, and from a sidecar that may have it.

use http::StatusCode;
use sluice_contract::text::error_chain;
use sluice_state::messages::{MessageError, MessageState, StoredMessage};
use sluice_state::sandboxes::Sandbox;
use sluice_state::store::now_us;

use crate::api_error::ApiError;
use crate::context::ApiContext;
use crate::injection::{self, InjectionError};

/// Takes a message out of the queue, and out of the sidecar if the sidecar has it.
///
/// # Errors
/// 404; 409: the message is being delivered to the agent. 503: the sidecar has it and does not answer, so it may send
/// it or has sent it.
pub(super) async fn withdraw(context: &ApiContext, sandbox: &Sandbox, id: &str) -> Result<StoredMessage, ApiError> {
    let run_id = &sandbox.key.run_id;
    let (removed, before) = context.store.delete_message(run_id, id, now_us()).await?;
    if before != MessageState::Offered {
        return Ok(removed);
    }
    match take_back(context, sandbox).await {
        // Without a sidecar, the message cannot have been delivered.
        Err(InjectionError::Control(error)) if error.is_absent() => return Ok(removed),
        Err(InjectionError::Control(error)) => {
            (context.log)(&format!("run {}: a message is not taken back: {}", sandbox.key, error_chain(&error)));
            return Err(unanswered());
        }
        Err(InjectionError::Messages(MessageError::RunFinished)) | Ok(()) => {}
        Err(InjectionError::Messages(error)) => return Err(error.into()),
    }
    let now = context.store.find_message(run_id, id).await?;
    if now.state == MessageState::Deleted {
        Ok(now)
    } else {
        Err(MessageError::NotChangeable(now.state.as_str()).into())
    }
}

async fn take_back(context: &ApiContext, sandbox: &Sandbox) -> Result<(), InjectionError> {
    injection::push(context, &sandbox.key).await?;
    // After this push, the sidecar has the withdrawn message only if it had already sent it.
    injection::pull(context, &sandbox.key).await
}

fn unanswered() -> ApiError {
    let message = "the message is out of the queue, but the sidecar of this run had it and does not answer; the status of the \
                   message says later whether the agent got it";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "sidecar_unavailable", message)
}
