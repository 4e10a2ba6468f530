//! Messages to running agents: sent, listed, removed and put first by people; interventions; interrupts.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sluice_contract::control::MessageType;
use sluice_state::control_log::ControlEntry;
use sluice_state::messages::{
    InjectMode, MessageFilter, MessageState, MessageToSend, StoredMessage, message_id, type_word,
};
use sluice_state::store::now_us;
use utoipa::{OpenApi, ToSchema};

use super::idempotent::RequestKey;
use super::sandboxes::{lookup, record};
use super::{Context, NoQuery, paging};
use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::extract::{JsonBody, PathNames, Query};
use crate::permission::Operation;
use crate::principal::Principal;
use crate::timestamp::{timestamp, timestamp_of};

mod interrupt;
mod interventions;
mod sending;
mod withdrawal;

use sending::{SentTo, send_message};
use withdrawal::withdraw;

#[derive(OpenApi)]
#[openapi(
    paths(send, list, remove, promote, interventions::intervene, interventions::list, interrupt::interrupt),
    components(schemas(MessageKind, DeliveryMode, interventions::SteeringType, interventions::InterventionPriority))
)]
pub(super) struct Doc;

pub(super) fn routes() -> Router<Arc<ApiContext>> {
    Router::new()
        .route("/api/v1/sandboxes/{id}/messages", get(list).post(send))
        .route("/api/v1/sandboxes/{id}/messages/{message_id}", delete(remove))
        .route("/api/v1/sandboxes/{id}/messages/{message_id}/promote", post(promote))
        .route("/api/v1/sandboxes/{id}/interventions", get(interventions::list).post(interventions::intervene))
        .route("/api/v1/sandboxes/{id}/interrupt", post(interrupt::interrupt))
}

/// Kind of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum MessageKind {
    /// From a person.
    #[default]
    UserMessage,
    /// From a person, and before all that are not urgent. It does not end the call under way.
    Interrupt,
    /// From the rules of the operator. Only admins send it.
    GuardianNudge,
    /// From the operator. Only admins send it.
    System,
}

/// Time at which a message is delivered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum DeliveryMode {
    /// With the next call of the agent, also if it has a worker.
    Immediate,
    /// When the agent's worker is ready for it; without a worker, with the next call.
    #[default]
    NextTurn,
}

impl DeliveryMode {
    fn of_state(self) -> InjectMode {
        match self {
            Self::Immediate => InjectMode::Immediate,
            Self::NextTurn => InjectMode::NextTurn,
        }
    }
}

impl MessageKind {
    fn of_contract(self) -> MessageType {
        match self {
            Self::UserMessage => MessageType::UserMessage,
            Self::Interrupt => MessageType::Interrupt,
            Self::GuardianNudge => MessageType::GuardianNudge,
            Self::System => MessageType::System,
        }
    }

    /// Returns the operation that a sender needs.
    fn operation(self) -> Operation {
        match self {
            Self::UserMessage | Self::Interrupt => Operation::Control,
            Self::GuardianNudge | Self::System => Operation::Steer,
        }
    }
}

/// A message to send.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct MessageRequest {
    /// 1 to 10,000 characters. Control characters are left out, except for tabs and ends of lines.
    #[schema(min_length = 1, max_length = 10000)]
    content: String,
    #[serde(default)]
    message_type: MessageKind,
    /// True if it comes before those that are not urgent.
    #[serde(default)]
    urgent: bool,
    #[serde(default)]
    inject_mode: DeliveryMode,
}

/// A message that was sent.
#[derive(Debug, Serialize, ToSchema)]
struct SentMessage {
    /// `queued`; for a request that is repeated, what became of the message.
    status: &'static str,
    message_id: String,
    sandbox_id: String,
}

/// A message as its senders see it.
#[derive(Debug, Serialize, ToSchema)]
struct MessageView {
    message_id: String,
    content: String,
    /// `user_message`, `interrupt`, `guardian_nudge` or `system`.
    message_type: &'static str,
    urgent: bool,
    /// `immediate` or `next_turn`.
    inject_mode: &'static str,
    /// `queued`, `leased`, `offered`, `sent`, `delivered`, `deleted` or `lost`.
    status: &'static str,
    created_at: String,
    delivered_at: Option<String>,
}

impl MessageView {
    fn of(message: StoredMessage) -> Self {
        Self {
            message_id: message.id,
            content: message.content,
            message_type: type_word(message.message_type),
            urgent: message.urgent,
            inject_mode: message.inject_mode.as_str(),
            status: message.state.as_str(),
            created_at: timestamp(message.created_us),
            delivered_at: timestamp_of(message.delivered_us),
        }
    }
}

