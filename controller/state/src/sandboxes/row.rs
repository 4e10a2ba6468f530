//! The row of a run.

use std::collections::BTreeMap;

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};
use serde::de::DeserializeOwned;
use sluice_contract::{RunId, RunKey};

use super::SandboxError;
use super::lifecycle::{DesiredState, SandboxState, SandboxVerdict};
use crate::events::CallSums;
use crate::events::{NewLoggedEvent, append};
use crate::store::run_key;

/// A run of the daemon. Times are in microseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandbox {
    /// Run and present attempt.
    pub key: RunKey,
    /// Owner of the run and of its agent.
    pub owner: String,
    /// The agent.
    pub agent_id: String,
    /// True if the agent exists for this run only.
    pub agent_ephemeral: bool,
    /// Name; unique among the live runs of the owner.
    pub name: Option<String>,
    /// Project.
    pub project: Option<String>,
    /// Account that pays.
    pub account: String,
    /// Present state.
    pub state: SandboxState,
    /// State that the owner wants.
    pub desired_state: DesiredState,
    /// The outcome, once it is decided.
    pub verdict: Option<SandboxVerdict>,
    /// Number of automatic retries.
    pub max_retries: u32,
    /// Failure codes that are retried in addition to the codes that are always retried.
    pub retry_on: Vec<String>,
    /// Time before which a pending run is not claimed.
    pub next_try_us: i64,
    /// Runs of a higher priority are claimed first.
    pub priority: i64,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Cap of all attempts in nano-USD.
    pub cap: Option<i64>,
    /// Cap of the present attempt in nano-USD.
    pub attempt_cap: Option<i64>,
    /// Amount that an attempt without a cap holds of a budget.
    pub hold_nano: i64,
    /// Row of the present attempt's hold on a budget.
    pub hold: Option<i64>,
    /// Time of the creation.
    pub created_us: i64,
    /// Time of the claim of the present attempt.
    pub claimed_us: Option<i64>,
    /// Time at which the program of the present attempt started.
    pub started_us: Option<i64>,
    /// Time of the end.
    pub ended_us: Option<i64>,
    /// Maximum time from the first claim to the end.
    pub run_time_us: i64,
    /// Time at which the run ends at the latest; set by the first claim.
    pub deadline_us: Option<i64>,
    /// Time since which it is paused.
    pub paused_us: Option<i64>,
    /// Time since which its clocks are stopped.
    pub clocks_stopped_us: Option<i64>,
    /// Duration of earlier stops of its clocks, in all attempts, in microseconds.
    pub stopped_total_us: i64,
    /// Time of the last work of any kind.
    pub last_work_us: Option<i64>,
    /// Time of the last work that the controller saw itself.
    pub last_observed_work_us: Option<i64>,
    /// Time of the last heartbeat.
    pub last_heartbeat_us: Option<i64>,
    /// Status in the last heartbeat.
    pub heartbeat_status: Option<String>,
    /// Usage of the run's calls so far.
    pub sums: CallSums,
    /// Number of changes.
    pub generation: u64,
}

pub(super) const COLUMNS: &str = "run_id, attempt, owner, agent_id, agent_ephemeral, name, project, account, state, \
    desired_state, outcome, failure_code, error_message, max_retries, retry_on, next_try_us, priority, labels, cap_nano, \
    attempt_cap_nano, hold_nano, hold, created_us, claimed_us, started_us, ended_us, run_time_us, deadline_us, paused_us, \
    last_work_us, last_observed_work_us, last_heartbeat_us, heartbeat_status, generation, clocks_stopped_us, \
    stopped_total_us, calls, unknown_costs, cost_nano";

