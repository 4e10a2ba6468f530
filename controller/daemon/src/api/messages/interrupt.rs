//! Interrupts: end the calls in progress, with an instruction for the next step.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sluice_contract::Hash;
use sluice_contract::control::{Interrupt, MessageType};
use sluice_runs::sidecar_control::{ControlError, SidecarControl};
use sluice_state::control_log::ControlEntry;
use sluice_state::events::{EventQuota, NewLoggedEvent};
use sluice_state::messages::{InjectMode, MessageToSend, message_id};
use sluice_state::sandboxes::Sandbox;
use sluice_state::store::now_us;
use utoipa::ToSchema;

use super::sending::{SentTo, send_message};
use super::withdrawal::withdraw;
use crate::api::idempotent::{IdempotentRepeat, RequestKey, complete, release};
use crate::api::sandboxes::{check_live, lookup, note_work, record};
use crate::api::{Context, NoQuery};
use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::extract::{JsonBody, PathNames, Query};
use crate::injection;
use crate::permission::Operation;
use crate::principal::Principal;

/// An interruption.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct InterruptRequest {
    /// Text that the agent reads next: 1 to 10,000 characters.
    #[schema(min_length = 1, max_length = 10000)]
    message: Option<String>,
}

/// An interruption that was made.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Interrupted {
    /// `interrupted`.
    status: &'static str,
    sandbox_id: String,
    /// Id of the message, if there is one.
    message_id: Option<String>,
}

/// Ends the calls of a run that are under way. The agent gets an error for each, and goes on as it sees fit.
#[utoipa::path(
    post, path = "/api/v1/sandboxes/{id}/interrupt", request_body = InterruptRequest,
    params(
        ("id" = String, Path, description = "Id, or a name of the own owner"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 characters: the same key interrupts once")
    ),
    responses(
        (status = 200, body = Interrupted), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 429, body = ErrorBody), (status = 503, body = ErrorBody)
    )
)]
pub(super) async fn interrupt(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(NoQuery {}): Query<NoQuery>,
    key: RequestKey,
    body: Option<JsonBody<InterruptRequest>>,
) -> Result<Json<Interrupted>, ApiError> {
    let sandbox = lookup::named(&context, &principal, Operation::Control, &id).await?;
    let (request, digest) = body.map_or((InterruptRequest::default(), Hash::of(&[])), |body| (body.value, body.digest));
    let run_id = sandbox.key.run_id.as_str();
    let to = SentTo { context: &context, principal: &principal, sandbox: &sandbox, digest };
    let key = match key.reserve(&context, &principal, digest).await? {
        IdempotentRepeat::Done(made) => {
            let message_id = Some(made).filter(|made| made != run_id);
            return Ok(Json(Interrupted { status: "interrupted", sandbox_id: run_id.to_owned(), message_id }));
        }
        IdempotentRepeat::New(key) => key,
    };
    match end_calls(to, request.message).await {
        Ok(message_id) => {
            complete(&context, key, message_id.as_deref().unwrap_or(run_id)).await;
            Ok(Json(Interrupted { status: "interrupted", sandbox_id: run_id.to_owned(), message_id }))
        }
        Err(error) => {
            release(&context, key).await;
            Err(error)
        }
    }
}

/// Queues the message, ends the calls, and reports both. Returns the id of the message.
async fn end_calls(to: SentTo<'_>, message: Option<String>) -> Result<Option<String>, ApiError> {
    const OPERATION: &str = "sandbox.interrupt";
    let SentTo { context, principal, sandbox, digest } = to;
    // The state is checked after the key: a repeated request gets its first answer, also after the end of the run.
    check_live(sandbox, "interrupt")?;
    let message_id = match message {
        None => None,
        Some(content) => {
            let new = MessageToSend {
                id: message_id(),
                content,
                message_type: MessageType::Interrupt,
                urgent: true,
                inject_mode: InjectMode::NextTurn,
                steering_type: None,
                source: None,
                sender: principal.id.clone(),
                idempotency: None,
            };
            Some(send_message(to, "message.send", new, RequestKey::none()).await?.id)
        }
    };
    let after = message_id.as_ref().map(|id| json!({ "message_id": id }));
    let entry = ControlEntry { request: Some(digest), after, ..ControlEntry::default() };
    let seq = record(context, principal, OPERATION, sandbox, entry).await?;
    let asked = Interrupt { by: principal.id.clone(), reason: "interrupt".to_owned() };
    // A call that begins from here on is a later one.
    let asked_us = now_us();
    if let Err(error) = SidecarControl::of(&context.layout, &sandbox.key).interrupt(&asked).await {
        (context.log)(&format!("run {}: cannot be interrupted: {error}", sandbox.key));
        // The message is withdrawn, because a repeated request would send a second one.
        let is_left = match &message_id {
            Some(id) => withdraw(context, sandbox, id).await.is_err(),
            None => false,
        };
        return Err(context.record_failure(principal, OPERATION, seq, refused(&error, is_left)).await);
    }
    if let Err(error) = report(context, sandbox, message_id.as_deref(), asked_us).await {
        // The calls have ended. This is not an error, because a repeated request would end other calls.
        (context.log)(&format!("run {}: its interruption is no event: {}", sandbox.key, error.code()));
    }
    note_work(context, &sandbox.key).await;
    Ok(message_id)
}

fn refused(error: &ControlError, message_is_left: bool) -> ApiError {
    let message = match error {
        _ if message_is_left => {
            "the sidecar of this run does not answer, and the message may be on its way to the agent; look at the status of \
             the message before you send the request again"
        }
        ControlError::Refused { .. } => {
            "the sidecar of this run is of a version that ends no calls, so nothing was done; send a message instead"
        }
        _ => "the sidecar of this run does not answer, so nothing was done; send the request again, or cancel the run",
    };
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "sidecar_unavailable", message)
}

async fn report(
    context: &ApiContext,
    sandbox: &Sandbox,
    message_id: Option<&str>,
    asked_us: i64,
) -> Result<(), ApiError> {
    let data = json!({ "message_id": message_id }).to_string();
    let run_id = sandbox.key.run_id.as_str();
    let event = NewLoggedEvent {
        attempt: Some(sandbox.key.attempt),
        agent_id: Some(sandbox.agent_id.clone()),
        ..NewLoggedEvent::of_run(&sandbox.owner, run_id, injection::INTERRUPTED, data, asked_us)
    };
    for appended in context.store.append_events(vec![event], EventQuota::default()).await? {
        appended.map_err(|fault| ApiError::internal(&fault))?;
    }
    Ok(())
}
