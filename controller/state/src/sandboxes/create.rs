//! Rows of new runs, and what they need: a name that is free, room in the queue, and runs that they depend on.

use std::collections::BTreeSet;

use rusqlite::{OptionalExtension, Transaction, params};
use serde_json::json;
use sluice_contract::RunId;

use super::SandboxError;
use super::row::Sandbox;

/// Checks that no live run of the owner has this name.
pub(crate) fn check_name(transaction: &Transaction<'_>, owner: &str, name: Option<&str>) -> Result<(), SandboxError> {
    let Some(name) = name else { return Ok(()) };
    let mut query =
        transaction.prepare_cached("SELECT 1 FROM sandboxes WHERE owner = ?1 AND name = ?2 AND ended_us IS NULL")?;
    if query.exists(params![owner, name])? { Err(SandboxError::NameTaken(name.to_owned())) } else { Ok(()) }
}

/// Checks that the owner has room in the queue.
pub(crate) fn check_queue(transaction: &Transaction<'_>, owner: &str, max: u32) -> Result<(), SandboxError> {
    let queued: u32 = transaction
        .prepare_cached("SELECT count(*) FROM sandboxes WHERE owner = ?1 AND state = 'PENDING'")?
        .query_row([owner], |row| row.get(0))?;
    if queued < max { Ok(()) } else { Err(SandboxError::QueueFull(max)) }
}

/// Adds the dependencies of a run. They exist already, so no cycle is possible.
pub(crate) fn insert_dependencies(
    transaction: &Transaction<'_>,
    sandbox: &Sandbox,
    depends_on: &BTreeSet<RunId>,
) -> Result<(), SandboxError> {
    for other in depends_on {
        let owner: Option<String> = transaction
            .prepare_cached("SELECT owner FROM sandboxes WHERE run_id = ?1 AND run_id <> ?2")?
            .query_row(params![other.as_str(), sandbox.key.run_id.as_str()], |row| row.get(0))
            .optional()?;
        if owner.as_ref() != Some(&sandbox.owner) {
            return Err(SandboxError::UnknownDependency(other.as_str().to_owned()));
        }
        transaction
            .prepare_cached("INSERT INTO sandbox_dependencies (run_id, depends_on) VALUES (?1, ?2)")?
            .execute(params![sandbox.key.run_id.as_str(), other.as_str()])?;
    }
    Ok(())
}

/// Inserts the first row of a run. Values that a new run lacks are null.
pub(crate) fn insert(transaction: &Transaction<'_>, sandbox: &Sandbox, request: &str) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "INSERT INTO sandboxes (run_id, owner, agent_id, agent_ephemeral, name, project, account, state, desired_state,
                                    max_retries, retry_on, request, priority, labels, cap_nano, attempt_cap_nano,
                                    hold_nano, hold, created_us, run_time_us)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)",
        )?
        .execute(params![
            sandbox.key.run_id.as_str(),
            sandbox.owner,
            sandbox.agent_id,
            sandbox.agent_ephemeral,
            sandbox.name,
            sandbox.project,
            sandbox.account,
            sandbox.state.as_str(),
            sandbox.desired_state.as_str(),
            sandbox.max_retries,
            json!(sandbox.retry_on).to_string(),
            request,
            sandbox.priority,
            json!(sandbox.labels).to_string(),
            sandbox.cap,
            sandbox.attempt_cap,
            sandbox.hold_nano,
            sandbox.hold,
            sandbox.created_us,
            sandbox.run_time_us,
        ])?;
    Ok(())
}
