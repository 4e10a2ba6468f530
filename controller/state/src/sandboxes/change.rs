//! Changes of a run: its steps, further attempts, and the state that its owner wants.

use rusqlite::{OptionalExtension, Transaction, TransactionBehavior, params};
use serde_json::json;
use sluice_contract::{RunId, RunKey};

use super::SandboxError;
use super::create::{check_name, check_queue};
use super::lifecycle::{DesiredState, SandboxState, SandboxStep, SandboxVerdict, after_step};
use super::messages;
use super::row::{Sandbox, find, report, seen, update};
use super::waiting::STATE_CHANGED;
use crate::agents::{self, NewAgent};
use crate::budget::{self, AdmissionRequest};
use crate::events::announce;
use crate::idempotency::{self, IdempotencyKey};
use crate::process::Process;
use crate::run::RunPhase;
use crate::store::{RunDriver, RunRow, Store, StoreError};

/// A further attempt of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextAttempt {
    /// The daemon.
    pub daemon: Process,
    /// Time before which it is not claimed, in microseconds since 1970.
    pub next_try_us: i64,
    /// Reason, for the event.
    pub reason: String,
}

/// A further attempt that an owner requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reopening {
    /// The attempt.
    pub next: NextAttempt,
    /// Maximum number of runs of the owner in the queue.
    pub queued_max: u32,
    /// Key of the request: it is completed with the attempt, or not at all.
    pub idempotency: Option<IdempotencyKey>,
}

impl Store {
    /// Takes a step of a run that its caller has seen at this generation. The last step of a run releases its agent.
    /// Claims and further attempts have functions of their own.
    ///
    /// # Errors
    /// [`SandboxError::NotFound`], [`SandboxError::StaleGeneration`], [`SandboxError::IllegalStep`].
    pub async fn step_sandbox(
        &self,
        run_id: &RunId,
        generation: u64,
        step: SandboxStep,
        reason: &str,
        now_us: i64,
    ) -> Result<Sandbox, SandboxError> {
        let reason = reason.to_owned();
        self.change_sandbox(run_id, generation, move |transaction, mut sandbox| {
            if matches!(step, SandboxStep::Claim | SandboxStep::Retry | SandboxStep::Reopen) {
                let step = step.name();
                return Err(super::IllegalStep { state: sandbox.state, step }.into());
            }
            let seq = take_step(transaction, &mut sandbox, &step, &reason, now_us)?;
            Ok((sandbox, Some(seq)))
        })
        .await
    }

    /// Puts a run that has failed into the queue again, before it has ended. The new attempt has the rest of the run's
    /// cap, and its own hold on the budget. The earlier attempt must be closed, and its audit file read.
    ///
    /// # Errors
    /// As of [`Store::step_sandbox`]; [`SandboxError::RetriesSpent`], [`SandboxError::CapSpent`], [`SandboxError::Budget`].
    pub async fn retry_sandbox(
        &self,
        run_id: &RunId,
        generation: u64,
        next: NextAttempt,
        now_us: i64,
    ) -> Result<Sandbox, SandboxError> {
        self.change_sandbox(run_id, generation, move |transaction, mut sandbox| {
            let state = after_step(sandbox.state, sandbox.verdict.as_ref(), &SandboxStep::Retry)?;
            if sandbox.key.attempt >= sandbox.max_retries {
                return Err(SandboxError::RetriesSpent(sandbox.max_retries));
            }
            let seq = begin_attempt(transaction, &mut sandbox, state, &next, now_us)?;
            Ok((sandbox, Some(seq)))
        })
        .await
    }

