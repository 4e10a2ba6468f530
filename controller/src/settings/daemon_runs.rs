//! Settings of the daemon's runs.

use std::path::PathBuf;
use std::time::Duration;

use sluice_daemon::on_cap::CapTreatment;
use sluice_daemon::run_policy::Project;
use sluice_runs::blueprint::SandboxLimits;
use sluice_runs::sandbox_user::SandboxUsers;

use super::daemon_values::{self, HighestLimits, RunningMax};
use super::error::SettingError;
use super::layers::SettingLayers;
use super::sidecar_flags::sidecar_flags;
use super::values;

/// Decisions of an operator about runs of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonRunSettings {
    /// Images that requests may name in addition to those of agents, each with its digest.
    pub images: Vec<String>,
    /// The highest limits of requests.
    pub limits_max: HighestLimits,
    /// Maximum numbers of running runs.
    pub max_running: RunningMax,
    /// Runs of one owner that may wait.
    pub max_queued: u32,
    /// Time from the first claim of a run to its end, retries included.
    pub run_deadline: Duration,
    /// Time without work after which a run ends; zero for never.
    pub idle: Duration,
    /// The same as `idle`, for a run whose worker says that it works.
    pub stuck: Duration,
    /// Time without a heartbeat after which a run ends, if its worker sent some before.
    pub heartbeat: Duration,
    /// Time from a claim to the start of the program.
    pub stale_start: Duration,
    /// Behaviour of calls at a cap, for a run whose request does not set it.
    pub on_cap: CapTreatment,
    /// Time for which approvals and questions are open.
    pub ask_timeout: Duration,
    /// Nano-USD from which a raised cap needs another person.
    pub second_person: Option<i64>,
    /// Cost in nano-USD up to which a browser session may raise a cap; `None` if it may raise none.
    pub session_approval_max: Option<i64>,
    /// Directories under which grants of agents may be.
    pub grant_roots: Vec<PathBuf>,
    /// Projects.
    pub projects: Vec<Project>,
    /// Users of sandboxes.
    pub users: SandboxUsers,
}

/// Default values for runs of one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "named like the settings")]
pub struct AgentRunDefaults {
    pub timeout: Duration,
    pub limits: SandboxLimits,
    pub models: Vec<String>,
    pub max_calls: Option<u64>,
    pub max_tokens: Option<u64>,
    pub max_concurrency: Option<u64>,
    pub rate: Option<String>,
    /// Nano-USD.
    pub max_cost: Option<i64>,
    /// Bytes of a workspace on disk.
    pub workspace: u64,
    /// Policy of calls, and further limits, as flags of the sidecar.
    pub sidecar_flags: Vec<String>,
}

impl SettingLayers {
    /// Returns the settings for runs of the daemon.
    ///
    /// # Errors
    /// The first value that is not valid.
    pub fn daemon_runs(&self) -> Result<DaemonRunSettings, SettingError> {
        Ok(DaemonRunSettings {
            images: self.parse("images", daemon_values::images)?.unwrap_or_default(),
            limits_max: self.parse("limits_max", daemon_values::limits_max)?.unwrap_or_default(),
            max_running: self.required("max_running", daemon_values::max_running)?,
            max_queued: self.required("max_queued", daemon_values::count)?,
            run_deadline: self.required("run_deadline", daemon_values::deadline)?,
            idle: self.required("run_idle_timeout", values::duration)?,
            stuck: self.required("stuck_timeout", values::duration)?,
            heartbeat: self.required("heartbeat_timeout", values::duration)?,
            stale_start: self.required("stale_start", values::positive_duration)?,
            on_cap: self.required("on_cap", daemon_values::on_cap)?,
            ask_timeout: self.required("ask_timeout", daemon_values::ask_timeout)?,
            second_person: self.parse("second_person_usd", values::nano_usd)?,
            session_approval_max: self.parse("session_approval_max", values::nano_usd)?,
            grant_roots: self.parse("grant_roots", daemon_values::grant_roots)?.unwrap_or_default(),
            projects: self.projects().to_vec(),
            users: self.required("uid_range", daemon_values::sandbox_users)?,
        })
    }

    /// Returns the values for runs of the agent of these layers, where a request names none.
    ///
    /// # Errors
    /// The first value that is not valid.
    pub fn agent_run_defaults(&self) -> Result<AgentRunDefaults, SettingError> {
        Ok(AgentRunDefaults {
            timeout: self.required("timeout", values::positive_duration)?,
            limits: SandboxLimits {
                memory: self.required("memory", values::memory)?,
                cpu_millis: self.required("cpus", values::cpus)?,
                pids: self.required("pids", values::pids)?,
            },
            models: self.parse("model", values::models)?.unwrap_or_default(),
            workspace: self.required("workspace_max", daemon_values::workspace_max)?,
            max_calls: self.parse("max_calls", values::number)?,
            max_tokens: self.parse("max_tokens", values::number)?,
            max_concurrency: self.parse("max_concurrency", values::number)?,
            rate: self.get("rate").map(|(rate, _)| rate.to_owned()),
            max_cost: self.parse("max_cost_usd", values::nano_usd)?,
            sidecar_flags: sidecar_flags(self)?,
        })
    }
}