pub(super) fn sandbox(row: &Row<'_>) -> rusqlite::Result<Sandbox> {
    let (state, desired): (String, String) = (row.get(8)?, row.get(9)?);
    let outcome: Option<String> = row.get(10)?;
    let verdict = match outcome.as_deref() {
        None => None,
        Some("success") => Some(SandboxVerdict::Success),
        Some("cancelled") => Some(SandboxVerdict::Cancelled),
        Some(_) => Some(SandboxVerdict::Failed { code: row.get(11)?, message: row.get(12)? }),
    };
    Ok(Sandbox {
        key: run_key(row, 0)?,
        owner: row.get(2)?,
        agent_id: row.get(3)?,
        agent_ephemeral: row.get(4)?,
        name: row.get(5)?,
        project: row.get(6)?,
        account: row.get(7)?,
        state: SandboxState::of(&state).expect("the column has no other word"),
        desired_state: DesiredState::of(&desired).expect("the column has no other word"),
        verdict,
        max_retries: row.get(13)?,
        retry_on: json(row, 14)?,
        next_try_us: row.get(15)?,
        priority: row.get(16)?,
        labels: json(row, 17)?,
        cap: row.get(18)?,
        attempt_cap: row.get(19)?,
        hold_nano: row.get(20)?,
        hold: row.get(21)?,
        created_us: row.get(22)?,
        claimed_us: row.get(23)?,
        started_us: row.get(24)?,
        ended_us: row.get(25)?,
        run_time_us: row.get(26)?,
        deadline_us: row.get(27)?,
        paused_us: row.get(28)?,
        last_work_us: row.get(29)?,
        last_observed_work_us: row.get(30)?,
        last_heartbeat_us: row.get(31)?,
        heartbeat_status: row.get(32)?,
        generation: row.get::<_, i64>(33)?.unsigned_abs(),
        clocks_stopped_us: row.get(34)?,
        stopped_total_us: row.get(35)?,
        sums: CallSums {
            calls: row.get::<_, i64>(36)?.unsigned_abs(),
            unknown_costs: row.get::<_, i64>(37)?.unsigned_abs(),
            nano_usd: row.get(38)?,
        },
    })
}

fn json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    serde_json::from_str(&text)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error)))
}

pub(crate) fn find(connection: &Connection, run_id: &RunId) -> rusqlite::Result<Option<Sandbox>> {
    let query = format!("SELECT {COLUMNS} FROM sandboxes WHERE run_id = ?1");
    connection.prepare_cached(&query)?.query_row([run_id.as_str()], sandbox).optional()
}

/// Reads a run that the caller wants to change, if it is still at the generation that the caller has seen.
pub(super) fn seen(transaction: &Transaction<'_>, run_id: &RunId, generation: u64) -> Result<Sandbox, SandboxError> {
    let sandbox = find(transaction, run_id)?.ok_or_else(|| SandboxError::NotFound(run_id.clone()))?;
    if sandbox.generation == generation {
        Ok(sandbox)
    } else {
        Err(SandboxError::StaleGeneration { found: sandbox.generation })
    }
}

/// Writes the columns that change, with the next generation.
pub(crate) fn update(transaction: &Transaction<'_>, sandbox: &mut Sandbox) -> rusqlite::Result<()> {
    let before = sandbox.generation;
    sandbox.generation += 1;
    let (code, message) = sandbox.verdict.as_ref().map_or((None, None), SandboxVerdict::failure);
    let changed = transaction
        .prepare_cached(
            "UPDATE sandboxes SET attempt = ?3, state = ?4, desired_state = ?5, outcome = ?6, failure_code = ?7,
                 error_message = ?8, next_try_us = ?9, attempt_cap_nano = ?10, hold = ?11, claimed_us = ?12,
                 started_us = ?13, ended_us = ?14, deadline_us = ?15, paused_us = ?16, last_work_us = ?17,
                 last_observed_work_us = ?18, last_heartbeat_us = ?19, heartbeat_status = ?20, cap_nano = ?21,
                 generation = ?22, clocks_stopped_us = ?23, stopped_total_us = ?24
             WHERE run_id = ?1 AND generation = ?2",
        )?
        .execute(params![
            sandbox.key.run_id.as_str(),
            before.cast_signed(),
            sandbox.key.attempt,
            sandbox.state.as_str(),
            sandbox.desired_state.as_str(),
            sandbox.verdict.as_ref().map(SandboxVerdict::outcome),
            code,
            message,
            sandbox.next_try_us,
            sandbox.attempt_cap,
            sandbox.hold,
            sandbox.claimed_us,
            sandbox.started_us,
            sandbox.ended_us,
            sandbox.deadline_us,
            sandbox.paused_us,
            sandbox.last_work_us,
            sandbox.last_observed_work_us,
            sandbox.last_heartbeat_us,
            sandbox.heartbeat_status,
            sandbox.cap,
            sandbox.generation.cast_signed(),
            sandbox.clocks_stopped_us,
            sandbox.stopped_total_us,
        ])?;
    if changed == 1 { Ok(()) } else { Err(rusqlite::Error::StatementChangedRows(changed)) }
}

/// Appends an event of the system about a run, and returns its position.
pub(crate) fn report(
    transaction: &Transaction<'_>,
    sandbox: &Sandbox,
    event_type: &str,
    data: &serde_json::Value,
    now_us: i64,
) -> rusqlite::Result<i64> {
    let run_id = sandbox.key.run_id.as_str();
    let event = NewLoggedEvent {
        attempt: Some(sandbox.key.attempt),
        agent_id: Some(sandbox.agent_id.clone()),
        ..NewLoggedEvent::of_run(&sandbox.owner, run_id, event_type, data.to_string(), now_us)
    };
    Ok(append(transaction, &event)?.seq)
}
