//! Public keys that verify audit files.

use std::path::Path;

use sluice_contract::PublicKey;
use sluice_state::keys::{self, Keys};

use super::super::database::check_in_use;
use super::super::error::CommandError;

/// Returns the keys that the command line names: each is a key, or a file with a key on each line.
pub(in super::super) fn given_keys(given: &[String]) -> Result<Vec<PublicKey>, CommandError> {
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
    check_in_use(state)?;
    Ok(Keys::at(state))
}
