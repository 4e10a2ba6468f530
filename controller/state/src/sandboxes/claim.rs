//! The queue: claims by priority, then age.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension, Transaction, TransactionBehavior, params};
use serde_json::json;

use super::SandboxError;
use super::change::take_step;
use super::lifecycle::{SandboxStep, SandboxVerdict};
use super::row::{COLUMNS, Sandbox, sandbox};
use crate::events::announce;
use crate::process::Process;
use crate::store::Store;

/// Maximum wait before a further attempt, in microseconds.
pub const RETRY_WAIT_MAX_US: i64 = 300 * 1_000_000;

/// Maximum numbers of runs that are being created, run or removed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimLimits {
    /// Maximum number on this host.
    pub host: u32,
    /// Maximum number for one project.
    pub project: u32,
    /// Maximum number for one owner.
    pub owner: u32,
}

/// Result of one check of the queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Claim {
    /// The run that begins now.
    pub claimed: Option<ClaimedSandbox>,
    /// Runs that have ended in the queue: a run on which they depend did not succeed, or their attempt is closed.
    pub ended: Vec<Sandbox>,
}

/// A run that was claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedSandbox {
    /// The run, which is CREATING.
    pub sandbox: Sandbox,
    /// Generation of the attempt's row in which the daemon records the phases.
    pub run_generation: u32,
}

/// Failure code of a run if another process closed its attempt while the run waited.
const CLOSED: &str = "internal";

impl Store {
    /// Claims the next run of the owner who has the fewest working runs: among runs that are due, whose dependencies have
    /// succeeded and for which there is room, the oldest of the highest priority. If several claim at once, one gets it.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn claim_next(&self, daemon: &Process, limits: ClaimLimits, now_us: i64) -> Result<Claim, SandboxError> {
        let (daemon, signal) = (daemon.clone(), self.event_signal());
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let mut last = 0;
            let mut ended = end_dependents(&transaction, now_us, &mut last)?;
            let mut claimed = None;
            while let Some(mut sandbox) = next(&transaction, limits, now_us)? {
                if let Some(run_generation) = take_over(&transaction, &sandbox, &daemon)? {
                    last = take_step(&transaction, &mut sandbox, &SandboxStep::Claim, "claimed", now_us)?;
                    claimed = Some(ClaimedSandbox { sandbox, run_generation });
                    break;
                }
                // It must not block the runs after it in the queue.
                let verdict = SandboxVerdict::Failed { code: CLOSED.to_owned(), message: None };
                last = take_step(&transaction, &mut sandbox, &SandboxStep::Drop(verdict), CLOSED, now_us)?;
                ended.push(sandbox);
            }
            transaction.commit()?;
            if last > 0 {
                announce(&signal, last);
            }
            Ok(Claim { claimed, ended })
        })
        .await
    }
}

/// Ends the pending runs that depend on one that has ended without success, and those that depend on them.
fn end_dependents(transaction: &Transaction<'_>, now_us: i64, last: &mut i64) -> Result<Vec<Sandbox>, SandboxError> {
    let mut ended = Vec::new();
    let query = format!(
        "SELECT {COLUMNS}, failed.depends_on FROM sandboxes JOIN (
             SELECT dependency.run_id AS dependent, min(depends_on) AS depends_on
             FROM sandboxes AS waiting INDEXED BY sandboxes_queue
             JOIN sandbox_dependencies AS dependency ON dependency.run_id = waiting.run_id
             JOIN sandboxes AS other ON other.run_id = depends_on
             WHERE waiting.state = 'PENDING' AND other.ended_us IS NOT NULL AND other.outcome <> 'success'
             GROUP BY dependency.run_id
         ) AS failed ON failed.dependent = sandboxes.run_id"
    );
    loop {
        let found: Vec<(Sandbox, String)> = transaction
            .prepare_cached(&query)?
            .query_map([], |row| Ok((sandbox(row)?, row.get("depends_on")?)))?
            .collect::<Result<_, _>>()?;
        if found.is_empty() {
            return Ok(ended);
        }
        for (mut sandbox, other) in found {
            let code = "dependency_failed".to_owned();
            let message = Some(format!("run {other}, on which it depends, did not succeed"));
            let step = SandboxStep::Drop(SandboxVerdict::Failed { code: code.clone(), message });
            *last = take_step(transaction, &mut sandbox, &step, &code, now_us)?;
            ended.push(sandbox);
        }
    }
}

fn next(transaction: &Transaction<'_>, limits: ClaimLimits, now_us: i64) -> Result<Option<Sandbox>, SandboxError> {
    let (mut host, mut owners, mut projects) = (0u32, BTreeMap::new(), BTreeMap::new());
    let mut active = transaction.prepare_cached(
        "SELECT owner, project FROM sandboxes
         WHERE ended_us IS NULL AND state IN ('CREATING', 'RUNNING', 'COMPLETING')",
    )?;
    let mut rows = active.query([])?;
    while let Some(row) = rows.next()? {
        let (owner, project): (String, Option<String>) = (row.get(0)?, row.get(1)?);
        host += 1;
        *owners.entry(owner).or_insert(0u32) += 1;
        if let Some(project) = project {
            *projects.entry(project).or_insert(0u32) += 1;
        }
    }
    if host >= limits.host || limits.owner == 0 {
        return Ok(None);
    }
    let full = |counts: &BTreeMap<String, u32>, limit: u32| {
        let full: Vec<_> = counts.iter().filter(|(_, count)| **count >= limit).map(|(name, _)| name).collect();
        json!(full).to_string()
    };
    let query = format!(
        "SELECT {COLUMNS} FROM sandboxes
         WHERE state = 'PENDING' AND (next_try_us <= ?1 OR next_try_us > ?6)
           AND owner NOT IN (SELECT value FROM json_each(?2))
           AND (project IS NULL OR (?4 > 0 AND project NOT IN (SELECT value FROM json_each(?3))))
           AND NOT EXISTS (
               SELECT 1 FROM sandbox_dependencies AS dependency JOIN sandboxes AS other ON other.run_id = depends_on
               WHERE dependency.run_id = sandboxes.run_id
                 AND (other.ended_us IS NULL OR other.outcome IS NOT 'success'))
         ORDER BY coalesce((SELECT value FROM json_each(?5) WHERE key = owner), 0), priority DESC, created_us, run_id
         LIMIT 1"
    );
    // A later time was written before the clock jumped back.
    let latest_us = now_us.saturating_add(RETRY_WAIT_MAX_US);
    let (at_work, owners, projects) = (json!(owners), full(&owners, limits.owner), full(&projects, limits.project));
    let mut query = transaction.prepare_cached(&query)?;
    let values = params![now_us, owners, projects, limits.project, at_work.to_string(), latest_us];
    Ok(query.query_row(values, sandbox).optional()?)
}

/// Makes this daemon the driver of the attempt, and returns the generation of its row; `None` if it is not pending.
fn take_over(transaction: &Transaction<'_>, sandbox: &Sandbox, daemon: &Process) -> Result<Option<u32>, SandboxError> {
    let key = &sandbox.key;
    let generation = transaction
        .prepare_cached(
            "UPDATE runs SET owner_pid = ?3, owner_start = ?4, owner_boot = ?5, generation = generation + 1
             WHERE run_id = ?1 AND attempt = ?2 AND phase = 'pending' RETURNING generation",
        )?
        .query_row(
            params![key.run_id.as_str(), key.attempt, daemon.pid, daemon.start.cast_signed(), daemon.boot],
            |row| row.get(0),
        )
        .optional()?;
    Ok(generation)
}
