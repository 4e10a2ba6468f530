//! Public keys that verify audit files.

use std::io::{self, IsTerminal};
use std::path::Path;

use serde_json::json;
use sluice_contract::PublicKey;
use sluice_state::keys::{self, Keys};

use super::super::database::check_in_use;
use super::super::error::CommandError;
use super::super::output::{OutputFormat, print, print_json};

/// Returns the keys that the command line names: each is a key, or a file with a key on each line.
pub(in super::super) fn given_keys(given: &[String]) -> Result<Vec<PublicKey>, CommandError> {
    let mut all = Vec::new();
    for key in given {
        match key.parse() {
            Ok(key) => all.push(key),
            // A text with the length and the digits of a key is not taken for a path.
            Err(_) if key.len() == 64 && key.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                let message = format!("{key} is not a public key; sluice audit keys prints those of a host");
                return Err(CommandError::wrong_usage(message));
            }
            Err(_) => all.extend(keys::read_public(Path::new(key)).map_err(|error| CommandError::usage(&error))?),
        }
    }
    Ok(all)
}

/// Returns the keys of a state directory.
pub(super) fn own_keys(state: &Path) -> Result<Keys, CommandError> {
    check_in_use(state)?;
    Ok(Keys::at(state))
}

/// Prints public keys, one on each line. Off a terminal, the lines are a file of keys; a terminal also gets their ids, which
/// `verify` names.
pub(super) fn print_keys(keys: &[PublicKey], current: Option<&PublicKey>, format: OutputFormat) {
    let is_current = |key: &PublicKey| Some(key) == current;
    if format == OutputFormat::Json {
        let object = |key: &PublicKey| json!({ "public_key": key.to_string(), "key_id": key.id(), "is_current": is_current(key) });
        return print_json(&json!({ "keys": keys.iter().map(object).collect::<Vec<_>>() }));
    }
    for key in keys {
        let detail = match (io::stdout().is_terminal(), is_current(key)) {
            (false, _) => String::new(),
            (true, false) => format!("  key id {}", key.id()),
            (true, true) => format!("  key id {}, signs now", key.id()),
        };
        print(&format!("{key}{detail}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bug: the error named `--key`, which `sluice audit import-key` does not have.
    #[test]
    fn a_wrong_key_is_named_without_a_flag() {
        let key = "0".repeat(64);
        let error = given_keys(std::slice::from_ref(&key)).expect_err("it is not a point of the curve");
        assert!(error.message.starts_with(&format!("{key} is not a public key; ")), "{}", error.message);
    }
}
