//! The new run that a request asks for.

use http::StatusCode;
use serde_json::json;
use sluice_contract::text::error_chain;
use sluice_contract::{RunId, RunKey};
use sluice_runs::project_repository::ProjectRepository;
use sluice_state::agents::{Agent, NewAgent};
use sluice_state::creation::{NewSandbox, RunAgent};
use sluice_state::process::Process;

use super::request::{CheckedRequest, SandboxRequest};
use super::resumed;
use crate::agent_accounts;
use crate::api::names;
use crate::api_error::ApiError;
use crate::context::ApiContext;
use crate::identity::{RequestOrigin, RunIdentity};
use crate::mount_table::MountTable;
use crate::permission::Operation;
use crate::principal::Principal;
use crate::run_policy::RunPolicy;
use crate::stored_request::RunCreator;
use crate::variable_values::Variables;

/// Number of automatic retries of a run.
const RETRIES: u32 = 3;

/// A run to create, and the values of its variables.
pub(super) struct NewRun {
    pub(super) sandbox: NewSandbox,
    pub(super) variables: Variables,
}

/// Checks a request, and returns the requested run.
pub(super) async fn new_run(
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
    let (agent, account, mounts) = run_agent(context, principal, policy, agent, (&owner, &run_id)).await?;
    checked.stored.mounts = mounts;
    check_metadata(&checked, &agent, (&run_id, &account))?;
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

/// Returns the agent of the new run, its account, and the directories of the host that the run sees.
async fn run_agent(
    context: &ApiContext,
    principal: &Principal,
    policy: &RunPolicy,
    agent: Option<Agent>,
    (owner, run_id): (&str, &RunId),
) -> Result<(RunAgent, String, MountTable), ApiError> {
    if let Some(agent) = agent {
        agent_accounts::check(principal, &agent.billing_account_id)?;
        let mounts = mount_table(context, policy, &agent).await;
        return Ok((RunAgent::Registered(agent.agent_id), agent.billing_account_id, mounts));
    }
    let account = agent_accounts::default(principal, Some(policy))?;
    Ok((RunAgent::Ephemeral(ephemeral(owner, run_id, &account)), account, MountTable::default()))
}

/// Checks that the calls of the new run can carry its metadata: otherwise its sidecar would not begin.
fn check_metadata(
    request: &CheckedRequest,
    agent: &RunAgent,
    (run_id, account): (&RunId, &str),
) -> Result<(), ApiError> {
    let key = RunKey { run_id: run_id.clone(), attempt: 0 };
    let run = RunIdentity {
        key: &key,
        account,
        graph_id: &request.stored.graph_id,
        agent: match agent {
            RunAgent::Registered(id) => Some(id.as_str()),
            RunAgent::Ephemeral(_) => None,
        },
        name: request.name.as_deref(),
        traceparent: request.stored.traceparent.as_ref(),
    };
    let checked = request.stored.metadata.check_call_size(&run);
    checked.map_err(|fault| ApiError::invalid(fault.field, fault.to_string()))
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
