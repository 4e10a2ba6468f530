//! Values of settings in a configuration file, and faults of them.
//!
//! Pure.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::InvalidValue;
use super::similar::similar;
use super::table::{self, ITEMS, is_table, separator};

/// The value of a setting in a file.
#[derive(Debug, Clone)]
pub(super) struct FileValue {
    /// Name of the setting.
    pub(super) name: &'static str,
    /// The value as text.
    pub(super) text: String,
    /// Position in the file, in bytes.
    pub(super) at: usize,
}

/// A fault of a file: its position in bytes, and the reason.
pub(super) struct FileFault {
    pub(super) at: usize,
    pub(super) reason: InvalidValue,
}

impl FileFault {
    pub(super) fn new(span: Range<usize>, reason: impl std::fmt::Display) -> Self {
        Self { at: span.start, reason: InvalidValue::new(reason) }
    }
}

/// Returns the place of a member in nested tables; if the file lacks it, the place of the innermost table on the path.
pub(super) fn span_of(value: &Spanned<DeValue<'_>>, path: &[&str]) -> Range<usize> {
    let mut found = value;
    for name in path {
        let Some(member) = found.get_ref().as_table().and_then(|table| table.get(*name)) else { break };
        found = member;
    }
    found.span()
}

/// Returns the value of a setting. `tables` are names that are allowed beside the settings' names.
pub(super) fn setting(
    key: &str,
    at: Range<usize>,
    value: &Spanned<DeValue<'_>>,
    tables: &[&str],
) -> Result<FileValue, FileFault> {
    let name = key.replace('-', "_");
    let Some(item) = table::find(&name) else {
        let known = || ITEMS.iter().map(|item| item.name).chain(tables.iter().copied());
        let advice = match similar(&name, known()) {
            Some(meant) => format!("did you mean {meant}?"),
            None => format!("there are {}", known().collect::<Vec<_>>().join(", ")),
        };
        return Err(FileFault::new(at, format!("there is no setting named {key}; {advice}")));
    };
    let text = text_of(item.name, value.get_ref()).map_err(|reason| FileFault { at: value.span().start, reason })?;
    Ok(FileValue { name: item.name, text, at: at.start })
}

fn text_of(name: &str, value: &DeValue<'_>) -> Result<String, InvalidValue> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map(|number| number.to_string())
            .map_err(|error| InvalidValue::new(format!("{name}: {error}"))),
        DeValue::Float(number) => number
            .as_str()
            .parse::<f64>()
            .map(|number| number.to_string())
            .map_err(|error| InvalidValue::new(format!("{name}: {error}"))),
        DeValue::Boolean(flag)
            if matches!(name, "allow_remote_media" | "sandbox_enabled" | "metrics_public" | "viewer_files") =>
        {
            Ok(flag.to_string())
        }
        DeValue::Array(values) if separator(name).is_some() => joined(name, values),
        DeValue::Table(members) if is_table(name) => table_text(name, members),
        other => Err(InvalidValue::new(format!("{name} is {}; write a text or a number", other.type_str()))),
    }
}

/// Returns a list of the file as one value.
fn joined(name: &str, values: &[Spanned<DeValue<'_>>]) -> Result<String, InvalidValue> {
    let separator = separator(name).unwrap_or(' ');
    let texts = values.iter().map(|value| match value.get_ref().as_str() {
        Some(text) if !text.is_empty() && !text.contains(separator) => Ok(text),
        _ => Err(InvalidValue::new(format!("{name} is a list of texts, and none is empty or contains '{separator}'"))),
    });
    Ok(texts.collect::<Result<Vec<_>, _>>()?.join(&separator.to_string()))
}

/// Returns a table of the file as one value: `NAME=VALUE` for each member.
fn table_text(name: &str, members: &DeTable<'_>) -> Result<String, InvalidValue> {
    let word = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
        let member = format!("{name}.{}", AsRef::<str>::as_ref(key.get_ref()).replace('-', "_"));
        let text = text_of(&member, value.get_ref())?;
        if text.is_empty() || text.contains(char::is_whitespace) {
            return Err(InvalidValue::new(format!("{member} is a value without blanks, such as 2h, 4g or 10")));
        }
        Ok(format!("{}={text}", &member[name.len() + 1..]))
    };
    Ok(members.iter().map(word).collect::<Result<Vec<_>, _>>()?.join(" "))
}
