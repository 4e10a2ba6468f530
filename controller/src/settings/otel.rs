//! Targets of OpenTelemetry in the configuration file, `[[otel]]`, and their secrets.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sluice_contract::is_name;
use sluice_daemon::otel::{OtelKind, OtelTarget, Semconv, TARGETS_MAX, parse_endpoint};

use super::error::{InvalidValue, SettingError};
use super::secret_file::check_private;

/// An entry of the configuration file.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OtelEntry {
    name: String,
    endpoint: String,
    #[serde(default = "otlp")]
    kind: String,
    #[serde(default = "current")]
    semconv: String,
    secret_file: Option<PathBuf>,
    ca: Option<PathBuf>,
}

fn otlp() -> String {
    "otlp".to_owned()
}

fn current() -> String {
    "current".to_owned()
}

/// Reads `[[otel]]`.
///
/// # Errors
/// The number of the entry that is not valid, if it is one, and the reason.
pub(super) fn read(value: toml::Value) -> Result<Vec<OtelEntry>, (Option<usize>, InvalidValue)> {
    let fault = |index, reason: &str| (index, InvalidValue::new(format!("otel: {reason}")));
    let toml::Value::Array(values) = value else {
        return Err(fault(None, "write each target as a table, [[otel]]"));
    };
    if values.len() > TARGETS_MAX {
        return Err(fault(None, &format!("there are at most {TARGETS_MAX}")));
    }
    let (mut entries, mut names) = (Vec::with_capacity(values.len()), BTreeSet::new());
    for (index, value) in values.into_iter().enumerate() {
        // The message may quote a value, and that may be a secret.
        let entry: OtelEntry =
            value.try_into().map_err(|error: toml::de::Error| fault(Some(index), &without_quotes(error.message())))?;
        entry.check().map_err(|reason| fault(Some(index), &reason.to_string()))?;
        if !names.insert(entry.name.clone()) {
            return Err(fault(Some(index), "two have the same name"));
        }
        entries.push(entry);
    }
    Ok(entries)
}

impl OtelEntry {
    fn check(&self) -> Result<(), InvalidValue> {
        if !is_name(&self.name) {
            let rule = "a name has 1 to 63 of a-z, 0-9, '.', '_' and '-', and begins with a letter or a digit";
            return Err(InvalidValue::new(rule));
        }
        parse_endpoint(&self.endpoint).map_err(InvalidValue::new)?;
        self.kind.parse::<OtelKind>().map_err(InvalidValue::new)?;
        self.semconv.parse::<Semconv>().map_err(InvalidValue::new)?;
        // A text that is not a path may be the secret itself, so it is not repeated.
        if self.secret_file.as_ref().is_some_and(|path| !path.is_absolute()) {
            let rule = "secret_file is the path of a file, from / on, and never a secret itself";
            return Err(InvalidValue::new(rule));
        }
        Ok(())
    }

    /// Returns the target with its secret.
    ///
    /// # Errors
    /// The secret cannot be read, or does not fit.
    pub(super) fn load(&self) -> Result<OtelTarget, SettingError> {
        self.with_secret().map_err(|reason| SettingError::Otel { name: self.name.clone(), reason })
    }

    fn with_secret(&self) -> Result<OtelTarget, InvalidValue> {
        let secret = self.secret_file.as_deref().map(secret).transpose()?;
        let kind = self.kind.parse().map_err(InvalidValue::new)?;
        let secret = secret.as_deref();
        let target = OtelTarget::new(&self.name, &self.endpoint, kind, secret).map_err(InvalidValue::new)?;
        Ok(OtelTarget { semconv: self.semconv.parse().map_err(InvalidValue::new)?, ca: self.ca.clone(), ..target })
    }
}

/// Returns a message without its quoted part.
fn without_quotes(message: &str) -> String {
    match (message.find('"'), message.rfind('"')) {
        (Some(from), Some(to)) if from < to => format!("{}…{}", &message[..=from], &message[to..]),
        _ => message.to_owned(),
    }
}

fn secret(path: &Path) -> Result<String, InvalidValue> {
    let fault = |reason: &dyn std::fmt::Display| InvalidValue::new(format!("{}: {reason}", path.display()));
    check_private(path).map_err(|error| fault(&error))?;
    fs::read_to_string(path).map_err(|error| fault(&error))
}
