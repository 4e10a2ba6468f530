//! Creation of a run: agent, budget, row and event in one transaction.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{OptionalExtension, Transaction, TransactionBehavior, params};
use serde_json::json;
use sluice_contract::{RunId, RunKey};

use super::SandboxError;
use super::lifecycle::{DesiredState, SandboxState};
use super::row::{Sandbox, report};
use crate::agents::{self, Agent, NewAgent};
use crate::budget::{self, AdmissionRequest};
use crate::chats::{self, NewChat};
use crate::events::CallSums;
use crate::events::announce;
use crate::idempotency::{self, IdempotencyKey};
use crate::process::Process;
use crate::store::{RunDriver, RunRow, Store};

/// The agent of a new run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunAgent {
    /// A registered agent of the owner.
    Registered(String),
    /// An agent for this run only.
    Ephemeral(NewAgent),
}

/// A run to create.
#[derive(Debug, Clone)]
pub struct NewSandbox {
    /// Id, which was never used.
    pub run_id: RunId,
    /// Owner of the run.
    pub owner: String,
    /// Agent of the owner.
    pub agent: RunAgent,
    /// Name.
    pub name: Option<String>,
    /// Project.
    pub project: Option<String>,
    /// Account that pays.
    pub account: String,
    /// The program's graph, as in the row of an attempt.
    pub graph: String,
    /// First model.
    pub model: Option<String>,
    /// Image.
    pub image: String,
    /// The daemon.
    pub daemon: Process,
    /// Cap of all attempts in nano-USD.
    pub cap: Option<i64>,
    /// Amount that a run without a cap holds of a budget.
    pub hold_nano: i64,
    /// Number of automatic retries.
    pub max_retries: u32,
    /// Failure codes that are retried besides those that always are.
    pub retry_on: Vec<String>,
    /// JSON of the request, stored unchanged.
    pub request: String,
    /// Runs of a higher priority are claimed first.
    pub priority: i64,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Runs of the owner that must succeed before this one is claimed.
    pub depends_on: BTreeSet<RunId>,
    /// Maximum time from the first claim to the end, in microseconds.
    pub run_time_us: i64,
    /// Paths of its mounts in the sandbox, for the event.
    pub mount_paths: Vec<String>,
    /// Number of runs that the owner may have in the queue.
    pub queued_max: u32,
    /// Reserved idempotency key of the request.
    pub idempotency: Option<IdempotencyKey>,
    /// The chat that the run is a turn of.
    pub chat: Option<NewChat>,
}

/// A run that was created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedSandbox {
    /// The run.
    pub sandbox: Sandbox,
    /// Agent, which is CONNECTED.
    pub agent: Agent,
    /// True if the account has a budget.
    pub is_budget_checked: bool,
}

impl Store {
    /// Creates a run: its agent becomes CONNECTED, an amount of the account's budget is held, and the run waits in the queue.
    /// All of that is done, or nothing.
    ///
    /// # Errors
    /// [`SandboxError`]; then nothing is changed.
    pub async fn create_sandbox(&self, new: NewSandbox, now_us: i64) -> Result<CreatedSandbox, SandboxError> {
        self.create(new, now_us, true).await
    }

    /// Checks whether a run could be created, and changes nothing.
    ///
    /// # Errors
    /// The errors of [`Store::create_sandbox`].
    pub async fn check_sandbox(&self, new: NewSandbox, now_us: i64) -> Result<CreatedSandbox, SandboxError> {
        self.create(NewSandbox { idempotency: None, ..new }, now_us, false).await
    }

    async fn create(&self, new: NewSandbox, now_us: i64, is_kept: bool) -> Result<CreatedSandbox, SandboxError> {
        let signal = self.event_signal();
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let (created, seq) = create(&transaction, &new, now_us)?;
            if is_kept {
                transaction.commit()?;
                announce(&signal, seq);
            }
            Ok(created)
        })
        .await
    }
}

fn create(transaction: &Transaction<'_>, new: &NewSandbox, now_us: i64) -> Result<(CreatedSandbox, i64), SandboxError> {
    if let Some(key) = &new.idempotency {
        idempotency::complete(transaction, key, new.run_id.as_str())?;
    }
    let agent = match &new.agent {
        RunAgent::Registered(agent_id) => agents::connect(transaction, &new.owner, agent_id)?,
        RunAgent::Ephemeral(agent) => {
            agents::create_ephemeral(transaction, &NewAgent { owner: new.owner.clone(), ..agent.clone() })?
        }
    };
    check_name(transaction, &new.owner, new.name.as_deref())?;
    check_queue(transaction, &new.owner, new.queued_max)?;
    let key = RunKey { run_id: new.run_id.clone(), attempt: 0 };
    let entry = RunRow {
        key: key.clone(),
        account: new.account.clone(),
        agent: new.graph.clone(),
        model: new.model.clone(),
        image: new.image.clone(),
        owner: new.daemon.clone(),
        driver: RunDriver::Daemon,
    };
    let cap = chats::run_cap(transaction, new.chat.as_ref(), new.cap, new.hold_nano)?;
    let (admitted, hold) = budget::admit(transaction, &AdmissionRequest { entry, cap, default: new.hold_nano })?;
    let sandbox = pending(new, key, &agent, (admitted.cap, hold), now_us);
    insert(transaction, &sandbox, &new.request)?;
    if let Some(chat) = &new.chat {
        chats::begin(transaction, &new.run_id, chat, now_us)?;
    }
    insert_dependencies(transaction, &sandbox, &new.depends_on)?;
    let data = json!({ "sandbox_id": new.run_id.as_str(), "name": new.name, "mount_paths": new.mount_paths });
    let seq = report(transaction, &sandbox, "sandbox.created", &data, now_us)?;
    Ok((CreatedSandbox { sandbox, agent, is_budget_checked: hold.is_some() }, seq))
}

