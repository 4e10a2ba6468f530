//! Plans of single states, and of whole runs where any step can fail and the controller can die at any moment.

use proptest::prelude::*;
use sluice_state::run::{Cancel, ContainerExit, RunUpdate, RunVerdict, StepFailure};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);
const ABSENT: ObservedState =
    ObservedState { directories: false, sidecar: SidecarPhase::Absent, container: ContainerState::Absent };

fn run_in(phase: RunPhase, verdict: Option<RunVerdict>) -> Run {
    Run { phase, verdict, ..Run::new() }
}

#[test]
fn bring_up_starts_the_sidecar_beside_the_container() {
    let pending = Run::new();
    let creating = run_in(RunPhase::Creating, None);
    let made = ObservedState { directories: true, ..ABSENT };
    let rows = [
        (&pending, ABSENT, NextAction::Perform(vec![RunStep::Prepare])),
        (&creating, made, NextAction::Perform(vec![RunStep::StartSidecar, RunStep::CreateContainer])),
        (
            &creating,
            ObservedState { sidecar: SidecarPhase::Alive, ..made },
            NextAction::Perform(vec![RunStep::CreateContainer]),
        ),
        (
            &creating,
            ObservedState { container: ContainerState::Created, ..made },
            NextAction::Perform(vec![RunStep::StartSidecar]),
        ),
        (
            &creating,
            ObservedState { sidecar: SidecarPhase::Alive, container: ContainerState::Created, ..made },
            NextAction::Perform(vec![RunStep::StartContainer]),
        ),
    ];
    for (run, observed, expected) in rows {
        assert_eq!(plan(run, &observed, MINUTE), expected, "{observed:?}");
    }
}

#[test]
fn a_running_container_has_until_its_deadline() {
    let running = run_in(RunPhase::Running, None);
    let observed =
        ObservedState { directories: true, sidecar: SidecarPhase::Alive, container: ContainerState::Running };
    assert_eq!(plan(&running, &observed, MINUTE), NextAction::Wait(MINUTE));
    assert_eq!(plan(&running, &observed, Duration::ZERO), NextAction::EndAtDeadline);
}

#[test]
fn teardown_stops_spenders_first_and_closes_last() {
    let completing = run_in(RunPhase::Completing, Some(RunVerdict::TimedOut));
    let tallied = Run { tallied: true, ..completing.clone() };
    let all = ObservedState { directories: true, sidecar: SidecarPhase::Alive, container: ContainerState::Running };
    let rows = [
        (&completing, all, vec![RunStep::StopContainer, RunStep::DrainSidecar]),
        (&completing, ObservedState { sidecar: SidecarPhase::Absent, ..all }, vec![RunStep::StopContainer]),
        (
            &completing,
            ObservedState { container: ContainerState::Exited, ..all },
            vec![RunStep::RemoveContainer, RunStep::DrainSidecar],
        ),
        (&completing, ObservedState { container: ContainerState::Absent, ..all }, vec![RunStep::DrainSidecar]),
        (&completing, ObservedState { directories: true, ..ABSENT }, vec![RunStep::Tally]),
        (&tallied, ObservedState { directories: true, ..ABSENT }, vec![RunStep::RemoveDirectories]),
        (&tallied, ABSENT, vec![RunStep::Close]),
    ];
    for (run, observed, expected) in rows {
        assert_eq!(plan(run, &observed, MINUTE), NextAction::Perform(expected), "{observed:?}");
    }
}

#[test]
fn a_run_that_resists_teardown_is_tallied() {
    let failure = |step| StepFailure { step, message: String::new() };
    let stuck = Run {
        teardown_failures: vec![failure(RunStep::StopContainer); TEARDOWN_FAILURES_MAX],
        ..run_in(RunPhase::Completing, Some(RunVerdict::TimedOut))
    };
    let observed =
        ObservedState { directories: true, sidecar: SidecarPhase::Absent, container: ContainerState::Running };
    assert_eq!(plan(&stuck, &observed, MINUTE), NextAction::Perform(vec![RunStep::Tally]));
    assert_eq!(plan(&Run { tallied: true, ..stuck.clone() }, &observed, MINUTE), NextAction::GiveUp);
    let unreadable =
        Run { teardown_failures: [stuck.teardown_failures.clone(), vec![failure(RunStep::Tally)]].concat(), ..stuck };
    assert_eq!(plan(&unreadable, &observed, MINUTE), NextAction::GiveUp);
}

