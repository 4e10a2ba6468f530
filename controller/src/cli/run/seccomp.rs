//! The seccomp profile of sandboxes.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::settings::{InvalidValue, Settings};

/// The system calls that a sandbox may make.
const PROFILE: &str = include_str!("../../../../deploy/seccomp.json");

/// A file that is not a seccomp profile.
#[derive(Debug, thiserror::Error)]
#[error("--seccomp {path}: {reason}", path = path.display())]
pub(in crate::cli) struct SeccompError {
    path: PathBuf,
    reason: InvalidValue,
}

/// Returns the profile as JSON: the one of the settings, or the built-in one.
///
/// # Errors
/// [`SeccompError`]
pub(in crate::cli) fn profile(settings: &Settings) -> Result<String, SeccompError> {
    let Some(path) = &settings.run.seccomp else { return Ok(PROFILE.to_owned()) };
    let invalid = |reason| SeccompError { path: path.clone(), reason };
    let text = fs::read_to_string(path).map_err(|error| invalid(InvalidValue::new(error)))?;
    match serde_json::from_str::<Value>(&text) {
        Ok(Value::Object(profile)) if profile.contains_key("defaultAction") => Ok(text),
        Ok(_) => Err(invalid(InvalidValue::new("it is not a seccomp profile: it has no defaultAction"))),
        Err(error) => Err(invalid(InvalidValue::new(format!("it is not valid JSON: {error}")))),
    }
}
