//! Profiles: values of the configuration file for runs of an agent, of an account, or of both.
//!
//! Pure. A profile replaces values of the file, and lists of allowed values are added. Variables and flags replace values of
//! a profile. The user who starts runs is root, so a profile is a convenience, and the limit of an account is its budget.

use toml::Spanned;
use toml::de::DeValue;

use super::error::InvalidValue;
use super::file_value::{FileFault, FileValue, setting};
use super::similar::similar;
use super::values;
use crate::agent_catalogue::{self, CatalogueAgent};

/// A profile.
#[derive(Debug, Clone)]
pub(super) struct Profile {
    /// Agent whose runs it applies to; `None` for all.
    pub(super) agent: Option<String>,
    /// Position of the agent in the file, in bytes.
    agent_at: usize,
    /// Account whose runs it applies to; `None` for all.
    pub(super) account: Option<String>,
    /// Values of the profile.
    pub(super) values: Vec<FileValue>,
}

/// Settings that all runs of a host share: a profile cannot have them.
const OF_HOST: [&str; 50] = [
    "upstream", "ca", "key_file", "key", "spend_key_file", "reconcile", "state_dir", "docker_host", "proxy",
    "sidecar_uid", "sidecar_gid", "record_keep", "log_format", "listen", "run_dir", "tls_cert", "tls_key",
    "behind_proxy", "sandbox_enabled", "images", "limits_max", "max_running", "max_queued", "run_deadline",
    "run_idle_timeout", "stuck_timeout", "heartbeat_timeout", "stale_start", "grant_roots", "uid_range",
    "metrics_public", "viewer_files", "chat_remote", "chat_hang_up", "chat_resume", "chat_session",
    "chat_session_idle", "chat_session_keep", "chat_session_max", "chat_session_space", "event_rate", "event_keep",
    "events_per_run", "event_disk_free", "artifacts_max", "on_cap", "ask_timeout", "second_person_usd",
    "session_approval_max", "workspace_max",
];

impl Profile {
    /// Returns whether it applies to runs of this agent and account.
    pub(super) fn applies(&self, agents: &[CatalogueAgent], agent: Option<&str>, account: Option<&str>) -> bool {
        let found = |name: &str| agent_catalogue::find(agents, name).map(|agent| agent.agent_id.clone());
        let is_agent = |own: &String| {
            agent.is_some_and(|agent| own == agent || (found(own) == found(agent) && found(own).is_some()))
        };
        self.agent.as_ref().is_none_or(is_agent)
            && self.account.as_ref().is_none_or(|own| Some(own.as_str()) == account)
    }

    /// Checks that its agent exists: otherwise the profile, with its limits, would apply to no run.
    pub(super) fn check(&self, agents: &[CatalogueAgent]) -> Result<(), FileFault> {
        let Some(name) = self.agent.as_deref().filter(|name| agent_catalogue::find(agents, name).is_none()) else {
            return Ok(());
        };
        let ids = || agents.iter().map(|agent| agent.agent_id.as_str());
        let short = ids().filter_map(|id| id.split_once(':').map(|(_, short)| short));
        let advice = match similar(name, ids().chain(short)) {
            Some(meant) => format!("did you mean {meant}?"),
            None => format!("there are {}", ids().collect::<Vec<_>>().join(", ")),
        };
        let reason = InvalidValue::new(format!("profiles: there is no agent named {name}; {advice}"));
        Err(FileFault { at: self.agent_at, reason })
    }

    /// Returns its scope in words.
    pub(super) fn words(&self) -> String {
        let agent = self.agent.iter().map(|agent| format!("agent {agent}"));
        let account = self.account.iter().map(|account| format!("account {account}"));
        agent.chain(account).collect::<Vec<_>>().join(" and ")
    }
}

/// Reads `[[profiles]]`.
pub(super) fn read(value: &Spanned<DeValue<'_>>) -> Result<Vec<Profile>, FileFault> {
    let wrong = || FileFault::new(value.span(), "profiles: write each profile as a table, [[profiles]]");
    let entries = value.get_ref().as_array().ok_or_else(wrong)?;
    entries.iter().map(one).collect()
}

fn one(entry: &Spanned<DeValue<'_>>) -> Result<Profile, FileFault> {
    let fault = |reason: &str| FileFault::new(entry.span(), format!("profiles: {reason}"));
    let table = entry.get_ref().as_table().ok_or_else(|| fault("write each profile as a table, [[profiles]]"))?;
    let mut profile = Profile { agent: None, agent_at: 0, account: None, values: Vec::new() };
    for (key, value) in table {
        let name = key.get_ref().replace('-', "_");
        let text = || match value.get_ref().as_str() {
            Some(text) if !text.is_empty() => Ok(Some(text.to_owned())),
            _ => Err(FileFault::new(value.span(), format!("profiles: {name} is the name of one {name}, a text"))),
        };
        match name.as_str() {
            "agent" => (profile.agent, profile.agent_at) = (text()?, value.span().start),
            "account" => {
                profile.account = text()?;
                let checked = profile.account.as_deref().map(values::account).transpose();
                checked.map_err(|reason| FileFault::new(value.span(), format!("profiles: account {reason}")))?;
            }
            name if OF_HOST.contains(&name) => {
                let reason =
                    format!("profiles: {name} is a setting of the host, and not of a run; set it outside of profiles");
                return Err(FileFault::new(key.span(), reason));
            }
            name => profile.values.push(setting(name, key.span(), value, &[])?),
        }
    }
    if profile.agent.is_none() && profile.account.is_none() {
        return Err(fault("each one needs an agent, an account, or both, whose runs it applies to"));
    }
    Ok(profile)
}
