//! Streams of events, as Server-Sent Events.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde::Deserialize;
use serde_json::{Value, json};
use sluice_contract::RunId;
use sluice_state::events::EventFilter;
use sluice_state::sandboxes::{SandboxFilter, SandboxState};
use utoipa::{OpenApi, ToSchema};

use super::Context;
use super::admission::admit_stream;
use super::event_stream::EventFeed;
use super::events::types;
use super::sandboxes::lookup;
use super::sandboxes::view::{SandboxView, detail};
use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::event_frames::frame;
use crate::extract::{PathNames, Query};
use crate::permission::Operation;
use crate::principal::Principal;

#[derive(OpenApi)]
#[openapi(paths(of_all, of_one))]
pub(super) struct Doc;

pub(super) fn routes() -> Router<Arc<ApiContext>> {
    Router::new().route("/api/v1/events/stream", get(of_all)).route("/api/v1/sandboxes/{id}/stream", get(of_one))
}

/// Maximum number of runs in a snapshot.
const SNAPSHOT_RUNS: u32 = 500;
/// States of runs that have not ended.
const LIVE: [SandboxState; 4] =
    [SandboxState::Pending, SandboxState::Creating, SandboxState::Running, SandboxState::Completing];

/// A frame of a stream. Lines that begin with a colon keep a quiet one alive.
#[derive(ToSchema)]
#[allow(dead_code, reason = "names the lines of a frame in the document")]
struct StreamFrame {
    /// Position of an event, for `Last-Event-ID`.
    id: Option<String>,
    /// `snapshot`, `gap` or `end`; none for an event of the log.
    event: Option<String>,
    /// One JSON value.
    data: String,
}

/// Selection of events.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct AllQuery {
    /// Only events of this run: an id, or a name of the own owner.
    sandbox: Option<String>,
    /// Only events of this agent.
    agent: Option<String>,
    /// Types, joined by commas; `agent.*` selects all with this beginning.
    #[param(pattern = "^[A-Za-z0-9_.]{1,100}\\*?(,[A-Za-z0-9_.]{1,100}\\*?){0,31}$")]
    types: Option<String>,
    /// Position after which the stream begins; Last-Event-ID goes before. None for what is new.
    #[param(minimum = 0)]
    after: Option<i64>,
}

/// Selection of a run's events.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct OneQuery {
    /// Types, joined by commas; `agent.*` selects all with this beginning.
    #[param(pattern = "^[A-Za-z0-9_.]{1,100}\\*?(,[A-Za-z0-9_.]{1,100}\\*?){0,31}$")]
    types: Option<String>,
    /// Position after which the stream begins; Last-Event-ID goes before. None for what is new.
    #[param(minimum = 0)]
    after: Option<i64>,
}

/// Streams all events that the token may see: a `snapshot` of the live runs, then events with their `seq` as id.
#[utoipa::path(
    get, path = "/api/v1/events/stream",
    params(AllQuery, ("Last-Event-ID" = Option<i64>, Header, description = "Position after which the stream begins")),
    responses(
        (status = 200, body = StreamFrame, content_type = "text/event-stream"), (status = 401, body = ErrorBody),
        (status = 403, body = ErrorBody), (status = 404, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 429, body = ErrorBody)
    )
)]
async fn of_all(
    State(context): Context,
    principal: Principal,
    Query(query): Query<AllQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let scope = principal.require(Operation::Read)?;
    let owner = scope.owner().map(str::to_owned);
    // The position is read before the snapshot: an event in between is in both.
    let newest = context.store.newest_event().await?;
    let watched = match &query.sandbox {
        Some(name) => Some(lookup::named(&context, &principal, Operation::Read, name).await?),
        None => None,
    };
    let sandbox_id = watched.as_ref().map(|sandbox| sandbox.key.run_id.to_string());
    let filter = EventFilter {
        owner: owner.clone(),
        sandbox_id,
        agent_id: query.agent.clone(),
        types: query.types.as_deref().map_or(Ok(Vec::new()), |text| types("types", text))?,
    };
    let asked = cursor(&headers, query.after)?;
    let (sandboxes, has_more) = match watched {
        Some(sandbox) => (vec![sandbox], false),
        None => {
            let live =
                SandboxFilter { owner, states: LIVE.to_vec(), agent_id: query.agent, ..SandboxFilter::default() };
            let page = context.store.list_sandboxes(live, None, SNAPSHOT_RUNS).await?;
            (page.sandboxes, page.next.is_some())
        }
    };
    let sandboxes: Vec<_> = sandboxes.into_iter().map(SandboxView::of).collect();
    let snapshot = json!({ "seq": newest, "sandboxes": sandboxes, "has_more": has_more });
    open(context, principal, filter, None, (after(asked, newest), &snapshot))
}

