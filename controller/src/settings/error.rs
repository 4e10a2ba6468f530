//! Settings that are not valid.

use std::path::PathBuf;
use std::{fmt, io};

use sluice_contract::units::UnitError;

use super::table;

/// Origin of a setting's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingSource {
    /// The command line.
    Flag,
    /// This environment variable.
    Variable(&'static str),
    /// This line of this configuration file.
    File(PathBuf, usize),
    /// This line of this configuration file, in the profile for these runs.
    Profile(PathBuf, usize, String),
    /// The catalogue's entry of this agent.
    Agent(String),
    /// The built-in default.
    Default,
}

/// Reason why a value of a setting, a flag or an entry of the configuration file is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidValue(String);

/// A setting that is not valid: which one, its origin, and how to correct it.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// The configuration file cannot be read.
    #[error("cannot read {0}")]
    Unreadable(PathBuf, #[source] io::Error),
    /// The content of the configuration file is not valid.
    #[error("{path}:{line}:{column}: {reason}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Line of the fault, from 1.
        line: usize,
        /// Column of the fault in characters, from 1.
        column: usize,
        /// Reason.
        reason: InvalidValue,
    },
    /// The value is not valid.
    #[error("{}: {reason}", from.name_of(name))]
    Value {
        /// Name of the setting.
        name: &'static str,
        /// Reason.
        reason: InvalidValue,
        /// Origin of the value.
        from: SettingSource,
    },
    /// A webhook cannot be used.
    #[error("webhook {name}: {reason}")]
    Webhook {
        /// Name of the webhook.
        name: String,
        /// Reason.
        reason: InvalidValue,
    },
    /// A target of OpenTelemetry cannot be used.
    #[error("otel {name}: {reason}")]
    Otel {
        /// Name of the target.
        name: String,
        /// Reason.
        reason: InvalidValue,
    },
    /// Several required settings have no value.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    AllMissing(Vec<SettingError>),
    /// A required setting has no value.
    #[error("{name} is not set: {help}; give --{flag}, {variable}, or {name} in the configuration file")]
    Missing {
        /// Name of the setting.
        name: &'static str,
        /// Description of the setting.
        help: &'static str,
        /// Name of its flag.
        flag: String,
        /// Name of its environment variable.
        variable: &'static str,
    },
}

impl From<UnitError> for InvalidValue {
    fn from(error: UnitError) -> Self {
        Self(error.to_string())
    }
}

impl InvalidValue {
    /// Makes a reason from a text, or from the error of a parser.
    pub fn new(reason: impl fmt::Display) -> Self {
        Self(reason.to_string())
    }
}

impl SettingSource {
    /// Returns the name of a setting as its user wrote it here.
    #[must_use]
    pub fn name_of(&self, name: &str) -> String {
        match self {
            Self::Flag => format!("--{}", name.replace('_', "-")),
            Self::Variable(variable) => (*variable).to_owned(),
            Self::File(path, line) | Self::Profile(path, line, _) => format!("{name} in {}:{line}", path.display()),
            Self::Agent(id) => format!("{name} of the agent {id}"),
            Self::Default => name.to_owned(),
        }
    }
}

/// Returns the error of the settings without a value, if some are missing.
///
/// # Panics
/// If no setting has one of these names.
#[must_use]
pub fn all_missing(names: &[&'static str]) -> Option<SettingError> {
    match names {
        [] => None,
        [name] => Some(missing(name)),
        names => Some(SettingError::AllMissing(names.iter().map(|name| missing(name)).collect())),
    }
}

/// Returns the error of a required setting that has no value.
///
/// # Panics
/// If no setting has this name.
#[must_use]
pub fn missing(name: &'static str) -> SettingError {
    let item = table::find(name).expect("all names are in the table");
    SettingError::Missing { name, help: item.help, flag: name.replace('_', "-"), variable: item.variables[0] }
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("the command line"),
            Self::Variable(name) => write!(f, "{name} in the environment"),
            Self::File(path, _) => write!(f, "{}", path.display()),
            Self::Profile(path, _, runs) => write!(f, "{}, the profile for {runs}", path.display()),
            Self::Agent(id) => write!(f, "the agent {id}"),
            Self::Default => f.write_str("the default"),
        }
    }
}
