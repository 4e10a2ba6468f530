//! A run as answers show it.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use sluice_state::ledger::usd;
use sluice_state::sandboxes::{Sandbox, SandboxState, SandboxVerdict};
use sluice_state::store::now_us;
use utoipa::ToSchema;

use crate::api_error::ApiError;
use crate::context::ApiContext;
use crate::identity::{RunMetadata, trace_id};
use crate::on_cap::CapTreatment;
use crate::stored_request::StoredLimits;
use crate::timestamp::{timestamp, timestamp_of};

/// A run.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct SandboxView {
    /// Id of the run.
    sandbox_id: String,
    /// The same.
    run_id: String,
    /// Present attempt, from 0.
    attempt: u32,
    name: Option<String>,
    owner_id: String,
    agent_id: String,
    billing_account_id: String,
    project: Option<String>,
    /// `PENDING`, `CREATING`, `RUNNING`, `COMPLETING`, `COMPLETED` or `FAILED`.
    state: &'static str,
    /// State that its owner wants: `running`, `paused` or `stopped`.
    desired_state: &'static str,
    /// State of its container: `absent`, `creating`, `running`, `paused`, `held` (a call waits for an approval) or `stopping`.
    observed_state: &'static str,
    /// `success`, `cancelled` or `failed`, when it is decided.
    outcome: Option<&'static str>,
    failure_code: Option<String>,
    /// Message of the failure. In lists and details, of a run that waits for a retry: the message of the attempt before.
    error_message: Option<String>,
    paused_at: Option<String>,
    labels: BTreeMap<String, String>,
    priority: i64,
    /// Cap of all attempts in dollars.
    max_cost_usd: Option<String>,
    /// Calls of all attempts that have ended.
    calls: u64,
    /// Their known costs in dollars so far; null without any. Receipts are the bill.
    cost_usd: Option<String>,
    /// Number of those calls whose cost is not known.
    unknown_costs: u64,
    created_at: String,
    claimed_at: Option<String>,
    started_at: Option<String>,
    ended_at: Option<String>,
    /// Time at which it ends at the latest.
    deadline_at: Option<String>,
    last_work_at: Option<String>,
    last_heartbeat_at: Option<String>,
    heartbeat_status: Option<String>,
    /// Number of changes.
    generation: u64,
}

/// A run with its request.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SandboxDetail)]
pub(in crate::api) struct SandboxDetailView {
    #[serde(flatten)]
    sandbox: SandboxView,
    /// Reason of the last change of its state.
    reason: Option<String>,
    /// Reason that the run waits: `turn`, `retry` or `dependencies` in the queue; `resume`, `approval` or `answer` while it works.
    waiting_for: Option<&'static str>,
    graph_id: String,
    models: Vec<String>,
    image: String,
    /// Names of the environment variables that the request set.
    env_names: Vec<String>,
    limits: LimitsView,
    /// Treatment of a call that would exceed a cap.
    on_cap: CapTreatment,
    /// Minutes without work after which it ends; null for those of the host.
    ttl_minutes: Option<u32>,
    /// True if its workspace is kept after the end.
    keep_workspace: bool,
    /// Failure codes that are retried besides those that always are.
    retry_on: Vec<String>,
    /// Directories in the sandbox that are those of the host that its agent may read.
    mount_table: Vec<String>,
    depends_on: Vec<String>,
    /// True if the run works on a repository, which `…/git` shows.
    has_repository: bool,
    /// Its branch of that repository.
    branch: Option<String>,
    /// Metadata of its calls, as the caller has given it.
    metadata: RunMetadata,
    /// Trace of its calls, 32 hexadecimal digits.
    trace_id: String,
    /// Claim of the agent when it was done, such as `success`, `turns` and `output`. The exit code decides.
    #[schema(value_type = Option<Object>)]
    result: Option<Value>,
    /// Exit code of the command `sluice run` for the present attempt, when that has ended.
    exit_code: Option<i32>,
}

/// Limits of a run, in the grammar of settings.
#[derive(Debug, Serialize, ToSchema)]
struct LimitsView {
    timeout: String,
    memory: String,
    cpus: String,
    pids: u64,
    max_calls: Option<u64>,
    max_tokens: Option<u64>,
    max_concurrency: Option<u64>,
    rate: Option<String>,
    /// Time without work after which it ends; null for that of the host.
    idle: Option<String>,
    /// Bytes that its workspace may take on disk.
    workspace: String,
}

