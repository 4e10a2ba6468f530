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
use sluice_contract::RunId;
use sluice_contract::text::error_chain;
use sluice_runs::project_repository::ProjectRepository;
use sluice_state::agents::{Agent, NewAgent};
use sluice_state::budget::{BudgetError, BudgetLog};
use sluice_state::control_log::ControlEntry;
use sluice_state::idempotency::IdempotencyKey;
use sluice_state::process::Process;
use sluice_state::sandboxes::{CreatedSandbox, NewSandbox, RunAgent, Sandbox};
use sluice_state::store::now_us;
use utoipa::ToSchema;

use super::request::SandboxRequest;
use super::resumed;
use crate::api::idempotent::{IdempotentRepeat, RequestKey, release};
use crate::api::{Context, agent_accounts, names};
use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::extract::{JsonBody, Query};
use crate::identity::RequestOrigin;
use crate::mount_table::MountTable;
use crate::permission::Operation;
use crate::principal::Principal;
use crate::request_rate::RequestRate;
use crate::run_policy::RunPolicy;
use crate::stored_request::RunCreator;
use crate::variable_values::Variables;

/// Number of automatic retries of a run.
const RETRIES: u32 = 3;

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
    /// Number of its runs so far.
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
        check_budget_log(&context, &new.sandbox.account).await?;
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
            release(&context, key).await?;
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
    check_budget_log(context, &sandbox.account).await?;
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

/// Checks that the budgets in the database match the budget log, as `sluice run` does: an account whose budget was
/// lost must not spend without a limit.
pub(super) async fn check_budget_log(context: &ApiContext, account: &str) -> Result<(), ApiError> {
    let log = BudgetLog { layout: &context.layout, keys: &context.keys, store: &context.store };
    let note = log.check_admission(account).await.map_err(BudgetError::from)?;
    note.iter().for_each(|error| (context.log)(&error_chain(error)));
    Ok(())
}

/// Counts a creation of an owner.
pub(in crate::api) fn take_creation(creations: &Mutex<RequestRate<String>>, owner: &str) -> Result<(), ApiError> {
    let mut creations = creations.lock().unwrap_or_else(PoisonError::into_inner);
    creations.take(owner.to_owned(), Instant::now()).map_err(|wait| {
        let message = "this owner creates more runs in a minute than the daemon takes; wait as Retry-After says";
        ApiError::too_many("creations_limited", message, wait.as_secs() + 1)
    })
}

/// Returns the owner of the new run.
fn owner(principal: &Principal, named: Option<&str>) -> Result<String, ApiError> {
    match named {
        Some(_) if principal.may(Operation::GrantAgent).is_none() => Err(ApiError::admin_only()),
        Some(owner) => names::check_text("owner_id", owner, 255).map(|()| owner.to_owned()),
        None => Ok(principal.owner.clone()),
    }
}

/// Returns the registered agent of the new run.
async fn registered(
    context: &ApiContext,
    principal: &Principal,
    owner: &str,
    agent_id: &str,
) -> Result<Agent, ApiError> {
    let found = context.store.find_agent(owner, agent_id).await?;
    if let Some(agent) = found.filter(|agent| !agent.ephemeral) {
        return Ok(agent);
    }
    if owner != principal.owner && context.store.find_agent(&principal.owner, agent_id).await?.is_some() {
        let message = "the agent belongs to another owner than owner_id; name its owner";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "not_owner", message));
    }
    Err(ApiError::not_found())
}

/// A run to create, and the values of its variables.
struct NewRun {
    sandbox: NewSandbox,
    variables: Variables,
}

