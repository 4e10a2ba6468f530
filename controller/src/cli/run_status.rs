//! State and exit code of a run, driven by a command or by the daemon.
//!
//! Pure.

use serde::Serialize;
use sluice_client::ApiSandboxDetail;
use sluice_contract::exit;
use sluice_state::run::RunPhase;
use sluice_state::sandboxes::{Sandbox, SandboxState, SandboxVerdict};
use sluice_state::store::KnownRun;

/// Exit code of a run that was cancelled over the API: 128 and the number of SIGTERM.
const CANCELLED: u8 = 143;
/// Exit code of a run that was interrupted: 128 and the number of SIGINT.
const INTERRUPTED: u8 = 130;
/// Exit code of a run that could not publish its work.
const NOT_PUBLISHED: u8 = 123;
/// Exit code of a run that the kernel killed for lack of memory.
const OUT_OF_MEMORY: u8 = 137;

/// State of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct RunStatus {
    /// `RUN.ATTEMPT`.
    pub(super) run: String,
    /// `PENDING`, `CREATING`, `RUNNING`, `COMPLETING`, `COMPLETED` or `FAILED`.
    pub(super) state: String,
    /// `success`, `cancelled` or `failed`, when it is decided.
    pub(super) outcome: Option<String>,
    /// One word for the reason of a failure.
    pub(super) failure_code: Option<String>,
    /// The reason, for people.
    pub(super) error_message: Option<String>,
    /// Exit code of a command for this end; `None` for an unfinished run.
    pub(super) exit_code: Option<u8>,
}

impl RunStatus {
    /// Returns the status of a run as the API shows it.
    pub(super) fn of_api(run: &ApiSandboxDetail) -> Self {
        let sandbox = &run.sandbox;
        let is_ended = sandbox.is_ended();
        let code = exit_code(sandbox.outcome.as_deref(), sandbox.failure_code.as_deref(), run.exit_code);
        Self {
            run: format!("{}.{}", sandbox.sandbox_id, sandbox.attempt),
            state: sandbox.state.clone(),
            outcome: sandbox.outcome.clone(),
            failure_code: sandbox.failure_code.clone(),
            error_message: sandbox.error_message.clone(),
            exit_code: is_ended.then_some(code),
        }
    }

    /// Returns the status of a run as the database has it; `sandbox` is its row if a daemon drives it.
    pub(super) fn of_rows(run: &KnownRun, sandbox: Option<&Sandbox>) -> Self {
        match sandbox.filter(|sandbox| sandbox.key == run.entry.key) {
            Some(sandbox) => Self::of_daemon(run, sandbox),
            None => Self::of_attempt(run),
        }
    }

    fn of_daemon(run: &KnownRun, sandbox: &Sandbox) -> Self {
        let verdict = sandbox.verdict.as_ref();
        let (failure, message) = verdict.map_or((None, None), SandboxVerdict::failure);
        let code = exit_code(verdict.map(SandboxVerdict::outcome), failure, run.exit_code);
        Self {
            run: sandbox.key.to_string(),
            state: sandbox.state.as_str().to_owned(),
            outcome: verdict.map(|verdict| verdict.outcome().to_owned()),
            failure_code: failure.map(str::to_owned),
            error_message: message.map(str::to_owned),
            exit_code: sandbox.state.is_ended().then_some(code),
        }
    }

    /// Returns the status of a run of `sluice run`, or of an earlier attempt of a daemon's run.
    fn of_attempt(run: &KnownRun) -> Self {
        let phase = serde_json::from_value(run.phase.as_str().into()).unwrap_or(RunPhase::Closed);
        let (state, verdict) = SandboxState::of_one_shot(phase, run.error_code.as_deref());
        let failure = verdict.as_ref().and_then(|verdict| verdict.failure().0);
        let recorded = run.exit_code.and_then(|code| u8::try_from(code).ok());
        Self {
            run: run.entry.key.to_string(),
            state: state.as_str().to_owned(),
            outcome: verdict.as_ref().map(|verdict| verdict.outcome().to_owned()),
            failure_code: failure.map(str::to_owned),
            error_message: None,
            // A killed controller has recorded none.
            exit_code: state.is_ended().then(|| recorded.unwrap_or(exit::FAILED)),
        }
    }

