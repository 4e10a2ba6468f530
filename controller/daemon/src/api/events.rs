//! Events of runs and agents, in pages.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::StatusCode;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use serde::{Deserialize, Serialize};
use sluice_state::events::{self, EventFilter, EventQuery, StoredDiff, TrajectoryQuery, check_event_type};
use utoipa::{OpenApi, ToSchema};

use super::event_view::EventView;
use super::names::check_text;
use super::sandboxes::lookup;
use super::{Context, NoQuery, paging};
use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::extract::{PathNames, Query};
use crate::permission::Operation;
use crate::principal::Principal;
use crate::timestamp::timestamp_of;

#[derive(OpenApi)]
#[openapi(paths(list, trajectory, file_diff), components(schemas(Direction)))]
pub(super) struct Doc;

pub(super) fn routes() -> Router<Arc<ApiContext>> {
    Router::new()
        .route("/api/v1/sandboxes/{id}/events", get(list))
        .route("/api/v1/sandboxes/{id}/trajectory", get(trajectory))
        .route("/api/v1/sandboxes/{id}/file-diffs/{event_id}", get(file_diff))
}

const TRAJECTORY_MAX: u32 = 1000;
const TYPES_MAX: usize = 32;
/// Maximum number of characters of a search.
const SEARCH_MAX: usize = 200;

/// Selection of events.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Number of events, 1 to 500.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
    /// `next_cursor` of the page before, or the `seq` of an event.
    cursor: Option<i64>,
    /// Side of the cursor.
    #[serde(default)]
    direction: Direction,
    /// Types, joined by commas; `agent.*` selects all with this beginning.
    event_type: Option<String>,
    /// A text that type or data contains, 1 to 200 characters.
    q: Option<String>,
    /// Not taken.
    #[param(ignore)]
    offset: Option<String>,
}

/// Side of a cursor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Direction {
    /// Events before the cursor.
    #[default]
    Older,
    /// Events after the cursor.
    Newer,
}

/// A page of events, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Events {
    events: Vec<EventView>,
    /// Number of selected events on all pages, at most 10,000.
    total_count: u32,
    /// True if there may be more than that: only the newest 50,000 events are searched.
    total_count_capped: bool,
    /// Cursor of the next page; null on the last one.
    next_cursor: Option<i64>,
    /// True if more events follow.
    has_more: bool,
}

/// Lists the events of a run, newest first.
#[utoipa::path(
    get, path = "/api/v1/sandboxes/{id}/events",
    params(("id" = String, Path, description = "Id, or a name of the own owner"), ListQuery),
    responses(
        (status = 200, body = Events), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)
    )
)]
async fn list(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Events>, ApiError> {
    let sandbox = lookup::named(&context, &principal, Operation::Read, &id).await?;
    let filter = EventFilter { sandbox_id: Some(sandbox.key.run_id.to_string()), ..EventFilter::default() };
    page(&context, filter, query).await.map(Json)
}

/// Returns a page of the events of a filter.
pub(super) async fn page(context: &ApiContext, filter: EventFilter, query: ListQuery) -> Result<Events, ApiError> {
    if query.offset.is_some() {
        return Err(ApiError::invalid("offset", "offset is not taken; use cursor, the next_cursor of the page before"));
    }
    let limit = paging::limit(query.limit, paging::LIST_MAX)?;
    if let Some(text) = &query.q {
        check_text("q", text, SEARCH_MAX)?;
    }
    let types = query.event_type.as_deref().map_or(Ok(Vec::new()), |text| types("event_type", text))?;
    let direction = match query.direction {
        Direction::Older => events::Direction::Older,
        Direction::Newer => events::Direction::Newer,
    };
    let filter = EventFilter { types, ..filter };
    let query = EventQuery { filter, text: query.q, cursor: query.cursor, direction, limit };
    let page = context.store.list_events(query).await?;
    Ok(Events {
        events: EventView::all(page.events)?,
        total_count: page.total_count,
        total_count_capped: page.is_count_capped,
        next_cursor: page.next_cursor,
        has_more: page.next_cursor.is_some(),
    })
}

/// Reads types that are joined by commas, from a query parameter.
///
/// # Errors
/// 422, with the name of the parameter.
pub(super) fn types(parameter: &str, text: &str) -> Result<Vec<String>, ApiError> {
    let is_type = |word: &&str| check_event_type(word.strip_suffix('*').unwrap_or(word)).is_ok();
    let types: Vec<_> = text.split(',').collect();
    if types.len() <= TYPES_MAX && types.iter().all(is_type) {
        return Ok(types.into_iter().map(str::to_owned).collect());
    }
    let message = format!("{parameter} is at most 32 event types, joined by commas, such as agent.*,run.state_changed");
    Err(ApiError::invalid(parameter, message))
}

/// Selection of a trajectory.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct StepsQuery {
    /// Number of events, 1 to 1000.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// `next_cursor` of the part before.
    cursor: Option<i64>,
    /// Types, joined by commas; `agent.*` selects all with this beginning.
    event_type: Option<String>,
}

