//! The cause for which a run waits.
//!
//! Pure.

use std::collections::BTreeSet;

use serde_json::Value;
use sluice_contract::RunKey;

use super::lifecycle::{DesiredState, SandboxState};
use super::row::Sandbox;

/// Word for a run that waits for its next attempt.
pub(super) const RETRY: &str = "retry";

/// The cause for which a run waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitCause {
    /// The thing that it waits for: `turn`, `retry` or `dependencies` in the queue; `resume`, `approval` or `answer` while it
    /// works.
    pub waiting_for: &'static str,
    /// Reason of the last change of its state, if it waits for a retry.
    pub reason: Option<String>,
    /// Message of the attempt before, if it waits for a retry.
    pub error_message: Option<String>,
}

/// Things that are open for some runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct OpenThings {
    /// Attempts with a call that waits for an approval.
    pub(super) approvals: BTreeSet<RunKey>,
    /// Runs with a question that has no answer.
    pub(super) questions: BTreeSet<String>,
    /// Runs with a dependency that has not succeeded.
    pub(super) dependencies: BTreeSet<String>,
}

impl WaitCause {
    /// Returns the cause of a run that waits for this. `change` is the data of the last change of its state.
    pub(super) fn of(waiting_for: &'static str, change: Option<&Value>) -> Self {
        let change = change.filter(|_| waiting_for == RETRY);
        let text = |name: &str| change.and_then(|change| change[name].as_str()).map(str::to_owned);
        Self { waiting_for, reason: text("reason"), error_message: text("error_message") }
    }
}

/// Returns the thing that a run waits for, if any.
pub(super) fn waiting_for(sandbox: &Sandbox, open: &OpenThings, now_us: i64) -> Option<&'static str> {
    let run_id = sandbox.key.run_id.as_str();
    if sandbox.state == SandboxState::Pending {
        let later = if open.dependencies.contains(run_id) { "dependencies" } else { "turn" };
        return Some(if sandbox.next_try_us > now_us { RETRY } else { later });
    }
    if !sandbox.state.is_active() || sandbox.verdict.is_some() {
        return None;
    }
    if sandbox.desired_state == DesiredState::Paused {
        return Some("resume");
    }
    if open.approvals.contains(&sandbox.key) {
        return Some("approval");
    }
    open.questions.contains(run_id).then_some("answer")
}
