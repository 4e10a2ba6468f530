//! Sending of a message to the queue: checked, counted, recorded, stored.

use std::time::Duration;

use serde_json::json;
use sluice_contract::Hash;
use sluice_state::control_log::ControlEntry;
use sluice_state::messages::{MessageError, MessageToSend, StoredMessage, clean_content, type_word};
use sluice_state::sandboxes::{Sandbox, SandboxState};
use sluice_state::store::now_us;
use tokio::time::timeout;

use crate::api::idempotent::{IdempotentRepeat, RequestKey, release};
use crate::api::sandboxes::{note_work, record};
use crate::api_error::ApiError;
use crate::context::ApiContext;
use crate::conversations::Counted;
use crate::injection;
use crate::principal::Principal;

/// Maximum time that a request waits until the sidecar has its message.
const PUSH_WITHIN: Duration = Duration::from_secs(5);

/// The run that receives a message, and the sender.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentTo<'a> {
    pub(super) context: &'a ApiContext,
    pub(super) principal: &'a Principal,
    pub(super) sandbox: &'a Sandbox,
    /// Hash of the request.
    pub(super) digest: Hash,
}

/// Sends a message. A request that was made before returns the message that it made.
///
/// # Errors
/// 409: the run has finished, or the key belongs to another request. 422: the text is not valid. 429: too many messages.
pub(super) async fn send_message(
    to: SentTo<'_>,
    operation: &str,
    new: MessageToSend,
    key: RequestKey,
) -> Result<StoredMessage, ApiError> {
    let SentTo { context, principal, sandbox, digest } = to;
    let content = clean_content(&new.content)?;
    let key = match key.reserve(context, principal, digest).await? {
        IdempotentRepeat::Done(id) => return Ok(context.store.find_message(&sandbox.key.run_id, &id).await?),
        IdempotentRepeat::New(key) => key,
    };
    match store(to, operation, MessageToSend { content, idempotency: key.clone(), ..new }).await {
        Ok(message) => Ok(message),
        Err(error) => {
            release(context, key).await;
            Err(error)
        }
    }
}

async fn store(to: SentTo<'_>, operation: &str, new: MessageToSend) -> Result<StoredMessage, ApiError> {
    let SentTo { context, principal, sandbox, digest } = to;
    if sandbox.state.is_ended() || sandbox.verdict.is_some() {
        return Err(MessageError::RunFinished.into());
    }
    let run_id = &sandbox.key.run_id;
    context.conversations.count(Counted::Message, run_id.as_str()).map_err(|wait| {
        let message = "this run gets more messages than it may in a minute; wait as Retry-After says";
        ApiError::too_many("message_rate", message, wait.as_secs() + 1)
    })?;
    // The text itself stays with the run: the log is kept for longer, and has other readers.
    let after = json!({
        "characters": new.content.chars().count(),
        "message_id": new.id,
        "message_type": type_word(new.message_type),
        "sha256": Hash::of(new.content.as_bytes()).to_hex(),
    });
    let entry = ControlEntry { request: Some(digest), after: Some(after), ..ControlEntry::default() };
    let seq = record(context, principal, operation, sandbox, entry).await?;
    match context.store.add_message(run_id, new, now_us()).await {
        Ok(message) => {
            note_work(context, &sandbox.key).await;
            if sandbox.state == SandboxState::Running {
                // After the answer, the next call has the message. A slow sidecar gets it later, from the task of the
                // run.
                let _ = timeout(PUSH_WITHIN, injection::push(context, &sandbox.key)).await;
            }
            Ok(message)
        }
        Err(error) => Err(context.record_failure(principal, operation, seq, error.into()).await),
    }
}
