//! The command line: what the operator says, checked for what it says alone.
//!
//! Every flag has an environment variable; the flag wins. Nothing secret is ever a flag or a variable.

mod flags;
mod units;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderName;
use serde_json::{Map, Value};
pub use sluice_contract::SidecarExit as Exit;
use sluice_contract::Usd;
use sluice_contract::record::{ByteCount, RunLimits};
use sluice_contract::text::error_chain;
use sluice_upstream::Address;

pub use flags::Flags;
use flags::{Dialect, OnAbort, Sync};
pub use units::Memory;

use crate::audit::SyncMode;
use crate::body::params::{self, Server};
use crate::caps::CapLimits;
use crate::harden::User;
use crate::headers::{self, Identity};
use crate::memory;
use crate::policy::{Policy, Route};
use crate::prices::Prices;
use crate::run::Abort;
use crate::upstream::Timeouts;

/// A start that cannot be: which flag, why, what to do, and the exit code.
#[derive(Debug, thiserror::Error)]
#[error("{flag}: {cause}")]
pub struct StartError {
    /// The flag at fault.
    pub flag: &'static str,
    /// What is wrong, and what to do.
    pub cause: String,
    /// Its exit code.
    pub exit: Exit,
}

impl StartError {
    /// An error of one flag.
    pub fn new(flag: &'static str, exit: Exit, cause: impl Into<String>) -> Self {
        Self { flag, cause: cause.into(), exit }
    }

    /// An error with the chain of its causes.
    pub fn caused(flag: &'static str, exit: Exit, error: &dyn std::error::Error) -> Self {
        Self { flag, cause: error_chain(error), exit }
    }
}

/// What the flags come to.
#[derive(Debug)]
#[allow(missing_docs, reason = "named like the flags")]
pub struct Settings {
    pub socket: PathBuf,
    pub socket_mode: u32,
    pub peer_uids: Vec<u32>,
    pub upstream: Address,
    pub ca: Option<PathBuf>,
    pub audit: PathBuf,
    pub audit_sync: SyncMode,
    pub audit_key_file: Option<PathBuf>,
    pub identity: Identity,
    pub key_file: Option<PathBuf>,
    pub models: Vec<String>,
    pub routes: Vec<Route>,
    pub params: Vec<String>,
    pub betas: Vec<String>,
    pub tools: Vec<String>,
    pub server: Server,
    pub remote_media: bool,
    pub pass_response_headers: Vec<HeaderName>,
    pub caps: CapLimits,
    pub max_cost: Option<Usd>,
    pub prices: Option<Prices>,
    pub max_body: u64,
    /// Bytes; none is unlimited.
    pub max_memory: Option<u64>,
    pub deadline: Option<Duration>,
    pub timeouts: Timeouts,
    /// How long a call waits for room in a cap.
    pub cap_wait: Duration,
    pub drain: Duration,
    pub abort: Abort,
    pub relay: Option<(Address, PathBuf)>,
    pub log: Option<PathBuf>,
    pub log_level: tracing::Level,
    pub die_with_parent: bool,
    pub user: Option<User>,
    /// Whether root starts the process.
    pub is_root: bool,
}

