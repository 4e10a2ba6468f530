//! Creation of a run.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::LOCATION;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sluice_state::agents::Agent;
use sluice_state::control_log::ControlEntry;
use sluice_state::creation::CreatedSandbox;
use sluice_state::idempotency::IdempotencyKey;
use sluice_state::sandboxes::Sandbox;
use sluice_state::store::now_us;
use utoipa::ToSchema;

use super::new_run::{NewRun, new_run};
use super::request::SandboxRequest;
use crate::api::Context;
use crate::api::idempotent::{IdempotentRepeat, RequestKey, release};
use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::extract::{JsonBody, Query};
use crate::identity::RequestOrigin;
use crate::permission::Operation;
use crate::principal::Principal;
use crate::request_rate::RequestRate;
use crate::run_policy::RunPolicy;

/// Kind of a creation.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct CreationQuery {
    /// Only checks whether the run could be created.
    #[serde(default)]
    dry_run: bool,
}

/// A run that was created.
#[derive(Debug, Serialize, ToSchema)]
struct CreatedRun {
    /// Id of the run; none for a dry run.
    sandbox_id: Option<String>,
    /// The same.
    run_id: Option<String>,
    /// Attempt, from 0.
    attempt: u32,
    /// State of the run.
    state: &'static str,
    /// Agent of the run.
    agent: RunAgentView,
    /// Directories in the sandbox that are those of the host that the agent may read, as they are.
    mount_table: Vec<String>,
    /// True if the account has a budget, of which an amount is held.
    budget_checked: bool,
}

/// The agent of a run.
#[derive(Debug, Serialize, ToSchema)]
struct RunAgentView {
    agent_id: String,
    /// State of the agent; null if it was removed with the run.
    state: Option<&'static str>,
    /// Number of moves of the agent into CONNECTED; null if it was removed with the run.
    generation: Option<u64>,
    /// True if it exists for this run only.
    ephemeral: bool,
}

/// Creates a run, which waits in the queue.
#[utoipa::path(
    post, path = "/api/v1/sandboxes", params(
        CreationQuery,
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 characters: the same key creates one run"),
        ("traceparent" = Option<String>, Header, description = "W3C Trace Context: the span that the run's trace belongs to"),
        ("x-request-id" = Option<String>, Header, description = "Id of the request, unless the metadata has one")
    ),
    request_body = SandboxRequest,
    responses(
        (status = 201, description = "The run; Location names it", body = CreatedRun),
        (status = 200, description = "The run that this key has created before, or a dry run", body = CreatedRun),
        (status = 400, body = ErrorBody), (status = 401, body = ErrorBody), (status = 402, body = ErrorBody),
        (status = 403, body = ErrorBody), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody),
        (status = 413, body = ErrorBody), (status = 415, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 429, body = ErrorBody), (status = 503, body = ErrorBody)
    )
)]
pub(super) async fn create(
    State(context): Context,
    principal: Principal,
    Query(query): Query<CreationQuery>,
    key: RequestKey,
    headers: HeaderMap,
    body: JsonBody<SandboxRequest>,
) -> Result<Response, ApiError> {
    principal.require(Operation::Create)?;
    let origin = RequestOrigin::of(&headers);
    let policy = context.policy.clone().ok_or_else(sandbox_disabled)?;
    if query.dry_run {
        let new = new_run(&context, &principal, &policy, body.value, &origin).await?;
        context.check_budget_log(&new.sandbox.account).await?;
        let mounts = new.sandbox.mount_paths.clone();
        let created = context.store.check_sandbox(new.sandbox, now_us()).await?;
        let mut run = CreatedRun::new(&created, mounts);
        (run.sandbox_id, run.run_id) = (None, None);
        return Ok(Json(run).into_response());
    }
    let key = match key.reserve(&context, &principal, body.digest).await? {
        IdempotentRepeat::Done(run_id) => return repeated(&context, &principal, &run_id).await,
        IdempotentRepeat::New(key) => key,
    };
    match record_and_create(&context, &principal, &policy, (body, &origin), key.clone()).await {
        Ok((created, mounts)) => {
            context.work.notify_one();
            let run = CreatedRun::new(&created, mounts);
            let location = format!("/api/v1/sandboxes/{}", created.sandbox.key.run_id);
            Ok((StatusCode::CREATED, [(LOCATION, location)], Json(run)).into_response())
        }
        Err(error) => {
            release(&context, key).await;
            Err(error)
        }
    }
}

