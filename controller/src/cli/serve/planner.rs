//! Requests of the daemon's database as requests for runs, by the settings of `sluice run`.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};
use sluice_daemon::identity::{OPERATOR_BYTES_MAX, RunIdentity, ascii_json_bytes};
use sluice_daemon::on_cap::CapTreatment;
use sluice_daemon::runs::service::{PlanError, PlannedRun, Planner};
use sluice_daemon::stored_request::StoredRequest;
use sluice_daemon::variable_values::Variables;
use sluice_runs::admission::RunRequest;
use sluice_runs::blueprint::{SandboxLimits, WORKSPACE};
use sluice_runs::bridge::Bridge;
use sluice_runs::exchange::FileExchange;
use sluice_runs::input::Stdin;
use sluice_runs::record::RequestRecord;
use sluice_runs::run_clone::CloneCollector;
use sluice_runs::sandbox_user::SandboxUsers;
use sluice_runs::spec::{DaemonOptions, RunSpec};
use sluice_runs::verdict::Contract;
use sluice_state::sandboxes::Sandbox;

use crate::agent_catalogue::{self, CatalogueAgent, Placeholders};
use crate::settings::Settings;

/// Makes requests by the settings that the daemon was started with.
#[derive(Debug)]
pub(super) struct SettingsPlanner {
    pub(super) settings: Settings,
    pub(super) seccomp: String,
    pub(super) sandbox_users: SandboxUsers,
    /// Flags of sidecars for runs of each agent.
    pub(super) agent_flags: BTreeMap<String, Vec<String>>,
    /// The same of runs that accounts with profiles pay for.
    pub(super) account_flags: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

impl Planner for SettingsPlanner {
    fn plan(&self, run: &Sandbox, stored: &StoredRequest, variables: &Variables) -> Result<PlannedRun, PlanError> {
        let Settings { litellm, run: defaults, .. } = &self.settings;
        let agent = self.agent(stored)?;
        let (Some(upstream), Some(key)) = (litellm.upstream.clone(), litellm.key.clone()) else {
            return Err(PlanError("the daemon has no upstream, or no key for it".to_owned()));
        };
        let message = stored.messages.as_deref().and_then(only_text);
        let values = Placeholders { message: message.as_deref(), models: &stored.models };
        if stored.argv.is_none() && agent.takes_message() && message.is_none() {
            return Err(PlanError(format!("{} takes one message of the user, as text", agent.agent_id)));
        }
        let env = environment(agent.variables(values), stored, variables);
        let request = RunRequest {
            key: run.key.clone(),
            agent: agent.agent_id.clone(),
            contract: self.contract(stored),
            spec: RunSpec {
                clone: None,
                account: run.account.clone(),
                graph_id: agent.graph_id.clone(),
                models: stored.models.clone(),
                image: stored.image.clone(),
                // Replaced when the image is inspected.
                bridge: Bridge::OfImage,
                argv: stored.argv.clone().unwrap_or_else(|| agent.arguments(values)),
                workdir: WORKSPACE.to_owned(),
                env,
                volumes: stored.mounts.volumes(),
                exchange: FileExchange::default(),
                stdin: Stdin::Closed,
                tty: false,
                limits: sandbox_limits(stored),
                timeout: Duration::from_secs(stored.limits.timeout_s),
                seccomp: self.seccomp.clone(),
                messages: stored.messages.as_ref().and_then(|messages| serde_json::to_vec(messages).ok()),
                upstream,
                upstream_key: key,
                key_mode: litellm.key_mode,
                max_cost: run.attempt_cap,
                hold: defaults.hold,
                prices: defaults.prices.clone(),
                daemon: Some(DaemonOptions {
                    sandbox_users: self.sandbox_users.clone(),
                    output_max: defaults.output_max as u64,
                    artifacts_max: defaults.artifacts_max,
                    relay_token: None,
                }),
                sidecar_flags: self.sidecar_flags(run, stored)?,
            },
        };
        let record = RequestRecord {
            program: stored.argv.clone().unwrap_or_default(),
            message,
            variables: stored.variables.iter().cloned().collect(),
            ..RequestRecord::of(&request, SystemTime::now())
        };
        Ok(PlannedRun { request, record })
    }

    fn contract(&self, stored: &StoredRequest) -> Contract {
        match self.agent(stored) {
            Ok(agent) if stored.argv.is_none() => agent.output,
            _ => Contract::Plain,
        }
    }

    fn collector(&self, stored: &StoredRequest) -> CloneCollector {
        CloneCollector { image: stored.image.clone(), limits: sandbox_limits(stored), seccomp: self.seccomp.clone() }
    }
}

fn sandbox_limits(stored: &StoredRequest) -> SandboxLimits {
    let limits = &stored.limits;
    SandboxLimits { memory: limits.memory, cpu_millis: limits.cpu_millis, pids: limits.pids }
}

impl SettingsPlanner {
    fn agent(&self, stored: &StoredRequest) -> Result<&CatalogueAgent, PlanError> {
        agent_catalogue::find(&self.settings.agents, &stored.graph_id)
            .ok_or_else(|| PlanError(format!("there is no agent {} any more", stored.graph_id)))
    }

