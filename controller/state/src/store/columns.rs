//! Columns that hold values of the contract.

use std::error::Error;

use rusqlite::types::Type;
use rusqlite::{Error as SqliteError, Result, Row};
use sluice_contract::{Hash, RunKey};

/// Reads a run's key: this column holds the run id, the next one the attempt.
pub(crate) fn run_key(row: &Row<'_>, column: usize) -> Result<RunKey> {
    let text: String = row.get(column)?;
    let run_id = text.parse().map_err(|error| invalid(column, error))?;
    Ok(RunKey { run_id, attempt: row.get(column + 1)? })
}

/// Reads a hash.
pub(crate) fn hash(row: &Row<'_>, column: usize) -> Result<Hash> {
    let text: String = row.get(column)?;
    text.parse().map_err(|error| invalid(column, error))
}

fn invalid(column: usize, error: impl Error + Send + Sync + 'static) -> SqliteError {
    SqliteError::FromSqlConversionFailure(column, Type::Text, Box::new(error))
}
