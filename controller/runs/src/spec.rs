//! The specification of a run: everything that bringing it up needs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sluice_litellm::client::{Litellm, LitellmError};
use sluice_litellm::secret::ApiKey;
use sluice_state::run_tokens::RunTokenValue;
use sluice_state::store::RunDriver;
use sluice_upstream::Upstream;

use crate::blueprint::{EXPIRY_MARGIN, SandboxLimits, Volume};
use crate::bridge::Bridge;
use crate::exchange::FileExchange;
use crate::input::Stdin;
use crate::run_clone::RunClone;
use crate::sandbox_user::SandboxUsers;
use crate::sidecar::SidecarLifetime;
use crate::virtual_key::KeyMode;

/// Specification of a run.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "named like the flags")]
pub struct RunSpec {
    pub account: String,
    pub graph_id: String,
    /// Models that calls may name; an empty list allows every model.
    pub models: Vec<String>,
    pub image: String,
    /// Connection from the sandbox to the sidecar.
    pub bridge: Bridge,
    pub argv: Vec<String>,
    /// Working directory of the program.
    pub workdir: String,
    pub env: BTreeMap<String, String>,
    pub volumes: Vec<Volume>,
    /// Input files of the workspace, and result files.
    pub exchange: FileExchange,
    /// Clone of a repository in the workspace, from which the run may push.
    pub clone: Option<Arc<RunClone>>,
    pub stdin: Stdin,
    /// True if the program gets the terminal of this process.
    pub tty: bool,
    pub limits: SandboxLimits,
    pub timeout: Duration,
    pub seccomp: String,
    /// An OpenAI messages array, to be written into the workspace.
    pub messages: Option<Vec<u8>>,
    pub upstream: Upstream,
    pub upstream_key: ApiKey,
    pub key_mode: KeyMode,
    /// Maximum cost in nano-USD.
    pub max_cost: Option<i64>,
    /// Nano-USD to hold of the account's budget where `max_cost` is not set.
    pub hold: i64,
    /// A price list to use instead of LiteLLM's.
    pub prices: Option<PathBuf>,
    /// `None` for a run that ends with its controller.
    pub daemon: Option<DaemonOptions>,
    pub sidecar_flags: Vec<String>,
}

/// Options of a run that a daemon drives, which may be restarted meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonOptions {
    /// Users of sandboxes; each run has a user of its own.
    pub sandbox_users: SandboxUsers,
    /// Number of bytes of output that the engine's log holds in any case.
    pub output_max: u64,
    /// Number of bytes of the files in `/workspace/out` that the record keeps at the end; 0 keeps none.
    pub artifacts_max: u64,
    /// Token that proves to the daemon which sidecar relays a report; `None` for a run whose sandbox reports nothing.
    pub relay_token: Option<RunTokenValue>,
}

impl RunSpec {
    /// Returns the kind of program that drives the run.
    #[must_use]
    pub fn driver(&self) -> RunDriver {
        if self.daemon.is_some() { RunDriver::Daemon } else { RunDriver::Once }
    }

    /// Returns the lifetime of the sidecar: a daemon run's sidecar outlives its controller.
    #[must_use]
    pub fn sidecar_lifetime(&self) -> SidecarLifetime {
        if self.daemon.is_some() { SidecarLifetime::Independent } else { SidecarLifetime::WithController }
    }

    /// Returns a client of the LiteLLM at the upstream, with the operator's key.
    ///
    /// # Errors
    /// [`LitellmError::Address`] or [`LitellmError::Key`].
    pub fn litellm(&self) -> Result<Litellm, LitellmError> {
        // A start that waits cannot be cancelled meanwhile.
        const WITHIN: Duration = Duration::from_secs(15);
        Ok(Litellm::new(&self.upstream, self.upstream_key.clone())?.within(WITHIN))
    }

    /// Returns the maximum lifetime of the sidecar and of the container when no controller ends them.
    #[must_use]
    pub fn lifetime(&self) -> Duration {
        self.timeout + EXPIRY_MARGIN
    }
}
