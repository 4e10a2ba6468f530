//! The configuration file: TOML, one member for each setting, and a table for each agent.

use std::fs;
use std::path::Path;

use toml::{Table, Value};

use super::error::{InvalidValue, SettingError};
use super::secret_file::check_private;
use super::table::{self, ITEMS, separator};
use crate::agent_catalogue::{self, Agent};

/// The content of a configuration file.
pub(super) struct FileContent {
    /// Values by the names of their settings.
    pub(super) values: Vec<(&'static str, String)>,
    /// Agents of the catalogue with the changes and additions of the file; empty if the file names none.
    pub(super) agents: Vec<Agent>,
}

/// Reads a configuration file.
pub(super) fn read(path: &Path) -> Result<FileContent, SettingError> {
    let invalid = |reason| SettingError::File { path: path.to_owned(), reason };
    let text = fs::read_to_string(path).map_err(|error| SettingError::Unreadable(path.to_owned(), error))?;
    let table: Table = text.parse().map_err(|error: toml::de::Error| invalid(InvalidValue::new(error.message())))?;
    let mut content = FileContent { values: Vec::new(), agents: Vec::new() };
    for (name, value) in table {
        if name == "agents" {
            content.agents = agent_catalogue::read(value).map_err(|error| invalid(InvalidValue::new(error)))?;
            continue;
        }
        if name == "key" {
            check_private(path).map_err(|error| invalid(InvalidValue::new(error)))?;
        }
        content.values.push(setting(&name, value).map_err(invalid)?);
    }
    Ok(content)
}

fn setting(name: &str, value: Value) -> Result<(&'static str, String), InvalidValue> {
    let Some(item) = table::find(name) else {
        let known: Vec<_> = ITEMS.iter().map(|item| item.name).collect();
        let known = known.join(", ");
        return Err(InvalidValue::new(format!("there is no setting named {name}; there are {known}, agents")));
    };
    let text = match value {
        Value::String(text) => text,
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(flag) if name == "allow_remote_media" => flag.to_string(),
        Value::Array(values) if separator(name).is_some() => joined(name, &values)?,
        other => {
            return Err(InvalidValue::new(format!("{name} is {}; write a text or a number", other.type_str())));
        }
    };
    Ok((item.name, text))
}

/// Returns a list of the file as one value.
fn joined(name: &str, values: &[Value]) -> Result<String, InvalidValue> {
    let separator = separator(name).unwrap_or(' ');
    let texts = values.iter().map(|value| match value.as_str() {
        Some(text) if !text.is_empty() && !text.contains(separator) => Ok(text),
        _ => Err(InvalidValue::new(format!("{name} is a list of texts, and none is empty or contains '{separator}'"))),
    });
    Ok(texts.collect::<Result<Vec<_>, _>>()?.join(&separator.to_string()))
}
