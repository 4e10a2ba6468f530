//! A later turn of a session with a live worker: sends the user's new message to the running agent.

use serde_json::json;
use sluice_contract::Hash;
use sluice_contract::control::MessageType;
use sluice_state::chats::{ChatTurnError, ChatWorker, NewChatTurn};
use sluice_state::control_log::ControlEntry;
use sluice_state::idempotency::IdempotencyKey;
use sluice_state::messages::{InjectMode, MessageError, MessageToSend, message_id};
use sluice_state::store::now_us;

use super::sandboxes::{note_work, take_creation};
use crate::api_error::ApiError;
use crate::chat::prompt;
use crate::chat::request::ChatRequest;
use crate::context::ApiContext;
use crate::principal::Principal;

/// Sends a turn to the worker of its session. Returns the position of the event log before the turn.
///
/// # Errors
/// 400: the message is not one for a worker. 409 `session_busy`: the worker has another turn, or ends. 429: a cap of
/// the token.
pub(super) async fn give_turn(
    context: &ApiContext,
    principal: &Principal,
    (worker, request): (&ChatWorker, &ChatRequest),
    (digest, is_resumable): (Hash, bool),
    key: Option<IdempotencyKey>,
) -> Result<i64, ApiError> {
    const OPERATION: &str = "chat.turn";
    let content = prompt::for_worker(&request.messages)?;
    take_creation(&context.chat_creations, &worker.owner)?;
    let id = message_id();
    let after = json!({
        "characters": content.chars().count(),
        "message_id": id,
        "sha256": Hash::of(content.as_bytes()).to_hex(),
    });
    let entry = ControlEntry {
        operation: OPERATION.to_owned(),
        object: Some(worker.key.run_id.to_string()),
        owner: Some(worker.owner.clone()),
        request: Some(digest),
        after: Some(after),
        ..ControlEntry::default()
    };
    let seq = context.record(principal, entry).await?;
    let message = MessageToSend {
        id,
        content,
        message_type: MessageType::UserMessage,
        urgent: false,
        inject_mode: InjectMode::NextTurn,
        steering_type: None,
        source: None,
        sender: principal.id.clone(),
        idempotency: key,
    };
    let new = NewChatTurn { run_id: worker.key.run_id.clone(), after: worker.turn.number, is_resumable, message };
    match context.store.begin_chat_turn(new, now_us()).await {
        Ok(begin_seq) => {
            note_work(context, &worker.key).await;
            Ok(begin_seq)
        }
        Err(error) => Err(context.record_failure(principal, OPERATION, seq, refused(error)).await),
    }
}

fn refused(error: ChatTurnError) -> ApiError {
    match error {
        ChatTurnError::Busy(error) => error.into(),
        ChatTurnError::Cap(error) => error.into(),
        // The worker ends at this moment. The next try begins another run.
        ChatTurnError::Message(MessageError::RunFinished) => sluice_state::chats::SessionBusy.into(),
        ChatTurnError::Message(error) => error.into(),
    }
}