    /// Puts a run that has ended without success into the queue again, if a person requests it. Its agent must be free, and
    /// its name must not be in use. It has a new deadline, and no new cap.
    ///
    /// # Errors
    /// As of [`Store::step_sandbox`]; [`SandboxError::Agent`], [`SandboxError::NameTaken`],
    /// [`SandboxError::QueueFull`], [`SandboxError::CapSpent`], [`SandboxError::Budget`],
    /// [`SandboxError::Idempotency`].
    pub async fn reopen_sandbox(
        &self,
        run_id: &RunId,
        generation: u64,
        Reopening { next, queued_max, idempotency }: Reopening,
        now_us: i64,
    ) -> Result<Sandbox, SandboxError> {
        self.change_sandbox(run_id, generation, move |transaction, mut sandbox| {
            if let Some(key) = &idempotency {
                idempotency::complete(transaction, key, sandbox.key.run_id.as_str())?;
            }
            let state = after_step(sandbox.state, sandbox.verdict.as_ref(), &SandboxStep::Reopen)?;
            check_queue(transaction, &sandbox.owner, queued_max)?;
            if sandbox.agent_ephemeral {
                agents::create_ephemeral(transaction, &ephemeral_agent(&sandbox))?;
            } else {
                agents::connect(transaction, &sandbox.owner, &sandbox.agent_id)?;
            }
            check_name(transaction, &sandbox.owner, sandbox.name.as_deref())?;
            sandbox.deadline_us = None;
            let seq = begin_attempt(transaction, &mut sandbox, state, &next, now_us)?;
            Ok((sandbox, Some(seq)))
        })
        .await
    }

    /// Ends a run with a closed attempt and no daemon: with the recorded verdict, otherwise as cancelled. Returns `None` if
    /// it has ended, or its attempt is not closed.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn end_swept(&self, run_id: &RunId, now_us: i64) -> Result<Option<Sandbox>, SandboxError> {
        let (run_id, signal) = (run_id.clone(), self.event_signal());
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let Some(mut sandbox) = find(&transaction, &run_id)?.filter(|run| !run.state.is_ended()) else {
                return Ok(None);
            };
            if !is_closed(&transaction, &sandbox.key)? {
                return Ok(None);
            }
            let mut last = 0;
            while let Some(step) = last_step(&sandbox) {
                last = take_step(&transaction, &mut sandbox, &step, "swept", now_us)?;
            }
            transaction.commit()?;
            announce(&signal, last);
            Ok(Some(sandbox))
        })
        .await
    }

    /// Records the state that the owner of a live run wants.
    ///
    /// # Errors
    /// As of [`Store::step_sandbox`].
    pub async fn set_desired_state(
        &self,
        run_id: &RunId,
        generation: u64,
        desired: DesiredState,
    ) -> Result<Sandbox, SandboxError> {
        self.change_sandbox(run_id, generation, move |transaction, mut sandbox| {
            if sandbox.state.is_ended() {
                return Err(super::IllegalStep { state: sandbox.state, step: desired.as_str() }.into());
            }
            sandbox.desired_state = desired;
            update(transaction, &mut sandbox)?;
            Ok((sandbox, None))
        })
        .await
    }

    pub(super) async fn change_sandbox(
        &self,
        run_id: &RunId,
        generation: u64,
        change: impl FnOnce(&Transaction<'_>, Sandbox) -> Result<(Sandbox, Option<i64>), SandboxError> + Send + 'static,
    ) -> Result<Sandbox, SandboxError> {
        let (run_id, signal) = (run_id.clone(), self.event_signal());
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let before = seen(&transaction, &run_id, generation)?;
            let (after, seq) = change(&transaction, before)?;
            transaction.commit()?;
            if let Some(seq) = seq {
                announce(&signal, seq);
            }
            Ok(after)
        })
        .await
    }
}

/// Returns the next step of a run whose resources are all gone.
fn last_step(sandbox: &Sandbox) -> Option<SandboxStep> {
    match (sandbox.state, &sandbox.verdict) {
        (state, _) if state.is_ended() => None,
        (SandboxState::Pending, _) => Some(SandboxStep::Drop(SandboxVerdict::Cancelled)),
        (_, None) => Some(SandboxStep::Decide(SandboxVerdict::Cancelled)),
        (_, Some(_)) => Some(SandboxStep::Finish),
    }
}

