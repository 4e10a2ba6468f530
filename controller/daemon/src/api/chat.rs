//! Chats with agents: the catalogue, an answer as a stream of events, and its continuation.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use futures_util::stream;
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderName};
use serde::Deserialize;
use sluice_contract::RunId;
use utoipa::{OpenApi, ToSchema};

use super::chat_start::{ChatForm, StartedChat, admit_client, follow, registered, start};
use super::idempotent::RequestKey;
use super::{Context, NoQuery};
use crate::api_error::{ApiError, ErrorBody};
use crate::chat::catalog::{self, Catalog};
use crate::chat::cursor::ChatCursor;
use crate::chat::follow::{ChatFollower, Followed};
use crate::chat::frames::chat_frame;
use crate::chat::request::{AgentChatRequest, invalid};
use crate::context::ApiContext;
use crate::event_frames::PING;
use crate::extract::{JsonBody, PathNames, Query};
use crate::permission::Operation;
use crate::principal::{Principal, Role};

#[derive(OpenApi)]
#[openapi(paths(agents, chat, resume), components(schemas(Catalog)))]
pub(super) struct Doc;

pub(super) fn routes() -> Router<Arc<ApiContext>> {
    Router::new()
        .route("/ai/agents", get(agents))
        .route("/api/v1/ai/agents", get(agents))
        .route("/ai/chat", post(chat))
        .route("/api/v1/ai/chat", post(chat))
        .route("/ai/runs/{id}/stream", get(resume))
        .route("/api/v1/ai/runs/{id}/stream", get(resume))
}

/// Adds the routes at the root to the document. They are the same as under `/api/v1`.
pub(super) fn add_root_paths(document: &mut utoipa::openapi::OpenApi) {
    for path in ["/ai/agents", "/ai/chat", "/ai/runs/{id}/stream"] {
        let Some(mut item) = document.paths.paths.get(&format!("/api/v1{path}")).cloned() else { continue };
        for operation in [&mut item.get, &mut item.post].into_iter().flatten() {
            operation.operation_id = operation.operation_id.as_ref().map(|id| format!("{id}_at_root"));
        }
        document.paths.paths.insert(path.to_owned(), item);
    }
}

/// Header of an answer with the id of its run.
pub(super) const RUN_ID: HeaderName = HeaderName::from_static("x-sluice-run-id");

/// Lists the agents that a chat can choose. Without an upstream or `sandbox_enabled` there are none.
#[utoipa::path(
    get, path = "/api/v1/ai/agents",
    responses(
        (status = 200, body = Catalog), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 422, body = ErrorBody)
    )
)]
async fn agents(
    State(context): Context,
    principal: Principal,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Json<Catalog>, ApiError> {
    principal.require(Operation::Chat)?;
    let registered = registered(&context, &principal).await?;
    let policy = context.policy_of(&principal);
    Ok(Json(catalog::catalog(policy.as_deref(), &registered)))
}

/// A frame of a chat. Lines that begin with a colon keep a quiet one alive.
#[derive(ToSchema)]
#[allow(dead_code, reason = "names the lines of a frame in the document")]
struct ChatFrame {
    /// Position after the event, for `Last-Event-ID`.
    id: Option<String>,
    /// `text_delta`, `tool_call_start`, `tool_call_result`, `status`, `error` or `done`.
    event: String,
    /// One JSON object.
    data: String,
}

/// Runs an agent for a conversation, and streams its answer as events. The same routes are at `/ai/…`, without `/api/v1`.
#[utoipa::path(
    post, path = "/api/v1/ai/chat",
    params(("Idempotency-Key" = Option<String>, Header, description = "1 to 255 characters: the same key runs the agent once")),
    request_body = AgentChatRequest,
    responses(
        (status = 200, body = ChatFrame, content_type = "text/event-stream"), (status = 400, body = ErrorBody),
        (status = 401, body = ErrorBody), (status = 402, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 413, body = ErrorBody),
        (status = 429, body = ErrorBody), (status = 503, body = ErrorBody)
    )
)]
async fn chat(
    State(context): Context,
    principal: Principal,
    query: Result<Query<NoQuery>, ApiError>,
    key: RequestKey,
    headers: HeaderMap,
    body: Result<JsonBody<AgentChatRequest>, ApiError>,
) -> Result<Response, ApiError> {
    let started = async {
        principal.require(Operation::Chat)?;
        let (Query(NoQuery {}), JsonBody { value, digest }) = (query?, body?);
        start(context, principal, key, &headers, value.checked()?, digest, ChatForm::Events).await
    };
    let StartedChat { run_id, follower, .. } = started.await.map_err(ApiError::for_chat)?;
    Ok(events(&run_id, follower))
}

