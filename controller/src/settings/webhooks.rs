//! Webhooks of the configuration file, `[[webhooks]]`, and their secrets.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use sluice_daemon::webhooks::{DEFAULT_TYPES, WEBHOOKS_MAX, Webhook, WebhookSecret, WebhookTarget};
use sluice_state::events::check_event_type;

use super::error::{InvalidValue, SettingError};
use super::named_tables::{MemberFault, NamedEntry, member_fault, read_private};

/// An entry of the configuration file. Its address may have a credential in its path.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WebhookEntry {
    name: String,
    url: String,
    secret_files: Vec<PathBuf>,
    #[serde(default)]
    types: Vec<String>,
    #[serde(default)]
    owners: Vec<String>,
    ca: Option<PathBuf>,
    #[serde(default)]
    allow_private: bool,
}

impl NamedEntry for WebhookEntry {
    const TABLE: &'static str = "webhooks";
    const EACH: &'static str = "webhook";
    const MAX: usize = WEBHOOKS_MAX;

    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self) -> Result<(), MemberFault> {
        let wrong = |member, reason: &str| Err(member_fault(member, reason));
        if let Err(error) = WebhookTarget::parse(&self.url) {
            return wrong("url", &error.to_string());
        }
        if !(1..=2).contains(&self.secret_files.len()) {
            return wrong("secret_files", "secret_files has one file, or two while the secret is changed");
        }
        // A text that is not a path may be the secret itself, so it is not repeated.
        if self.secret_files.iter().any(|path| !path.is_absolute()) {
            return wrong(
                "secret_files",
                "secret_files has the paths of files, each from / on, and never a secret itself",
            );
        }
        let is_type = |name: &String| check_event_type(name.strip_suffix(".*").unwrap_or(name)).is_ok();
        match self.types.iter().find(|name| !is_type(name)) {
            Some(_) => {
                let rule = "types are event types such as run.state_changed, or the beginning of some, such as agent.*";
                wrong("types", rule)
            }
            None => Ok(()),
        }
    }
}

impl WebhookEntry {
    /// Returns the files of its secrets.
    pub(super) fn secret_files(&self) -> impl Iterator<Item = &Path> {
        self.secret_files.iter().map(PathBuf::as_path)
    }

    /// Returns the webhook with its secrets.
    ///
    /// # Errors
    /// A secret cannot be read.
    pub(super) fn load(&self) -> Result<Webhook, SettingError> {
        self.read_secrets().map_err(|reason| SettingError::Webhook { name: self.name.clone(), reason })
    }

    fn read_secrets(&self) -> Result<Webhook, InvalidValue> {
        let secrets = self.secret_files.iter().map(|path| secret(path)).collect::<Result<_, _>>()?;
        let types = match self.types.is_empty() {
            true => DEFAULT_TYPES.map(str::to_owned).to_vec(),
            false => self.types.clone(),
        };
        Ok(Webhook {
            name: self.name.clone(),
            target: WebhookTarget::parse(&self.url).map_err(InvalidValue::new)?,
            secrets,
            types,
            owners: self.owners.clone(),
            ca: self.ca.clone(),
            allow_private: self.allow_private,
        })
    }
}

fn secret(path: &Path) -> Result<WebhookSecret, InvalidValue> {
    let text = read_private(path)?;
    WebhookSecret::parse(&text).map_err(|error| InvalidValue::new(format!("{}: {error}", path.display())))
}
