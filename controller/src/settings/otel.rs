//! Targets of OpenTelemetry in the configuration file, `[[otel]]`, and their secrets.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use sluice_daemon::otel::{OtelKind, OtelTarget, Semconv, TARGETS_MAX, parse_endpoint};

use super::error::{InvalidValue, SettingError};
use super::named_tables::{MemberFault, NamedEntry, member_fault, read_private};

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

impl NamedEntry for OtelEntry {
    const TABLE: &'static str = "otel";
    const EACH: &'static str = "target";
    const MAX: usize = TARGETS_MAX;

    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self) -> Result<(), MemberFault> {
        parse_endpoint(&self.endpoint).map_err(|error| member_fault("endpoint", error))?;
        self.kind.parse::<OtelKind>().map_err(|error| member_fault("kind", error))?;
        self.semconv.parse::<Semconv>().map_err(|error| member_fault("semconv", error))?;
        // A text that is not a path may be the secret itself, so it is not repeated.
        if self.secret_file.as_ref().is_some_and(|path| !path.is_absolute()) {
            let rule = "secret_file is the path of a file, from / on, and never a secret itself";
            return Err(member_fault("secret_file", rule));
        }
        Ok(())
    }
}

impl OtelEntry {
    /// Returns the file of its secret.
    pub(super) fn secret_file(&self) -> Option<&Path> {
        self.secret_file.as_deref()
    }

    /// Returns the target with its secret.
    ///
    /// # Errors
    /// The secret cannot be read, or does not fit.
    pub(super) fn load(&self) -> Result<OtelTarget, SettingError> {
        self.with_secret().map_err(|reason| SettingError::Otel { name: self.name.clone(), reason })
    }

    fn with_secret(&self) -> Result<OtelTarget, InvalidValue> {
        let secret = self.secret_file.as_deref().map(read_private).transpose()?;
        let kind = self.kind.parse().map_err(InvalidValue::new)?;
        let secret = secret.as_deref();
        let target = OtelTarget::new(&self.name, &self.endpoint, kind, secret).map_err(InvalidValue::new)?;
        Ok(OtelTarget { semconv: self.semconv.parse().map_err(InvalidValue::new)?, ca: self.ca.clone(), ..target })
    }
}
