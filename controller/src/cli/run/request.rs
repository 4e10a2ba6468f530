//! From flags and settings to what is asked of a run; everything that can be wrong with it is said here.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use sluice_contract::RunKey;
use sluice_contract::run_id::NameError;
use sluice_runs::blueprint::{MountAccess, REPOSITORY, Volume, WORKSPACE, reserved_target, reserved_variable};
use sluice_runs::engine::{Engine, EngineError, socket_of};
use sluice_runs::input::{Stdin, StdinKind, StdinRequest};
use sluice_runs::one_shot::RunRequest;
use sluice_runs::sidecar::SidecarLifetime;
use sluice_runs::spec::RunSpec;
use sluice_runs::tty;
use sluice_runs::verdict::Contract;

use super::Flags;
use super::rights::{self, Wrong};
use super::source::{Places, refused};
use crate::agents::{self, Agent, Placeholders};
use crate::settings::{SettingError, Settings, missing};

/// The system calls that a sandbox may make.
const SECCOMP: &str = include_str!("../../../../deploy/seccomp.json");
const MESSAGES_MAX: u64 = 32 << 20;

/// What is wrong with a request.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestError {
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error("--run-id '{0}'")]
    RunId(String, #[source] NameError),
    #[error("there is nothing to do: give a MESSAGE, --messages FILE, or a program behind --")]
    Nothing,
    #[error("there is no agent '{0}'; sluice agents lists them")]
    NoAgent(String),
    #[error("{0} takes one MESSAGE, and no --messages")]
    OneMessage(String),
    #[error("there is no image {image} on this engine, and {agent} runs in it; {advice}")]
    NoImage { agent: String, image: String, advice: String },
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("--interactive: stdin is for a program behind --")]
    NoReader,
    #[error("--interactive: --messages - reads stdin already")]
    StdinTaken,
    #[error("--tty: a terminal is for a program behind --, and an agent answers with one object; use -- PROGRAM")]
    NoScreen,
    #[error("--tty: --json prints one object on stdout, where the program would draw; leave out one of them")]
    NoObject,
    #[error("--tty: stdin is not a terminal; leave out --tty, or start sluice in a terminal")]
    NoTerminal,
    #[error("--env '{0}': write K=V")]
    NoValue(String),
    #[error("--env {name}: it {reason}")]
    Variable { name: String, reason: &'static str },
    #[error("--messages {path}: {reason}")]
    Messages { path: PathBuf, reason: String },
    #[error("--{flag} '{given}': {reason}")]
    Volume { flag: &'static str, given: String, reason: String },
    #[error("--seccomp {path}: {reason}")]
    Seccomp { path: PathBuf, reason: String },
}

/// Reads a request.
pub(super) fn read(flags: &Flags, settings: &Settings) -> Result<RunRequest, RequestError> {
    let agent =
        agents::find(&settings.agents, &settings.agent).ok_or_else(|| RequestError::NoAgent(settings.agent.clone()))?;
    let asks_agent = flags.argv.is_empty();
    let contract = if asks_agent { agent.output } else { Contract::Plain };
    let messages = messages(flags)?;
    if asks_agent && messages.is_none() {
        return Err(RequestError::Nothing);
    }
    if asks_agent && agent.takes_message() && flags.message.is_none() {
        return Err(RequestError::OneMessage(agent.agent_id.clone()));
    }
    if asks_agent && settings.models.is_empty() {
        return Err(missing("model").into());
    }
    let values = Placeholders { message: flags.message.as_deref(), models: &settings.models };
    let mut env = agent.variables(values);
    env.extend(environment(flags)?);
    Ok(RunRequest {
        key: RunKey { run_id: run_id(flags)?, attempt: 0 },
        agent: agent.agent_id.clone(),
        contract,
        spec: RunSpec {
            account: settings.account.to_string(),
            graph_id: agent.graph_id.clone(),
            models: settings.models.clone(),
            image: image(flags, settings, agent).to_owned(),
            argv: if asks_agent { agent.arguments(values) } else { flags.argv.clone() },
            // A coding agent works on what it is started in.
            workdir: if agent.output == Contract::Plain && flags.repo.is_some() { REPOSITORY } else { WORKSPACE },
            env,
            volumes: volumes(flags, settings)?,
            stdin: stdin(flags, contract)?,
            tty: tty(flags, contract)?,
            limits: settings.limits.clone(),
            timeout: settings.timeout,
            seccomp: seccomp(settings)?,
            messages,
            upstream: settings.upstream.clone().ok_or_else(|| missing("upstream"))?,
            upstream_key: settings.key.clone().ok_or_else(|| missing("key_file"))?,
            key_mode: settings.key_mode,
            max_cost: settings.max_cost,
            hold: settings.hold,
            prices: settings.prices.clone(),
            sidecar_lifetime: SidecarLifetime::WithController,
            sidecar_flags: settings.sidecar_flags.clone(),
        },
    })
}

/// Looks for the image of an agent that has its own, before anything is held or made for the run.
pub(super) async fn find_image(engine: &Engine, settings: &Settings, request: &RunRequest) -> Result<(), RequestError> {
    let (agent, image) = (&request.agent, &request.spec.image);
    let found = agents::find(&settings.agents, agent).filter(|agent| agent.image.as_ref() == Some(image));
    let Some(found) = found else { return Ok(()) };
    match engine.image(image).await {
        Err(EngineError::NoImage(image)) => {
            Err(RequestError::NoImage { agent: agent.clone(), image, advice: found.image_advice() })
        }
        looked => Ok(looked?),
    }
}

/// The image of a flag, else the agent's, else that of the settings. A program behind `--` runs in the image of a plain
/// agent, beside its program; an envelope agent's image is for that agent alone.
fn image<'a>(flags: &'a Flags, settings: &'a Settings, agent: &'a Agent) -> &'a str {
    let own = agent.image.as_deref().filter(|_| flags.argv.is_empty() || agent.output == Contract::Plain);
    flags.image.as_deref().or(own).unwrap_or(&settings.image)
}

