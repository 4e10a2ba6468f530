//! What was asked for, and where: a flag, else the environment, else the file, else the default.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs, io};

use sluice_contract::{Account, units};
use sluice_litellm::secret::ApiKey;
use sluice_runs::blueprint::SandboxLimits;
use sluice_runs::host::HostSettings;
use sluice_runs::sidecar_user::{self, DEFAULT_UIDS, SidecarUsers, UidRangeError};
use sluice_runs::virtual_key::KeyMode;

use crate::agents::{self, Agent};

/// One thing that can be set.
#[derive(Debug, Clone, Copy)]
pub struct Item {
    /// Its name in the file; with dashes, its flag.
    pub name: &'static str,
    /// Its names in the environment, the first one ours.
    pub variables: &'static [&'static str],
    /// What it is when nobody sets it.
    pub default: Option<&'static str>,
    /// What it is for.
    pub help: &'static str,
}

macro_rules! items {
    ($($name:literal $variable:literal $(or $also:literal)? = $default:expr, $help:literal;)*) => {
        &[$(Item { name: $name, variables: &[$variable $(, $also)?], default: $default, help: $help }),*]
    };
}

/// Everything that can be set, in the order in which it is shown.
pub const ITEMS: &[Item] = items![
    "upstream" "SLUICE_UPSTREAM" = None, "where calls go: http://HOST:PORT, https://HOST or unix:/PATH";
    "key_file" "SLUICE_KEY_FILE" = None, "a file with the upstream's key, readable by its owner alone";
    "key" "SLUICE_KEY" = None, "the key itself; never a flag, since every user can read those";
    "key_mode" "SLUICE_KEY_MODE" = Some("master"), "whose key a sidecar gets: master (that one), per-run (a virtual key), auto";
    "spend_key_file" "SLUICE_SPEND_KEY_FILE" = None, "a file with a key that may read LiteLLM's spend log; else the upstream's";
    "reconcile" "SLUICE_RECONCILE" = Some("auto"), "whether runs and sweeps look up open costs in LiteLLM's spend log: auto or off";
    "state_dir" "SLUICE_STATE_DIR" = Some("/var/lib/sluice"), "where runs, audit files and the database are";
    "docker_host" "SLUICE_DOCKER_HOST" or "DOCKER_HOST" = Some("unix:///var/run/docker.sock"), "the Docker Engine's socket";
    "proxy" "SLUICE_PROXY" = None, "the sidecar's program; else the sluice-proxy beside sluice, or on PATH";
    "sidecar_uid" "SLUICE_SIDECAR_UID" = Some(DEFAULT_UIDS), "the users that sidecars become, one for each run: FIRST-LAST, or one id";
    "sidecar_gid" "SLUICE_SIDECAR_GID" = None, "the group of all sidecars; otherwise each has the number of its user";
    "image" "SLUICE_IMAGE" = Some("sluice-runtime:latest"), "the image that agents run in";
    "seccomp" "SLUICE_SECCOMP" = None, "a seccomp profile in place of ours";
    "agent" "SLUICE_AGENT" = Some("sandbox:agent"), "the agent that answers messages";
    "model" "SLUICE_MODEL" = None, "the models that a run may name; the first one is SLUICE_MODEL in the sandbox";
    "account" "SLUICE_ACCOUNT" = Some("default"), "the billing account that pays";
    "timeout" "SLUICE_TIMEOUT" = Some("120s"), "how long a run may take";
    "stop_grace" "SLUICE_STOP_GRACE" = Some("1s"), "how long a program may take to end when it is told to";
    "memory" "SLUICE_MEMORY" = Some("512m"), "memory of a run, swap included";
    "cpus" "SLUICE_CPUS" = Some("1"), "processors of a run";
    "pids" "SLUICE_PIDS" = Some("256"), "processes and threads of a run";
    "output_max" "SLUICE_OUTPUT_MAX" = Some("2m"), "how much of stdout and stderr is kept for --json and for agents, half of it each";
    "max_calls" "SLUICE_MAX_CALLS" = None, "calls of a run";
    "max_tokens" "SLUICE_MAX_TOKENS" = None, "tokens of a run, input and output";
    "max_cost_usd" "SLUICE_MAX_COST_USD" = None, "dollars of a run";
    "hold_usd" "SLUICE_HOLD_USD" = Some("1"), "dollars that a run without max_cost_usd holds of its account's budget";
    "prices" "SLUICE_PRICES" = None, "prices to reserve by, in place of what LiteLLM says at GET /model/info: the same JSON, in a file";
    "rate" "SLUICE_RATE" = None, "calls of a run per second, such as 5/s";
    "sidecar_memory" "SLUICE_SIDECAR_MEMORY" = None, "memory of a run's sidecar, such as 1g, or none; else what its other limits need";
    "allow" "SLUICE_ALLOW" = None, "more routes for runs, such as 'POST /v1/rerank'";
    "allow_tool" "SLUICE_ALLOW_TOOL" = None, "types of tools that calls may have beside those that the agent runs";
    "allow_beta" "SLUICE_ALLOW_BETA" = None, "more values of the header anthropic-beta";
    "allow_param" "SLUICE_ALLOW_PARAM" = None, "members of bodies that are dropped or refused otherwise";
    "dialect" "SLUICE_DIALECT" = None, "which members bodies may have: openai, or vllm for self-hosted models; else openai";
    "allow_remote_media" "SLUICE_ALLOW_REMOTE_MEDIA" = None, "whether messages may have URLs that the provider fetches: true or false";
    "pass_response_header" "SLUICE_PASS_RESPONSE_HEADER" = None, "more headers of answers that a sandbox sees";
    "max_body" "SLUICE_MAX_BODY" = None, "the largest body of a call; else 32MiB";
    "max_concurrency" "SLUICE_MAX_CONCURRENCY" = None, "calls of a run at once; else 64";
    "first_byte_timeout" "SLUICE_FIRST_BYTE_TIMEOUT" = None, "silence before an answer; else 600s";
    "idle_timeout" "SLUICE_IDLE_TIMEOUT" = None, "silence within an answer; else 300s";
    "cap_wait" "SLUICE_CAP_WAIT" = None, "how long a call waits for others to end where a cap has no room beside them; else 30s";
    "audit_sync" "SLUICE_AUDIT_SYNC" = Some("call"), "when an audit line counts as written: call (on disk), or off";
];