fn is_closed(transaction: &Transaction<'_>, key: &RunKey) -> Result<bool, SandboxError> {
    let mut query = transaction.prepare_cached("SELECT phase FROM runs WHERE run_id = ?1 AND attempt = ?2")?;
    let phase = query.query_row(params![key.run_id.as_str(), key.attempt], |row| row.get::<_, String>(0)).optional()?;
    Ok(phase.is_none_or(|phase| phase == RunPhase::Closed.as_str()))
}

/// Takes a step, writes the row and appends its events. Returns the position of the last one.
pub(super) fn take_step(
    transaction: &Transaction<'_>,
    sandbox: &mut Sandbox,
    step: &SandboxStep,
    reason: &str,
    now_us: i64,
) -> Result<i64, SandboxError> {
    let from = sandbox.state;
    (sandbox.state, sandbox.verdict) = after_step(from, sandbox.verdict.as_ref(), step)?;
    match step {
        SandboxStep::Claim => {
            sandbox.claimed_us = Some(now_us);
            sandbox.deadline_us.get_or_insert(now_us.saturating_add(sandbox.run_time_us));
        }
        SandboxStep::Start => {
            sandbox.started_us = Some(now_us);
            sandbox.last_work_us = Some(now_us);
            sandbox.last_observed_work_us = Some(now_us);
        }
        SandboxStep::Drop(_) => drop_attempt(transaction, sandbox, now_us)?,
        _ => {}
    }
    if sandbox.state.is_ended() {
        sandbox.ended_us = Some(now_us);
        sandbox.paused_us = None;
        sandbox.start_clocks(now_us);
    }
    update(transaction, sandbox)?;
    let mut seq = report_change(transaction, sandbox, from, reason, now_us)?;
    if sandbox.state.is_ended() {
        messages::lose_pending(transaction, sandbox, now_us)?;
        agents::release(transaction, &sandbox.owner, &sandbox.agent_id)?;
        let verdict = sandbox.verdict.as_ref();
        let data = json!({
            "state": sandbox.state.as_str(),
            "outcome": verdict.map(SandboxVerdict::outcome),
            "failure_code": verdict.and_then(|verdict| verdict.failure().0),
        });
        seq = report(transaction, sandbox, "sandbox.stopped", &data, now_us)?;
    }
    Ok(seq)
}

fn report_change(
    transaction: &Transaction<'_>,
    sandbox: &Sandbox,
    from: SandboxState,
    reason: &str,
    now_us: i64,
) -> rusqlite::Result<i64> {
    let data = json!({ "from": from.as_str(), "to": sandbox.state.as_str(), "reason": reason });
    report(transaction, sandbox, STATE_CHANGED, &data, now_us)
}

/// Closes an attempt that never had any resources, and releases its hold.
fn drop_attempt(transaction: &Transaction<'_>, sandbox: &Sandbox, now_us: i64) -> Result<(), SandboxError> {
    record_unstarted(transaction, &sandbox.key, now_us)?;
    transaction.execute(
        "UPDATE runs SET phase = ?3, error_code = ?4, updated_us = ?5 WHERE run_id = ?1 AND attempt = ?2",
        params![
            sandbox.key.run_id.as_str(),
            sandbox.key.attempt,
            RunPhase::Closed.as_str(),
            sandbox.verdict.as_ref().map(|verdict| verdict.failure().0.unwrap_or("cancelled")),
            now_us,
        ],
    )?;
    if let Some(hold) = sandbox.hold {
        budget::release_unused(transaction, hold)?;
    }
    Ok(())
}

