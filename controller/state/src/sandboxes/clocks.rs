//! The clocks of a run: its deadline and its idle time are stopped while it is paused, or while a call waits for an
//! approval.
//!
//! They stop for at most [`STOPPED_MAX_US`] in all: after that the deadline continues, so that every run ends.

use serde_json::json;
use sluice_contract::RunId;

use super::SandboxError;
use super::lifecycle::{DesiredState, IllegalStep, SandboxState};
use super::row::{Sandbox, report, update};
use crate::store::Store;

/// Maximum time for which the clocks of a run are stopped, in all.
pub const STOPPED_MAX_US: i64 = 24 * 3600 * 1_000_000;

/// Reason why the clocks of a run are stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClockStop {
    /// A person or a rule has paused the run, and no call is open.
    Paused,
    /// A call waits for an approval.
    Approval,
}

impl Sandbox {
    /// Returns the time since the clocks were stopped, as far as it counts.
    #[must_use]
    pub fn stopped_us(&self, now_us: i64) -> i64 {
        let left = (STOPPED_MAX_US - self.stopped_total_us).max(0);
        self.clocks_stopped_us.map_or(0, |since| now_us.saturating_sub(since).clamp(0, left))
    }

    /// Returns the latest time of the end, as if the clocks went on now.
    #[must_use]
    pub fn ends_us(&self, now_us: i64) -> Option<i64> {
        self.deadline_us.map(|deadline| deadline.saturating_add(self.stopped_us(now_us)))
    }

    /// Restarts the clocks: the deadline moves by the time for which they were stopped, and the idle time begins anew.
    pub(super) fn start_clocks(&mut self, now_us: i64) {
        let stopped = self.stopped_us(now_us);
        if self.clocks_stopped_us.take().is_none() {
            return;
        }
        self.stopped_total_us = self.stopped_total_us.saturating_add(stopped);
        self.deadline_us = self.deadline_us.map(|deadline| deadline.saturating_add(stopped));
        let later = |at: Option<i64>| at.map(|at| at.max(now_us));
        self.last_work_us = later(self.last_work_us);
        self.last_observed_work_us = later(self.last_observed_work_us);
        self.last_heartbeat_us = later(self.last_heartbeat_us);
    }
}

impl Store {
    /// Records that the clocks of a running run are stopped. The beginning of a pause appends an event.
    ///
    /// # Errors
    /// As of [`Store::step_sandbox`].
    pub async fn stop_clocks(
        &self,
        run_id: &RunId,
        generation: u64,
        why: ClockStop,
        now_us: i64,
    ) -> Result<Sandbox, SandboxError> {
        self.change_sandbox(run_id, generation, move |transaction, mut sandbox| {
            if !matches!(sandbox.state, SandboxState::Running | SandboxState::Completing) || sandbox.verdict.is_some() {
                return Err(IllegalStep { state: sandbox.state, step: "pause" }.into());
            }
            sandbox.clocks_stopped_us.get_or_insert(now_us);
            let is_new = why == ClockStop::Paused && sandbox.paused_us.is_none();
            if is_new {
                sandbox.paused_us = Some(now_us);
            }
            update(transaction, &mut sandbox)?;
            let seq = is_new.then(|| report(transaction, &sandbox, "run.paused", &json!({}), now_us)).transpose()?;
            Ok((sandbox, seq))
        })
        .await
    }

    /// Records that a run is no longer paused. Its clocks continue, unless another reason stops them.
    ///
    /// # Errors
    /// As of [`Store::step_sandbox`].
    pub async fn end_pause(
        &self,
        run_id: &RunId,
        generation: u64,
        still: Option<ClockStop>,
        now_us: i64,
    ) -> Result<Sandbox, SandboxError> {
        self.change_sandbox(run_id, generation, move |transaction, mut sandbox| {
            let was_paused = sandbox.paused_us.take().is_some();
            if still.is_none() {
                sandbox.start_clocks(now_us);
            }
            update(transaction, &mut sandbox)?;
            let seq =
                was_paused.then(|| report(transaction, &sandbox, "run.resumed", &json!({}), now_us)).transpose()?;
            Ok((sandbox, seq))
        })
        .await
    }

    /// Records that the owner of a running run wants to pause it, or to resume it.
    ///
    /// # Errors
    /// As of [`Store::step_sandbox`]; [`SandboxError::IllegalStep`] for a run that does not work, or that is about to end.
    pub async fn want_pause(
        &self,
        run_id: &RunId,
        generation: u64,
        wanted: DesiredState,
        step: &'static str,
    ) -> Result<Sandbox, SandboxError> {
        self.change_sandbox(run_id, generation, move |transaction, mut sandbox| {
            let can_change = matches!(sandbox.state, SandboxState::Running | SandboxState::Completing)
                && sandbox.verdict.is_none()
                && sandbox.desired_state != DesiredState::Stopped
                && sandbox.desired_state != wanted;
            if !can_change {
                return Err(IllegalStep { state: sandbox.state, step }.into());
            }
            sandbox.desired_state = wanted;
            update(transaction, &mut sandbox)?;
            Ok((sandbox, None))
        })
        .await
    }
}

/// Returns whether a run works, so that it can have approvals and questions.
pub(crate) fn works(sandbox: &Sandbox) -> bool {
    sandbox.state.is_active() && sandbox.verdict.is_none()
}