/// The given name, or one that sorts by time.
fn run_id(flags: &Flags) -> Result<sluice_contract::RunId, RequestError> {
    let name = flags.run_id.clone().unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = humantime::format_rfc3339_seconds(UNIX_EPOCH + now).to_string();
        let digits: String = time.chars().filter(char::is_ascii_digit).collect();
        let (day, second) = digits.split_at(8);
        format!("r{day}-{second}-{}", &uuid::Uuid::new_v4().simple().to_string()[..8])
    });
    name.parse().map_err(|error| RequestError::RunId(name, error))
}

fn messages(flags: &Flags) -> Result<Option<Vec<u8>>, RequestError> {
    if let Some(message) = &flags.message {
        return Ok(Some(json!([{ "role": "user", "content": message }]).to_string().into_bytes()));
    }
    let Some(path) = &flags.messages else { return Ok(None) };
    let wrong = |reason: String| RequestError::Messages { path: path.clone(), reason };
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin())
    } else {
        Box::new(fs::File::open(path).map_err(|error| wrong(error.to_string()))?)
    };
    let mut text = Vec::new();
    source.take(MESSAGES_MAX + 1).read_to_end(&mut text).map_err(|error| wrong(error.to_string()))?;
    if text.len() as u64 > MESSAGES_MAX {
        return Err(wrong(format!("more than {} MiB", MESSAGES_MAX >> 20)));
    }
    match serde_json::from_slice(&text) {
        Ok(Value::Array(messages))
            if messages.iter().all(|message| message["role"].is_string()) && !messages.is_empty() =>
        {
            Ok(Some(text))
        }
        Ok(_) => Err(wrong("it holds no messages; write [{\"role\":\"user\",\"content\":\"…\"}]".to_owned())),
        Err(error) => Err(wrong(format!("it is no JSON: {error}"))),
    }
}

/// What the program finds on its stdin.
fn stdin(flags: &Flags, contract: Contract) -> Result<Stdin, RequestError> {
    let is_taken = flags.messages.as_deref() == Some(Path::new("-"));
    match (contract, is_taken) {
        (Contract::Envelope, _) if flags.interactive => Err(RequestError::NoReader),
        (Contract::Plain, true) if flags.interactive => Err(RequestError::StdinTaken),
        (Contract::Envelope, _) | (Contract::Plain, true) => Ok(Stdin::Closed),
        (Contract::Plain, false) => Ok(StdinKind::current().for_program(if flags.interactive {
            StdinRequest::Interactive
        } else {
            StdinRequest::Default
        })),
    }
}

