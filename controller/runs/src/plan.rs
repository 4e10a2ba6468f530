//! What to do next.
//!
//! Pure: the record, what is seen of the world, and the time go in; steps come out. A controller that comes back
//! after a crash plans from the same three, so recovery has no code of its own.

use std::time::Duration;

use sluice_state::run::{Phase, Run, Step};

/// What exists of a run right now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObservedState {
    /// Its directories.
    pub directories: bool,
    /// Its sidecar.
    pub sidecar: SidecarState,
    /// Its container.
    pub container: ContainerState,
}

/// The sidecar, as seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SidecarState {
    /// Never started, or ended.
    Absent,
    /// It lives.
    Alive,
}

/// The container, as seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerState {
    /// There is none.
    Absent,
    /// Created, never started.
    Created,
    /// It runs.
    Running,
    /// It ended.
    Exited,
}

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// These, side by side: none needs another's result.
    Do(Vec<Step>),
    /// Nothing, until something happens or this much time has gone.
    Wait(Duration),
    /// The run has taken all the time it may.
    TimeIsUp,
    /// Nothing: the run is over.
    Over,
    /// Nothing more: what cannot be taken down now is left to a sweep.
    GiveUp,
}

/// How many steps of taking down may fail before it is left to a sweep.
pub const SETBACKS_MAX: usize = 3;

/// What to do next about a run that may take so much longer.
#[must_use]
pub fn plan(run: &Run, seen: &ObservedState, left: Duration) -> Plan {
    match (run.phase, &run.verdict) {
        (Phase::Closed, _) => Plan::Over,
        (Phase::Completing, _) | (_, Some(_)) => home(run, seen),
        (Phase::Pending | Phase::Creating | Phase::Running, None) => forward(run, seen, left),
    }
}

fn forward(run: &Run, seen: &ObservedState, left: Duration) -> Plan {
    if run.phase == Phase::Running {
        return if left.is_zero() { Plan::TimeIsUp } else { Plan::Wait(left) };
    }
    if !seen.directories {
        return Plan::Do(vec![Step::Prepare]);
    }
    let mut missing = Vec::new();
    if seen.sidecar == SidecarState::Absent {
        missing.push(Step::StartSidecar);
    }
    if seen.container == ContainerState::Absent {
        missing.push(Step::CreateContainer);
    }
    Plan::Do(if missing.is_empty() { vec![Step::StartContainer] } else { missing })
}

/// Takes down what is there: first what can still spend money, last what the record is needed for.
fn home(run: &Run, seen: &ObservedState) -> Plan {
    if run.teardown_failures.len() >= SETBACKS_MAX {
        // What it cost is known all the same, once its log has ended.
        let tried = run.teardown_failures.iter().any(|failure| failure.step == Step::Tally);
        let can_tell = seen.sidecar == SidecarState::Absent && !run.tallied && !tried;
        return if can_tell { Plan::Do(vec![Step::Tally]) } else { Plan::GiveUp };
    }
    let mut left = Vec::new();
    match seen.container {
        // A program that is told to stop has no more calls to make.
        ContainerState::Running => left.push(Step::StopContainer),
        ContainerState::Created | ContainerState::Exited => left.push(Step::RemoveContainer),
        ContainerState::Absent => {}
    }
    if seen.sidecar == SidecarState::Alive {
        left.push(Step::DrainSidecar);
    }
    if !left.is_empty() {
        return Plan::Do(left);
    }
    // The log is complete once its writer has ended.
    Plan::Do(vec![match (run.tallied, seen.directories) {
        (false, _) => Step::Tally,
        (true, true) => Step::RemoveDirectories,
        (true, false) => Step::Close,
    }])
}

#[cfg(test)]
mod tests;
