//! The settings of the daemon.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sluice_git::GitHome;
use sluice_runs::host::HostSettings;
use sluice_upstream::Upstream;

use crate::chat_settings::ChatSettings;
use crate::limits::HttpLimits;
use crate::monitor::{HostCheck, MetricsReaders};
use crate::run_policy::RunPolicy;
use crate::runs::service::Planner;
use crate::runs::watchdog::RunTimes;
use crate::tls::TlsFiles;
use crate::upkeep::UpkeepSettings;

/// The settings of the daemon.
#[derive(Debug, Clone)]
pub struct DaemonSettings {
    /// The state directory.
    pub state: PathBuf,
    /// Directory of the sockets.
    pub run_dir: PathBuf,
    /// Mirrors of repositories, and the repositories of runs.
    pub git: GitHome,
    /// TCP addresses, each `HOST:PORT`.
    pub listen: Vec<String>,
    /// Certificate of the TCP listeners.
    pub tls_cert: Option<PathBuf>,
    /// Key of the certificate.
    pub tls_key: Option<PathBuf>,
    /// Origin of the proxy in front of the daemon.
    pub behind_proxy: Option<String>,
    /// Clients that may read the metrics.
    pub metrics: MetricsReaders,
    /// Results of the checks before the start.
    pub checks: Vec<HostCheck>,
    /// True if viewers may list and read the files of workspaces. Events and diffs are not limited.
    pub viewer_files: bool,
    /// Settings of chats.
    pub chat: ChatSettings,
    /// Settings of runs; `None` for a daemon that neither creates nor manages runs.
    pub runs: Option<RunSettings>,
    /// Limits of requests.
    pub limits: HttpLimits,
    /// Retention, limits of events, webhooks.
    pub upkeep: UpkeepSettings,
    /// The operator's log.
    pub log: fn(&str),
}

/// The settings of runs.
#[derive(Debug, Clone)]
pub struct RunSettings {
    /// Limits of runs; none if no sandboxes may be created.
    pub policy: Option<RunPolicy>,
    /// Settings of the host of the runs.
    pub host: HostSettings,
    /// Upstream of the runs, which the daemon probes; `None` if no sandboxes may be created.
    pub upstream: Option<Upstream>,
    /// Makes runs from stored requests.
    pub planner: Arc<dyn Planner>,
    /// Maximum number of stored output bytes of each stream.
    pub output_max: u64,
    /// Time that a program has after SIGTERM.
    pub stop_grace: Duration,
    /// Times after which runs end.
    pub times: RunTimes,
}

impl DaemonSettings {
    /// Returns the files of TLS, if both are named.
    #[must_use]
    pub fn tls(&self) -> Option<TlsFiles> {
        let (certificate, key) = self.tls_cert.clone().zip(self.tls_key.clone())?;
        Some(TlsFiles { certificate, key })
    }
}
