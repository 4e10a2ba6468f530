//! Environment variables that look like settings, but are not.
//!
//! Pure.

use super::similar::similar;
use super::table::ITEMS;

/// The variable that names the configuration file.
pub(super) const CONFIG: &str = "SLUICE_CONFIG";

/// Variables of commands that ask a daemon.
const OF_CLIENTS: [&str; 2] = ["SLUICE_SERVER", "SLUICE_TOKEN"];

/// Beginning of the names of our variables.
const PREFIX: &str = "SLUICE_";

/// Returns a warning for each variable `SLUICE_…` that this program does not read.
pub fn unknown_variables(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let known = || ITEMS.iter().flat_map(|item| item.variables).copied().chain([CONFIG]).chain(OF_CLIENTS);
    let unknown = names.into_iter().filter(|name| name.starts_with(PREFIX) && !known().any(|known| known == name));
    let warning = |name: String| {
        let ends = known().filter_map(|known| known.strip_prefix(PREFIX));
        let advice = match similar(&name[PREFIX.len()..], ends) {
            Some(meant) => format!("did you mean {PREFIX}{meant}?"),
            None => "sluice config show lists the settings; other flags have no variable".to_owned(),
        };
        format!("warning: the variable {name} is not a setting, and is ignored: {advice}")
    };
    unknown.map(warning).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_variables_are_reported_with_a_suggestion() {
        for (name, expected) in [
            ("SLUICE_TIMEOUT", None),
            ("SLUICE_CONFIG", None),
            ("SLUICE_SERVER", None),
            ("SLUICE_TOKEN", None),
            ("DOCKER_HOST", None),
            ("PATH", None),
            ("SLUICE_TIMEOUTT", Some("did you mean SLUICE_TIMEOUT?")),
            ("SLUICE_UPSTEAM", Some("did you mean SLUICE_UPSTREAM?")),
            ("SLUICE_QUIET", Some("sluice config show")),
        ] {
            let warnings = unknown_variables([name.to_owned()]);
            match expected {
                None => assert!(warnings.is_empty(), "{warnings:?}"),
                Some(expected) => assert!(warnings[0].contains(name) && warnings[0].contains(expected), "{warnings:?}"),
            }
        }
    }
}