/// Settings that are flags of the sidecar, which checks them.
const OF_THE_SIDECAR: [&str; 11] = [
    "allow", "allow_tool", "allow_beta", "allow_param", "pass_response_header", "max_body", "max_concurrency",
    "first_byte_timeout", "idle_timeout", "cap_wait", "dialect",
];

/// The character between the values of a setting that can have several; it is that of the sidecar's variables.
#[must_use]
pub fn separator(name: &str) -> Option<char> {
    match name {
        "allow" => Some(';'),
        "model" | "allow_tool" | "allow_beta" | "allow_param" | "pass_response_header" => Some(' '),
        _ => None,
    }
}

/// Where the file is looked for when nobody names one.
pub const DEFAULT_FILE: &str = "/etc/sluice/sluice.toml";

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The command line.
    Flag,
    /// This variable.
    Variable(&'static str),
    /// This file.
    File(PathBuf),
    /// The catalogue's entry of this agent.
    Agent(String),
    /// Nobody set it.
    Default,
}

/// A wrong setting: what, where, and the fix.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// The configuration file cannot be read.
    #[error("cannot read {0}")]
    Unreadable(PathBuf, #[source] io::Error),
    /// It is not what it should be.
    #[error("{path}: {reason}")]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A value means nothing.
    #[error("{name}: {reason} (from {from})")]
    Value {
        /// Which setting.
        name: &'static str,
        /// Why.
        reason: String,
        /// Where it was set.
        from: Source,
    },
    /// A value has to be given.
    #[error("{name} is not set: {help}; give --{flag}, {variable}, or {name} in the configuration file")]
    Missing {
        /// Which setting.
        name: &'static str,
        /// What it is for.
        help: &'static str,
        /// As a flag.
        flag: String,
        /// As a variable.
        variable: &'static str,
    },
}

