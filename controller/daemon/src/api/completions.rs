//! The front for clients of OpenAI: an agent is a model.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sluice_contract::RunId;
use sluice_state::ledger::{Filter, TokenSums};
use sluice_state::store::now_us;
use utoipa::{OpenApi, ToSchema};

use super::chat::RUN_ID;
use super::chat_start::{ChatForm, StartedChat, registered, start};
use super::idempotent::RequestKey;
use super::{Context, NoQuery};
use crate::api_error::{ApiError, ErrorBody};
use crate::chat::catalog;
use crate::chat::completion::CompletionWriter;
use crate::chat::failure::ChatFailure;
use crate::chat::follow::{ChatFollower, Followed};
use crate::chat::request::CompletionRequest;
use crate::chat::translation::ChatEvent;
use crate::client_gone::ClientGone;
use crate::context::ApiContext;
use crate::event_frames::PING;
use crate::extract::{JsonBody, Query};
use crate::permission::Operation;
use crate::principal::Principal;

#[derive(OpenApi)]
#[openapi(paths(models, complete), components(schemas(CompletionBody, CompletionMessage)))]
pub(super) struct Doc;

pub(super) fn routes() -> Router<Arc<ApiContext>> {
    Router::new().route("/v1/models", get(models)).route("/v1/chat/completions", post(complete))
}

/// Header of an answer with the parameters that had no effect.
const IGNORED: HeaderName = HeaderName::from_static("x-sluice-ignored");

/// Agents, as models.
#[derive(Debug, Serialize, ToSchema)]
struct Models {
    object: &'static str,
    data: Vec<Model>,
}

/// An agent, as a model.
#[derive(Debug, Serialize, ToSchema)]
struct Model {
    /// `sandbox:NAME`, or `sandbox:NAME@MODEL`.
    id: String,
    object: &'static str,
    created: i64,
    owned_by: &'static str,
}

/// Lists the agents as models of OpenAI.
#[utoipa::path(
    get, path = "/v1/models",
    responses(
        (status = 200, body = Models), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 400, body = ErrorBody)
    )
)]
async fn models(
    State(context): Context,
    principal: Principal,
    query: Result<Query<NoQuery>, ApiError>,
) -> Result<Json<Models>, ApiError> {
    let listed = async {
        principal.require(Operation::Chat)?;
        query?;
        let registered = registered(&context, &principal).await?;
        Ok::<_, ApiError>(catalog::models(context.policy_of(&principal).as_deref(), &registered))
    };
    let names = listed.await.map_err(ApiError::for_openai)?;
    let model = |id| Model { id, object: "model", created: 0, owned_by: "sluice" };
    Ok(Json(Models { object: "list", data: names.into_iter().map(model).collect() }))
}

/// A request in the form of OpenAI. The guide says what becomes of its other members.
#[derive(Deserialize, ToSchema)]
#[allow(dead_code, reason = "names the members in the document; the reader takes a map")]
struct CompletionBody {
    /// `sandbox:NAME`, or `sandbox:NAME@MODEL`.
    model: String,
    #[schema(min_items = 1)]
    messages: Vec<CompletionMessage>,
    /// True for an answer as it comes.
    stream: Option<bool>,
    /// The client's word for its own user. It is never an account.
    #[schema(min_length = 1, max_length = 255)]
    user: Option<String>,
    /// 1.
    #[schema(minimum = 1, maximum = 1)]
    n: Option<u32>,
}

/// A message.
#[derive(Deserialize, ToSchema)]
#[allow(dead_code, reason = "as above")]
struct CompletionMessage {
    /// `system`, `developer`, `user` or `assistant`.
    #[schema(pattern = "^(system|developer|user|assistant)$")]
    role: String,
    content: String,
}

/// Runs an agent for a conversation, and answers as a model of OpenAI does: with one object, or with chunks. Usage is the sum
/// of the run's receipts.
#[utoipa::path(
    post, path = "/v1/chat/completions",
    params(("Idempotency-Key" = Option<String>, Header, description = "1 to 255 characters: the same key runs the agent once")),
    request_body = CompletionBody,
    responses(
        (status = 200, body = Object), (status = 400, body = ErrorBody), (status = 401, body = ErrorBody),
        (status = 402, body = ErrorBody), (status = 403, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 408, body = ErrorBody), (status = 409, body = ErrorBody), (status = 413, body = ErrorBody),
        (status = 429, body = ErrorBody), (status = 500, body = ErrorBody), (status = 503, body = ErrorBody)
    )
)]
async fn complete(
    State(context): Context,
    principal: Principal,
    query: Result<Query<NoQuery>, ApiError>,
    key: Result<RequestKey, ApiError>,
    gone: ClientGone,
    headers: HeaderMap,
    body: Result<JsonBody<Map<String, Value>>, ApiError>,
) -> Result<Response, ApiError> {
    let started = async {
        principal.require(Operation::Chat)?;
        query?;
        let (JsonBody { value, digest }, key) = (body?, key?);
        let request = CompletionRequest::of(value)?;
        let CompletionRequest { chat, model, is_stream, has_usage, ignored } = request;
        let started = start(Arc::clone(&context), principal, key, &headers, chat, digest, ChatForm::OpenAi).await?;
        let id = match started.turn {
            Some(turn) => format!("chatcmpl-{}-{turn}", started.run_id),
            None => format!("chatcmpl-{}", started.run_id),
        };
        let created = now_us() / 1_000_000;
        Ok::<_, ApiError>((started, CompletionWriter { id, model, created, has_usage }, is_stream, ignored))
    };
    let (StartedChat { run_id, follower, .. }, writer, is_stream, ignored) =
        started.await.map_err(ApiError::for_openai)?;
    let mut response = match is_stream {
        true => chunks(context, run_id.clone(), follower, writer),
        false => match whole(&context, &run_id, follower, &writer, gone).await {
            Ok(answer) => Json(answer).into_response(),
            Err(error) => error.for_openai().into_response(),
        },
    };
    let named = [(RUN_ID, run_id.to_string()), (IGNORED, ignored.join(", "))];
    for (name, value) in named.into_iter().filter(|(_, value)| !value.is_empty()) {
        // A header cannot carry every name in the metadata of a client.
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().insert(name, value);
        }
    }
    Ok(response)
}

