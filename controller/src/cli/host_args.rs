//! The flags of all commands.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sluice_contract::text::error_chain;
use sluice_runs::host::HostSettings;

use super::error::CommandError;
use super::output::say;
use super::stderr_log;
use crate::settings::{LitellmSettings, SettingError, SettingLayers, Settings, unknown_variables};

/// The flags of all commands: addresses and paths.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "The host")]
pub(super) struct HostArgs {
    /// The configuration file [default: /etc/sluice/sluice.toml, if it exists]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The directory of runs, audit files and the database [default: /var/lib/sluice]
    #[arg(long, global = true, value_name = "DIR")]
    state_dir: Option<String>,
    /// The Docker Engine's socket [default: $DOCKER_HOST, or unix:///var/run/docker.sock]
    #[arg(long, global = true, value_name = "URL")]
    docker_host: Option<String>,
    /// The address that calls go to: http://HOST:PORT, https://HOST or unix:/PATH
    #[arg(long, global = true, value_name = "URL")]
    upstream: Option<String>,
    /// A file with the certificates to trust for an https upstream, or for --server, in place of the system's
    #[arg(long, global = true, value_name = "FILE")]
    ca: Option<String>,
    /// A file with the upstream's key, readable by its owner alone; its path has a '/' (./NAME)
    #[arg(long, global = true, value_name = "FILE")]
    key_file: Option<String>,
    /// The format of messages on stderr: text, or json for one object per line [default: text]
    #[arg(long, global = true, value_name = "FORMAT")]
    log_format: Option<String>,
    /// The sidecar's program [default: the sluice-proxy beside sluice, or on PATH]
    #[arg(long, global = true, value_name = "FILE")]
    proxy: Option<String>,
}

impl HostArgs {
    fn given(&self) -> BTreeMap<&'static str, String> {
        [
            ("state_dir", &self.state_dir),
            ("docker_host", &self.docker_host),
            ("upstream", &self.upstream),
            ("ca", &self.ca),
            ("key_file", &self.key_file),
            ("log_format", &self.log_format),
            ("proxy", &self.proxy),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.clone()?)))
        .collect()
    }

    /// Returns the layers of settings with these flags and the flags of a command.
    pub(super) fn layers(&self, more: BTreeMap<&'static str, String>) -> Result<SettingLayers, SettingError> {
        let layers = self.collect(more);
        if let Ok(layers) = &layers
            && layers.get("log_format").is_some_and(|(format, _)| format == "json")
        {
            stderr_log::write_json();
        }
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        unknown_variables(names).iter().for_each(|warning| say(warning));
        layers
    }

    /// Returns the layers of settings, and says nothing about them.
    pub(super) fn collect(&self, more: BTreeMap<&'static str, String>) -> Result<SettingLayers, SettingError> {
        let mut flags = self.given();
        flags.extend(more);
        SettingLayers::collect(&flags, |name| std::env::var(name).ok(), self.config.as_deref())
    }

    /// Returns the settings with these flags and the flags of a command.
    pub(super) fn settings_with(&self, more: BTreeMap<&'static str, String>) -> Result<Settings, SettingError> {
        self.layers(more)?.settings()
    }

    /// Returns the settings with these flags.
    pub(super) fn settings(&self) -> Result<Settings, CommandError> {
        self.settings_with(BTreeMap::new()).map_err(|error| CommandError::usage(&error))
    }

    /// Returns the state directory, for commands that need no other setting: no key, and no valid limits of runs.
    pub(super) fn state_dir(&self) -> Result<PathBuf, CommandError> {
        Ok(self.layers(BTreeMap::new()).map_err(|error| CommandError::usage(&error))?.state_dir())
    }

    /// Returns the file of `--ca`, if the flag is given: the setting is about the upstream.
    pub(super) fn ca_flag(&self) -> Option<PathBuf> {
        self.ca.as_ref().map(PathBuf::from)
    }

    /// Returns the directory of the daemon's sockets.
    pub(super) fn run_dir(&self) -> Result<PathBuf, CommandError> {
        let layers = self.layers(BTreeMap::new()).map_err(|error| CommandError::usage(&error))?;
        Ok(layers.get("run_dir").map(|(path, _)| PathBuf::from(path)).unwrap_or_default())
    }

    /// Returns the state directory and the time for which records are kept, for commands that show records.
    pub(super) fn records(&self) -> Result<(PathBuf, Duration), CommandError> {
        let layers = self.layers(BTreeMap::new());
        let found = layers.and_then(|layers| Ok((layers.state_dir(), layers.record_keep()?)));
        found.map_err(|error| CommandError::usage(&error))
    }

    /// Returns the settings of the host without a key, for commands that only read.
    pub(super) fn host_without_key(&self) -> Result<HostSettings, CommandError> {
        let layers = self.layers(BTreeMap::new());
        layers.and_then(|layers| layers.host_without_key()).map_err(|error| CommandError::usage(&error))
    }
}

/// Returns the settings of the host for a command that removes resources, and the settings of LiteLLM if its keys can
/// be read. Otherwise, it reports what is left out.
///
/// # Errors
/// Wrong usage: another setting of the host is not valid.
pub(super) fn host_for_removal(
    layers: &SettingLayers,
    left_out: &str,
) -> Result<(HostSettings, Option<LitellmSettings>), CommandError> {
    let usage = |error| CommandError::usage(&error);
    match layers.litellm() {
        Ok(litellm) => Ok((layers.host(&litellm).map_err(usage)?, Some(litellm))),
        Err(error) => {
            say(&format!("{left_out}: {}", error_chain(&error)));
            Ok((layers.host_without_key().map_err(usage)?, None))
        }
    }
}