    /// Returns whether the run has ended.
    pub(super) fn is_ended(&self) -> bool {
        self.exit_code.is_some()
    }

    /// Returns the word for a list: the state of an unfinished run, `ok`, or the reason of its end.
    pub(super) fn word(&self) -> &str {
        match (self.is_ended(), self.outcome.as_deref()) {
            (true, Some("success")) => "ok",
            (true, Some("cancelled")) => "cancelled",
            (true, _) => self.failure_code.as_deref().unwrap_or(&self.state),
            (false, _) => &self.state,
        }
    }
}

/// Returns the exit code for the end of a daemon's run.
fn exit_code(outcome: Option<&str>, failure: Option<&str>, recorded: Option<i32>) -> u8 {
    let recorded = recorded.and_then(|code| u8::try_from(code).ok());
    match (outcome, failure) {
        (Some("success"), _) => recorded.unwrap_or(0),
        (Some("cancelled"), _) => CANCELLED,
        (_, Some("timeout" | "heartbeat_timeout" | "idle_timeout" | "stuck_running" | "ttl_expired")) => exit::TIMEOUT,
        (
            _,
            Some("creation_failed" | "internal" | "stale_start" | "node_lost" | "dependency_failed" | "disk_exceeded"),
        ) => exit::NOT_STARTED,
        (_, Some("budget_exceeded" | "implausible_cost" | "insufficient_credits")) => exit::BUDGET,
        (_, Some("audit_failed")) => exit::AUDIT_INCOMPLETE,
        (_, Some("agent_failed")) => exit::FAILED,
        (_, Some("interrupted")) => INTERRUPTED,
        (_, Some("pr_failed")) => NOT_PUBLISHED,
        (_, Some("oom_killed")) => OUT_OF_MEMORY,
        _ => recorded.filter(|code| *code != 0).unwrap_or(exit::FAILED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_has_its_exit_code() {
        for (outcome, failure, recorded, expected) in [
            ("success", None, Some(0), 0),
            ("success", None, None, 0),
            ("cancelled", None, Some(137), 143),
            ("failed", Some("container_failed"), Some(42), 42),
            ("failed", Some("container_failed"), Some(0), 1),
            ("failed", Some("container_failed"), None, 1),
            ("failed", Some("timeout"), Some(124), 124),
            ("failed", Some("heartbeat_timeout"), Some(137), 124),
            ("failed", Some("idle_timeout"), None, 124),
            ("failed", Some("stuck_running"), None, 124),
            ("failed", Some("ttl_expired"), None, 124),
            ("failed", Some("stale_start"), None, 125),
            ("failed", Some("node_lost"), None, 125),
            ("failed", Some("dependency_failed"), None, 125),
            ("failed", Some("disk_exceeded"), Some(137), 125),
            ("failed", Some("creation_failed"), None, 125),
            ("failed", Some("internal"), Some(137), 125),
            ("failed", Some("pr_failed"), Some(0), 123),
            ("failed", Some("agent_failed"), Some(143), 1),
            ("failed", Some("interrupted"), Some(0), 130),
            ("failed", Some("budget_exceeded"), Some(1), 121),
            ("failed", Some("implausible_cost"), Some(143), 121),
            ("failed", Some("audit_failed"), Some(0), 120),
            ("failed", Some("of_a_later_version"), Some(7), 7),
        ] {
            assert_eq!(exit_code(Some(outcome), failure, recorded), expected, "{outcome} {failure:?} {recorded:?}");
        }
    }
}