/// Maximum number of bytes of an answer that is not streamed; a stream has no limit.
const TEXT_MAX: usize = 16 << 20;

/// Waits for the whole answer, or until the client hangs up.
async fn whole(
    context: &ApiContext,
    run_id: &RunId,
    mut follower: ChatFollower,
    writer: &CompletionWriter,
    mut gone: ClientGone,
) -> Result<Value, ApiError> {
    let mut text = String::new();
    loop {
        let next = tokio::select! {
            next = follower.next() => next.map_err(ApiError::after_run)?,
            () = gone.wait() => None,
        };
        match next {
            Some(Followed::Event(ChatEvent::Text(more), _)) if text.len() + more.len() > TEXT_MAX => {
                return Err(failed(&ChatFailure::too_large()));
            }
            Some(Followed::Event(ChatEvent::Text(more), _)) => text += &more,
            Some(Followed::Event(ChatEvent::Failed(failure), _)) => return Err(failed(&failure)),
            Some(Followed::Event(ChatEvent::Done { .. }, _)) => {
                let usage = usage(context, run_id, &follower).await;
                // The answer exists, and was paid for, so it does not fail without its usage.
                let usage = usage.inspect_err(|error| follower.report(error)).unwrap_or_default();
                return Ok(writer.whole(&text, &usage));
            }
            Some(_) => {}
            None => return Err(failed(&ChatFailure::broken_off())),
        }
    }
}

fn failed(failure: &ChatFailure) -> ApiError {
    ApiError::new(failure.kind.status(), failure.kind.as_str(), failure.message.clone()).after_run()
}

/// State of an answer in chunks.
struct Chunks {
    context: Arc<ApiContext>,
    run_id: RunId,
    follower: ChatFollower,
    writer: CompletionWriter,
    first: Option<Bytes>,
    is_last: bool,
}

impl Chunks {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        while !self.is_last {
            match self.follower.next().await {
                Ok(Some(Followed::Event(ChatEvent::Text(text), _))) => return Some(self.writer.text(&text)),
                Ok(Some(Followed::Event(ChatEvent::Failed(failure), _))) => {
                    self.is_last = true;
                    return Some(CompletionWriter::failed(&failure));
                }
                Ok(Some(Followed::Event(ChatEvent::Done { .. }, _))) => {
                    self.is_last = true;
                    let usage = usage(&self.context, &self.run_id, &self.follower).await;
                    return Some(self.writer.last(usage.ok().as_ref()));
                }
                Ok(Some(Followed::Quiet)) => return Some(Bytes::from_static(PING)),
                Ok(Some(Followed::Event(_, _))) => {}
                broken => {
                    if let Err(error) = broken {
                        self.follower.report(&error);
                    }
                    // Otherwise a client would take the partial answer for the whole one.
                    self.is_last = true;
                    return Some(CompletionWriter::failed(&ChatFailure::broken_off()));
                }
            }
        }
        None
    }
}

fn chunks(context: Arc<ApiContext>, run_id: RunId, follower: ChatFollower, writer: CompletionWriter) -> Response {
    let first = Some(writer.first());
    let chunks = Chunks { context, run_id, follower, writer, first, is_last: false };
    let frames = stream::unfold(chunks, async |mut chunks| {
        let next = chunks.next().await?;
        Some((Ok::<_, Infallible>(next), chunks))
    });
    ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(frames)).into_response()
}

/// Returns the tokens of a worker's turn; otherwise the sum of a run's receipts.
async fn usage(context: &ApiContext, run_id: &RunId, follower: &ChatFollower) -> Result<TokenSums, ApiError> {
    if let Some(tokens) = follower.tokens() {
        return Ok(*tokens);
    }
    let filter = Filter { run_id: Some(run_id.to_string()), ..Filter::default() };
    Ok(context.store.list(filter, |_| true).await?.total.usage)
}
