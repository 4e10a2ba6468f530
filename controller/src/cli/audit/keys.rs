//! Public keys that verify audit files.

use std::path::Path;

use sluice_contract::{PublicKey, exit};
use sluice_state::keys::{self, Keys};

use super::super::error::CommandError;

/// Returns the keys that the command line names: each is a key, or a file with a key on each line.
pub(super) fn given_keys(given: &[String]) -> Result<Vec<PublicKey>, CommandError> {
    let mut all = Vec::new();
    for key in given {
        match key.parse() {
            Ok(key) => all.push(key),
            Err(_) => all.extend(keys::read_public(Path::new(key)).map_err(|error| CommandError::usage(&error))?),
        }
    }
    Ok(all)
}

/// Returns the keys of a state directory.
pub(super) fn own_keys(state: &Path) -> Result<Keys, CommandError> {
    if !state.join("audit").is_dir() {
        let message = format!("{} is no state directory of sluice; name it with --state-dir", state.display());
        return Err(CommandError { code: exit::USAGE, message });
    }
    Ok(Keys::at(state))
}
