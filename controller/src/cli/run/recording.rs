//! The record of a run: its request without secrets.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::time::SystemTime;

use sluice_runs::blueprint::OUT_VARIABLE;
use sluice_runs::host::Host;
use sluice_runs::one_shot::RunRequest;
use sluice_runs::record::{FileFlags, RequestRecord, RunRecorder};

use super::args::RunArgs;
use super::mounts::is_copied;
use crate::agent_catalogue;
use crate::settings::{ITEMS, SettingLayers, Settings};

/// Settings of the host and of the request itself. A new run takes them from its own host, or from other members.
const NOT_RECORDED: [&str; 52] = [
    "upstream", "ca", "key", "key_file", "spend_key_file", "reconcile", "state_dir", "docker_host", "proxy",
    "sidecar_uid", "sidecar_gid", "record_keep", "record_output", "log_format", "agent", "image", "listen", "run_dir",
    "tls_cert", "tls_key", "behind_proxy", "sandbox_enabled", "images", "limits_max", "max_running", "max_queued",
    "run_deadline", "run_idle_timeout", "stuck_timeout", "heartbeat_timeout", "stale_start", "grant_roots",
    "uid_range", "metrics_public", "viewer_files", "chat_remote", "chat_hang_up", "chat_resume", "chat_session",
    "chat_session_idle", "chat_session_keep", "chat_session_max", "chat_session_space", "event_rate", "event_keep",
    "events_per_run", "event_disk_free", "artifacts_max", "on_cap", "ask_timeout", "second_person_usd",
    "session_approval_max",
];

/// Creates the record of an admitted run; `None` if no records are kept.
pub(super) fn begin(
    args: &RunArgs,
    layers: &SettingLayers,
    settings: &Settings,
    host: &Host,
    request: &RunRequest,
) -> io::Result<Option<RunRecorder>> {
    if settings.record.keep.is_zero() {
        return Ok(None);
    }
    let record = record_of(args, layers, settings, request);
    let messages = request.spec.messages.as_deref();
    RunRecorder::begin(&host.layout.records(), &request.key, &record, messages, settings.record.output).map(Some)
}

fn record_of(args: &RunArgs, layers: &SettingLayers, settings: &Settings, request: &RunRequest) -> RequestRecord {
    RequestRecord {
        program: args.argv.clone(),
        // A message from stdin or from a file is in the file of the messages.
        message: args.message.clone().filter(|message| message != "-"),
        variables: variables(args, settings, request).into_iter().collect(),
        files: files(args),
        interactive: args.interactive,
        settings: recorded_settings(layers),
        ..RequestRecord::of(request, SystemTime::now())
    }
}

/// Returns the names of the variables that the user set.
fn variables(args: &RunArgs, settings: &Settings, request: &RunRequest) -> BTreeSet<String> {
    let name = |pair: &String| pair.split_once('=').map_or(pair.as_str(), |(name, _)| name).to_owned();
    let mut names: BTreeSet<_> = args.env.iter().map(name).collect();
    if !args.env_file.is_empty() {
        let agent = agent_catalogue::find(&settings.agents, &request.agent);
        let ours = |name: &str| name == "TERM" || name == OUT_VARIABLE || agent.is_some_and(|agent| agent.sets(name));
        names.extend(request.spec.env.keys().filter(|name| !ours(name)).cloned());
    }
    names
}

fn files(args: &RunArgs) -> FileFlags {
    let absolute = |given: &Path| std::path::absolute(given).unwrap_or_else(|_| given.to_owned()).display().to_string();
    FileFlags {
        repo: args.repo.as_ref().filter(|_| is_copied(args)).map(|given| absolute(Path::new(given))),
        file: args.file.iter().map(|given| absolute(Path::new(given))).collect(),
        patch: args.patch.as_deref().map(absolute),
        out: args.out.as_deref().map(absolute),
        keep_workspace: args.keep_workspace,
    }
}

fn recorded_settings(layers: &SettingLayers) -> BTreeMap<String, String> {
    let items = ITEMS.iter().filter(|item| !NOT_RECORDED.contains(&item.name));
    items.filter_map(|item| Some((item.name.to_owned(), layers.get(item.name)?.0.to_owned()))).collect()
}

/// Returns recorded settings that this build knows, as flags.
pub(super) fn as_flags(recorded: &BTreeMap<String, String>) -> BTreeMap<&'static str, String> {
    let items = ITEMS.iter().filter(|item| !NOT_RECORDED.contains(&item.name));
    items.filter_map(|item| Some((item.name, recorded.get(item.name)?.clone()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_recorded_setting_is_a_secret() {
        for name in NOT_RECORDED {
            assert!(ITEMS.iter().any(|item| item.name == name), "{name} is no setting");
        }
        let secret = |name: &str| name.contains("key") && name != "key_mode";
        let recorded = ITEMS.iter().map(|item| item.name).filter(|name| !NOT_RECORDED.contains(name));
        assert_eq!(recorded.filter(|name| secret(name)).collect::<Vec<_>>(), [""; 0]);
    }

    #[test]
    fn recorded_settings_come_back_as_flags() {
        let variable = |name: &str| (name == "SLUICE_KEY").then(|| "sk-secret".to_owned());
        let flags = BTreeMap::from([("timeout", "9m".to_owned()), ("allow", "POST /v1/rerank".to_owned())]);
        let layers = SettingLayers::collect(&flags, variable, None).expect("it is right");
        let recorded = recorded_settings(&layers);
        let again = as_flags(&recorded);
        assert_eq!((again["timeout"].as_str(), again["allow"].as_str()), ("9m", "POST /v1/rerank"));
        assert!(!format!("{recorded:?}").contains("secret"));
    }
}