/// Whether the program has our terminal.
fn tty(flags: &Flags, contract: Contract) -> Result<bool, RequestError> {
    match (flags.tty, contract) {
        (false, _) => Ok(false),
        (true, Contract::Envelope) => Err(RequestError::NoScreen),
        (true, Contract::Plain) if flags.json => Err(RequestError::NoObject),
        (true, Contract::Plain) if StdinKind::current() != StdinKind::Terminal => Err(RequestError::NoTerminal),
        (true, Contract::Plain) => Ok(true),
    }
}

fn environment(flags: &Flags) -> Result<BTreeMap<String, String>, RequestError> {
    let mut env = BTreeMap::new();
    for pair in &flags.env {
        let (name, value) = pair.split_once('=').ok_or_else(|| RequestError::NoValue(pair.clone()))?;
        if let Some(reason) = reserved_variable(name) {
            return Err(RequestError::Variable { name: name.to_owned(), reason });
        }
        env.insert(name.to_owned(), value.to_owned());
    }
    if let Some(term) = flags.tty.then(tty::term).flatten() {
        env.entry("TERM".to_owned()).or_insert(term);
    }
    Ok(env)
}

fn volumes(flags: &Flags, settings: &Settings) -> Result<Vec<Volume>, RequestError> {
    let (mut volumes, places): (Vec<Volume>, _) = (Vec::new(), places(settings));
    let repo = flags.repo.iter().map(|given| ("repo", given));
    for (flag, given) in repo.chain(flags.volume.iter().map(|given| ("volume", given))) {
        let wrong = |reason: String| RequestError::Volume { flag, given: given.clone(), reason };
        let (rest, access) = match given.rsplit_once(':') {
            Some((rest, "rw")) => (rest, MountAccess::ReadWrite),
            Some((rest, "ro")) => (rest, MountAccess::ReadOnly),
            _ => (given.as_str(), MountAccess::ReadOnly),
        };
        let (source, target) = match flag {
            "repo" => (rest, REPOSITORY),
            _ => rest.split_once(':').ok_or_else(|| wrong("write DIR:PATH, or DIR:PATH:rw".to_owned()))?,
        };
        if let Some(reason) = reserved_target(target) {
            return Err(wrong(format!("{target} {reason}")));
        }
        let source = fs::canonicalize(source).map_err(|error| wrong(format!("{source}: {error}")))?;
        let is_file = flag == "volume" && source.is_file();
        if !source.is_dir() && !is_file {
            let wanted = if flag == "volume" { "neither a directory nor a regular file" } else { "not a directory" };
            return Err(wrong(format!("{} is {wanted}", source.display())));
        }
        if let Some(reason) = refused(&source, &places) {
            return Err(wrong(format!("{} {reason}", source.display())));
        }
        let target = target.trim_end_matches('/');
        let nested = |one: &str, other: &str| Path::new(one).starts_with(other);
        if let Some(other) = volumes.iter().find(|v| nested(&v.target, target) || nested(target, &v.target)) {
            return Err(wrong(format!("{target} and {} are one, or inside each other", other.target)));
        }
        let volume = Volume { source, target: target.to_owned(), access };
        if let Some(Wrong::Useless(reason)) = rights::wrong(&volume) {
            return Err(wrong(reason));
        }
        volumes.push(volume);
    }
    Ok(volumes)
}

/// The places of this host as they really are.
fn places(settings: &Settings) -> Places {
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    Places {
        socket: socket_of(&settings.docker_host).map(real),
        state: real(&settings.state_dir),
        audit: real(&settings.state_dir.join("audit")),
        keys: settings.files_with_keys.iter().map(|path| real(path)).collect(),
    }
}

fn seccomp(settings: &Settings) -> Result<String, RequestError> {
    let Some(path) = &settings.seccomp else { return Ok(SECCOMP.to_owned()) };
    let wrong = |reason: String| RequestError::Seccomp { path: path.clone(), reason };
    let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    match serde_json::from_str::<Value>(&text) {
        Ok(Value::Object(profile)) if profile.contains_key("defaultAction") => Ok(text),
        Ok(_) => Err(wrong("it has no defaultAction, and so is no seccomp profile".to_owned())),
        Err(error) => Err(wrong(format!("it is no JSON: {error}"))),
    }
}
