//! Creation of a run: agent, budget, row, chat and event in one transaction.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Transaction, TransactionBehavior};
use serde_json::json;
use sluice_contract::{RunId, RunKey};

use crate::agents::{self, Agent, AgentError, NewAgent};
use crate::budget::{self, AdmissionRequest};
use crate::chats::{self, ChatBeginError, ChatCapError, NewChat, SessionBusy};
use crate::events::{CallSums, announce};
use crate::idempotency::{self, IdempotencyKey};
use crate::process::Process;
use crate::sandboxes::{self, DesiredState, Sandbox, SandboxError, SandboxState};
use crate::store::{RunDriver, RunRow, Store, StoreError};

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
    /// Failure codes that are retried in addition to the codes that are always retried.
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
    /// Maximum number of runs that the owner may have in the queue.
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

/// Error of creating a run.
#[derive(Debug, thiserror::Error)]
pub enum CreationError {
    /// The run cannot be created.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// A cap of the chat token prevents it.
    #[error(transparent)]
    Chat(#[from] ChatCapError),
    /// Another turn of the chat's session prevents it.
    #[error(transparent)]
    Session(#[from] SessionBusy),
}

impl From<ChatBeginError> for CreationError {
    fn from(error: ChatBeginError) -> Self {
        match error {
            ChatBeginError::Cap(error) => Self::Chat(error),
            ChatBeginError::Busy(error) => Self::Session(error),
            ChatBeginError::Sql(error) => error.into(),
        }
    }
}

impl From<rusqlite::Error> for CreationError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sandbox(error.into())
    }
}

impl From<StoreError> for CreationError {
    fn from(error: StoreError) -> Self {
        Self::Sandbox(error.into())
    }
}

impl Store {
    /// Creates a run: its agent becomes CONNECTED, an amount of the account's budget is held, and the run waits in the queue.
    /// All of that is done, or nothing.
    ///
    /// # Errors
    /// [`CreationError`]; then nothing is changed.
    pub async fn create_sandbox(&self, new: NewSandbox, now_us: i64) -> Result<CreatedSandbox, CreationError> {
        self.create(new, now_us, true).await
    }

    /// Checks whether a run could be created, and changes nothing.
    ///
    /// # Errors
    /// The errors of [`Store::create_sandbox`].
    pub async fn check_sandbox(&self, new: NewSandbox, now_us: i64) -> Result<CreatedSandbox, CreationError> {
        self.create(NewSandbox { idempotency: None, ..new }, now_us, false).await
    }

    async fn create(&self, new: NewSandbox, now_us: i64, is_kept: bool) -> Result<CreatedSandbox, CreationError> {
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

fn create(
    transaction: &Transaction<'_>,
    new: &NewSandbox,
    now_us: i64,
) -> Result<(CreatedSandbox, i64), CreationError> {
    if let Some(key) = &new.idempotency {
        idempotency::complete(transaction, key, new.run_id.as_str()).map_err(SandboxError::from)?;
    }
    let agent = connect(transaction, new).map_err(SandboxError::from)?;
    sandboxes::check_name(transaction, &new.owner, new.name.as_deref())?;
    sandboxes::check_queue(transaction, &new.owner, new.queued_max)?;
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
    let request = AdmissionRequest { entry, cap, default: new.hold_nano };
    let (admitted, hold) = budget::admit(transaction, &request).map_err(SandboxError::from)?;
    let sandbox = pending(new, key, &agent, (admitted.cap, hold), now_us);
    sandboxes::insert(transaction, &sandbox, &new.request)?;
    if let Some(chat) = &new.chat {
        chats::begin(transaction, &new.run_id, chat, now_us)?;
    }
    sandboxes::insert_dependencies(transaction, &sandbox, &new.depends_on)?;
    let data = json!({ "sandbox_id": new.run_id.as_str(), "name": new.name, "mount_paths": new.mount_paths });
    let seq = sandboxes::report(transaction, &sandbox, "sandbox.created", &data, now_us)?;
    Ok((CreatedSandbox { sandbox, agent, is_budget_checked: hold.is_some() }, seq))
}

/// Returns the agent of a new run, which is CONNECTED now.
fn connect(transaction: &Transaction<'_>, new: &NewSandbox) -> Result<Agent, AgentError> {
    match &new.agent {
        RunAgent::Registered(agent_id) => agents::connect(transaction, &new.owner, agent_id),
        RunAgent::Ephemeral(agent) => {
            agents::create_ephemeral(transaction, &NewAgent { owner: new.owner.clone(), ..agent.clone() })
        }
    }
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
