//! One run as a row of a list.

use std::time::SystemTime;

use serde::Serialize;
use sluice_client::{ApiListedSandbox, ApiSandbox, ApiSandboxDetail};
use sluice_contract::time::{from_unix_micros, unix_micros};
use sluice_runs::record::RequestRecord;
use sluice_state::layout::Layout;
use sluice_state::ledger::usd;
use sluice_state::live_usage::LiveUsageReader;
use sluice_state::records::REQUEST;
use sluice_state::sandboxes::{Sandbox, WaitCause};
use sluice_state::store::{KnownRun, RunDriver};

use super::super::run_status::RunStatus;
use super::super::sandbox_object::timestamp;

/// State of an open run whose controller has ended.
const ORPHANED: &str = "orphaned";

/// One run, for people and programs.
#[derive(Debug, Clone, Serialize)]
pub(in crate::cli) struct RunView {
    /// `RUN.ATTEMPT`.
    pub(in crate::cli) run: String,
    /// A phase, or the state of a daemon's run; `orphaned` for a run whose controller was killed; `ok`, or the word of an
    /// error.
    pub(in crate::cli) state: String,
    pub(super) agent: String,
    /// Name of the program; null if the agent was asked, or if the run has no record.
    pub(super) program: Option<String>,
    pub(super) model: Option<String>,
    account: String,
    /// Time of the request (RFC 3339).
    pub(in crate::cli) started: String,
    /// Seconds from the request to the end, or to now.
    pub(in crate::cli) age_s: u64,
    /// Exit code of `sluice run`; null for an open run.
    pub(in crate::cli) exit_code: Option<i32>,
    /// Number of calls; null if the API does not say.
    pub(in crate::cli) calls: Option<u64>,
    /// Number of calls that have not ended; null if the API does not say.
    pub(in crate::cli) open_calls: Option<u64>,
    /// Known cost in dollars: 0 for an ended run without calls; null when no cost is known.
    pub(in crate::cli) cost_usd: Option<String>,
    /// Pid of the controller of an open run.
    pid: Option<i32>,
    /// `once` for a run of `sluice run`, `daemon` for one of a daemon.
    driver: &'static str,
    /// Name of a daemon's run.
    pub(in crate::cli) name: Option<String>,
    /// Owner of a daemon's run.
    owner: Option<String>,
    /// `PENDING`, `CREATING`, `RUNNING`, `COMPLETING`, `COMPLETED` or `FAILED`.
    sandbox_state: String,
    /// `success`, `cancelled` or `failed`, when it is decided.
    outcome: Option<String>,
    /// Time since which a daemon's run is paused (RFC 3339).
    paused_at: Option<String>,
    /// Thing that a daemon's run waits for.
    waiting_for: Option<String>,
    /// Reason of the last change of its state, if it waits for a retry.
    reason: Option<String>,
}

/// Calls and cost of a run, as the API sums them up.
#[derive(Debug, Clone, Default)]
pub(in crate::cli) struct ApiUsage {
    pub(in crate::cli) calls: Option<u64>,
    pub(in crate::cli) cost_usd: Option<String>,
}

impl RunView {
    /// Reads a run: the costs of a finished run are in the ledger, and an open run's in the audit file. `sandbox` is
    /// the row of a daemon's run.
    pub(in crate::cli) fn of(run: &KnownRun, sandbox: Option<&Sandbox>, layout: &Layout) -> Self {
        let key = &run.entry.key;
        let sandbox = sandbox.filter(|sandbox| sandbox.key == *key);
        let status = RunStatus::of_rows(run, sandbox);
        let is_open = sandbox.map_or(!run.is_closed(), |_| !status.is_ended());
        let mut audit = LiveUsageReader::default();
        // Without a readable file, the ledger's numbers are used.
        let live = if is_open { audit.read_new(&layout.run(key).audit).ok() } else { None };
        let (calls, open_calls, nanos) =
            live.map_or((run.calls, 0, run.nano_usd), |live| (live.calls, live.open_calls, live.nano_usd));
        let request: Option<RequestRecord> = layout.records().of(key).read_json(REQUEST).ok().flatten();
        Self {
            run: key.to_string(),
            state: if sandbox.is_some() { status.word().to_owned() } else { state(run) },
            agent: run.entry.agent.clone(),
            program: request.and_then(|request| request.program.into_iter().next()),
            model: run.entry.model.clone(),
            account: run.entry.account.clone(),
            started: humantime::format_rfc3339_seconds(from_unix_micros(run.created_us)).to_string(),
            age_s: age(run.created_us, (!is_open).then_some(run.updated_us)),
            exit_code: match sandbox {
                Some(_) => status.exit_code.map(i32::from),
                None => run.exit_code.filter(|_| !is_open),
            },
            calls: Some(calls),
            open_calls: Some(open_calls),
            cost_usd: nanos.map(usd),
            pid: (is_open && sandbox.is_none()).then_some(run.entry.owner.pid),
            driver: if run.entry.driver == RunDriver::Daemon { "daemon" } else { "once" },
            name: sandbox.and_then(|sandbox| sandbox.name.clone()),
            owner: sandbox.map(|sandbox| sandbox.owner.clone()),
            sandbox_state: status.state,
            outcome: status.outcome,
            paused_at: sandbox.and_then(|sandbox| sandbox.paused_us).map(timestamp),
            waiting_for: None,
            reason: None,
        }
    }