/// Sends a message to the agent of a run.
#[utoipa::path(
    post, path = "/api/v1/sandboxes/{id}/messages", request_body = MessageRequest,
    params(
        ("id" = String, Path, description = "Id, or a name of the own owner"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 characters: the same key sends one message")
    ),
    responses(
        (status = 200, body = SentMessage), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 429, body = ErrorBody), (status = 503, body = ErrorBody)
    )
)]
async fn send(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(NoQuery {}): Query<NoQuery>,
    key: RequestKey,
    body: JsonBody<MessageRequest>,
) -> Result<Json<SentMessage>, ApiError> {
    let MessageRequest { content, message_type, urgent, inject_mode } = body.value;
    let sandbox = lookup::named(&context, &principal, Operation::Control, &id).await?;
    principal.require(message_type.operation())?;
    let new = MessageToSend {
        id: message_id(),
        content,
        message_type: message_type.of_contract(),
        urgent,
        inject_mode: inject_mode.of_state(),
        steering_type: None,
        source: None,
        sender: principal.id.clone(),
        idempotency: None,
    };
    let to = SentTo { context: &context, principal: &principal, sandbox: &sandbox, digest: body.digest };
    let sent = send_message(to, "message.send", new, key).await?;
    let (status, sandbox_id) = (sent.state.as_str(), sandbox.key.run_id.to_string());
    Ok(Json(SentMessage { status, message_id: sent.id, sandbox_id }))
}

/// Selection of messages.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct MessageQuery {
    /// States, joined by commas.
    status: Option<String>,
    /// Number of messages, 1 to 500.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<i64>,
}

/// A page of messages, newest first.
#[derive(Debug, Serialize, ToSchema)]
struct Messages {
    messages: Vec<MessageView>,
    /// Cursor of the next page; null on the last one.
    next_cursor: Option<i64>,
    /// True if more messages follow.
    has_more: bool,
}

/// Lists the messages to the agent of a run, newest first. Nothing is consumed.
#[utoipa::path(
    get, path = "/api/v1/sandboxes/{id}/messages",
    params(("id" = String, Path, description = "Id, or a name of the own owner"), MessageQuery),
    responses(
        (status = 200, body = Messages), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)
    )
)]
async fn list(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(query): Query<MessageQuery>,
) -> Result<Json<Messages>, ApiError> {
    let sandbox = lookup::named(&context, &principal, Operation::ReadContent, &id).await?;
    let states = query.status.as_deref().map_or(Ok(Vec::new()), states)?;
    let filter = MessageFilter { states, before: query.cursor, ..MessageFilter::default() };
    let limit = paging::limit(query.limit, paging::LIST_MAX)?;
    let page = context.store.list_messages(&sandbox.key.run_id, filter, limit).await?;
    Ok(Json(Messages {
        messages: page.messages.into_iter().map(MessageView::of).collect(),
        has_more: page.next.is_some(),
        next_cursor: page.next,
    }))
}

fn states(text: &str) -> Result<Vec<MessageState>, ApiError> {
    let wrong = || {
        let words: Vec<_> = MessageState::ALL.iter().map(|state| state.as_str()).collect();
        ApiError::invalid(
            "status",
            format!("status is one of {}, or several of them, joined by commas", words.join(", ")),
        )
    };
    text.split(',').map(|word| MessageState::of(word).ok_or_else(wrong)).collect()
}

/// Removes a message that is not on its way to the agent yet.
#[utoipa::path(
    delete, path = "/api/v1/sandboxes/{id}/messages/{message_id}",
    params(
        ("id" = String, Path, description = "Id, or a name of the own owner"),
        ("message_id" = String, Path, description = "Id of the message")
    ),
    responses(
        (status = 200, body = MessageView), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 503, body = ErrorBody)
    )
)]
async fn remove(
    State(context): Context,
    principal: Principal,
    PathNames([id, message_id]): PathNames<2>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Json<MessageView>, ApiError> {
    const OPERATION: &str = "message.delete";
    let sandbox = lookup::named(&context, &principal, Operation::Control, &id).await?;
    let run_id = &sandbox.key.run_id;
    context.store.find_message(run_id, &message_id).await?;
    let seq = record(&context, &principal, OPERATION, &sandbox, entry(&message_id)).await?;
    match withdraw(&context, &sandbox, &message_id).await {
        Ok(removed) => Ok(Json(MessageView::of(removed))),
        Err(error) => Err(context.record_failure(&principal, OPERATION, seq, error).await),
    }
}

/// Puts a message that is not on its way to the agent yet among the urgent ones.
#[utoipa::path(
    post, path = "/api/v1/sandboxes/{id}/messages/{message_id}/promote",
    params(
        ("id" = String, Path, description = "Id, or a name of the own owner"),
        ("message_id" = String, Path, description = "Id of the message")
    ),
    responses(
        (status = 200, body = MessageView), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 503, body = ErrorBody)
    )
)]
async fn promote(
    State(context): Context,
    principal: Principal,
    PathNames([id, message_id]): PathNames<2>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Json<MessageView>, ApiError> {
    const OPERATION: &str = "message.promote";
    let sandbox = lookup::named(&context, &principal, Operation::Control, &id).await?;
    let run_id = &sandbox.key.run_id;
    context.store.find_message(run_id, &message_id).await?;
    let seq = record(&context, &principal, OPERATION, &sandbox, entry(&message_id)).await?;
    match context.store.promote_message(run_id, &message_id, now_us()).await {
        Ok(promoted) => Ok(Json(MessageView::of(promoted))),
        Err(error) => Err(context.record_failure(&principal, OPERATION, seq, error.into()).await),
    }
}

fn entry(message_id: &str) -> ControlEntry {
    ControlEntry { before: Some(json!({ "message_id": message_id })), ..ControlEntry::default() }
}