/// The end user of a chat.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ResumeQuery {
    /// `metadata.user_id` of the chat: a chat token sees the chat of this user alone.
    user_id: Option<String>,
}

/// Streams a chat again, from the beginning of its newest turn or from `Last-Event-ID`, while it lives and while its record is kept.
#[utoipa::path(
    get, path = "/api/v1/ai/runs/{id}/stream",
    params(
        ("id" = String, Path, description = "Id of the run, from the header x-sluice-run-id"), ResumeQuery,
        ("Last-Event-ID" = Option<String>, Header, description = "Id of the last frame that the client has")
    ),
    responses(
        (status = 200, body = ChatFrame, content_type = "text/event-stream"), (status = 400, body = ErrorBody),
        (status = 401, body = ErrorBody), (status = 403, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 410, body = ErrorBody), (status = 429, body = ErrorBody)
    )
)]
async fn resume(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    query: Result<Query<ResumeQuery>, ApiError>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let started = async {
        let scope = principal.require(Operation::Chat)?;
        let Query(ResumeQuery { user_id }) = query?;
        let cursor = cursor(&headers)?;
        let run_id: RunId = id.parse().map_err(|_| ApiError::not_found())?;
        let chat = context.store.find_chat(&run_id).await?.filter(|chat| scope.has_owner(&chat.owner));
        let chat = chat.ok_or_else(ApiError::not_found)?;
        let is_own = chat.new.principal == principal.chat_holder() && chat.new.end_user == user_id;
        if principal.role == Role::Chat && !is_own {
            return Err(ApiError::not_found());
        }
        let counted = admit_client(&context, &principal)?;
        follow(context, principal, &run_id, cursor, (counted, None)).await
    };
    let StartedChat { run_id, follower, .. } = started.await.map_err(ApiError::for_chat)?;
    Ok(events(&run_id, follower))
}

/// Returns the position after which a client continues.
fn cursor(headers: &HeaderMap) -> Result<ChatCursor, ApiError> {
    let Some(id) = headers.get("last-event-id") else { return Ok(ChatCursor::default()) };
    let cursor = id.to_str().ok().and_then(|id| id.parse().ok());
    cursor.ok_or_else(|| {
        invalid("Last-Event-ID", "Last-Event-ID is the id of a frame of this chat; leave it out to begin anew")
    })
}

fn events(run_id: &RunId, follower: ChatFollower) -> Response {
    let frames = stream::unfold(follower, async |mut follower| {
        let frame = match follower.next().await {
            Ok(Some(Followed::Event(event, cursor))) => chat_frame(&event, cursor),
            Ok(Some(Followed::Quiet)) => Bytes::from_static(PING),
            Ok(None) => return None,
            Err(error) => {
                follower.report(&error);
                return None;
            }
        };
        Some((Ok::<_, Infallible>(frame), follower))
    });
    let headers = [
        (CONTENT_TYPE, "text/event-stream".to_owned()),
        (LOCATION, format!("/api/v1/ai/runs/{run_id}/stream")),
        (RUN_ID, run_id.to_string()),
    ];
    (headers, Body::from_stream(frames)).into_response()
}