/// Records that an attempt has no audit file, as its reading would find: none of the run's cap is spent. If the row is no
/// longer pending, or lines of the file were seen, a sidecar may have started, and the file is read as after each run.
fn record_unstarted(transaction: &Transaction<'_>, key: &RunKey, now_us: i64) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "INSERT INTO readings (run_id, attempt, worth, lines, ended, read_us)
             SELECT run_id, attempt, 'absent', 0, 1, ?3 FROM runs
             WHERE run_id = ?1 AND attempt = ?2 AND phase = ?4 AND sidecar_pid IS NULL
               AND NOT EXISTS (SELECT 1 FROM readings AS seen
                               WHERE seen.run_id = runs.run_id AND seen.attempt = runs.attempt)
               AND NOT EXISTS (SELECT 1 FROM witnesses AS seen
                               WHERE seen.run_id = runs.run_id AND seen.attempt = runs.attempt)",
        )?
        .execute(params![key.run_id.as_str(), key.attempt, now_us, RunPhase::Pending.as_str()])
        .map(drop)
}

/// Adds the row and the hold of the next attempt. Its event has the message of the attempt before.
fn begin_attempt(
    transaction: &Transaction<'_>,
    sandbox: &mut Sandbox,
    (state, verdict): (SandboxState, Option<SandboxVerdict>),
    next: &NextAttempt,
    now_us: i64,
) -> Result<i64, SandboxError> {
    let from = sandbox.state;
    let before = sandbox.key.clone();
    sandbox.key.attempt += 1;
    let cap = match sandbox.cap {
        None => None,
        Some(cap) => match budget::cap_left(transaction, &sandbox.key, cap)? {
            0 => return Err(SandboxError::CapSpent),
            left => Some(left),
        },
    };
    let entry = RunRow { key: sandbox.key.clone(), ..row_of(transaction, &before, &next.daemon)? };
    let (admitted, hold) = budget::admit(transaction, &AdmissionRequest { entry, cap, default: sandbox.hold_nano })?;
    sandbox.cap = sandbox.cap.or(admitted.cap);
    (sandbox.attempt_cap, sandbox.hold) = (admitted.cap, hold);
    let message = sandbox.verdict.as_ref().and_then(|verdict| verdict.failure().1).map(str::to_owned);
    (sandbox.state, sandbox.verdict) = (state, verdict);
    sandbox.desired_state = DesiredState::Running;
    sandbox.next_try_us = next.next_try_us;
    (sandbox.claimed_us, sandbox.started_us, sandbox.ended_us) = (None, None, None);
    (sandbox.last_work_us, sandbox.last_observed_work_us) = (None, None);
    (sandbox.last_heartbeat_us, sandbox.heartbeat_status, sandbox.paused_us) = (None, None, None);
    messages::queue_again(transaction, sandbox)?;
    sandbox.start_clocks(now_us);
    update(transaction, sandbox)?;
    let mut data = json!({ "from": from.as_str(), "to": sandbox.state.as_str(), "reason": next.reason });
    if let Some(message) = message {
        data["error_message"] = message.into();
    }
    Ok(report(transaction, sandbox, STATE_CHANGED, &data, now_us)?)
}

/// Returns the row of an attempt, driven by this daemon.
fn row_of(transaction: &Transaction<'_>, key: &RunKey, daemon: &Process) -> Result<RunRow, SandboxError> {
    let row = transaction
        .prepare_cached("SELECT account, agent, model, image FROM runs WHERE run_id = ?1 AND attempt = ?2")?
        .query_row(params![key.run_id.as_str(), key.attempt], |row| {
            Ok(RunRow {
                key: key.clone(),
                account: row.get(0)?,
                agent: row.get(1)?,
                model: row.get(2)?,
                image: row.get(3)?,
                owner: daemon.clone(),
                driver: RunDriver::Daemon,
            })
        })
        .optional()?;
    row.ok_or_else(|| StoreError::Stale(key.clone()).into())
}

/// Returns the agent of a single run as it was made for its first attempt.
fn ephemeral_agent(sandbox: &Sandbox) -> NewAgent {
    NewAgent {
        owner: sandbox.owner.clone(),
        agent_id: sandbox.agent_id.clone(),
        name: None,
        zone_id: None,
        billing_account_id: sandbox.account.clone(),
        allow_sandbox: true,
        grants: "[]".to_owned(),
        metadata: "{}".to_owned(),
    }
}
