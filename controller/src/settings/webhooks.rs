//! Webhooks of the configuration file, `[[webhooks]]`, and their secrets.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sluice_contract::is_name;
use sluice_daemon::webhooks::{DEFAULT_TYPES, WEBHOOKS_MAX, Webhook, WebhookSecret, WebhookTarget};
use sluice_state::events::check_event_type;

use super::error::{InvalidValue, SettingError};
use super::secret_file::check_private;

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

/// Reads `[[webhooks]]`.
///
/// # Errors
/// The number of the entry that is not valid, if it is one, and the reason.
pub(super) fn read(value: toml::Value) -> Result<Vec<WebhookEntry>, (Option<usize>, InvalidValue)> {
    let fault = |index, reason: &str| (index, InvalidValue::new(format!("webhooks: {reason}")));
    let toml::Value::Array(values) = value else {
        return Err(fault(None, "write each webhook as a table, [[webhooks]]"));
    };
    if values.len() > WEBHOOKS_MAX {
        return Err(fault(None, &format!("there are at most {WEBHOOKS_MAX}")));
    }
    let (mut entries, mut names) = (Vec::with_capacity(values.len()), BTreeSet::new());
    for (index, value) in values.into_iter().enumerate() {
        // The message may quote a value, and that may be a secret.
        let entry: WebhookEntry =
            value.try_into().map_err(|error: toml::de::Error| fault(Some(index), &without_quotes(error.message())))?;
        entry.check().map_err(|reason| fault(Some(index), &reason.to_string()))?;
        if !names.insert(entry.name.clone()) {
            return Err(fault(Some(index), "two have the same name"));
        }
        entries.push(entry);
    }
    Ok(entries)
}

impl WebhookEntry {
    fn check(&self) -> Result<(), InvalidValue> {
        let wrong = |reason: &str| Err(InvalidValue::new(reason));
        if !is_name(&self.name) {
            return wrong("a name has 1 to 63 of a-z, 0-9, '.', '_' and '-', and begins with a letter or a digit");
        }
        if let Err(error) = WebhookTarget::parse(&self.url) {
            return wrong(&error.to_string());
        }
        if !(1..=2).contains(&self.secret_files.len()) {
            return wrong("secret_files has one file, or two while the secret is changed");
        }
        // A text that is not a path may be the secret itself, so it is not repeated.
        if self.secret_files.iter().any(|path| !path.is_absolute()) {
            return wrong("secret_files has the paths of files, each from / on, and never a secret itself");
        }
        let is_type = |name: &String| check_event_type(name.strip_suffix(".*").unwrap_or(name)).is_ok();
        match self.types.iter().find(|name| !is_type(name)) {
            Some(_) => {
                wrong("types are event types such as run.state_changed, or the beginning of some, such as agent.*")
            }
            None => Ok(()),
        }
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

/// Returns a message without its quoted part.
fn without_quotes(message: &str) -> String {
    match (message.find('"'), message.rfind('"')) {
        (Some(from), Some(to)) if from < to => format!("{}…{}", &message[..=from], &message[to..]),
        _ => message.to_owned(),
    }
}

fn secret(path: &Path) -> Result<WebhookSecret, InvalidValue> {
    let fault = |reason: &dyn std::fmt::Display| InvalidValue::new(format!("{}: {reason}", path.display()));
    check_private(path).map_err(|error| fault(&error))?;
    let text = fs::read_to_string(path).map_err(|error| fault(&error))?;
    WebhookSecret::parse(&text).map_err(|error| fault(&error))
}