/// Checks a request, and returns the requested run.
async fn new_run(
    context: &ApiContext,
    principal: &Principal,
    policy: &RunPolicy,
    mut request: SandboxRequest,
    origin: &RequestOrigin,
) -> Result<NewRun, ApiError> {
    let owner = owner(principal, request.owner_id.as_deref())?;
    let agent = match &request.agent_id {
        Some(id) => Some(registered(context, principal, &owner, id).await?),
        None => None,
    };
    let project = match &request.project {
        Some(name) => Some(project(principal, policy, &owner, name)?),
        None => None,
    };
    let payer = match &agent {
        Some(agent) => Some(agent.billing_account_id.clone()),
        // A run without an account is refused below.
        None => agent_accounts::default(principal, Some(policy)).ok(),
    };
    let resumed = match &request.resume_from {
        Some(name) => Some(resumed::resumable(context, principal, &owner, name).await?),
        None => None,
    };
    let chat = request.chat.clone();
    let asked_repository = request.repository.take();
    let mut checked = request.check(&policy.of_account(payer.as_deref()), origin)?;
    if let Some(resumed) = resumed {
        checked.stored.resume_from = Some(resumed.key.to_string());
        checked.stored.resumes_workspace = resumed.has_workspace;
    }
    let run_id = names::run_id(uuid::Uuid::new_v4().as_u128());
    let run_id: RunId = run_id.parse().map_err(|error| ApiError::internal(&error))?;
    if let Some(asked) = asked_repository {
        checked.stored.repository = Some(asked.check(repository(policy, project.as_deref())?, run_id.as_str())?);
    }
    checked.stored.creator = Some(RunCreator { principal: principal.id.clone(), owner: principal.owner.clone() });
    let (agent, account) = match agent {
        Some(agent) => {
            agent_accounts::check(principal, &agent.billing_account_id)?;
            checked.stored.mounts = mount_table(context, policy, &agent).await;
            (RunAgent::Registered(agent.agent_id), agent.billing_account_id)
        }
        None => {
            let account = agent_accounts::default(principal, Some(policy))?;
            (RunAgent::Ephemeral(ephemeral(&owner, &run_id, &account)), account)
        }
    };
    let sandbox = NewSandbox {
        run_id,
        owner,
        agent,
        name: checked.name,
        project,
        account,
        graph: checked.stored.graph_id.clone(),
        model: checked.stored.models.first().cloned(),
        image: checked.stored.image.clone(),
        daemon: Process::current()?,
        cap: checked.cap,
        hold_nano: policy.hold,
        // A chat client decides itself whether to retry, and sees the failure at once.
        max_retries: if chat.is_some() { 0 } else { RETRIES },
        retry_on: checked.retry_on,
        request: serde_json::to_string(&checked.stored).map_err(|error| ApiError::internal(&error))?,
        priority: checked.priority,
        labels: checked.labels,
        depends_on: checked.depends_on,
        run_time_us: sluice_contract::time::duration_micros(policy.deadline(&checked.stored.limits)),
        mount_paths: checked.stored.mounts.targets(),
        queued_max: policy.queued_max,
        idempotency: None,
        chat,
    };
    Ok(NewRun { sandbox, variables: checked.variables })
}

/// Returns the project of the new run. A project of others gets the same answer as a missing one.
fn project(principal: &Principal, policy: &RunPolicy, owner: &str, name: &str) -> Result<String, ApiError> {
    let is_admin = principal.may(Operation::GrantAgent).is_some();
    let own = policy.project(name, owner).or_else(|| policy.projects.iter().find(|it| is_admin && it.name == name));
    own.map(|project| project.name.clone()).ok_or_else(|| {
        let message = "you have no project of this name; leave it out, or ask an admin to add you to its owners";
        let error = ApiError::new(StatusCode::NOT_FOUND, "unknown_project", message);
        error.with_details(json!({ "field": "project" }))
    })
}

/// Returns the repository of the new run's project.
fn repository<'a>(policy: &'a RunPolicy, project: Option<&str>) -> Result<&'a ProjectRepository, ApiError> {
    let project = policy.projects.iter().find(|it| Some(it.name.as_str()) == project);
    project.and_then(|project| project.repository.as_ref()).ok_or_else(|| {
        let message = "name a project that has a repository: an admin sets it under [[projects]]";
        ApiError::invalid("project", message)
    })
}

/// Returns the mount table of an agent's grants. If a grant cannot be mounted, the operator's log has the reason, and the
/// run sees no grant at all.
async fn mount_table(context: &ApiContext, policy: &RunPolicy, agent: &Agent) -> MountTable {
    match policy.grants.mount_table(&agent.grants).await {
        Ok(table) => table,
        Err(error) => {
            let (owner, id) = (&agent.owner, &agent.agent_id);
            let error = error_chain(&error);
            (context.log)(&format!("agent {owner}/{id}: its run sees no directory of the host: {error}"));
            MountTable::default()
        }
    }
}

/// Returns the agent of a run that names none.
fn ephemeral(owner: &str, run_id: &RunId, account: &str) -> NewAgent {
    NewAgent {
        owner: owner.to_owned(),
        agent_id: run_id.to_string(),
        name: None,
        zone_id: None,
        billing_account_id: account.to_owned(),
        allow_sandbox: true,
        grants: "[]".to_owned(),
        metadata: "{}".to_owned(),
    }
}

/// Answers a request that was done before. The caller may see the run, or it is not there for it.
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