/// The values of all layers, before anybody asks what they mean.
#[derive(Clone, Default)]
pub struct Layers {
    values: BTreeMap<&'static str, (String, Source)>,
    agents: Vec<Agent>,
}

/// What a run needs to know.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "named like the items")]
pub struct Settings {
    pub upstream: Option<String>,
    pub key: Option<ApiKey>,
    pub key_mode: KeyMode,
    pub spend_key: Option<ApiKey>,
    /// Whether open costs are looked up without having been asked for.
    pub reconciles: bool,
    pub state_dir: PathBuf,
    pub docker_host: String,
    pub proxy: Option<PathBuf>,
    pub sidecar_users: SidecarUsers,
    pub image: String,
    pub seccomp: Option<PathBuf>,
    pub agent: String,
    pub models: Vec<String>,
    pub account: Account,
    pub timeout: Duration,
    pub stop_grace: Duration,
    pub limits: SandboxLimits,
    pub output_max: usize,
    /// Nano-USD of a run.
    pub max_cost: Option<i64>,
    /// Nano-USD that a run without such a cap holds of its account's budget.
    pub hold: i64,
    /// In place of those that LiteLLM names.
    pub prices: Option<PathBuf>,
    /// Files that hold keys: no sandbox may see them.
    pub files_with_keys: Vec<PathBuf>,
    /// Other caps and the like, as flags of the sidecar.
    pub sidecar_flags: Vec<String>,
    pub agents: Vec<Agent>,
}

impl Settings {
    /// Returns the part that all runs share.
    #[must_use]
    pub fn host(&self) -> HostSettings {
        HostSettings {
            state_dir: self.state_dir.clone(),
            docker_host: self.docker_host.clone(),
            proxy: self.proxy.clone(),
            sidecar_users: self.sidecar_users.clone(),
            litellm: self.upstream.clone().zip(self.key.clone()),
        }
    }

    /// The key for the spend log.
    #[must_use]
    pub fn spend_key(&self) -> Option<&ApiKey> {
        self.spend_key.as_ref().or(self.key.as_ref())
    }
}

impl Layers {
    /// Collects what flags, environment and file say.
    ///
    /// # Errors
    /// Of the file: it cannot be read, or names something that does not exist.
    pub fn collect(
        flags: &BTreeMap<&'static str, String>,
        variable: impl Fn(&str) -> Option<String>,
        file: Option<&Path>,
    ) -> Result<Self, SettingError> {
        let named = file.map(Path::to_owned).or_else(|| variable("SLUICE_CONFIG").map(PathBuf::from));
        let mut layers = match named {
            Some(path) => read(&path)?,
            None if Path::new(DEFAULT_FILE).exists() => read(Path::new(DEFAULT_FILE))?,
            None => Self::default(),
        };
        for item in ITEMS {
            let set = item.variables.iter().find_map(|name| Some((variable(name)?, Source::Variable(name))));
            if let Some((value, from)) = set.filter(|(value, _)| !value.is_empty()) {
                layers.set(item.name, value, from);
            }
            if let Some(value) = flags.get(item.name) {
                layers.set(item.name, value.clone(), Source::Flag);
            }
            if let (false, Some(default)) = (layers.values.contains_key(item.name), item.default) {
                layers.values.insert(item.name, (default.to_owned(), Source::Default));
            }
        }
        if layers.agents.is_empty() {
            layers.agents = agents::catalogue();
        }
        layers.take_defaults_of_agent();
        Ok(layers)
    }

