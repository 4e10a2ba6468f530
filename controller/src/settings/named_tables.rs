//! Arrays of tables of the configuration file whose entries have a name and files of secrets: `[[webhooks]]` and
//! `[[otel]]`.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs;
use std::path::Path;

use serde::de::DeserializeOwned;
use sluice_contract::is_name;
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};

use super::error::InvalidValue;
use super::file_value::{FileFault, span_of};
use super::secret_file::check_private;

/// An entry of such an array.
pub(super) trait NamedEntry: DeserializeOwned {
    /// Name of the array.
    const TABLE: &'static str;
    /// Word for one entry.
    const EACH: &'static str;
    /// Maximum number of entries.
    const MAX: usize;

    /// Returns the name.
    fn name(&self) -> &str;

    /// Checks the values of all members except for the name.
    ///
    /// # Errors
    /// The member that is not valid. The reason does not repeat a text that may be a secret.
    fn check(&self) -> Result<(), MemberFault>;
}

/// The name of a member that is not valid, and the reason.
pub(super) type MemberFault = (&'static str, InvalidValue);

/// Makes the fault of a member from a text, or from the error of a parser.
pub(super) fn member_fault(member: &'static str, reason: impl Display) -> MemberFault {
    (member, InvalidValue::new(reason))
}

/// Reads an array.
///
/// # Errors
/// The first fault, at the member that is not valid. It names the entry.
pub(super) fn read<T: NamedEntry>(value: &Spanned<DeValue<'_>>) -> Result<Vec<T>, FileFault> {
    let table = T::TABLE;
    let Some(values) = value.get_ref().as_array() else {
        let reason = format!("{table}: write each {} as a table, [[{table}]]", T::EACH);
        return Err(FileFault::new(value.span(), reason));
    };
    if values.len() > T::MAX {
        return Err(FileFault::new(value.span(), format!("{table}: there are at most {}", T::MAX)));
    }
    let mut names = BTreeSet::new();
    values.iter().map(|value| entry(value, &mut names)).collect()
}

/// Reads an entry. `names` has the names of the entries before it.
fn entry<T: NamedEntry>(value: &Spanned<DeValue<'_>>, names: &mut BTreeSet<String>) -> Result<T, FileFault> {
    let name = value.get_ref().as_table().and_then(|table| table.get("name"));
    let name = name.and_then(|name| name.get_ref().as_str()).filter(|name| is_name(name));
    let place = name.map_or_else(|| T::TABLE.to_owned(), |name| format!("{}: {name}", T::TABLE));
    let fault = |at, reason: &str| FileFault::new(at, format!("{place}: {reason}"));
    // The message may quote a value, and that may be a secret.
    let entry = T::deserialize(ValueDeserializer::from(value.clone()))
        .map_err(|error| fault(error.span().unwrap_or_else(|| value.span()), &without_quotes(error.message())))?;
    let checked = check_name(entry.name()).and_then(|()| entry.check());
    checked.map_err(|(member, reason)| fault(span_of(value, &[member]), &reason.to_string()))?;
    if !names.insert(entry.name().to_owned()) {
        return Err(fault(span_of(value, &["name"]), "two have the same name"));
    }
    Ok(entry)
}

/// Reads a file of a secret that only its owner can read.
///
/// # Errors
/// The file cannot be read, or others can read it. The reason begins with the path.
pub(super) fn read_private(path: &Path) -> Result<String, InvalidValue> {
    let fault = |reason: &dyn Display| InvalidValue::new(format!("{}: {reason}", path.display()));
    check_private(path).map_err(|error| fault(&error))?;
    fs::read_to_string(path).map_err(|error| fault(&error))
}

fn check_name(name: &str) -> Result<(), MemberFault> {
    if !is_name(name) {
        let rule = "a name has 1 to 63 of a-z, 0-9, '.', '_' and '-', and begins with a letter or a digit";
        return Err(member_fault("name", rule));
    }
    Ok(())
}

/// Returns a message without its quoted part.
pub(super) fn without_quotes(message: &str) -> String {
    match (message.find('"'), message.rfind('"')) {
        (Some(from), Some(to)) if from < to => format!("{}…{}", &message[..=from], &message[to..]),
        _ => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::without_quotes;

    #[test]
    fn quoted_values_are_left_out_of_messages() {
        for (message, expected) in [
            ("invalid type: string \"a\\\"b\", expected a sequence", "invalid type: string \"…\", expected a sequence"),
            ("it has one \" alone", "it has one \" alone"),
            ("missing field `url`", "missing field `url`"),
        ] {
            assert_eq!(without_quotes(message), expected);
        }
    }
}
