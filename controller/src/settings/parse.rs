//! Parses the texts of all layers into typed settings.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sluice_daemon::chat_settings::{ChatSettings, SessionSettings};
use sluice_daemon::webhooks::Webhook;
use sluice_litellm::ApiKey;
use sluice_runs::blueprint::SandboxLimits;
use sluice_runs::host::HostSettings;
use sluice_runs::sidecar_user::SidecarUsers;
use sluice_upstream::Upstream;

use super::error::{InvalidValue, SettingError, SettingSource, missing};
use super::layers::SettingLayers;
use super::otel::OtelEntry;
use super::secret_file::read_key;
use super::sidecar_flags::sidecar_flags;
use super::webhooks::WebhookEntry;
use super::{LitellmSettings, RecordSettings, RunDefaults, ServeSettings, Settings, daemon_values, values};
use crate::git_home::git_home;

impl SettingLayers {
    /// Parses all values.
    ///
    /// # Errors
    /// The first value that is not valid.
    pub fn settings(&self) -> Result<Settings, SettingError> {
        self.settings_of(self.litellm())
    }

    /// Parses all values for checks of them. A key of the upstream that cannot be used is left out, and its fault is
    /// returned beside the settings.
    ///
    /// # Errors
    /// The first other value that is not valid.
    pub fn settings_and_key_fault(&self) -> Result<(Settings, Option<SettingError>), SettingError> {
        let (key, fault) = match self.key() {
            Ok(key) => (key, None),
            Err(fault) => (None, Some(fault)),
        };
        Ok((self.settings_of(self.litellm_with(key))?, fault))
    }

    fn settings_of(&self, litellm: Result<LitellmSettings, SettingError>) -> Result<Settings, SettingError> {
        let run = self.run_defaults()?;
        let litellm = litellm?;
        let host = self.host(&litellm)?;
        let record = RecordSettings {
            keep: self.record_keep()?,
            output: self.required("record_output", values::record_output)?,
        };
        let log_format = self.required("log_format", values::log_format)?;
        let (agents, projects) = (self.agents().to_vec(), self.projects().to_vec());
        let (secret_files, configured_models) = (self.secret_files(), self.configured_models());
        Ok(Settings { host, run, litellm, record, log_format, agents, projects, configured_models, secret_files })
    }

    /// Returns the state directory. No other setting needs to be valid.
    ///
    /// # Panics
    /// Never: the setting has a default.
    #[must_use]
    pub fn state_dir(&self) -> PathBuf {
        self.path("state_dir").expect("it has a default")
    }

    /// Returns the settings of the daemon itself.
    ///
    /// # Errors
    /// The first value that is not valid.
    pub fn serve(&self) -> Result<ServeSettings, SettingError> {
        Ok(ServeSettings {
            listen: self.required("listen", values::words)?,
            run_dir: self.required("run_dir", |path| Ok(PathBuf::from(path)))?,
            tls_cert: self.path("tls_cert"),
            tls_key: self.path("tls_key"),
            behind_proxy: self.text("behind_proxy"),
            sandbox_enabled: self.required("sandbox_enabled", values::boolean)?,
            metrics_public: self.required("metrics_public", values::boolean)?,
            viewer_files: self.required("viewer_files", values::boolean)?,
            chat: ChatSettings {
                remote: self.required("chat_remote", daemon_values::chat_remote)?,
                hang_up: self.required("chat_hang_up", daemon_values::chat_hang_up)?,
                resume: self.required("chat_resume", values::duration)?,
                sessions: SessionSettings {
                    carried: self.required("chat_session", daemon_values::chat_session)?,
                    keep: self.required("chat_session_keep", values::positive_duration)?,
                    idle: self.required("chat_session_idle", daemon_values::chat_session_idle)?,
                    count: self.required("chat_session_max", values::count)?,
                    bytes: self.required("chat_session_space", values::size)?,
                },
            },
            record_keep: self.record_keep()?,
            event_rate: self.required("event_rate", values::count)?,
            event_keep: self.required("event_keep", values::event_keep)?,
            events_per_run: self.required("events_per_run", values::count)?,
            event_disk_free: self.required("event_disk_free", values::event_disk_free)?,
            webhooks: self.webhooks()?,
            guardian: self.guardian().clone(),
            otel: self.otel_entries().iter().map(OtelEntry::load).collect::<Result<_, _>>()?,
        })
    }

    /// Returns the webhooks of the daemon, with their secrets. No other setting needs to be valid.
    ///
    /// # Errors
    /// The first webhook whose secret cannot be read.
    pub fn webhooks(&self) -> Result<Vec<Webhook>, SettingError> {
        self.webhook_entries().iter().map(WebhookEntry::load).collect()
    }

    /// Returns the retention time of records. No other setting needs to be valid.
    ///
    /// # Errors
    /// The value is not valid.
    pub fn record_keep(&self) -> Result<Duration, SettingError> {
        self.required("record_keep", values::duration)
    }

    /// Returns the settings of the host without the key of LiteLLM, for commands that only read.
    ///
    /// # Errors
    /// The first value that is not valid.
    pub fn host_without_key(&self) -> Result<HostSettings, SettingError> {
        self.host_with(None)
    }

