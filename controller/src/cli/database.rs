//! The database of a state directory.

use std::path::Path;

use sluice_contract::exit;
use sluice_state::layout::Layout;
use sluice_state::store::Store;

use super::error::CommandError;

/// Opens the database of a state directory that is in use.
pub(super) fn open(state: &Path) -> Result<Store, CommandError> {
    let database = Layout::at(state).database();
    if !database.exists() {
        let message = format!("there is no database {}; name the state directory with --state-dir", database.display());
        return Err(CommandError { code: exit::USAGE, message });
    }
    Store::open(&database).map_err(|error| CommandError::failed(&error))
}

/// Opens the database of a state directory, and makes both if they do not exist.
pub(super) fn open_or_create(state: &Path) -> Result<Store, CommandError> {
    let layout = Layout::open(state).map_err(|error| CommandError::failed(&error))?;
    Store::open(&layout.database()).map_err(|error| CommandError::failed(&error))
}
