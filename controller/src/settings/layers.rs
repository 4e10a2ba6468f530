//! The layers of settings: a flag, else the environment, else the file, else the default.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use sluice_daemon::guardian::GuardianSettings;
use sluice_daemon::run_policy::Project;

use super::error::{SettingError, SettingSource};
use super::file;
use super::otel::OtelEntry;
use super::profile::Profile;
use super::table::{ITEMS, replaces, separator};
use super::variables::CONFIG;
use super::webhooks::WebhookEntry;
use crate::agent_catalogue::{self, CatalogueAgent};

/// The configuration file that is read if none is named.
pub const DEFAULT_FILE: &str = "/etc/sluice/sluice.toml";

/// The values of all layers as text, before they are parsed.
#[derive(Clone, Default)]
pub struct SettingLayers {
    values: BTreeMap<&'static str, (String, SettingSource)>,
    agents: Vec<CatalogueAgent>,
    projects: Vec<Project>,
    webhooks: Vec<WebhookEntry>,
    otel: Vec<OtelEntry>,
    /// Accounts that profiles name.
    profile_accounts: BTreeSet<String>,
    guardian: GuardianSettings,
    /// Values of `model` in the configuration file and in all its profiles.
    file_models: Vec<(String, SettingSource)>,
}

/// The profiles of a configuration file, and the file.
struct FileProfiles {
    path: PathBuf,
    text: String,
    profiles: Vec<Profile>,
}

impl SettingLayers {
    /// Collects the values of flags, environment, profiles and file, then the agent's, then the defaults.
    ///
    /// # Errors
    /// The file cannot be read, or names a setting that does not exist.
    pub fn collect(
        flags: &BTreeMap<&'static str, String>,
        variable: impl Fn(&str) -> Option<String>,
        config: Option<&Path>,
    ) -> Result<Self, SettingError> {
        let mut layers = Self::default();
        let named =
            config.map(Path::to_owned).or_else(|| variable(CONFIG).filter(|path| !path.is_empty()).map(PathBuf::from));
        let default = || Path::new(DEFAULT_FILE).exists().then(|| PathBuf::from(DEFAULT_FILE));
        let profiles = named.or_else(default).map(|path| layers.set_file(path)).transpose()?;
        if layers.agents.is_empty() {
            layers.agents = agent_catalogue::catalogue();
        }
        if let Some(profiles) = profiles {
            layers.profile_accounts = profiles.profiles.iter().filter_map(|profile| profile.account.clone()).collect();
            layers.set_profiles(&profiles, flags, &variable);
        }
        layers.set_variables(variable);
        layers.set_flags(flags);
        layers.set_defaults();
        layers.set_defaults_of_agent();
        Ok(layers)
    }

    /// Returns the accounts that have profiles.
    pub fn profile_accounts(&self) -> impl Iterator<Item = &str> {
        self.profile_accounts.iter().map(String::as_str)
    }

    fn set_file(&mut self, path: PathBuf) -> Result<FileProfiles, SettingError> {
        let (content, text) = file::read(&path)?;
        self.agents = content.agents;
        self.projects = content.projects;
        self.webhooks = content.webhooks;
        self.otel = content.otel;
        self.guardian = content.guardian;
        for value in content.values {
            let (line, _) = file::position(&text, value.at);
            let from = SettingSource::File(path.clone(), line);
            if value.name == "model" {
                self.file_models.push((value.text.clone(), from.clone()));
            }
            self.values.insert(value.name, (value.text, from));
        }
        for profile in &content.profiles {
            for value in profile.values.iter().filter(|value| value.name == "model") {
                let (line, _) = file::position(&text, value.at);
                let from = SettingSource::Profile(path.clone(), line, profile.words());
                self.file_models.push((value.text.clone(), from));
            }
        }
        Ok(FileProfiles { path, text, profiles: content.profiles })
    }

    /// Sets the values of the profiles that apply to a run, in the order of the file: a later one replaces an earlier one.
    fn set_profiles(
        &mut self,
        file: &FileProfiles,
        flags: &BTreeMap<&'static str, String>,
        variable: impl Fn(&str) -> Option<String>,
    ) {
        let mut above = Self { values: self.values.clone(), ..Self::default() };
        above.set_variables(variable);
        above.set_flags(flags);
        above.set_defaults();
        let of_run = |name: &str| above.get(name).map(|(value, _)| value);
        let (agent, account) = (of_run("agent"), of_run("account"));
        let applying: Vec<_> =
            file.profiles.iter().filter(|profile| profile.applies(&self.agents, agent, account)).collect();
        for profile in applying {
            for value in &profile.values {
                let (line, _) = file::position(&file.text, value.at);
                let from = SettingSource::Profile(file.path.clone(), line, profile.words());
                self.set(value.name, value.text.clone(), from);
            }
        }
    }