    /// Returns the settings of the host, with the key of LiteLLM. No setting of runs needs to be valid.
    ///
    /// # Errors
    /// The first value that is not valid.
    pub fn host(&self, litellm: &LitellmSettings) -> Result<HostSettings, SettingError> {
        self.host_with(litellm.upstream.clone().zip(litellm.key.clone()))
    }

    fn host_with(&self, litellm: Option<(Upstream, ApiKey)>) -> Result<HostSettings, SettingError> {
        Ok(HostSettings {
            state_dir: self.state_dir(),
            docker_host: self.text("docker_host").expect("it has a default"),
            proxy: self.path("proxy"),
            sidecar_users: SidecarUsers {
                uids: self.required("sidecar_uid", values::uids)?,
                gid: self.parse("sidecar_gid", values::gid)?,
            },
            litellm,
            git: git_home(&self.state_dir()),
        })
    }

    /// Returns the settings of the upstream with its keys. No other setting needs to be valid.
    ///
    /// # Errors
    /// The first value that is not valid, or the first key that cannot be read.
    pub fn litellm(&self) -> Result<LitellmSettings, SettingError> {
        self.litellm_with(self.key()?)
    }

    fn litellm_with(&self, key: Option<ApiKey>) -> Result<LitellmSettings, SettingError> {
        Ok(LitellmSettings {
            upstream: self.text("upstream").map(|url| Upstream { url, ca: self.absolute("ca") }),
            key,
            key_mode: self.required("key_mode", values::key_mode)?,
            own_spend_key: self.key_in("spend_key_file")?,
            reconcile: self.required("reconcile", values::reconcile_mode)?,
        })
    }

    fn run_defaults(&self) -> Result<RunDefaults, SettingError> {
        let sidecar_flags = sidecar_flags(self)?;
        Ok(RunDefaults {
            image: self.text("image").expect("it has a default"),
            seccomp: self.path("seccomp"),
            agent: self.text("agent").expect("it has a default"),
            models: self.parse("model", values::models)?.unwrap_or_default(),
            account: self.required("account", values::account)?,
            timeout: self.required("timeout", values::positive_duration)?,
            stop_grace: self.required("stop_grace", values::duration)?,
            limits: SandboxLimits {
                memory: self.required("memory", values::memory)?,
                cpu_millis: self.required("cpus", values::cpus)?,
                pids: self.required("pids", values::pids)?,
            },
            output_max: self.required("output_max", values::output_max)?,
            artifacts_max: self.required("artifacts_max", values::artifacts_max)?,
            max_cost: self.parse("max_cost_usd", values::nano_usd)?,
            hold: self.required("hold_usd", values::nano_usd)?,
            prices: self.absolute("prices"),
            sidecar_flags,
        })
    }

    /// Returns the files that hold secrets: those that a setting or a table names, and the configuration file if it holds
    /// the key itself.
    pub(super) fn secret_files(&self) -> Vec<PathBuf> {
        let named = ["key_file", "spend_key_file", "tls_key"].into_iter().filter_map(|name| self.path(name));
        let inside = self.get("key").and_then(|(_, from)| match from {
            SettingSource::File(path, _) => Some(path.clone()),
            _ => None,
        });
        let repositories = self.projects().iter().filter_map(|project| project.repository.as_ref());
        let of_git = repositories.flat_map(|repository| repository.access.secret_files());
        let of_webhooks = self.webhook_entries().iter().flat_map(WebhookEntry::secret_files);
        let of_otel = self.otel_entries().iter().filter_map(OtelEntry::secret_file);
        named.chain(inside).chain(of_git.chain(of_webhooks).chain(of_otel).map(Path::to_owned)).collect()
    }

    fn key(&self) -> Result<Option<ApiKey>, SettingError> {
        let key =
            self.parse("key", |value| ApiKey::new(value.to_owned()).ok_or_else(|| InvalidValue::new("it is empty")))?;
        if key.is_some() { Ok(key) } else { self.key_in("key_file") }
    }

    fn key_in(&self, name: &'static str) -> Result<Option<ApiKey>, SettingError> {
        self.parse(name, |value| read_key(value).map_err(InvalidValue::new))
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        self.get(name).map(|(value, _)| PathBuf::from(value))
    }

    /// Returns an absolute path, for a file that the sidecar reads: it has another working directory.
    fn absolute(&self, name: &str) -> Option<PathBuf> {
        self.path(name).map(|path| std::path::absolute(&path).unwrap_or(path))
    }

    fn text(&self, name: &str) -> Option<String> {
        self.get(name).map(|(value, _)| value.to_owned())
    }

    pub(super) fn parse<T>(
        &self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, InvalidValue>,
    ) -> Result<Option<T>, SettingError> {
        let Some((value, from)) = self.get(name) else { return Ok(None) };
        parse(value).map(Some).map_err(|reason| SettingError::Value { name, reason, from: from.clone() })
    }

    pub(super) fn required<T>(
        &self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, InvalidValue>,
    ) -> Result<T, SettingError> {
        self.parse(name, parse)?.ok_or_else(|| missing(name))
    }
}