    /// Adds the cause for which the run waits.
    pub(in crate::cli) fn with_cause(self, cause: Option<&WaitCause>) -> Self {
        let waiting_for = cause.map(|cause| cause.waiting_for.to_owned());
        Self { waiting_for, reason: cause.and_then(|cause| cause.reason.clone()), ..self }
    }

    /// Returns a run of the API, without the cause for which it waits.
    fn of_api(sandbox: &ApiSandbox, used: ApiUsage) -> Self {
        let us = |text: &str| humantime::parse_rfc3339_weak(text).ok().and_then(unix_micros);
        let word = match (sandbox.is_ended(), sandbox.outcome.as_deref()) {
            (true, Some("success")) => "ok",
            (true, Some("cancelled")) => "cancelled",
            (true, _) => sandbox.failure_code.as_deref().unwrap_or(&sandbox.state),
            (false, _) => &sandbox.state,
        };
        let started = us(&sandbox.created_at).unwrap_or_default();
        Self {
            run: format!("{}.{}", sandbox.sandbox_id, sandbox.attempt),
            state: word.to_owned(),
            agent: sandbox.agent_id.clone(),
            program: None,
            model: None,
            account: sandbox.billing_account_id.clone(),
            started: humantime::format_rfc3339_seconds(from_unix_micros(started)).to_string(),
            age_s: age(started, sandbox.ended_at.as_deref().and_then(us)),
            exit_code: None,
            calls: used.calls,
            open_calls: None,
            cost_usd: used.cost_usd,
            pid: None,
            driver: "daemon",
            name: sandbox.name.clone(),
            owner: Some(sandbox.owner_id.clone()),
            sandbox_state: sandbox.state.clone(),
            outcome: sandbox.outcome.clone(),
            paused_at: sandbox.paused_at.clone(),
            waiting_for: None,
            reason: None,
        }
    }

    /// Returns a run of a list of the API.
    pub(in crate::cli) fn of_listed(run: &ApiListedSandbox, used: ApiUsage) -> Self {
        let (waiting_for, reason) = (run.waiting_for.clone(), run.reason.clone());
        Self { waiting_for, reason, ..Self::of_api(&run.sandbox, used) }
    }

    /// Returns the state for people, with `paused` for a paused run, or with the thing that the run waits for, unless
    /// that is its turn.
    pub(in crate::cli) fn shown_state(&self) -> String {
        let shown = match self.waiting_for.as_deref() {
            _ if self.paused_at.is_some() => "paused",
            // The state says that it is in the queue, and a run that is to pause still works.
            None | Some("turn" | "resume") => return self.state.clone(),
            Some(thing) => thing,
        };
        format!("{} ({shown})", self.state)
    }

    /// Returns a run with its request.
    pub(in crate::cli) fn of_detail(run: &ApiSandboxDetail, used: ApiUsage) -> Self {
        let exit_code = RunStatus::of_api(run).exit_code.map(i32::from);
        let waiting_for = run.waiting_for.clone();
        let reason = run.reason.clone().filter(|_| waiting_for.as_deref() == Some("retry"));
        let model = run.models.first().cloned();
        Self { model, exit_code, waiting_for, reason, ..Self::of_api(&run.sandbox, used) }
    }
}

fn state(run: &KnownRun) -> String {
    if !run.is_closed() {
        let word = if run.entry.owner.is_alive() { run.phase.as_str() } else { ORPHANED };
        return word.to_owned();
    }
    match (&run.error_code, run.exit_code) {
        (Some(code), _) => code.clone(),
        (None, Some(_)) => "ok".to_owned(),
        // Its controller was killed between the last two records.
        (None, None) => run.phase.clone(),
    }
}

/// Returns the seconds from the request of a run to its end, or to now.
fn age(created_us: i64, ended_us: Option<i64>) -> u64 {
    let end = ended_us.unwrap_or_else(|| unix_micros(SystemTime::now()).unwrap_or_default());
    u64::try_from((end - created_us) / 1_000_000).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn listed(state: &str, paused_at: Option<&str>, waiting_for: Option<&str>) -> RunView {
        let run: ApiListedSandbox = serde_json::from_value(json!({
            "sandbox_id": "r_1", "attempt": 0, "name": null, "owner_id": "alice", "agent_id": "r_1",
            "billing_account_id": "acct-1", "state": state, "desired_state": "running", "outcome": null,
            "failure_code": null, "error_message": null, "labels": {}, "priority": 0, "max_cost_usd": null,
            "created_at": "2026-01-01T00:00:00Z", "started_at": null, "ended_at": null, "deadline_at": null,
            "paused_at": paused_at, "waiting_for": waiting_for, "reason": null,
        }))
        .expect("a run of a list");
        RunView::of_listed(&run, ApiUsage::default())
    }

    #[test]
    fn the_state_shows_what_a_run_waits_for() {
        let since = Some("2026-01-01T00:00:00Z");
        for (state, paused_at, waiting_for, expected) in [
            ("PENDING", None, Some("turn"), "PENDING"),
            ("PENDING", None, Some("retry"), "PENDING (retry)"),
            ("PENDING", None, Some("dependencies"), "PENDING (dependencies)"),
            ("RUNNING", None, None, "RUNNING"),
            ("RUNNING", None, Some("approval"), "RUNNING (approval)"),
            ("RUNNING", None, Some("answer"), "RUNNING (answer)"),
            ("RUNNING", None, Some("resume"), "RUNNING"),
            ("RUNNING", since, Some("resume"), "RUNNING (paused)"),
        ] {
            assert_eq!(listed(state, paused_at, waiting_for).shown_state(), expected, "{waiting_for:?}");
        }
    }
}
