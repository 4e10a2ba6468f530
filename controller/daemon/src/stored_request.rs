//! Request of a daemon's run, in the form that the database keeps.
//!
//! Pure. Values of environment variables are never included: the database has only their names.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::identity::{RunMetadata, TraceParent};
use crate::mount_table::MountTable;
use crate::on_cap::CapTreatment;

/// A request for a run, checked and with all defaults filled in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredRequest {
    /// Graph, `sandbox:NAME`; it names the program unless `argv` is set.
    pub graph_id: String,
    /// Program and arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// OpenAI messages for the agent; a task is one message of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Vec<Value>>,
    /// Models that calls may name, the default first.
    pub models: Vec<String>,
    /// Image.
    pub image: String,
    /// Names of the environment variables that the request sets.
    #[serde(default)]
    pub variables: BTreeSet<String>,
    /// Limits.
    pub limits: StoredLimits,
    /// Idle time after which the run ends, in minutes; `None` for the host's idle time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_minutes: Option<u32>,
    /// Host directories that the run reads, in each of its attempts.
    #[serde(default, skip_serializing_if = "MountTable::is_empty")]
    pub mounts: MountTable,
    /// `RUN.ATTEMPT` of the transcript that the workspace begins with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_from: Option<String>,
    /// True if the workspace begins with the kept one of `resume_from`, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resumes_workspace: bool,
    /// True if the workspace is kept after each attempt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_workspace: bool,
    /// Work on the repository of its project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<StoredRepository>,
    /// Treatment of a call that would exceed a cap.
    #[serde(default)]
    pub on_cap: CapTreatment,
    /// True for a turn of a chat: its program writes its answer in parts, if it can.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_chat: bool,
    /// Seconds for which its worker waits for the next turn, if it gets the later turns of its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_stay_s: Option<u64>,
    /// Metadata of its calls, as the caller has given it.
    #[serde(default, skip_serializing_if = "RunMetadata::is_empty")]
    pub metadata: RunMetadata,
    /// Span of the request that has created the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<TraceParent>,
    /// Sender of the request; none in the rows of older daemons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creator: Option<RunCreator>,
}

/// Work of a run on the repository of its project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredRepository {
    /// Branch that the run begins with; none for the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Branch of the run.
    pub branch: String,
    /// Ticket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<String>,
    /// Title of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Rule of its publication: `approve`, `auto` or `never`.
    pub publish: String,
    /// True if a pull request is wanted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pull_request: bool,
}

/// The principal that has created a run. An admin may create one for another owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunCreator {
    /// Id of the principal.
    pub principal: String,
    /// Owner of the objects that the principal creates for itself.
    pub owner: String,
}

/// Limits of a run. `None` means no limit of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredLimits {
    /// Maximum time of an attempt, in seconds.
    pub timeout_s: u64,
    /// Memory in bytes.
    pub memory: u64,
    /// Thousandths of a processor.
    pub cpu_millis: u64,
    /// Processes and threads.
    pub pids: u64,
    /// Calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_calls: Option<u64>,
    /// Tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Concurrent calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrency: Option<u64>,
    /// Rate of calls, such as `5/s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// Seconds without work after which the run ends; none for the time of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_s: Option<u64>,
    /// Bytes that the workspace may take on disk. A request of an earlier version has none.
    #[serde(default = "workspace_default")]
    pub workspace: u64,
}

/// Limit of the workspace in bytes for a request that sets none: 10 GiB.
pub const WORKSPACE_DEFAULT: u64 = 10 << 30;

fn workspace_default() -> u64 {
    WORKSPACE_DEFAULT
}
