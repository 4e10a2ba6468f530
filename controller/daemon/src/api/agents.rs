//! Registered agents.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Json, Router};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sluice_state::agents::{Agent, AgentState, Heartbeat, TransitionRequest};
use sluice_state::control_log::ControlEntry;
use sluice_state::events::EventFilter;
use sluice_state::store::now_us;
use utoipa::{OpenApi, ToSchema};

use super::events::{Events, ListQuery, page};
use super::paging::invalid_cursor;
use super::{Context, NoQuery, paging};
use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::extract::{JsonBody, PathNames, Query};
use crate::permission::Operation;
use crate::principal::Principal;
use crate::timestamp::{timestamp, timestamp_of};

mod grants;
mod register;

#[derive(OpenApi)]
#[openapi(paths(register::register, list, show, delete, transition, heartbeat, events))]
pub(super) struct Doc;

pub(super) fn routes() -> Router<Arc<ApiContext>> {
    Router::new()
        .route("/api/v1/agents", get(list).post(register::register))
        .route("/api/v1/agents/{id}", get(show).delete(delete))
        .route("/api/v1/agents/{id}/transition", post(transition))
        .route("/api/v1/agents/{id}/heartbeat", post(heartbeat))
        .route("/api/v1/agents/{id}/events", get(events))
}

/// A registered agent.
#[derive(Debug, Serialize, ToSchema)]
struct AgentView {
    agent_id: String,
    owner_id: String,
    zone_id: Option<String>,
    name: Option<String>,
    billing_account_id: String,
    allow_sandbox: bool,
    /// Host directories that its runs may read.
    grants: Vec<String>,
    /// `UNKNOWN`, `CONNECTED`, `IDLE` or `SUSPENDED`.
    state: &'static str,
    /// Number of moves into CONNECTED.
    generation: u64,
    last_heartbeat: Option<String>,
    #[schema(value_type = Object)]
    metadata: Value,
    created_at: String,
    updated_at: String,
}

/// Selection of agents.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct AgentQuery {
    /// Number of agents, 1 to 500.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// A page of agents, in the order of their owners and ids.
#[derive(Debug, Serialize, ToSchema)]
struct Agents {
    agents: Vec<AgentView>,
    /// Cursor of the next page; null on the last one.
    next_cursor: Option<String>,
    /// True if more agents follow.
    has_more: bool,
}

/// Lists agents. Those of single runs are left out.
#[utoipa::path(
    get, path = "/api/v1/agents", params(AgentQuery),
    responses(
        (status = 200, body = Agents), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 422, body = ErrorBody)
    )
)]
async fn list(
    State(context): Context,
    principal: Principal,
    Query(query): Query<AgentQuery>,
) -> Result<Json<Agents>, ApiError> {
    let scope = principal.require(Operation::Read)?;
    let limit = paging::limit(query.limit, paging::LIST_MAX)?;
    let after = query.cursor.as_deref().map(|cursor| cursor.rsplit_once('/').ok_or_else(invalid_cursor)).transpose()?;
    let after = after.map(|(owner, agent_id)| (owner.to_owned(), agent_id.to_owned()));
    let mut agents = context.store.list_agents(scope.owner(), after, limit + 1).await?;
    let has_more = agents.len() > limit as usize;
    agents.truncate(limit as usize);
    let last = agents.last().filter(|_| has_more);
    let next_cursor = last.map(|agent| format!("{}/{}", agent.owner, agent.agent_id));
    let agents = agents.into_iter().map(|agent| AgentView::of(beating(&context, agent)));
    let agents = agents.collect::<Result<_, _>>()?;
    Ok(Json(Agents { agents, next_cursor, has_more }))
}

/// Shows an agent.
#[utoipa::path(
    get, path = "/api/v1/agents/{id}", params(("id" = String, Path, description = "Id; of admins, OWNER/ID too")),
    responses(
        (status = 200, body = AgentView), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)
    )
)]
async fn show(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Json<AgentView>, ApiError> {
    let agent = named(&context, &principal, Operation::Read, &id).await?;
    AgentView::of(agent).map(Json)
}

/// Deletes an agent that is not CONNECTED.
#[utoipa::path(
    delete, path = "/api/v1/agents/{id}", params(("id" = String, Path, description = "Id; of admins, OWNER/ID too")),
    responses(
        (status = 204, description = "It is deleted"), (status = 401, body = ErrorBody),
        (status = 403, body = ErrorBody), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody),
        (status = 422, body = ErrorBody), (status = 503, body = ErrorBody)
    )
)]
async fn delete(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<StatusCode, ApiError> {
    const OPERATION: &str = "agent.delete";
    let agent = named(&context, &principal, Operation::RegisterAgent, &id).await?;
    if agent.suspended_by_admin && principal.may(Operation::GrantAgent).is_none() {
        // A new agent of this id would not be suspended.
        return Err(ApiError::admin_only());
    }
    let seq = context.record(&principal, entry(OPERATION, &agent.owner, &agent.agent_id)).await?;
    match context.store.delete_agent(&agent.owner, &agent.agent_id).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(error) => Err(context.record_failure(&principal, OPERATION, seq, error.into()).await),
    }
}

/// A move of an agent.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Transition {
    target_state: TargetState,
    /// Generation that the caller has seen.
    expected_generation: Option<u64>,
}

/// State to reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
enum TargetState {
    Connected,
    Idle,
    Suspended,
}