impl SandboxView {
    /// Returns the view of a run.
    pub(in crate::api) fn of(sandbox: Sandbox) -> Self {
        let (code, message) = sandbox.verdict.as_ref().map_or((None, None), SandboxVerdict::failure);
        let (failure_code, error_message) = (code.map(str::to_owned), message.map(str::to_owned));
        Self {
            sandbox_id: sandbox.key.run_id.to_string(),
            run_id: sandbox.key.run_id.to_string(),
            attempt: sandbox.key.attempt,
            state: sandbox.state.as_str(),
            desired_state: sandbox.desired_state.as_str(),
            observed_state: observed_state(&sandbox),
            outcome: sandbox.verdict.as_ref().map(SandboxVerdict::outcome),
            failure_code,
            error_message,
            paused_at: timestamp_of(sandbox.paused_us),
            max_cost_usd: sandbox.cap.map(|cap| usd(cap.into())),
            calls: sandbox.sums.calls,
            cost_usd: sandbox.sums.nano_usd.map(|nanos| usd(nanos.into())),
            unknown_costs: sandbox.sums.unknown_costs,
            created_at: timestamp(sandbox.created_us),
            claimed_at: timestamp_of(sandbox.claimed_us),
            started_at: timestamp_of(sandbox.started_us),
            ended_at: timestamp_of(sandbox.ended_us),
            deadline_at: timestamp_of(sandbox.ends_us(now_us())),
            last_work_at: timestamp_of(sandbox.last_work_us),
            last_heartbeat_at: timestamp_of(sandbox.last_heartbeat_us),
            heartbeat_status: sandbox.heartbeat_status,
            name: sandbox.name,
            owner_id: sandbox.owner,
            agent_id: sandbox.agent_id,
            billing_account_id: sandbox.account,
            project: sandbox.project,
            labels: sandbox.labels,
            priority: sandbox.priority,
            generation: sandbox.generation,
        }
    }

    /// Adds the message of the previous attempt to a run that waits for its next one.
    pub(in crate::api) fn with_message(self, message: Option<String>) -> Self {
        Self { error_message: self.error_message.or(message), ..self }
    }
}

fn observed_state(sandbox: &Sandbox) -> &'static str {
    match sandbox.state {
        SandboxState::Pending | SandboxState::Completed | SandboxState::Failed => "absent",
        SandboxState::Creating => "creating",
        SandboxState::Running if sandbox.paused_us.is_some() => "paused",
        SandboxState::Running if sandbox.clocks_stopped_us.is_some() => "held",
        SandboxState::Running => "running",
        SandboxState::Completing => "stopping",
    }
}

/// Returns a run with its request.
pub(in crate::api) async fn detail(context: &ApiContext, sandbox: Sandbox) -> Result<SandboxDetailView, ApiError> {
    let run_id = &sandbox.key.run_id;
    let request = context.stored_request(run_id).await?;
    let depends_on = context.store.sandbox_dependencies(run_id).await?;
    let change = context.store.last_state_change(run_id).await?;
    let cause = context.store.wait_cause(&sandbox).await?;
    let (waiting_for, message) = cause.map_or((None, None), |cause| (Some(cause.waiting_for), cause.error_message));
    Ok(SandboxDetailView {
        reason: change["reason"].as_str().map(str::to_owned),
        waiting_for,
        graph_id: request.graph_id,
        models: request.models,
        image: request.image,
        env_names: request.variables.into_iter().collect(),
        limits: LimitsView::of(request.limits),
        on_cap: request.on_cap,
        ttl_minutes: request.ttl_minutes,
        keep_workspace: request.keep_workspace,
        retry_on: sandbox.retry_on.clone(),
        mount_table: request.mounts.targets(),
        has_repository: request.repository.is_some(),
        branch: request.repository.map(|repository| repository.branch),
        depends_on,
        trace_id: trace_id(run_id, request.traceparent.as_ref()),
        metadata: request.metadata,
        result: result(context, &sandbox).await?,
        exit_code: exit_code(context, &sandbox).await?,
        sandbox: SandboxView::of(sandbox).with_message(message),
    })
}

/// Returns the exit code of the present attempt, if it has ended.
pub(in crate::api) async fn exit_code(context: &ApiContext, sandbox: &Sandbox) -> Result<Option<i32>, ApiError> {
    Ok(context.store.find_run(&sandbox.key).await?.and_then(|run| run.exit_code))
}

async fn result(context: &ApiContext, sandbox: &Sandbox) -> Result<Option<Value>, ApiError> {
    let text = context.store.agent_result(&sandbox.key.run_id).await?;
    text.map(|text| serde_json::from_str(&text).map_err(|error| ApiError::internal(&error))).transpose()
}

impl LimitsView {
    fn of(limits: StoredLimits) -> Self {
        Self {
            timeout: format!("{}s", limits.timeout_s),
            memory: limits.memory.to_string(),
            cpus: format!("{}.{:03}", limits.cpu_millis / 1000, limits.cpu_millis % 1000),
            pids: limits.pids,
            max_calls: limits.max_calls,
            max_tokens: limits.max_tokens,
            max_concurrency: limits.max_concurrency,
            rate: limits.rate,
            idle: limits.idle_s.map(|idle| format!("{idle}s")),
            workspace: limits.workspace.to_string(),
        }
    }
}
