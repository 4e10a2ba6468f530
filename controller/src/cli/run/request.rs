//! The request of a run, from flags and settings.

use std::time::{SystemTime, UNIX_EPOCH};

use sluice_contract::RunKey;
use sluice_litellm::ApiKey;
use sluice_runs::blueprint::{REPOSITORY, WORKSPACE};
use sluice_runs::bridge::Bridge;
use sluice_runs::one_shot::RunRequest;
use sluice_runs::spec::RunSpec;
use sluice_runs::upstream;
use sluice_runs::verdict::Contract;
use sluice_upstream::Upstream;

use super::args::RunArgs;
use super::clone::clone;
use super::environment::environment;
use super::files::exchange;
use super::input::{Prompt, prompt, stdin, tty};
use super::mounts::volumes;
use super::request_error::RequestError;
use super::seccomp;
use crate::agent_catalogue::{self, CatalogueAgent, Placeholders};
use crate::settings::{Settings, all_missing, missing};

/// Maximum size of one argument of a program, less the space for an agent's prefix of the message.
const ARGUMENT_MAX: usize = 127 << 10;

/// Makes the request of a run from args and settings.
///
/// # Errors
/// The first flag, file or setting that is not valid.
pub(super) async fn read(args: &RunArgs, settings: &Settings) -> Result<RunRequest, RequestError> {
    let agent = agent_catalogue::find(&settings.agents, &settings.run.agent)
        .ok_or_else(|| RequestError::NoAgent(settings.run.agent.clone()))?;
    let asks_agent = args.argv.is_empty();
    let contract = if asks_agent { agent.output } else { Contract::Plain };
    let prompt = prompt(args)?;
    if asks_agent {
        check_prompt(agent, &prompt)?;
    }
    check_set(settings, asks_agent)?;
    let volumes = volumes(args, settings)?;
    let values = Placeholders { message: prompt.message.as_deref(), models: &settings.run.models };
    let mut env = agent.variables(values);
    env.extend(environment(args)?);
    let run_id = run_id(args)?;
    let clone = clone(args, settings, run_id.as_str()).await?;
    Ok(RunRequest {
        key: RunKey { run_id, attempt: 0 },
        agent: agent.agent_id.clone(),
        contract,
        spec: RunSpec {
            account: settings.run.account.to_string(),
            graph_id: agent.graph_id.clone(),
            models: settings.run.models.clone(),
            image: image(args, settings, agent).to_owned(),
            // Replaced when the image is inspected.
            bridge: Bridge::OfImage,
            argv: if asks_agent { agent.arguments(values) } else { args.argv.clone() },
            // A coding agent works in the directory in which it is started.
            workdir: if agent.output == Contract::Plain && args.repo.is_some() { REPOSITORY } else { WORKSPACE }
                .to_owned(),
            env,
            stdin: stdin(args, contract, &prompt)?,
            tty: tty(args, contract)?,
            limits: settings.run.limits.clone(),
            timeout: settings.run.timeout,
            seccomp: seccomp::profile(settings)?,
            messages: prompt.messages,
            upstream: upstream(settings)?,
            upstream_key: upstream_key(settings)?,
            key_mode: settings.litellm.key_mode,
            max_cost: settings.run.max_cost,
            hold: settings.run.hold,
            prices: settings.run.prices.clone(),
            daemon: None,
            sidecar_flags: settings.run.sidecar_flags.clone(),
            clone,
            // Last: it creates the directory of --out.
            exchange: exchange(args, settings, &volumes)?,
            volumes,
        },
    })
}

/// Checks that an agent gets a task, in a form that it takes.
fn check_prompt(agent: &CatalogueAgent, prompt: &Prompt) -> Result<(), RequestError> {
    if prompt.messages.is_none() {
        return Err(RequestError::Nothing);
    }
    if !agent.takes_message() {
        return Ok(());
    }
    match &prompt.message {
        None => Err(RequestError::OneMessage(agent.agent_id.clone())),
        Some(text) if text.len() > ARGUMENT_MAX => {
            Err(RequestError::LongMessage { agent: agent.agent_id.clone(), max: ARGUMENT_MAX })
        }
        Some(_) => Ok(()),
    }
}

/// Checks that the settings have what each run needs.
fn check_set(settings: &Settings, asks_agent: bool) -> Result<(), RequestError> {
    let needed = [
        ("model", asks_agent && settings.run.models.is_empty()),
        ("upstream", settings.litellm.upstream.is_none()),
        ("key_file", settings.litellm.key.is_none()),
    ];
    let unset: Vec<_> = needed.into_iter().filter_map(|(name, is_unset)| is_unset.then_some(name)).collect();
    all_missing(&unset).map_or(Ok(()), |error| Err(error.into()))
}

/// Returns the key of the upstream, in a form that the sidecar takes.
fn upstream_key(settings: &Settings) -> Result<ApiKey, RequestError> {
    let key = settings.litellm.key.clone().ok_or_else(|| missing("key_file"))?;
    key.check().map_err(RequestError::UpstreamKey)?;
    Ok(key)
}

/// Returns the image of the flag, else of the agent, else of the settings. A program after `--` also runs in the
/// image of a plain agent, but not in an envelope agent's image.
fn image<'a>(args: &'a RunArgs, settings: &'a Settings, agent: &'a CatalogueAgent) -> &'a str {
    let own = agent.image.as_deref().filter(|_| args.argv.is_empty() || agent.output == Contract::Plain);
    args.image.as_deref().or(own).unwrap_or(&settings.run.image)
}

fn upstream(settings: &Settings) -> Result<Upstream, RequestError> {
    let named = settings.litellm.upstream.clone().ok_or_else(|| missing("upstream"))?;
    upstream::address(&named.url)?;
    Ok(named)
}

/// Returns the given id, or a new one that sorts by time.
fn run_id(args: &RunArgs) -> Result<sluice_contract::RunId, RequestError> {
    let name = args.run_id.clone().unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = humantime::format_rfc3339_seconds(UNIX_EPOCH + now).to_string();
        let digits: String = time.chars().filter(char::is_ascii_digit).collect();
        let (day, second) = digits.split_at(8);
        format!("r{day}-{second}-{}", &uuid::Uuid::new_v4().simple().to_string()[..8])
    });
    name.parse().map_err(|error| RequestError::RunId(name, error))
}