/// Moves an agent to another state.
#[utoipa::path(
    post, path = "/api/v1/agents/{id}/transition", request_body = Transition,
    params(("id" = String, Path, description = "Id; of admins, OWNER/ID too")),
    responses(
        (status = 200, body = AgentView), (status = 400, body = ErrorBody), (status = 401, body = ErrorBody),
        (status = 403, body = ErrorBody), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody),
        (status = 413, body = ErrorBody), (status = 415, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 503, body = ErrorBody)
    )
)]
async fn transition(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(NoQuery {}): Query<NoQuery>,
    body: JsonBody<Transition>,
) -> Result<Json<AgentView>, ApiError> {
    const OPERATION: &str = "agent.transition";
    let agent = named(&context, &principal, Operation::SuspendAgent, &id).await?;
    let target = match body.value.target_state {
        TargetState::Connected => AgentState::Connected,
        TargetState::Idle => AgentState::Idle,
        TargetState::Suspended => AgentState::Suspended,
    };
    let request = TransitionRequest {
        target,
        observed: None,
        expected_generation: body.value.expected_generation,
        is_explicit: true,
        by_admin: principal.may(Operation::GrantAgent).is_some(),
    };
    let entry = ControlEntry {
        request: Some(body.digest),
        before: Some(json!({ "generation": agent.generation, "state": agent.state.as_str() })),
        after: Some(json!({ "state": target.as_str() })),
        ..entry(OPERATION, &agent.owner, &agent.agent_id)
    };
    let seq = context.record(&principal, entry).await?;
    match context.store.transition_agent(&agent.owner, &agent.agent_id, request).await {
        Ok(agent) => AgentView::of(agent).map(Json),
        Err(error) => Err(context.record_failure(&principal, OPERATION, seq, error.into()).await),
    }
}

/// A heartbeat that was recorded.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Received)]
struct HeartbeatReceipt {
    /// `received`.
    status: &'static str,
    agent_id: String,
    /// Time in UTC.
    timestamp: String,
}

/// Records that an agent lives.
#[utoipa::path(
    post, path = "/api/v1/agents/{id}/heartbeat",
    params(("id" = String, Path, description = "Id; of admins, OWNER/ID too")),
    responses(
        (status = 200, body = HeartbeatReceipt), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)
    )
)]
async fn heartbeat(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Json<HeartbeatReceipt>, ApiError> {
    let agent = named(&context, &principal, Operation::RegisterAgent, &id).await?;
    let time_us = now_us();
    let Agent { owner, agent_id, .. } = agent;
    let heartbeat = Heartbeat { owner, agent_id: agent_id.clone(), time_us };
    context.heartbeats.add(heartbeat);
    Ok(Json(HeartbeatReceipt { status: "received", agent_id, timestamp: timestamp(time_us) }))
}

/// Lists the events of an agent, newest first.
#[utoipa::path(
    get, path = "/api/v1/agents/{id}/events",
    params(("id" = String, Path, description = "Id; of admins, OWNER/ID too"), ListQuery),
    responses(
        (status = 200, body = Events), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)
    )
)]
async fn events(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Events>, ApiError> {
    let agent = named(&context, &principal, Operation::Read, &id).await?;
    let filter = EventFilter { owner: Some(agent.owner), agent_id: Some(agent.agent_id), ..EventFilter::default() };
    page(&context, filter, query).await.map(Json)
}

/// Returns the agent of an id: of the caller's owner, or of `OWNER/ID`.
async fn named(context: &ApiContext, principal: &Principal, operation: Operation, id: &str) -> Result<Agent, ApiError> {
    let scope = principal.require(operation)?;
    let (owner, agent_id) = id.rsplit_once('/').unwrap_or((&principal.owner, id));
    let found = if scope.has_owner(owner) { context.store.find_agent(owner, agent_id).await? } else { None };
    found.filter(|agent| !agent.ephemeral).map(|agent| beating(context, agent)).ok_or_else(ApiError::not_found)
}

/// Returns an agent with its newest heartbeat, which may not be in the database yet.
fn beating(context: &ApiContext, agent: Agent) -> Agent {
    let newest = context.heartbeats.newest(&agent.owner, &agent.agent_id);
    Agent { last_heartbeat_us: newest.max(agent.last_heartbeat_us), ..agent }
}

fn entry(operation: &str, owner: &str, agent_id: &str) -> ControlEntry {
    ControlEntry {
        operation: operation.to_owned(),
        object: Some(agent_id.to_owned()),
        owner: Some(owner.to_owned()),
        ..ControlEntry::default()
    }
}

impl AgentView {
    fn of(agent: Agent) -> Result<Self, ApiError> {
        let broken = |error: serde_json::Error| ApiError::internal(&error);
        Ok(Self {
            state: agent.state.as_str(),
            grants: serde_json::from_str(&agent.grants).map_err(broken)?,
            metadata: serde_json::from_str(&agent.metadata).map_err(broken)?,
            last_heartbeat: timestamp_of(agent.last_heartbeat_us),
            created_at: timestamp(agent.created_us),
            updated_at: timestamp(agent.updated_us),
            agent_id: agent.agent_id,
            owner_id: agent.owner,
            zone_id: agent.zone_id,
            name: agent.name,
            billing_account_id: agent.billing_account_id,
            allow_sandbox: agent.allow_sandbox,
            generation: agent.generation,
        })
    }
}
