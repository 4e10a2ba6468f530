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
    /// This configuration file.
    File(PathBuf),
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
    #[error("{path}: {reason}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        reason: InvalidValue,
    },
    /// The value is not valid.
    #[error("{}", invalid(name, reason, from))]
    Value {
        /// Name of the setting.
        name: &'static str,
        /// Reason.
        reason: InvalidValue,
        /// Origin of the value.
        from: SettingSource,
    },
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

/// Names a setting as its user gave it: a flag by its name, any other by its origin.
fn invalid(name: &str, reason: &InvalidValue, from: &SettingSource) -> String {
    match from {
        SettingSource::Flag => format!("--{}: {reason}", name.replace('_', "-")),
        from => format!("{name}: {reason} (from {from})"),
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
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Agent(id) => write!(f, "the agent {id}"),
            Self::Default => f.write_str("the default"),
        }
    }
}