/// Returns a new run that waits in the queue.
fn pending(
    new: &NewSandbox,
    key: RunKey,
    agent: &Agent,
    (cap, hold): (Option<i64>, Option<i64>),
    created_us: i64,
) -> Sandbox {
    Sandbox {
        key,
        owner: new.owner.clone(),
        agent_id: agent.agent_id.clone(),
        agent_ephemeral: agent.ephemeral,
        name: new.name.clone(),
        project: new.project.clone(),
        account: new.account.clone(),
        state: SandboxState::Pending,
        desired_state: DesiredState::Running,
        verdict: None,
        max_retries: new.max_retries,
        retry_on: new.retry_on.clone(),
        next_try_us: 0,
        priority: new.priority,
        labels: new.labels.clone(),
        // A run without a cap has the amount that it holds as its cap, in all attempts together.
        cap,
        attempt_cap: cap,
        hold_nano: new.hold_nano,
        hold,
        created_us,
        claimed_us: None,
        started_us: None,
        ended_us: None,
        run_time_us: new.run_time_us,
        deadline_us: None,
        paused_us: None,
        clocks_stopped_us: None,
        stopped_total_us: 0,
        sums: CallSums::default(),
        last_work_us: None,
        last_observed_work_us: None,
        last_heartbeat_us: None,
        heartbeat_status: None,
        generation: 0,
    }
}

/// Checks that no live run of the owner has this name.
pub(super) fn check_name(transaction: &Transaction<'_>, owner: &str, name: Option<&str>) -> Result<(), SandboxError> {
    let Some(name) = name else { return Ok(()) };
    let mut query =
        transaction.prepare_cached("SELECT 1 FROM sandboxes WHERE owner = ?1 AND name = ?2 AND ended_us IS NULL")?;
    if query.exists(params![owner, name])? { Err(SandboxError::NameTaken(name.to_owned())) } else { Ok(()) }
}

/// Checks that the owner has room in the queue.
pub(super) fn check_queue(transaction: &Transaction<'_>, owner: &str, max: u32) -> Result<(), SandboxError> {
    let queued: u32 = transaction
        .prepare_cached("SELECT count(*) FROM sandboxes WHERE owner = ?1 AND state = 'PENDING'")?
        .query_row([owner], |row| row.get(0))?;
    if queued < max { Ok(()) } else { Err(SandboxError::QueueFull(max)) }
}

/// Adds the dependencies of a run. They exist already, so no cycle is possible.
fn insert_dependencies(
    transaction: &Transaction<'_>,
    sandbox: &Sandbox,
    depends_on: &BTreeSet<RunId>,
) -> Result<(), SandboxError> {
    for other in depends_on {
        let owner: Option<String> = transaction
            .prepare_cached("SELECT owner FROM sandboxes WHERE run_id = ?1 AND run_id <> ?2")?
            .query_row(params![other.as_str(), sandbox.key.run_id.as_str()], |row| row.get(0))
            .optional()?;
        if owner.as_ref() != Some(&sandbox.owner) {
            return Err(SandboxError::UnknownDependency(other.as_str().to_owned()));
        }
        transaction
            .prepare_cached("INSERT INTO sandbox_dependencies (run_id, depends_on) VALUES (?1, ?2)")?
            .execute(params![sandbox.key.run_id.as_str(), other.as_str()])?;
    }
    Ok(())
}

/// Inserts the first row of a run. Values that a new run lacks are null.
fn insert(transaction: &Transaction<'_>, sandbox: &Sandbox, request: &str) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "INSERT INTO sandboxes (run_id, owner, agent_id, agent_ephemeral, name, project, account, state, desired_state,
                                    max_retries, retry_on, request, priority, labels, cap_nano, attempt_cap_nano,
                                    hold_nano, hold, created_us, run_time_us)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)",
        )?
        .execute(params![
            sandbox.key.run_id.as_str(),
            sandbox.owner,
            sandbox.agent_id,
            sandbox.agent_ephemeral,
            sandbox.name,
            sandbox.project,
            sandbox.account,
            sandbox.state.as_str(),
            sandbox.desired_state.as_str(),
            sandbox.max_retries,
            json!(sandbox.retry_on).to_string(),
            request,
            sandbox.priority,
            json!(sandbox.labels).to_string(),
            sandbox.cap,
            sandbox.attempt_cap,
            sandbox.hold_nano,
            sandbox.hold,
            sandbox.created_us,
            sandbox.run_time_us,
        ])?;
    Ok(())
}