/// A part of a run's trajectory: its events but for heartbeats, oldest first.
#[derive(Debug, Serialize, ToSchema)]
struct TrajectoryPart {
    events: Vec<EventView>,
    heartbeat_summary: HeartbeatView,
    /// Number of events of the run, with heartbeats.
    total_events: u64,
    /// Number of events of the run, without heartbeats.
    trajectory_events: u64,
    /// Cursor of the next part; null on the last one.
    next_cursor: Option<i64>,
    /// True if more events follow.
    has_more: bool,
}

/// All heartbeats of a run.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Heartbeats)]
struct HeartbeatView {
    count: u64,
    first_heartbeat: Option<String>,
    last_heartbeat: Option<String>,
}

/// Returns the trajectory of a run.
#[utoipa::path(
    get, path = "/api/v1/sandboxes/{id}/trajectory",
    params(("id" = String, Path, description = "Id, or a name of the own owner"), StepsQuery),
    responses(
        (status = 200, body = TrajectoryPart), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)
    )
)]
async fn trajectory(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(query): Query<StepsQuery>,
) -> Result<Json<TrajectoryPart>, ApiError> {
    let sandbox = lookup::named(&context, &principal, Operation::Read, &id).await?;
    let query = TrajectoryQuery {
        sandbox_id: sandbox.key.run_id.to_string(),
        types: query.event_type.as_deref().map_or(Ok(Vec::new()), |text| types("event_type", text))?,
        cursor: query.cursor,
        limit: paging::limit(query.limit, TRAJECTORY_MAX)?,
    };
    let part = context.store.trajectory(query).await?;
    Ok(Json(TrajectoryPart {
        events: EventView::all(part.events)?,
        heartbeat_summary: HeartbeatView {
            count: part.heartbeats.count,
            first_heartbeat: timestamp_of(part.heartbeats.first_us),
            last_heartbeat: timestamp_of(part.heartbeats.last_us),
        },
        total_events: part.total_events,
        trajectory_events: part.trajectory_events,
        next_cursor: part.next_cursor,
        has_more: part.next_cursor.is_some(),
    }))
}

/// Returns the diff of an event `agent.file_edited`, as bytes to store.
#[utoipa::path(
    get, path = "/api/v1/sandboxes/{id}/file-diffs/{event_id}",
    params(
        ("id" = String, Path, description = "Id, or a name of the own owner"),
        ("event_id" = String, Path, description = "Id of the event")
    ),
    responses(
        (
            status = 200, body = String, content_type = "application/octet-stream",
            headers(("x-truncated" = bool, description = "Whether the end of the diff was cut off"))
        ),
        (status = 401, body = ErrorBody), (status = 403, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 410, body = ErrorBody), (status = 422, body = ErrorBody)
    )
)]
async fn file_diff(
    State(context): Context,
    principal: Principal,
    PathNames([id, event_id]): PathNames<2>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Response, ApiError> {
    let sandbox = lookup::named(&context, &principal, Operation::ReadContent, &id).await?;
    let event = context.store.find_event(sandbox.key.run_id.as_str(), &event_id).await?;
    let event = event.ok_or_else(ApiError::not_found)?;
    let diff = match context.store.event_diff(event.seq).await?.ok_or_else(ApiError::not_found)? {
        StoredDiff::Kept(diff) => diff,
        StoredDiff::Removed => {
            let message = "this diff was removed, since newer ones of its run needed the room";
            return Err(ApiError::new(StatusCode::GONE, "record_removed", message));
        }
    };
    let headers = [
        (CONTENT_TYPE.as_str(), "application/octet-stream".to_owned()),
        (CONTENT_DISPOSITION.as_str(), format!("attachment; filename=\"{}.diff\"", event.seq)),
        ("x-truncated", diff.truncated.to_string()),
    ];
    Ok((headers, diff.text).into_response())
}