    /// What the agent needs goes before the built-in defaults, and before nothing that was set.
    fn take_defaults_of_agent(&mut self) {
        let asked = self.get("agent").and_then(|(id, _)| agents::find(&self.agents, id));
        let Some(Agent { agent_id, memory, timeout, .. }) = asked.cloned() else { return };
        for (name, value) in [("memory", memory), ("timeout", timeout)] {
            if let (Some(value), Some((_, Source::Default))) = (value, self.get(name)) {
                self.values.insert(name, (value, Source::Agent(agent_id.clone())));
            }
        }
    }

    /// Sets a value in place of the one of a lower layer. What is allowed adds to what the lower layers allow.
    fn set(&mut self, name: &'static str, value: String, from: Source) {
        let before = self.values.get(name).map(|(before, _)| before.as_str()).filter(|before| !before.is_empty());
        let value = match (before, separator(name)) {
            (Some(before), Some(separator)) if name != "model" => format!("{before}{separator}{value}"),
            _ => value,
        };
        self.values.insert(name, (value, from));
    }

    /// A value, and where it comes from.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<(&str, &Source)> {
        self.values.get(name).map(|(value, source)| (value.as_str(), source))
    }

    /// A value as it may be shown.
    #[must_use]
    pub fn shown(&self, name: &str) -> Option<(String, &Source)> {
        let (value, source) = self.get(name)?;
        let shown = match name {
            "key" => "(redacted)".to_owned(),
            "upstream" => sluice_upstream::redact(value),
            // A key that was put where its file's name belongs.
            "key_file" | "spend_key_file" if !value.contains('/') => "(no path: redacted)".to_owned(),
            _ => value.to_owned(),
        };
        Some((shown, source))
    }

    /// What the values mean.
    ///
    /// # Errors
    /// The first one that means nothing.
    pub fn settings(&self) -> Result<Settings, SettingError> {
        let path = |name| self.get(name).map(|(value, _)| PathBuf::from(value));
        let text = |name| self.get(name).map(|(value, _)| value.to_owned());
        let mut sidecar_flags = Vec::new();
        for name in ["max_calls", "max_tokens", "rate", "audit_sync"] {
            if let Some((value, _)) = self.get(name) {
                sidecar_flags.extend([format!("--{}", name.replace('_', "-")), value.to_owned()]);
            }
        }
        for name in OF_THE_SIDECAR {
            let value = self.get(name).map_or("", |(value, _)| value);
            // A separator that does not occur: one value.
            let values = value.split(separator(name).unwrap_or('\0')).filter(|value| !value.is_empty());
            sidecar_flags.extend(values.map(|value| format!("--{}={value}", name.replace('_', "-"))));
        }
        let allows_media = self.parse("allow_remote_media", |value| {
            value.parse::<bool>().map_err(|_| format!("'{value}' is neither true nor false"))
        })?;
        sidecar_flags.extend(allows_media.filter(|allows| *allows).map(|_| "--allow-remote-media".to_owned()));
        for name in ["max_calls", "max_tokens"] {
            self.parse(name, |value| value.parse::<u64>().map_err(|_| format!("'{value}' is no number")))?;
        }
        let memory = self.parse("sidecar_memory", |value| match value {
            "none" => Ok(value.to_owned()),
            size => match units::size(size)? {
                bytes if bytes < 64 << 20 => Err(format!("'{value}' is too little for a sidecar; give at least 64m")),
                bytes => Ok(bytes.to_string()),
            },
        })?;
        sidecar_flags.extend(memory.into_iter().flat_map(|memory| ["--max-memory".to_owned(), memory]));
        let max_cost = self.parse("max_cost_usd", units::nano_usd)?;
        self.parse("audit_sync", |value| match value {
            "call" | "off" => Ok(()),
            _ => Err(format!("'{value}' is neither call nor off")),
        })?;
        Ok(Settings {
            upstream: text("upstream"),
            key: self.key()?,
            key_mode: self.required("key_mode", |value| match value {
                "master" => Ok(KeyMode::Master),
                "per-run" => Ok(KeyMode::PerRun),
                "auto" => Ok(KeyMode::Auto),
                _ => Err(format!("'{value}' is none of master, per-run, auto")),
            })?,
            spend_key: self.key_in("spend_key_file")?,
            reconciles: self.required("reconcile", |value| match value {
                "auto" => Ok(true),
                "off" => Ok(false),
                _ => Err(format!("'{value}' is neither auto nor off")),
            })?,
            state_dir: path("state_dir").expect("it has a default"),
            docker_host: text("docker_host").expect("it has a default"),
            proxy: path("proxy"),
            sidecar_users: SidecarUsers {
                uids: self
                    .required("sidecar_uid", |value| value.parse().map_err(|error: UidRangeError| error.to_string()))?,
                gid: self.parse("sidecar_gid", |value| {
                    sidecar_user::id(value).ok_or_else(|| format!("'{value}' is not a group id other than root's"))
                })?,
            },
            image: text("image").expect("it has a default"),
            seccomp: path("seccomp"),
            agent: text("agent").expect("it has a default"),
            // A setting without a name must not open all models.
            models: self
                .parse("model", |value| {
                    let names: Vec<_> = value.split_whitespace().map(str::to_owned).collect();
                    if names.is_empty() { Err("it names no model".to_owned()) } else { Ok(names) }
                })?
                .unwrap_or_default(),
            account: self.required("account", |value| value.parse().map_err(|error| format!("'{value}': {error}")))?,
            timeout: self.required("timeout", |value| positive(units::time(value)?, value))?,
            stop_grace: self.required("stop_grace", units::time)?,
            limits: SandboxLimits {
                memory: self.required("memory", |value| match units::size(value)? {
                    // The engine's own least.
                    bytes if bytes < 6 << 20 => Err(format!("'{value}' is too little; give at least 6m")),
                    bytes => Ok(bytes),
                })?,
                cpu_millis: self.required("cpus", units::cpus)?,
                pids: self.required("pids", |value| match value.parse::<u64>() {
                    Ok(pids @ 16..=1_000_000) => Ok(pids),
                    _ => Err(format!("'{value}' is not a number of processes; give at least 16")),
                })?,
            },
            output_max: self.required("output_max", |value| {
                let bytes = units::size(value)?;
                usize::try_from(bytes)
                    .ok()
                    .filter(|bytes| *bytes <= 1 << 30)
                    .ok_or_else(|| format!("'{value}' is more than 1g"))
            })?,
            max_cost,
            hold: self.required("hold_usd", units::nano_usd)?,
            // The sidecar has another working directory.
            prices: path("prices").map(|path| std::path::absolute(&path).unwrap_or(path)),
            files_with_keys: self.files_with_keys(),
            sidecar_flags,
            agents: self.agents.clone(),
        })
    }

    fn files_with_keys(&self) -> Vec<PathBuf> {
        let named = ["key_file", "spend_key_file"].into_iter().filter_map(|name| self.get(name));
        let inside = self.get("key").and_then(|(_, from)| match from {
            Source::File(path) => Some(path.clone()),
            _ => None,
        });
        named.map(|(value, _)| PathBuf::from(value)).chain(inside).collect()
    }

    fn key(&self) -> Result<Option<ApiKey>, SettingError> {
        if let Some((value, from)) = self.get("key") {
            return match ApiKey::new(value.to_owned()) {
                Some(key) => Ok(Some(key)),
                None => Err(SettingError::Value { name: "key", reason: "it is empty".into(), from: from.clone() }),
            };
        }
        self.key_in("key_file")
    }

    fn key_in(&self, name: &'static str) -> Result<Option<ApiKey>, SettingError> {
        self.parse(name, |value| {
            if !value.contains('/') {
                return Err("it is no path; give the path of a file (./FILE), never the key itself".to_owned());
            }
            private(Path::new(value)).map_err(|reason| format!("{value}: {reason}"))?;
            let text = fs::read_to_string(value).map_err(|error| format!("cannot read {value}: {error}"))?;
            ApiKey::new(text).ok_or_else(|| format!("{value} is empty; write the key into it"))
        })
    }

    fn parse<T>(
        &self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, SettingError> {
        let Some((value, from)) = self.get(name) else { return Ok(None) };
        parse(value).map(Some).map_err(|reason| SettingError::Value { name, reason, from: from.clone() })
    }

    fn required<T>(
        &self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, SettingError> {
        self.parse(name, parse)?.ok_or_else(|| missing(name))
    }
}

/// That a setting has to be given for what is asked.
#[must_use]
pub fn missing(name: &'static str) -> SettingError {
    let item = ITEMS.iter().find(|item| item.name == name).expect("all names are in the table");
    SettingError::Missing { name, help: item.help, flag: name.replace('_', "-"), variable: item.variables[0] }
}

fn positive(time: Duration, text: &str) -> Result<Duration, String> {
    if time.is_zero() { Err(format!("'{text}' is too short; give more than 0")) } else { Ok(time) }
}

/// That nobody but its owner can read a file with a secret in it.
fn private(path: &Path) -> Result<(), String> {
    let meta = fs::metadata(path).map_err(|error| format!("cannot read it: {error}"))?;
    if meta.is_file() && meta.mode() & 0o077 != 0 {
        return Err("other users can read it, and it holds a key; chmod 600 it".to_owned());
    }
    Ok(())
}

fn read(path: &Path) -> Result<Layers, SettingError> {
    let wrong = |reason: String| SettingError::File { path: path.to_owned(), reason };
    let text = fs::read_to_string(path).map_err(|error| SettingError::Unreadable(path.to_owned(), error))?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| wrong(error.message().to_owned()))?;
    let mut layers = Layers::default();
    for (name, value) in table {
        if name == "agents" {
            layers.agents = agents::read(value).map_err(wrong)?;
            continue;
        }
        let Some(item) = ITEMS.iter().find(|item| item.name == name) else {
            let known: Vec<_> = ITEMS.iter().map(|item| item.name).collect();
            return Err(wrong(format!("there is no setting named {name}; there are {}, agents", known.join(", "))));
        };
        if name == "key" {
            private(path).map_err(wrong)?;
        }
        let text = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Float(number) => number.to_string(),
            toml::Value::Boolean(flag) if name == "allow_remote_media" => flag.to_string(),
            toml::Value::Array(values) if separator(&name).is_some() => joined(&name, &values).map_err(wrong)?,
            other => return Err(wrong(format!("{name} is {}; write a text or a number", other.type_str()))),
        };
        layers.values.insert(item.name, (text, Source::File(path.to_owned())));
    }
    Ok(layers)
}

/// A list of the file as one value.
fn joined(name: &str, values: &[toml::Value]) -> Result<String, String> {
    let separator = separator(name).unwrap_or(' ');
    let texts = values.iter().map(|value| match value.as_str() {
        Some(text) if !text.is_empty() && !text.contains(separator) => Ok(text),
        _ => Err(format!("{name} is a list of texts, and none is empty or contains '{separator}'")),
    });
    Ok(texts.collect::<Result<Vec<_>, _>>()?.join(&separator.to_string()))
}

impl fmt::Debug for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(ITEMS.iter().filter_map(|item| Some((item.name, self.shown(item.name)?)))).finish()
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("the command line"),
            Self::Variable(name) => write!(f, "{name} in the environment"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Agent(id) => write!(f, "the agent {id}"),
            Self::Default => f.write_str("the default"),
        }
    }
}

#[cfg(test)]
mod tests;
