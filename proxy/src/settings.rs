//! The settings: the command line, each flag checked by itself.
//!
//! Each flag has an environment variable; the flag wins. No secret is ever a flag or a variable.

mod flags;
mod units;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderName;
use serde_json::{Map, Value};
use sluice_contract::Usd;
use sluice_contract::record::{ByteCount, RunLimits};
use sluice_upstream::Address;

pub use flags::ProxyFlags;
pub use units::MemoryLimit;

use crate::abort::AbortMode;
use crate::audit::SyncMode;
use crate::body::params::{self, ServerKind};
use crate::caps::CapLimits;
use crate::harden::{User, UserChoice};
use crate::headers::{self, Identity};
use crate::hold::OnCap;
use crate::memory;
use crate::policy::{Policy, Route};
use crate::prices::PriceTable;
use crate::start_error::{SidecarExit, StartError, unreadable};
use crate::upstream::Timeouts;

/// Checked settings, made from the flags.
#[derive(Debug)]
#[allow(missing_docs, reason = "named like the flags")]
pub struct ProxySettings {
    pub socket: PathBuf,
    pub socket_mode: u32,
    pub peer_uids: Vec<u32>,
    pub control: Option<PathBuf>,
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
    pub server: ServerKind,
    pub remote_media: bool,
    pub pass_response_headers: Vec<HeaderName>,
    pub caps: CapLimits,
    pub max_cost: Option<Usd>,
    pub prices: Option<PriceTable>,
    pub max_body: u64,
    /// Maximum memory in bytes; `None` is unlimited.
    pub max_memory: Option<u64>,
    pub deadline: Option<Duration>,
    pub timeouts: Timeouts,
    /// Time that a call waits for its share of a cap.
    pub cap_wait: Duration,
    pub on_cap: OnCap,
    /// Longest time from the arrival of a held call to its answer.
    pub hold: Duration,
    pub drain: Duration,
    pub abort: AbortMode,
    pub relay: Option<(Address, PathBuf)>,
    pub log: Option<PathBuf>,
    pub log_level: tracing::Level,
    pub die_with_parent: bool,
    /// User that the process becomes.
    pub user: Option<User>,
    /// True if root started the process.
    pub is_root: bool,
}

