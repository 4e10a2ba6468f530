//! Creation of a run as a turn of a chat.

use sluice_state::idempotency::IdempotencyKey;
use sluice_state::sandboxes::Sandbox;

use super::chat_turn::ChatTurnRequest;
use super::create::{record_and_create, sandbox_disabled};
use super::request::SandboxRequest;
use crate::api_error::ApiError;
use crate::context::ApiContext;
use crate::extract::JsonBody;
use crate::permission::Operation;
use crate::principal::Principal;

/// Creates the run of a turn: a run like any other, with the limits and caps of all runs.
///
/// # Errors
/// Errors of a creation; 402 and 429 if the caps of a chat token forbid it.
pub(in crate::api) async fn create_chat(
    context: &ApiContext,
    principal: &Principal,
    turn: ChatTurnRequest,
    key: Option<IdempotencyKey>,
) -> Result<Sandbox, ApiError> {
    principal.require(Operation::Chat)?;
    let policy = context.policy.clone().ok_or_else(sandbox_disabled)?;
    let (digest, origin) = (turn.digest, turn.origin.clone());
    let body = JsonBody { value: SandboxRequest::of_chat(turn)?, digest };
    let (created, _) = record_and_create(context, principal, &policy, (body, &origin), key).await?;
    context.work.notify_one();
    Ok(created.sandbox)
}
