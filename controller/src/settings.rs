//! The settings of `sluice`: layers of text ([`SettingLayers::collect`]), then typed values
//! ([`SettingLayers::settings`]).

use std::path::PathBuf;
use std::time::Duration;

use sluice_contract::Account;
use sluice_daemon::chat_settings::ChatSettings;
use sluice_daemon::guardian::GuardianSettings;
use sluice_daemon::otel::OtelTarget;
use sluice_daemon::run_policy::Project;
use sluice_daemon::webhooks::Webhook;
use sluice_litellm::ApiKey;
use sluice_runs::blueprint::SandboxLimits;
use sluice_runs::host::HostSettings;
use sluice_runs::virtual_key::KeyMode;
use sluice_upstream::Upstream;

use crate::agent_catalogue::CatalogueAgent;

mod configured_models;
mod daemon_runs;
mod daemon_values;
mod error;
mod file;
mod file_value;
mod guardian;
mod layers;
mod named_tables;
mod otel;
mod parse;
mod profile;
mod project;
mod project_repository;
mod secret_file;
mod sidecar_flags;
mod similar;
mod table;
mod values;
mod variables;
mod webhooks;

pub use configured_models::ConfiguredModel;
pub use daemon_runs::{AgentRunDefaults, DaemonRunSettings};
pub use daemon_values::{HighestLimits, RunningMax};
pub use error::{InvalidValue, SettingError, SettingSource, all_missing, missing};
pub use layers::{DEFAULT_FILE, SettingLayers};
pub use table::{ITEMS, SettingItem, separator};
pub use variables::unknown_variables;

/// All settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Settings that all runs of this host share.
    pub host: HostSettings,
    /// Values for runs that do not state their own.
    pub run: RunDefaults,
    /// The upstream, and LiteLLM's own interfaces.
    pub litellm: LitellmSettings,
    /// The records of runs.
    pub record: RecordSettings,
    /// Format of messages on stderr.
    pub log_format: LogFormat,
    /// Agents of the catalogue and of the configuration file.
    pub agents: Vec<CatalogueAgent>,
    /// Projects of the configuration file.
    pub projects: Vec<Project>,
    /// Models that settings give to runs which name none.
    pub configured_models: Vec<ConfiguredModel>,
    /// Files that hold secrets, of whatever setting: no sandbox may see them.
    pub secret_files: Vec<PathBuf>,
}

/// The records of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordSettings {
    /// Retention time of a record; zero means that none is written.
    pub keep: Duration,
    /// Bytes of each output stream that a record has.
    pub output: usize,
}

/// The daemon: its listeners, and its stored data.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "named like the items")]
pub struct ServeSettings {
    pub listen: Vec<String>,
    pub run_dir: PathBuf,
    pub tls_cert: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    pub behind_proxy: Option<String>,
    pub sandbox_enabled: bool,
    pub metrics_public: bool,
    pub viewer_files: bool,
    pub chat: ChatSettings,
    pub record_keep: Duration,
    pub event_rate: u32,
    pub event_keep: Duration,
    pub events_per_run: u32,
    pub event_disk_free: u8,
    pub webhooks: Vec<Webhook>,
    pub guardian: GuardianSettings,
    pub otel: Vec<OtelTarget>,
}

/// Format of messages on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Values for runs that do not state their own.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "named like the items")]
pub struct RunDefaults {
    pub image: String,
    pub seccomp: Option<PathBuf>,
    pub agent: String,
    pub models: Vec<String>,
    pub account: Account,
    pub timeout: Duration,
    pub stop_grace: Duration,
    pub limits: SandboxLimits,
    /// Maximum number of stored bytes of output.
    pub output_max: usize,
    /// Bytes of the files in `/workspace/out` that a daemon's run keeps.
    pub artifacts_max: u64,
    /// Cap of the run in nano-USD.
    pub max_cost: Option<i64>,
    /// Nano-USD that a run without a cap reserves from its account's budget.
    pub hold: i64,
    /// File with prices, instead of LiteLLM's.
    pub prices: Option<PathBuf>,
    /// Other caps and limits, as flags of the sidecar.
    pub sidecar_flags: Vec<String>,
}

/// The upstream, and LiteLLM's own interfaces.
#[derive(Debug, Clone)]
pub struct LitellmSettings {
    /// The upstream.
    pub upstream: Option<Upstream>,
    /// Key of the upstream.
    pub key: Option<ApiKey>,
    /// Key that a sidecar gets.
    pub key_mode: KeyMode,
    /// Key for the spend log alone, if one is set; see [`LitellmSettings::spend_key`].
    pub own_spend_key: Option<ApiKey>,
    /// Use of the spend log by runs and sweeps.
    pub reconcile: ReconcileMode,
}

/// Use of LiteLLM's spend log by runs and sweeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReconcileMode {
    /// They look up costs that are still open.
    Auto,
    /// They do not read it.
    Off,
}

impl LitellmSettings {
    /// Returns the key for the spend log: its own, or the key of the upstream.
    #[must_use]
    pub fn spend_key(&self) -> Option<&ApiKey> {
        self.own_spend_key.as_ref().or(self.key.as_ref())
    }
}

#[cfg(test)]
mod tests;