/// Fate of a step.
#[derive(Debug, Clone, Copy)]
enum Fate {
    /// Done and recorded.
    Works,
    /// Not done, and recorded as failed.
    Fails,
    /// Done, but the controller dies before the record.
    DiesAfter,
    /// Not done, since the controller dies before.
    DiesBefore,
    /// Done, and the sidecar dies.
    LosesSidecar,
    /// Done, and the user cancels the run.
    Cancelled,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        6 => Just(Fate::Works),
        1 => Just(Fate::Fails),
        1 => Just(Fate::DiesAfter),
        1 => Just(Fate::DiesBefore),
        1 => Just(Fate::LosesSidecar),
        1 => Just(Fate::Cancelled),
    ]
}

#[derive(Debug)]
struct World {
    observed: ObservedState,
    starts: u32,
    tallied_with_writer: bool,
    started_without_sidecar: bool,
}

impl World {
    fn perform(&mut self, step: RunStep) {
        match step {
            RunStep::Prepare => self.observed.directories = true,
            RunStep::StartSidecar => self.observed.sidecar = SidecarPhase::Alive,
            RunStep::CreateContainer => self.observed.container = ContainerState::Created,
            RunStep::StartContainer => {
                self.starts += 1;
                self.started_without_sidecar |= self.observed.sidecar == SidecarPhase::Absent;
                self.observed.container = ContainerState::Running;
            }
            RunStep::StopContainer => self.observed.container = ContainerState::Exited,
            RunStep::DrainSidecar => self.observed.sidecar = SidecarPhase::Absent,
            RunStep::Tally => self.tallied_with_writer |= self.observed.sidecar == SidecarPhase::Alive,
            RunStep::RemoveContainer => self.observed.container = ContainerState::Absent,
            RunStep::RemoveDirectories => self.observed.directories = false,
            RunStep::Close => {}
        }
    }
}

proptest! {
    /// Every run ends without resources. It was started at most once and only beside a sidecar, and its audit log was read
    /// after the sidecar had ended.
    #[test]
    fn every_run_ends_with_nothing_left(fates in prop::collection::vec(fate(), 0..40), works in any::<bool>()) {
        let mut world = World { observed: ABSENT, starts: 0, tallied_with_writer: false, started_without_sidecar: false };
        let mut run = Run::new();
        let mut fates = fates.into_iter();
        let mut taken_down = 0;
        for _ in 0..200 {
            let steps = match plan(&run, &world.observed, if works { MINUTE } else { Duration::ZERO }) {
                NextAction::Perform(steps) => steps,
                NextAction::Wait(_) => {
                    world.observed.container = ContainerState::Exited;
                    run = run.apply(RunUpdate::Exited(ContainerExit { code: 0, oom: false })).expect("it was running");
                    continue;
                }
                NextAction::EndAtDeadline => {
                    run = run.apply(RunUpdate::DeadlinePassed).expect("it was running");
                    continue;
                }
                NextAction::Finish => break,
                NextAction::GiveUp => {
                    // A sweep tries again.
                    run.teardown_failures.clear();
                    continue;
                }
            };
            for step in steps {
                let (performed, event) = match fates.next().unwrap_or(Fate::Works) {
                    Fate::Works => (true, Some(RunUpdate::Done(step))),
                    Fate::Fails => (false, Some(RunUpdate::Failed(StepFailure { step, message: String::new() }))),
                    Fate::DiesAfter => (true, None),
                    Fate::DiesBefore => (false, None),
                    Fate::LosesSidecar => (true, Some(RunUpdate::SidecarEnded)),
                    Fate::Cancelled => (true, Some(RunUpdate::Cancelled(Cancel { signal: 2 }))),
                };
                if performed {
                    world.perform(step);
                }
                match event {
                    Some(event @ RunUpdate::SidecarEnded) => {
                        world.observed.sidecar = SidecarPhase::Absent;
                        if run.phase != RunPhase::Pending {
                            run = run.apply(event).expect("a sidecar can always end");
                        }
                    }
                    Some(event) => run = run.apply(event).expect("steps come from the plan"),
                    None => {
                        // The next controller adopts the run.
                        taken_down += 1;
                        if run.phase != RunPhase::Completing {
                            run = run.apply(RunUpdate::Orphaned).expect("it was not over");
                        }
                        break;
                    }
                }
            }
        }
        prop_assert_eq!(plan(&run, &world.observed, MINUTE), NextAction::Finish, "after {} deaths: {:?}", taken_down, run);
        prop_assert_eq!(world.observed, ABSENT);
        prop_assert!(world.starts <= 1);
        prop_assert!(!world.started_without_sidecar);
        prop_assert!(!world.tallied_with_writer);
    }
}
