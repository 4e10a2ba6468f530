//! The configuration file: TOML, one member for each setting, a table for each agent, profile, project and webhook.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use sluice_daemon::guardian::GuardianSettings;
use sluice_daemon::run_policy::Project;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::error::SettingError;
use super::file_value::{FileFault, FileValue, setting, span_of};
use super::guardian;
use super::named_tables::{self, without_quotes};
use super::otel::OtelEntry;
use super::profile::{self, Profile};
use super::project;
use super::secret_file::check_private;
use super::webhooks::WebhookEntry;
use crate::agent_catalogue::{self, AgentEntryError, CatalogueAgent};

/// Members that are not settings.
const TABLES: [&str; 6] = ["agents", "profiles", "projects", "webhooks", "guardian", "otel"];

/// The content of a configuration file.
pub(super) struct FileContent {
    /// Values of settings.
    pub(super) values: Vec<FileValue>,
    /// Values for runs of an agent or an account.
    pub(super) profiles: Vec<Profile>,
    /// Projects.
    pub(super) projects: Vec<Project>,
    /// Agents of the catalogue with the changes and additions of the file; empty if the file names none.
    pub(super) agents: Vec<CatalogueAgent>,
    /// Webhooks of the daemon.
    pub(super) webhooks: Vec<WebhookEntry>,
    /// Targets of OpenTelemetry.
    pub(super) otel: Vec<OtelEntry>,
    /// Rules of the Guardian.
    pub(super) guardian: GuardianSettings,
}

/// Reads a configuration file. Returns its content and its text.
pub(super) fn read(path: &Path) -> Result<(FileContent, String), SettingError> {
    let text = fs::read_to_string(path).map_err(|error| SettingError::Unreadable(path.to_owned(), error))?;
    match parse(path, &text) {
        Ok(content) => Ok((content, text)),
        Err(FileFault { at, reason }) => {
            let (line, column) = position(&text, at);
            Err(SettingError::File { path: path.to_owned(), line, column, reason })
        }
    }
}

/// Returns line and column of a position, both from 1.
pub(super) fn position(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(at)];
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

fn parse(path: &Path, text: &str) -> Result<FileContent, FileFault> {
    let table = DeTable::parse(text).map_err(|error| syntax(text, &error))?;
    let mut content = FileContent {
        values: Vec::new(),
        profiles: Vec::new(),
        projects: Vec::new(),
        agents: Vec::new(),
        webhooks: Vec::new(),
        otel: Vec::new(),
        guardian: GuardianSettings::default(),
    };
    for (key, value) in table.get_ref() {
        match key.get_ref().as_ref() {
            "agents" => content.agents = agents(text, value)?,
            "profiles" => content.profiles = profile::read(value)?,
            "projects" => content.projects = project::read(value)?,
            "webhooks" => content.webhooks = named_tables::read(value)?,
            "otel" => content.otel = named_tables::read(value)?,
            "guardian" => content.guardian = guardian::read(value)?,
            name => {
                if name == "key" {
                    check_private(path).map_err(|error| FileFault::new(key.span(), error))?;
                }
                content.values.push(setting(name, key.span(), value, &TABLES)?);
            }
        }
    }
    let known = if content.agents.is_empty() { agent_catalogue::catalogue() } else { content.agents.clone() };
    content.profiles.iter().try_for_each(|profile| profile.check(&known))?;
    if let Some(agent) = content.guardian.agents.keys().find(|agent| agent_catalogue::find(&known, agent).is_none()) {
        let guardian = table.get_ref().get("guardian");
        let at = guardian.map(|rules| span_of(rules, &["agents", agent.as_str()])).unwrap_or_default();
        return Err(FileFault::new(at, format!("guardian: there is no agent {agent}; write its id, sandbox:NAME")));
    }
    Ok(content)
}

/// Returns a fault of the syntax. It names the key of the line, and never the value: that may be a secret.
fn syntax(text: &str, error: &toml::de::Error) -> FileFault {
    let span = error.span().unwrap_or_default();
    let start = text[..text.floor_char_boundary(span.start)].rfind('\n').map_or(0, |at| at + 1);
    let line = text[start..].lines().next().unwrap_or_default();
    let reason = match line.split_once('=') {
        Some((key, _)) => format!("{}: {}", key.trim(), error.message()),
        None => error.message().to_owned(),
    };
    FileFault::new(span, reason)
}

/// Returns the agents. An entry that is not valid is found by reading one entry more each time.
fn agents(text: &str, spanned: &Spanned<DeValue<'_>>) -> Result<Vec<CatalogueAgent>, FileFault> {
    let table: toml::Table = text.parse().map_err(|error| syntax(text, &error))?;
    let value = table.get("agents").cloned().unwrap_or(toml::Value::Array(Vec::new()));
    agent_catalogue::read(value.clone()).map_err(|error| {
        let entries = value.as_array().map_or(&[][..], Vec::as_slice);
        let is_wrong = |count: &usize| agent_catalogue::read(entries[..*count].to_vec().into()).is_err();
        let wrong = (1..=entries.len()).find(is_wrong).and_then(|count| spanned.get_ref().get(count - 1));
        agent_fault(wrong.unwrap_or(spanned), error)
    })
}

/// Returns the fault of an agent at the member that is not valid.
fn agent_fault(entry: &Spanned<DeValue<'_>>, error: AgentEntryError) -> FileFault {
    let span = match &error {
        AgentEntryError::Fields { .. } => {
            // The catalogue reads values without places, so the same fault is found again with its place.
            let placed = CatalogueAgent::deserialize(ValueDeserializer::from(entry.clone())).err();
            placed.and_then(|fault| fault.span()).unwrap_or_else(|| entry.span())
        }
        AgentEntryError::Variable { variable, .. } => span_of(entry, &["env", variable.as_str()]),
        AgentEntryError::NotATable | AgentEntryError::Incomplete(_) => entry.span(),
    };
    match error {
        // The message may quote a value, and the value of a variable may be a secret.
        AgentEntryError::Fields { agent, message } => {
            FileFault::new(span, AgentEntryError::Fields { agent, message: without_quotes(&message) })
        }
        error => FileFault::new(span, error),
    }
}