impl Settings {
    /// Checks the flags, and reads the files that they name, but for keys.
    ///
    /// # Errors
    /// The first [`StartError`].
    pub fn from_flags(flags: Flags) -> Result<Self, StartError> {
        let usage = |flag, error: &dyn std::error::Error| StartError::caused(flag, Exit::Usage, error);
        let identity = Identity {
            run_id: flags.run_id.parse().map_err(|e| usage("--run-id", &e))?,
            attempt: flags.attempt,
            account: flags.account.parse().map_err(|e| usage("--account", &e))?,
            graph_id: flags.graph_id,
            metadata: metadata(flags.metadata.as_deref(), flags.metadata_file.as_deref())?,
        };
        if flags.max_concurrency == 0 {
            return Err(StartError::new("--max-concurrency", Exit::Usage, "0 would refuse every call; want 1 or more"));
        }
        let prices = flags.prices.as_deref().map(prices).transpose()?;
        let relay = match (flags.relay, flags.relay_token_file) {
            (Some(url), Some(token)) => Some((url.parse().map_err(|e| usage("--relay", &e))?, token)),
            (None, None) => None,
            (Some(_), None) => {
                return Err(StartError::new(
                    "--relay",
                    Exit::Usage,
                    "needs --relay-token-file: the controller knows the run by it",
                ));
            }
            (None, Some(_)) => {
                return Err(StartError::new("--relay-token-file", Exit::Usage, "is for --relay, which is not given"));
            }
        };
        Ok(Self {
            socket: flags.socket,
            // Who may connect is decided by the list of users, if there is one, and otherwise by the mode.
            socket_mode: flags.socket_mode.unwrap_or(if flags.peer_uid.is_empty() { 0o600 } else { 0o666 }),
            peer_uids: flags.peer_uid,
            upstream: flags.upstream.parse().map_err(|e| usage("--upstream", &e))?,
            ca: flags.ca,
            audit: flags.audit,
            audit_sync: match flags.audit_sync {
                Sync::Call => SyncMode::Call,
                Sync::Off => SyncMode::Off,
            },
            audit_key_file: flags.audit_key_file,
            identity,
            key_file: flags.key_file.filter(|path| path.as_os_str() != "-"),
            models: flags.model.into_iter().map(model).collect::<Result<_, _>>()?,
            routes: flags
                .allow
                .iter()
                .map(|text| Policy::parse_route(text).map_err(|e| usage("--allow", &e)))
                .collect::<Result<_, _>>()?,
            params: flags.allow_param.into_iter().map(param).collect::<Result<_, _>>()?,
            betas: flags.allow_beta.into_iter().map(|text| plain("--allow-beta", text)).collect::<Result<_, _>>()?,
            tools: flags.allow_tool.into_iter().map(|text| plain("--allow-tool", text)).collect::<Result<_, _>>()?,
            server: match flags.dialect {
                Dialect::Openai => Server::OpenAi,
                Dialect::Vllm => Server::Vllm,
            },
            remote_media: flags.allow_remote_media,
            pass_response_headers: flags
                .pass_response_header
                .iter()
                .map(|text| response_header(text))
                .collect::<Result<_, _>>()?,
            caps: CapLimits {
                calls: flags.max_calls,
                tokens: flags.max_tokens,
                nanos: flags.max_cost_usd.as_ref().map(Usd::to_nanos),
                concurrency: flags.max_concurrency,
                rate: flags.rate,
            },
            max_cost: flags.max_cost_usd,
            prices,
            max_body: flags.max_body,
            max_memory: match flags.max_memory {
                None => Some(memory::needed(flags.max_body, flags.max_concurrency)),
                Some(Memory::Bytes(bytes)) => Some(bytes),
                Some(Memory::Unlimited) => None,
            },
            deadline: flags.deadline,
            timeouts: Timeouts {
                connect: flags.connect_timeout,
                first_byte: flags.first_byte_timeout,
                idle: flags.idle_timeout,
            },
            cap_wait: flags.cap_wait,
            drain: flags.drain,
            abort: match flags.abort {
                OnAbort::Drain => Abort::Drain,
                OnAbort::Cancel => Abort::Cancel,
            },
            relay,
            log: flags.log.filter(|path| path.as_os_str() != "stderr"),
            log_level: flags.log_level,
            die_with_parent: flags.die_with_parent,
            user: flags.user,
            is_root: nix::unistd::Uid::effective().is_root(),
        })
    }

    /// What `open` says of the limits.
    #[must_use]
    pub fn limits(&self) -> RunLimits {
        RunLimits {
            // Whole seconds, rounded up: a limit is never said to be shorter than it is.
            deadline_s: self.deadline.map(|deadline| deadline.as_millis().div_ceil(1000) as u64),
            max_body: self.max_body,
            max_calls: self.caps.calls,
            max_concurrency: self.caps.concurrency as u64,
            max_cost_usd: self.max_cost.as_ref().map(Usd::to_string),
            max_memory: self.max_memory.map(ByteCount),
            max_tokens: self.caps.tokens,
            rate_per_s: self.caps.rate,
        }
    }