/// Streams the events of a run: a `snapshot` of it, then events with their `seq` as id, then `end` when it has ended.
#[utoipa::path(
    get, path = "/api/v1/sandboxes/{id}/stream",
    params(
        ("id" = String, Path, description = "Id, or a name of the own owner"), OneQuery,
        ("Last-Event-ID" = Option<i64>, Header, description = "Position after which the stream begins")
    ),
    responses(
        (status = 200, body = StreamFrame, content_type = "text/event-stream"), (status = 401, body = ErrorBody),
        (status = 403, body = ErrorBody), (status = 404, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 429, body = ErrorBody)
    )
)]
async fn of_one(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(query): Query<OneQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let newest = context.store.newest_event().await?;
    let sandbox = lookup::named(&context, &principal, Operation::Read, &id).await?;
    let run_id = sandbox.key.run_id.clone();
    let filter = EventFilter {
        owner: principal.require(Operation::Read)?.owner().map(str::to_owned),
        sandbox_id: Some(run_id.to_string()),
        types: query.types.as_deref().map_or(Ok(Vec::new()), |text| types("types", text))?,
        ..EventFilter::default()
    };
    let asked = cursor(&headers, query.after)?;
    let sandbox = detail(&context, sandbox).await?;
    let snapshot = json!({ "seq": newest, "sandbox": sandbox });
    open(context, principal, filter, Some(run_id), (after(asked, newest), &snapshot))
}

/// Returns the position that a client names; `None` if it names none.
fn cursor(headers: &HeaderMap, after: Option<i64>) -> Result<Option<i64>, ApiError> {
    let wrong = |field| ApiError::invalid(field, "a cursor is the id of an event of a stream: a number from 0");
    match headers.get("last-event-id") {
        Some(id) => {
            let id = id.to_str().ok().and_then(|id| id.parse().ok()).filter(|id| *id >= 0);
            id.map(Some).ok_or_else(|| wrong("Last-Event-ID"))
        }
        None if after.is_some_and(|after| after < 0) => Err(wrong("after")),
        None => Ok(after),
    }
}

/// Returns the position after which a stream begins. The log may be older than the cursor, after it was restored from a
/// copy. Then the stream begins at the newest event; otherwise new events would be hidden until the log passes the cursor.
fn after(asked: Option<i64>, newest: i64) -> i64 {
    asked.map_or(newest, |asked| asked.min(newest))
}

fn open(
    context: Arc<ApiContext>,
    principal: Principal,
    filter: EventFilter,
    run_id: Option<RunId>,
    (after, snapshot): (i64, &Value),
) -> Result<Response, ApiError> {
    let counted = admit_stream(&context, &principal)?;
    let snapshot = frame(Some("snapshot"), Some(after), snapshot).map_err(|error| ApiError::internal(&error))?;
    let events = EventFeed::new(context, principal, filter, run_id, (after, snapshot), counted);
    let frames = stream::unfold(events, async |mut events| {
        let next = events.next().await?;
        Some((Ok::<_, Infallible>(next), events))
    });
    Ok(([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(frames)).into_response())
}
