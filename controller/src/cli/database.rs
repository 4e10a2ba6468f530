//! The database of a state directory.

use std::path::Path;

use sluice_contract::exit;
use sluice_state::layout::Layout;
use sluice_state::state_directory::{self, StateDirectory};
use sluice_state::store::Store;

use super::error::CommandError;

/// Opens the database of a state directory that is in use, for a command that changes it.
pub(super) fn open(state: &Path) -> Result<Store, CommandError> {
    check_exists(state)?;
    Store::open(&Layout::at(state).database()).map_err(|error| CommandError::failed(&error))
}

/// Opens the database of a state directory that is in use, for a command that only reads.
pub(super) fn open_for_queries(state: &Path) -> Result<Store, CommandError> {
    check_exists(state)?;
    Store::open_for_queries(&Layout::at(state).database()).map_err(|error| CommandError::failed(&error))
}

/// Opens the database of a state directory, and makes both if they do not exist.
pub(super) fn open_or_create(state: &Path) -> Result<Store, CommandError> {
    let layout = Layout::open(state).map_err(|error| CommandError::failed(&error))?;
    Store::open(&layout.database()).map_err(|error| CommandError::failed(&error))
}

/// Returns the error of wrong usage with this message.
pub(super) fn wrong(message: String) -> CommandError {
    CommandError { code: exit::USAGE, message }
}

/// Checks that a state directory is in use.
pub(super) fn check_in_use(state: &Path) -> Result<(), CommandError> {
    match state_directory::inspect(state).map_err(|error| CommandError::usage(&error))? {
        StateDirectory::InUse => Ok(()),
        StateDirectory::Missing | StateDirectory::Empty => {
            Err(wrong(format!("{} is no state directory of sluice; name it with --state-dir", state.display())))
        }
    }
}

/// Checks that there is a database, and says what the other files are for if there is none.
fn check_exists(state: &Path) -> Result<(), CommandError> {
    let layout = Layout::at(state);
    let database = layout.database();
    if database.exists() {
        return Ok(());
    }
    let runs = layout.audited().unwrap_or_default().len();
    Err(wrong(if runs > 0 || layout.budget_log().exists() {
        format!(
            "the database {} is missing, and the audit files of {runs} runs are there; sluice ledger rebuild makes it from \
             them, with the budgets of budgets.log; or restore a backup",
            database.display()
        )
    } else {
        format!("there is no database {}; name the state directory with --state-dir", database.display())
    }))
}