    /// Everything that decides what a call may do: its digest is the policy's name.
    #[must_use]
    pub fn policy(&self) -> Value {
        let abort = if self.abort == Abort::Drain { "drain" } else { "cancel" };
        let dialect = if self.server == Server::Vllm { "vllm" } else { "openai" };
        let routes: Vec<_> = Policy::new(&self.routes, None).describe().collect();
        let betas: Vec<_> = headers::DEFAULT_BETAS.iter().map(ToString::to_string).chain(self.betas.clone()).collect();
        let pass: Vec<_> = self.pass_response_headers.iter().map(HeaderName::as_str).collect();
        serde_json::json!({
            "abort": abort, "betas": betas, "dialect": dialect, "limits": self.limits(), "models": self.models, "params": self.params, "pass_response_headers": pass,
            "peer_uids": self.peer_uids, "relay": self.relay.is_some(), "remote_media": self.remote_media, "routes": routes, "tools": self.tools,
        })
    }

    /// What is allowed, but weaker than its reader may think.
    #[must_use]
    pub fn warnings(&self) -> Vec<&'static str> {
        let mut warnings = Vec::new();
        if self.caps.nanos.is_some() && self.prices.is_none() {
            warnings.push(
                "--max-cost-usd without --prices: only calls whose cost the upstream reports count (not streams of /v1/messages), and a burst may overshoot",
            );
        }
        if self.models.is_empty() {
            warnings.push("no --model: any model that the upstream has may be named");
        }
        if self.audit_sync == SyncMode::Off {
            warnings.push("--audit-sync off: a power cut may lose the last records");
        }
        if self.user.is_none() && self.is_root {
            warnings.push("no --user: the sidecar stays root, without capabilities; give it a user that owns nothing");
        }
        warnings
    }
}

fn metadata(text: Option<&str>, file: Option<&Path>) -> Result<Map<String, Value>, StartError> {
    let (flag, text) = match (text, file) {
        (None, None) => return Ok(Map::new()),
        (Some(text), _) => ("--metadata", text.to_owned()),
        (None, Some(path)) => ("--metadata-file", read("--metadata-file", path)?),
    };
    match serde_json::from_str(&text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(StartError::new(flag, Exit::Config, "want one JSON object, such as {\"team\":\"search\"}")),
        Err(error) => Err(StartError::new(flag, Exit::Config, format!("want one JSON object: {error}"))),
    }
}

fn prices(path: &Path) -> Result<Prices, StartError> {
    Prices::parse(&read("--prices", path)?).map_err(|error| StartError::caused("--prices", Exit::Config, &error))
}

fn read(flag: &'static str, path: &Path) -> Result<String, StartError> {
    fs::read_to_string(path).map_err(|error| unreadable(flag, path, &error))
}

/// A file that is named and cannot be read.
#[must_use]
pub fn unreadable(flag: &'static str, path: &Path, error: &std::io::Error) -> StartError {
    let (exit, fix) = match error.kind() {
        std::io::ErrorKind::PermissionDenied => (Exit::Permission, "let this user read it"),
        _ => (Exit::NoInput, "name a file that can be read"),
    };
    StartError::new(flag, exit, format!("cannot read {}: {error}; {fix}", path.display()))
}

fn model(name: String) -> Result<String, StartError> {
    if name.is_empty() || name.contains(',') || name.chars().any(char::is_control) {
        return Err(StartError::new("--model", Exit::Usage, "want one model's name; repeat the flag for more"));
    }
    Ok(name)
}

fn param(name: String) -> Result<String, StartError> {
    if params::may_be_allowed(&name) {
        return Ok(name);
    }
    Err(StartError::new(
        "--allow-param",
        Exit::Config,
        format!("'{name}' decides who pays, with which key, at which host or what is logged; no sandbox may set it"),
    ))
}

fn plain(flag: &'static str, text: String) -> Result<String, StartError> {
    let is_plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic() && b != b',');
    if is_plain {
        Ok(text)
    } else {
        Err(StartError::new(flag, Exit::Usage, "want one value of visible ASCII; repeat the flag for more"))
    }
}

fn response_header(text: &str) -> Result<HeaderName, StartError> {
    let flag = "--pass-response-header";
    let name: HeaderName =
        text.parse().map_err(|_| StartError::new(flag, Exit::Usage, format!("'{text}' is no header name")))?;
    if headers::may_pass(&name) {
        return Ok(name);
    }
    Err(StartError::new(
        flag,
        Exit::Config,
        format!(
            "'{name}' may not reach a sandbox: it would leak the operator's side, or steer the client; leave it out"
        ),
    ))
}
