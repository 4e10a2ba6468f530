//! Plans of single states, and of whole runs where any step can fail and the controller can die at any moment.

use proptest::prelude::*;
use sluice_state::run::{Cancel, ContainerExit, RunEvent, RunVerdict, StepFailure};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);
const ABSENT: ObservedState =
    ObservedState { directories: false, sidecar: SidecarState::Absent, container: ContainerState::Absent };

fn run_in(phase: Phase, verdict: Option<RunVerdict>) -> Run {
    Run { phase, verdict, ..Run::new() }
}

#[test]
fn bring_up_starts_the_sidecar_beside_the_container() {
    let pending = Run::new();
    let creating = run_in(Phase::Creating, None);
    let made = ObservedState { directories: true, ..ABSENT };
    let rows = [
        (&pending, ABSENT, NextAction::Perform(vec![Step::Prepare])),
        (&creating, made, NextAction::Perform(vec![Step::StartSidecar, Step::CreateContainer])),
        (
            &creating,
            ObservedState { sidecar: SidecarState::Alive, ..made },
            NextAction::Perform(vec![Step::CreateContainer]),
        ),
        (
            &creating,
            ObservedState { container: ContainerState::Created, ..made },
            NextAction::Perform(vec![Step::StartSidecar]),
        ),
        (
            &creating,
            ObservedState { sidecar: SidecarState::Alive, container: ContainerState::Created, ..made },
            NextAction::Perform(vec![Step::StartContainer]),
        ),
    ];
    for (run, observed, expected) in rows {
        assert_eq!(plan(run, &observed, MINUTE), expected, "{observed:?}");
    }
}

#[test]
fn a_running_container_has_until_its_deadline() {
    let running = run_in(Phase::Running, None);
    let observed =
        ObservedState { directories: true, sidecar: SidecarState::Alive, container: ContainerState::Running };
    assert_eq!(plan(&running, &observed, MINUTE), NextAction::Wait(MINUTE));
    assert_eq!(plan(&running, &observed, Duration::ZERO), NextAction::EndAtDeadline);
}

#[test]
fn teardown_stops_spenders_first_and_closes_last() {
    let completing = run_in(Phase::Completing, Some(RunVerdict::TimedOut));
    let tallied = Run { tallied: true, ..completing.clone() };
    let all = ObservedState { directories: true, sidecar: SidecarState::Alive, container: ContainerState::Running };
    let rows = [
        (&completing, all, vec![Step::StopContainer, Step::DrainSidecar]),
        (&completing, ObservedState { sidecar: SidecarState::Absent, ..all }, vec![Step::StopContainer]),
        (
            &completing,
            ObservedState { container: ContainerState::Exited, ..all },
            vec![Step::RemoveContainer, Step::DrainSidecar],
        ),
        (&completing, ObservedState { container: ContainerState::Absent, ..all }, vec![Step::DrainSidecar]),
        (&completing, ObservedState { directories: true, ..ABSENT }, vec![Step::Tally]),
        (&tallied, ObservedState { directories: true, ..ABSENT }, vec![Step::RemoveDirectories]),
        (&tallied, ABSENT, vec![Step::Close]),
    ];
    for (run, observed, expected) in rows {
        assert_eq!(plan(run, &observed, MINUTE), NextAction::Perform(expected), "{observed:?}");
    }
}

#[test]
fn a_run_that_resists_teardown_is_tallied() {
    let failure = |step| StepFailure { step, message: String::new() };
    let stuck = Run {
        teardown_failures: vec![failure(Step::StopContainer); TEARDOWN_FAILURES_MAX],
        ..run_in(Phase::Completing, Some(RunVerdict::TimedOut))
    };
    let observed =
        ObservedState { directories: true, sidecar: SidecarState::Absent, container: ContainerState::Running };
    assert_eq!(plan(&stuck, &observed, MINUTE), NextAction::Perform(vec![Step::Tally]));
    assert_eq!(plan(&Run { tallied: true, ..stuck.clone() }, &observed, MINUTE), NextAction::GiveUp);
    let unreadable =
        Run { teardown_failures: [stuck.teardown_failures.clone(), vec![failure(Step::Tally)]].concat(), ..stuck };
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
    fn perform(&mut self, step: Step) {
        match step {
            Step::Prepare => self.observed.directories = true,
            Step::StartSidecar => self.observed.sidecar = SidecarState::Alive,
            Step::CreateContainer => self.observed.container = ContainerState::Created,
            Step::StartContainer => {
                self.starts += 1;
                self.started_without_sidecar |= self.observed.sidecar == SidecarState::Absent;
                self.observed.container = ContainerState::Running;
            }
            Step::StopContainer => self.observed.container = ContainerState::Exited,
            Step::DrainSidecar => self.observed.sidecar = SidecarState::Absent,
            Step::Tally => self.tallied_with_writer |= self.observed.sidecar == SidecarState::Alive,
            Step::RemoveContainer => self.observed.container = ContainerState::Absent,
            Step::RemoveDirectories => self.observed.directories = false,
            Step::Close => {}
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
                    run = run.apply(RunEvent::Exited(ContainerExit { code: 0, oom: false })).expect("it was running");
                    continue;
                }
                NextAction::EndAtDeadline => {
                    run = run.apply(RunEvent::DeadlinePassed).expect("it was running");
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
                    Fate::Works => (true, Some(RunEvent::Done(step))),
                    Fate::Fails => (false, Some(RunEvent::Failed(StepFailure { step, message: String::new() }))),
                    Fate::DiesAfter => (true, None),
                    Fate::DiesBefore => (false, None),
                    Fate::LosesSidecar => (true, Some(RunEvent::SidecarEnded)),
                    Fate::Cancelled => (true, Some(RunEvent::Cancelled(Cancel { signal: 2 }))),
                };
                if performed {
                    world.perform(step);
                }
                match event {
                    Some(event @ RunEvent::SidecarEnded) => {
                        world.observed.sidecar = SidecarState::Absent;
                        if run.phase != Phase::Pending {
                            run = run.apply(event).expect("a sidecar can always end");
                        }
                    }
                    Some(event) => run = run.apply(event).expect("steps come from the plan"),
                    None => {
                        // The next controller.
                        taken_down += 1;
                        if run.phase != Phase::Completing {
                            run = run.apply(RunEvent::Orphaned).expect("it was not over");
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