impl ProxySettings {
    /// Checks the flags, and reads the files that they name, except keys.
    ///
    /// # Errors
    /// The first [`StartError`].
    pub fn from_flags(flags: ProxyFlags) -> Result<Self, StartError> {
        let usage = |flag, error: &dyn std::error::Error| StartError::caused(flag, SidecarExit::Usage, error);
        let identity = Identity {
            run_id: flags.run_id.parse().map_err(|e| usage("--run-id", &e))?,
            attempt: flags.attempt,
            account: flags.account.parse().map_err(|e| usage("--account", &e))?,
            graph_id: flags.graph_id,
            metadata: metadata(flags.metadata.as_deref(), flags.metadata_file.as_deref())?,
        };
        if flags.max_concurrency == 0 {
            return Err(StartError::new(
                "--max-concurrency",
                SidecarExit::Usage,
                "0 would refuse every call; want 1 or more",
            ));
        }
        let is_root = nix::unistd::Uid::effective().is_root();
        let prices = flags.prices.as_deref().map(prices).transpose()?;
        let relay = relay(flags.relay.as_deref(), flags.relay_token_file)?;
        Ok(Self {
            socket: flags.socket,
            // The list of users decides who may connect, if there is one; otherwise the mode does.
            socket_mode: flags.socket_mode.unwrap_or(if flags.peer_uid.is_empty() { 0o600 } else { 0o666 }),
            peer_uids: flags.peer_uid,
            control: flags.control,
            upstream: flags.upstream.parse().map_err(|e| usage("--upstream", &e))?,
            ca: flags.ca,
            audit: flags.audit,
            audit_sync: flags.audit_sync.into(),
            audit_key_file: flags.audit_key_file,
            identity,
            key_file: flags.key_file.filter(|path| path.as_os_str() != "-"),
            models: flags.model.into_iter().map(model).collect::<Result<_, _>>()?,
            routes: flags.allow.iter().map(|text| route(text)).collect::<Result<_, _>>()?,
            params: flags.allow_param.into_iter().map(param).collect::<Result<_, _>>()?,
            betas: flags.allow_beta.into_iter().map(|text| plain("--allow-beta", text)).collect::<Result<_, _>>()?,
            tools: flags.allow_tool.into_iter().map(|text| plain("--allow-tool", text)).collect::<Result<_, _>>()?,
            server: flags.dialect.into(),
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
                bounds: flags.bound_output.into(),
            },
            max_cost: flags.max_cost_usd,
            prices,
            max_body: flags.max_body,
            max_memory: max_memory(flags.max_memory, flags.max_body, flags.max_concurrency),
            deadline: flags.deadline,
            timeouts: Timeouts {
                connect: flags.connect_timeout,
                first_byte: flags.first_byte_timeout,
                idle: flags.idle_timeout,
            },
            cap_wait: flags.cap_wait,
            on_cap: flags.on_cap.into(),
            hold: flags.hold,
            drain: flags.drain,
            abort: flags.abort.into(),
            relay,
            log: flags.log.filter(|path| path.as_os_str() != "stderr"),
            log_level: flags.log_level,
            die_with_parent: flags.die_with_parent,
            user: user(flags.user, is_root)?,
            is_root,
        })
    }

    /// Returns the limits, for the record `open`.
    #[must_use]
    pub fn limits(&self) -> RunLimits {
        RunLimits {
            // Whole seconds, rounded up: the record never shows a shorter limit than the real one.
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

    /// Returns all settings that decide what a call may do: their digest names the policy.
    #[must_use]
    pub fn policy(&self) -> Value {
        let abort = if self.abort == AbortMode::Drain { "drain" } else { "cancel" };
        let dialect = if self.server == ServerKind::Vllm { "vllm" } else { "openai" };
        let routes: Vec<_> = Policy::new(&self.routes, None).describe().collect();
        let betas: Vec<_> = headers::DEFAULT_BETAS.iter().map(ToString::to_string).chain(self.betas.clone()).collect();
        let pass: Vec<_> = self.pass_response_headers.iter().map(HeaderName::as_str).collect();
        serde_json::json!({
            "abort": abort, "betas": betas, "bound_output": self.caps.bounds.as_str(), "dialect": dialect, "limits": self.limits(), "models": self.models, "on_cap": self.on_cap.as_str(), "params": self.params, "pass_response_headers": pass,
            "peer_uids": self.peer_uids, "relay": self.relay.is_some(), "remote_media": self.remote_media, "routes": routes, "tools": self.tools,
        })
    }

    /// Returns warnings about settings that are allowed, and weaker than they may seem.
    #[must_use]
    pub fn warnings(&self) -> Vec<&'static str> {
        let mut warnings = Vec::new();
        if self.caps.nanos.is_some() && self.prices.is_none() {
            warnings.push(
                "--max-cost-usd without --prices: only calls whose cost the upstream reports count (not streams of /v1/messages), and a burst may overshoot",
            );
        }
        if self.on_cap == OnCap::Ask && self.control.is_none() {
            warnings
                .push("--on-cap ask needs --control at the start: by that socket, caps are raised and calls denied");
        }
        if self.models.is_empty() {
            warnings.push("no --model: each model of the upstream that has a plain name may be named");
        }
        if self.audit_sync == SyncMode::Off {
            warnings.push("--audit-sync off: a power cut may lose the last records");
        }
        if self.user.is_none() && self.is_root {
            warnings.push(
                "--user root: the sidecar keeps root's user id, so root's files are open to an attacker who takes it over; leave --user out",
            );
        }
        warnings
    }
}

