//! Objects of the API, as far as the command line needs them. Members that a later daemon adds are ignored.
//!
//! Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiSandbox {
    /// Id.
    pub sandbox_id: String,
    /// Present attempt, from 0.
    pub attempt: u32,
    /// Name.
    pub name: Option<String>,
    /// Owner.
    pub owner_id: String,
    /// Agent.
    pub agent_id: String,
    /// Account that pays.
    pub billing_account_id: String,
    /// `PENDING`, `CREATING`, `RUNNING`, `COMPLETING`, `COMPLETED` or `FAILED`.
    pub state: String,
    /// State that its owner wants.
    pub desired_state: String,
    /// `success`, `cancelled` or `failed`, when it is decided.
    pub outcome: Option<String>,
    /// One word for the reason of a failure.
    pub failure_code: Option<String>,
    /// The reason, for people.
    pub error_message: Option<String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Runs of a higher priority begin first.
    pub priority: i64,
    /// Cap of all attempts in dollars.
    pub max_cost_usd: Option<String>,
    /// Time of the creation.
    pub created_at: String,
    /// Time at which the program started.
    pub started_at: Option<String>,
    /// Time of the end.
    pub ended_at: Option<String>,
    /// Latest time at which the run ends.
    pub deadline_at: Option<String>,
    /// Time since which it is paused.
    pub paused_at: Option<String>,
}

/// A run with its request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApiSandboxDetail {
    /// The run.
    #[serde(flatten)]
    pub sandbox: ApiSandbox,
    /// Reason of the last change of its state.
    pub reason: Option<String>,
    /// Thing that the run waits for.
    pub waiting_for: Option<String>,
    /// Program.
    pub graph_id: String,
    /// Models, the default first.
    pub models: Vec<String>,
    /// Image.
    pub image: String,
    /// Names of the environment variables that the request set.
    pub env_names: Vec<String>,
    /// Limits, in the grammar of settings.
    pub limits: Value,
    /// Minutes without work after which it ends; `None` for the time of the host.
    pub ttl_minutes: Option<u32>,
    /// Runs that must succeed first.
    pub depends_on: Vec<String>,
    /// Exit code of the present attempt, when that has ended.
    pub exit_code: Option<i32>,
}

/// A run of a list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ApiListedSandbox {
    /// The run.
    #[serde(flatten)]
    pub sandbox: ApiSandbox,
    /// Thing that the run waits for.
    pub waiting_for: Option<String>,
    /// Reason of the last change of its state, if it waits for a retry.
    pub reason: Option<String>,
}

/// A page of runs, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ApiSandboxPage {
    /// Runs.
    pub sandboxes: Vec<ApiListedSandbox>,
    /// Cursor of the next page.
    pub next_cursor: Option<String>,
}

/// A run that was created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiCreatedRun {
    /// Id.
    pub sandbox_id: String,
    /// Attempt, from 0.
    pub attempt: u32,
    /// State.
    pub state: String,
    /// Agent of the run.
    pub agent: ApiRunAgent,
    /// Paths in the sandbox of the host directories that it sees.
    pub mount_table: Vec<String>,
    /// True if the account has a budget; a part of the budget is held for the run.
    pub budget_checked: bool,
}

/// The agent of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiRunAgent {
    /// Id.
    pub agent_id: String,
    /// State; null if it was removed with the run.
    pub state: Option<String>,
    /// True if it exists for this run only.
    pub ephemeral: bool,
}

/// A registered agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApiAgent {
    /// Id, unique for its owner.
    pub agent_id: String,
    /// Owner.
    pub owner_id: String,
    /// Zone.
    pub zone_id: Option<String>,
    /// Name for people.
    pub name: Option<String>,
    /// Account that pays for its runs.
    pub billing_account_id: String,
    /// True if it may have runs.
    pub allow_sandbox: bool,
    /// Host directories that its runs may read.
    pub grants: Vec<String>,
    /// `UNKNOWN`, `CONNECTED`, `IDLE` or `SUSPENDED`.
    pub state: String,
    /// Number of moves into CONNECTED.
    pub generation: u64,
    /// Time of the last heartbeat.
    pub last_heartbeat: Option<String>,
    /// Data that the owner keeps with the agent.
    pub metadata: Value,
    /// Time of the registration.
    pub created_at: String,
    /// Time of the last change.
    pub updated_at: String,
}

/// A page of agents.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct AgentPage {
    /// Agents.
    pub agents: Vec<ApiAgent>,
    /// Cursor of the next page.
    pub next_cursor: Option<String>,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Position in the log.
    pub seq: i64,
    /// Id.
    pub id: String,
    /// Run.
    pub sandbox_id: Option<String>,
    /// Attempt of the run.
    pub attempt: Option<u32>,
    /// Agent.
    pub agent_id: Option<String>,
    /// Type.
    pub event_type: String,
    /// Data from the reporter. The daemon does not verify data from an agent.
    pub event_data: Value,
    /// The reporter: `agent`, `worker` or `system`.
    pub source: String,
    /// Time in UTC.
    pub created_at: String,
}

/// A page of events, newest first.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ApiEventPage {
    /// Events.
    pub events: Vec<Event>,
    /// Cursor of the next page.
    pub next_cursor: Option<i64>,
}

/// A part of a run's trajectory: its events except heartbeats, oldest first.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct TrajectoryPage {
    /// Events.
    pub events: Vec<Event>,
    /// The heartbeats.
    pub heartbeat_summary: ApiHeartbeatSummary,
    /// Number of events of the run, with heartbeats.
    pub total_events: u64,
    /// Number of events of the run, without heartbeats.
    pub trajectory_events: u64,
    /// Cursor of the next page.
    pub next_cursor: Option<i64>,
}

/// Heartbeats of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiHeartbeatSummary {
    /// Number of heartbeats.
    pub count: u64,
    /// Time of the first one.
    pub first_heartbeat: Option<String>,
    /// Time of the last one.
    pub last_heartbeat: Option<String>,
}

/// A message that was sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedMessage {
    /// State of the message.
    pub status: String,
    /// Id.
    pub message_id: String,
    /// The run.
    pub sandbox_id: String,
}

/// A run that was interrupted: its open calls were ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptedRun {
    /// `interrupted`.
    pub status: String,
    /// The run.
    pub sandbox_id: String,
    /// Id of the message that the agent reads next, if the request had one.
    pub message_id: Option<String>,
}

/// A message to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentMessage {
    /// Id.
    pub message_id: String,
    /// Text.
    pub content: String,
    /// `user_message`, `interrupt`, `guardian_nudge` or `system`.
    pub message_type: String,
    /// True if it is delivered before messages that are not urgent.
    pub urgent: bool,
    /// `immediate` or `next_turn`.
    pub inject_mode: String,
    /// State.
    pub status: String,
    /// Time at which it was sent.
    pub created_at: String,
    /// Time of its delivery.
    pub delivered_at: Option<String>,
}

/// A page of messages, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct AgentMessagePage {
    /// Messages.
    pub messages: Vec<AgentMessage>,
    /// Cursor of the next page.
    pub next_cursor: Option<i64>,
}

/// The last frame of a run's stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamEnd {
    /// State of the run.
    pub state: String,
    /// One word for the reason of a failure.
    pub failure_code: Option<String>,
    /// Exit code of the last attempt.
    pub exit_code: Option<i32>,
}

impl ApiSandbox {
    /// Returns whether the run has ended.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        matches!(self.state.as_str(), "COMPLETED" | "FAILED")
    }
}