    /// Returns the flags of the settings, followed by the request's flags. The sidecar refuses a flag that is given twice, so
    /// the earlier one is removed.
    fn sidecar_flags(&self, run: &Sandbox, stored: &StoredRequest) -> Result<Vec<String>, PlanError> {
        let limits = &stored.limits;
        let of_agents = self.account_flags.get(&run.account).unwrap_or(&self.agent_flags);
        let mut flags = of_agents.get(&stored.graph_id).unwrap_or(&self.settings.run.sidecar_flags).clone();
        let metadata = metadata(run, stored, take(&mut flags, "--metadata"))?;
        let own = [
            ("--max-calls", limits.max_calls.map(|number| number.to_string())),
            ("--max-tokens", limits.max_tokens.map(|number| number.to_string())),
            ("--max-concurrency", limits.max_concurrency.map(|number| number.to_string())),
            ("--rate", limits.rate.clone()),
            ("--metadata", Some(metadata)),
            ("--on-cap", (stored.on_cap == CapTreatment::Ask).then(|| stored.on_cap.as_str().to_owned())),
        ];
        for (name, value) in own {
            let Some(value) = value else { continue };
            take(&mut flags, name);
            flags.push(format!("{name}={value}"));
        }
        Ok(flags)
    }
}

/// Returns the environment variables of a run: its own ones replace those of its agent.
fn environment(
    mut env: BTreeMap<String, String>,
    stored: &StoredRequest,
    variables: &Variables,
) -> BTreeMap<String, String> {
    env.extend(variables.iter().map(|(name, value)| (name.clone(), value.to_string())));
    if stored.is_chat {
        env.entry("SLUICE_DELTAS".to_owned()).or_insert_with(|| "1".to_owned());
    }
    if let Some(seconds) = stored.chat_stay_s {
        env.entry("SLUICE_STAY".to_owned()).or_insert_with(|| format!("{seconds}s"));
    }
    env
}

/// Returns the metadata that each call of a run carries for LiteLLM, in addition to the names that the sidecar adds.
fn metadata(run: &Sandbox, stored: &StoredRequest, operator: Option<String>) -> Result<String, PlanError> {
    let names = RunIdentity {
        key: &run.key,
        account: &run.account,
        graph_id: &stored.graph_id,
        agent: (!run.agent_ephemeral).then_some(run.agent_id.as_str()),
        name: run.name.as_deref(),
        traceparent: stored.traceparent.as_ref(),
    };
    Ok(Value::Object(stored.metadata.of_calls(&names, operator_members(operator)?)).to_string())
}

/// Checks that the operator's metadata leaves room for a request's metadata.
///
/// # Errors
/// A text that is too long, or is not a JSON object.
pub(super) fn check_metadata(flags: &[String]) -> Result<(), PlanError> {
    let Some(text) = take(&mut flags.to_vec(), "--metadata") else { return Ok(()) };
    let members = operator_members(Some(text))?;
    let bytes = ascii_json_bytes(&Value::Object(members));
    if bytes <= OPERATOR_BYTES_MAX {
        return Ok(());
    }
    let message =
        format!("the setting metadata is {bytes} bytes as ASCII JSON; the daemon takes at most {OPERATOR_BYTES_MAX}");
    Err(PlanError(message))
}

fn operator_members(text: Option<String>) -> Result<Map<String, Value>, PlanError> {
    let wrong = |_| PlanError("the setting metadata is not a JSON object; write '{\"team\": \"search\"}'".to_owned());
    text.map_or(Ok(Map::new()), |text| serde_json::from_str(&text)).map_err(wrong)
}

/// Removes a flag, written as one argument or as two, and returns its last value.
fn take(flags: &mut Vec<String>, name: &str) -> Option<String> {
    let with_value = format!("{name}=");
    let mut value = None;
    while let Some(at) = flags.iter().position(|flag| flag == name || flag.starts_with(&with_value)) {
        let words = if flags[at] == name { 2 } else { 1 };
        let last = flags.drain(at..(at + words).min(flags.len())).next_back();
        value = last.map(|word| word.strip_prefix(&with_value).map_or(word.clone(), str::to_owned));
    }
    value
}

/// Returns the text of messages that are one text of the user.
fn only_text(messages: &[Value]) -> Option<String> {
    match messages {
        [only] if only["role"] == "user" => only["content"].as_str().map(str::to_owned),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_of_the_operator_is_bounded() {
        let flag = |text: &str| [format!("--metadata={text}")];
        check_metadata(&flag(r#"{"team":"search"}"#)).expect("it is short");
        check_metadata(&[]).expect("there is none");
        assert!(check_metadata(&flag("[]")).is_err_and(|error| error.0.contains("not a JSON object")));
        // The sidecar sends the letter as \u00e4.
        for (letter, count) in [("x", OPERATOR_BYTES_MAX), ("ä", OPERATOR_BYTES_MAX / 6)] {
            let long = format!(r#"{{"a":"{}"}}"#, letter.repeat(count));
            assert!(check_metadata(&flag(&long)).is_err_and(|error| error.0.contains("at most 2048")), "{letter}");
        }
    }

    #[test]
    fn a_flag_of_the_request_replaces_that_of_the_settings() {
        let mut flags =
            ["--max-calls", "9", "--rate=5/s", "--max-calls=3", "--audit-sync", "call"].map(str::to_owned).to_vec();
        assert_eq!(take(&mut flags, "--max-calls").as_deref(), Some("3"));
        assert_eq!(flags, ["--rate=5/s", "--audit-sync", "call"]);
        assert_eq!(take(&mut flags, "--rate").as_deref(), Some("5/s"));
        assert_eq!(take(&mut flags, "--rate"), None);
        assert_eq!(flags, ["--audit-sync", "call"]);
    }
}
