//! The next action of a run.
//!
//! Pure: the record, the observed state and the remaining time go in, an action comes out. A controller that starts
//! again after a crash plans from the same three, so recovery has no code of its own.

use std::time::Duration;

use sluice_state::run::{Run, RunPhase, RunStep};

/// Resources of a run that exist now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObservedState {
    /// True if the run's directories exist.
    pub directories: bool,
    /// The sidecar.
    pub sidecar: SidecarPhase,
    /// The container.
    pub container: ContainerState,
}

/// State of a sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SidecarPhase {
    /// Never started, or ended.
    Absent,
    /// Running.
    Alive,
}

/// State of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerState {
    /// Does not exist.
    Absent,
    /// Created, and never started.
    Created,
    /// Running.
    Running,
    /// Ended.
    Exited,
}

/// The next action of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextAction {
    /// Perform these steps side by side: none needs another's result.
    Perform(Vec<RunStep>),
    /// Wait until something changes, but no longer than this.
    Wait(Duration),
    /// Stop the run: its deadline has passed.
    EndAtDeadline,
    /// Nothing: the run is over.
    Finish,
    /// Nothing: a later sweep takes down the rest.
    GiveUp,
}

/// Number of failed teardown steps after which the rest is left to a sweep.
pub const TEARDOWN_FAILURES_MAX: usize = 3;

/// Returns the next action of a run with this much time left.
#[must_use]
pub fn plan(run: &Run, observed: &ObservedState, remaining: Duration) -> NextAction {
    match (run.phase, &run.verdict) {
        (RunPhase::Closed, _) => NextAction::Finish,
        (RunPhase::Completing, _) | (_, Some(_)) => teardown(run, observed),
        (RunPhase::Pending | RunPhase::Creating | RunPhase::Running, None) => bring_up(run, observed, remaining),
    }
}

fn bring_up(run: &Run, observed: &ObservedState, remaining: Duration) -> NextAction {
    if run.phase == RunPhase::Running {
        return if remaining.is_zero() { NextAction::EndAtDeadline } else { NextAction::Wait(remaining) };
    }
    if !observed.directories {
        return NextAction::Perform(vec![RunStep::Prepare]);
    }
    let mut missing = Vec::new();
    if observed.sidecar == SidecarPhase::Absent {
        missing.push(RunStep::StartSidecar);
    }
    if observed.container == ContainerState::Absent {
        missing.push(RunStep::CreateContainer);
    }
    NextAction::Perform(if missing.is_empty() { vec![RunStep::StartContainer] } else { missing })
}

/// Takes down the existing resources: first those that can still spend money, last those that the record needs.
fn teardown(run: &Run, observed: &ObservedState) -> NextAction {
    if run.teardown_failures.len() >= TEARDOWN_FAILURES_MAX {
        // The audit file still shows the cost of the run, once its writer has ended.
        let has_failed = run.teardown_failures.iter().any(|failure| failure.step == RunStep::Tally);
        let can_tally = observed.sidecar == SidecarPhase::Absent && !run.tallied && !has_failed;
        return if can_tally { NextAction::Perform(vec![RunStep::Tally]) } else { NextAction::GiveUp };
    }
    let mut existing = Vec::new();
    match observed.container {
        // A program that was asked to stop makes no more calls.
        ContainerState::Running => existing.push(RunStep::StopContainer),
        ContainerState::Created | ContainerState::Exited => existing.push(RunStep::RemoveContainer),
        ContainerState::Absent => {}
    }
    if observed.sidecar == SidecarPhase::Alive {
        existing.push(RunStep::DrainSidecar);
    }
    if !existing.is_empty() {
        return NextAction::Perform(existing);
    }
    // The audit log is complete once its writer has ended.
    NextAction::Perform(vec![match (run.tallied, observed.directories) {
        (false, _) => RunStep::Tally,
        (true, true) => RunStep::RemoveDirectories,
        (true, false) => RunStep::Close,
    }])
}

#[cfg(test)]
mod tests;