    fn set_variables(&mut self, variable: impl Fn(&str) -> Option<String>) {
        for item in ITEMS {
            let set = item.variables.iter().find_map(|name| Some((variable(name)?, SettingSource::Variable(name))));
            if let Some((value, from)) = set.filter(|(value, _)| !value.is_empty()) {
                self.set(item.name, value, from);
            }
        }
    }

    fn set_flags(&mut self, flags: &BTreeMap<&'static str, String>) {
        for (name, value) in flags {
            self.set(name, value.clone(), SettingSource::Flag);
        }
    }

    fn set_defaults(&mut self) {
        for item in ITEMS {
            if let Some(default) = item.default {
                let value = || (default.to_owned(), SettingSource::Default);
                self.values.entry(item.name).or_insert_with(value);
            }
        }
    }

    /// Puts the needs of the agent in place of the built-in defaults. Values that were set stay.
    fn set_defaults_of_agent(&mut self) {
        let agent = self.get("agent").and_then(|(id, _)| agent_catalogue::find(&self.agents, id));
        let Some(CatalogueAgent { agent_id, memory, timeout, .. }) = agent.cloned() else { return };
        for (name, value) in [("memory", memory), ("timeout", timeout)] {
            if let (Some(value), Some((_, SettingSource::Default))) = (value, self.get(name)) {
                self.values.insert(name, (value, SettingSource::Agent(agent_id.clone())));
            }
        }
    }

    /// Sets a value in place of the one of a lower layer. A list of allowed values is added to the lower layers' lists.
    fn set(&mut self, name: &'static str, value: String, from: SettingSource) {
        let before = self.values.get(name).map(|(before, _)| before.as_str()).filter(|before| !before.is_empty());
        let value = match (before, separator(name)) {
            (Some(before), Some(separator)) if !replaces(name) => format!("{before}{separator}{value}"),
            _ => value,
        };
        self.values.insert(name, (value, from));
    }

    /// Returns a value and its origin.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<(&str, &SettingSource)> {
        self.values.get(name).map(|(value, source)| (value.as_str(), source))
    }

    /// Returns a value for display, with secrets redacted.
    #[must_use]
    pub fn redacted(&self, name: &str) -> Option<(String, &SettingSource)> {
        let (value, source) = self.get(name)?;
        let shown = match name {
            "key" => "(redacted)".to_owned(),
            "upstream" => sluice_upstream::redact(value),
            // A key that was put where the name of its file belongs.
            "key_file" | "spend_key_file" if !value.contains('/') => "(no path: redacted)".to_owned(),
            _ => value.to_owned(),
        };
        Some((shown, source))
    }

    /// Returns the values of `model` in the configuration file and in all its profiles, with their places.
    pub(super) fn models_of_file(&self) -> impl Iterator<Item = (&str, &SettingSource)> {
        self.file_models.iter().map(|(value, from)| (value.as_str(), from))
    }

    /// Returns the webhooks of the configuration file.
    pub(super) fn webhook_entries(&self) -> &[WebhookEntry] {
        &self.webhooks
    }

    /// Returns the targets of OpenTelemetry in the configuration file.
    pub(super) fn otel_entries(&self) -> &[OtelEntry] {
        &self.otel
    }

    /// Returns the rules of the Guardian in the configuration file.
    pub(super) fn guardian(&self) -> &GuardianSettings {
        &self.guardian
    }

    /// Returns the agents of the catalogue and of the configuration file.
    #[must_use]
    pub fn agents(&self) -> &[CatalogueAgent] {
        &self.agents
    }

    /// Returns the projects of the configuration file.
    #[must_use]
    pub fn projects(&self) -> &[Project] {
        &self.projects
    }
}

impl fmt::Debug for SettingLayers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(ITEMS.iter().filter_map(|item| Some((item.name, self.redacted(item.name)?)))).finish()
    }
}
