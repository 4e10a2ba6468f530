//! The database of a state directory.

use std::path::Path;

use sluice_state::layout::Layout;
use sluice_state::lock::{self, StateLock};
use sluice_state::state_directory::{self, StateDirectory, StateDirectoryError};
use sluice_state::store::Store;

use super::error::CommandError;
use super::output::say;

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

/// Opens the database of a state directory, and makes both if they never existed.
pub(super) fn open_or_create(state: &Path) -> Result<Store, CommandError> {
    let layout = Layout::open(state).map_err(|error| CommandError::failed(&error))?;
    layout.check_database().map_err(|error| CommandError::failed(&error))?;
    Store::open(&layout.database()).map_err(|error| CommandError::failed(&error))
}

/// Opens the database of a state directory, and makes a new one in place of a lost one.
pub(super) fn open_or_replace(state: &Path) -> Result<Store, CommandError> {
    let layout = Layout::open(state).map_err(|error| CommandError::failed(&error))?;
    Store::open(&layout.database()).map_err(|error| CommandError::failed(&error))
}

/// Waits until no other command copies, imports or removes audit files, and then locks them for this one.
pub(super) fn lock_files(state: &Path) -> Result<StateLock, CommandError> {
    let waits = || {
        say("another sluice backup, prune, ledger import or ledger rebuild uses the audit files; this one waits for it")
    };
    lock::lock_files(state, waits)
        .map_err(|error| CommandError::failed(&StateDirectoryError::Io(state.to_owned(), error)))
}

/// Checks that a state directory is in use.
pub(super) fn check_in_use(state: &Path) -> Result<(), CommandError> {
    match state_directory::inspect(state).map_err(|error| CommandError::usage(&error))? {
        StateDirectory::InUse => Ok(()),
        StateDirectory::Missing | StateDirectory::Empty => Err(CommandError::wrong_usage(format!(
            "{} is not a state directory of sluice; name it with --state-dir",
            state.display()
        ))),
    }
}

/// Checks that the database exists; otherwise, the error explains the purpose of the other files.
fn check_exists(state: &Path) -> Result<(), CommandError> {
    state_directory::inspect(state).map_err(|error| CommandError::usage(&error))?;
    let layout = Layout::at(state);
    layout.check_database().map_err(|error| CommandError::usage(&error))?;
    let database = layout.database();
    if database.exists() {
        return Ok(());
    }
    Err(CommandError::wrong_usage(format!(
        "there is no database {}; name the state directory with --state-dir",
        database.display()
    )))
}