/// Returns the user that the process becomes. Root stays root only where the flag says so.
fn user(flag: Option<UserChoice>, is_root: bool) -> Result<Option<User>, StartError> {
    match flag {
        Some(UserChoice::User(user)) => Ok(Some(user)),
        None if is_root => Ok(Some(User::UNPRIVILEGED)),
        None => Ok(None),
        Some(UserChoice::Root) if is_root => Ok(None),
        Some(UserChoice::Root) => {
            Err(StartError::new("--user", SidecarExit::Permission, "only root can stay root; leave the flag out"))
        }
    }
}

fn relay(url: Option<&str>, token: Option<PathBuf>) -> Result<Option<(Address, PathBuf)>, StartError> {
    match (url, token) {
        (Some(url), Some(token)) => {
            let address = url.parse().map_err(|e| StartError::caused("--relay", SidecarExit::Usage, &e))?;
            Ok(Some((address, token)))
        }
        (None, None) => Ok(None),
        (Some(_), None) => Err(StartError::new(
            "--relay",
            SidecarExit::Usage,
            "needs --relay-token-file: the controller knows the run by it",
        )),
        (None, Some(_)) => {
            Err(StartError::new("--relay-token-file", SidecarExit::Usage, "is for --relay, which is not given"))
        }
    }
}

fn max_memory(limit: Option<MemoryLimit>, max_body: u64, max_concurrency: usize) -> Option<u64> {
    match limit {
        None => Some(memory::needed(max_body, max_concurrency)),
        Some(MemoryLimit::Bytes(bytes)) => Some(bytes),
        Some(MemoryLimit::Unlimited) => None,
    }
}

fn route(text: &str) -> Result<Route, StartError> {
    Policy::parse_route(text).map_err(|error| StartError::caused("--allow", SidecarExit::Usage, &error))
}

fn metadata(text: Option<&str>, file: Option<&Path>) -> Result<Map<String, Value>, StartError> {
    let (flag, text) = match (text, file) {
        (None, None) => return Ok(Map::new()),
        (Some(text), _) => ("--metadata", text.to_owned()),
        (None, Some(path)) => ("--metadata-file", read("--metadata-file", path)?),
    };
    match serde_json::from_str(&text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(StartError::new(flag, SidecarExit::Config, "want one JSON object, such as {\"team\":\"search\"}")),
        Err(error) => Err(StartError::new(flag, SidecarExit::Config, format!("want one JSON object: {error}"))),
    }
}

fn prices(path: &Path) -> Result<PriceTable, StartError> {
    PriceTable::parse(&read("--prices", path)?)
        .map_err(|error| StartError::caused("--prices", SidecarExit::Config, &error))
}

fn read(flag: &'static str, path: &Path) -> Result<String, StartError> {
    fs::read_to_string(path).map_err(|error| unreadable(flag, path, &error))
}

fn model(name: String) -> Result<String, StartError> {
    if name.is_empty() || name.contains(',') || name.chars().any(char::is_control) {
        return Err(StartError::new("--model", SidecarExit::Usage, "want one model's name; repeat the flag for more"));
    }
    Ok(name)
}

fn param(name: String) -> Result<String, StartError> {
    if params::may_be_allowed(&name) {
        return Ok(name);
    }
    Err(StartError::new(
        "--allow-param",
        SidecarExit::Config,
        format!("'{name}' decides who pays, with which key, at which host or what is logged; no sandbox may set it"),
    ))
}

fn plain(flag: &'static str, text: String) -> Result<String, StartError> {
    let is_plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic() && b != b',');
    if is_plain {
        Ok(text)
    } else {
        Err(StartError::new(flag, SidecarExit::Usage, "want one value of visible ASCII; repeat the flag for more"))
    }
}

fn response_header(text: &str) -> Result<HeaderName, StartError> {
    let flag = "--pass-response-header";
    let name: HeaderName = text
        .parse()
        .map_err(|_| StartError::new(flag, SidecarExit::Usage, format!("'{text}' is not a header name")))?;
    if headers::may_pass(&name) {
        return Ok(name);
    }
    Err(StartError::new(
        flag,
        SidecarExit::Config,
        format!(
            "'{name}' may not reach a sandbox: it would leak the operator's side, or steer the client; leave it out"
        ),
    ))
}