pub(super) async fn record_and_create(
    context: &ApiContext,
    principal: &Principal,
    policy: &RunPolicy,
    (body, origin): (JsonBody<SandboxRequest>, &RequestOrigin),
    key: Option<IdempotencyKey>,
) -> Result<(CreatedSandbox, Vec<String>), ApiError> {
    const OPERATION: &str = "sandbox.create";
    let NewRun { mut sandbox, variables } = new_run(context, principal, policy, body.value, origin).await?;
    let creations = if sandbox.chat.is_some() { &context.chat_creations } else { &context.creations };
    take_creation(creations, &sandbox.owner)?;
    context.check_budget_log(&sandbox.account).await?;
    sandbox.idempotency = key;
    let (run_id, mounts) = (sandbox.run_id.clone(), sandbox.mount_paths.clone());
    let entry = ControlEntry {
        operation: OPERATION.to_owned(),
        object: Some(run_id.to_string()),
        owner: Some(sandbox.owner.clone()),
        request: Some(body.digest),
        after: Some(json!({
            "account": sandbox.account, "image": sandbox.image, "mount_paths": mounts, "name": sandbox.name,
            "project": sandbox.project,
        })),
        ..ControlEntry::default()
    };
    let seq = context.record(principal, entry).await?;
    // An orchestrator may claim the run as soon as it exists.
    context.variables.keep(run_id.clone(), variables);
    match context.store.create_sandbox(sandbox, now_us()).await {
        Ok(created) => Ok((created, mounts)),
        Err(error) => {
            context.variables.forget(&run_id);
            Err(context.record_failure(principal, OPERATION, seq, error.into()).await)
        }
    }
}

/// Returns the error of a host that creates no runs.
pub(in crate::api) fn sandbox_disabled() -> ApiError {
    let message = "this host creates no sandboxes; an admin sets sandbox_enabled and an upstream key";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "sandbox_disabled", message)
}

/// Counts a creation of an owner.
pub(in crate::api) fn take_creation(creations: &Mutex<RequestRate<String>>, owner: &str) -> Result<(), ApiError> {
    let mut creations = creations.lock().unwrap_or_else(PoisonError::into_inner);
    creations.take(owner.to_owned(), Instant::now()).map_err(|wait| {
        let message = "this owner creates more runs in a minute than the daemon takes; wait as Retry-After says";
        ApiError::too_many("creations_limited", message, wait.as_secs() + 1)
    })
}

/// Answers a request that was done before. A run that the caller may not see gets the answer of a missing one.
async fn repeated(context: &Arc<ApiContext>, principal: &Principal, run_id: &str) -> Result<Response, ApiError> {
    let sandbox = super::lookup::identified(context, principal, Operation::Create, run_id).await?;
    let agent = context.store.find_agent(&sandbox.owner, &sandbox.agent_id).await?;
    let mounts = context.stored_request(&sandbox.key.run_id).await?.mounts.targets();
    Ok(Json(CreatedRun::of(&sandbox, agent.as_ref(), mounts)).into_response())
}

impl CreatedRun {
    fn new(created: &CreatedSandbox, mount_table: Vec<String>) -> Self {
        let run = Self::of(&created.sandbox, Some(&created.agent), mount_table);
        Self { budget_checked: created.is_budget_checked, ..run }
    }

    fn of(sandbox: &Sandbox, agent: Option<&Agent>, mount_table: Vec<String>) -> Self {
        Self {
            sandbox_id: Some(sandbox.key.run_id.to_string()),
            run_id: Some(sandbox.key.run_id.to_string()),
            attempt: sandbox.key.attempt,
            state: sandbox.state.as_str(),
            agent: RunAgentView {
                agent_id: sandbox.agent_id.clone(),
                state: agent.map(|agent| agent.state.as_str()),
                generation: agent.map(|agent| agent.generation),
                ephemeral: sandbox.agent_ephemeral,
            },
            mount_table,
            budget_checked: sandbox.hold.is_some(),
        }
    }
}
