//! A world in which anything can fail, and the controller can die at any moment.

use proptest::prelude::*;
use sluice_state::run::{Cancel, ContainerExit, RunEvent, RunVerdict, StepFailure};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);
const NOTHING: ObservedState =
    ObservedState { directories: false, sidecar: SidecarState::Absent, container: ContainerState::Absent };

fn run_in(phase: Phase, verdict: Option<RunVerdict>) -> Run {
    Run { phase, verdict, ..Run::new() }
}

#[test]
fn the_way_there_makes_the_sidecar_beside_the_container() {
    let pending = Run::new();
    let creating = run_in(Phase::Creating, None);
    let made = ObservedState { directories: true, ..NOTHING };
    let rows = [
        (&pending, NOTHING, Plan::Do(vec![Step::Prepare])),
        (&creating, made, Plan::Do(vec![Step::StartSidecar, Step::CreateContainer])),
        (&creating, ObservedState { sidecar: SidecarState::Alive, ..made }, Plan::Do(vec![Step::CreateContainer])),
        (&creating, ObservedState { container: ContainerState::Created, ..made }, Plan::Do(vec![Step::StartSidecar])),
        (
            &creating,
            ObservedState { sidecar: SidecarState::Alive, container: ContainerState::Created, ..made },
            Plan::Do(vec![Step::StartContainer]),
        ),
    ];
    for (run, seen, expected) in rows {
        assert_eq!(plan(run, &seen, MINUTE), expected, "{seen:?}");
    }
}

#[test]
fn a_running_container_is_waited_for_until_its_time_is_up() {
    let running = run_in(Phase::Running, None);
    let seen = ObservedState { directories: true, sidecar: SidecarState::Alive, container: ContainerState::Running };
    assert_eq!(plan(&running, &seen, MINUTE), Plan::Wait(MINUTE));
    assert_eq!(plan(&running, &seen, Duration::ZERO), Plan::TimeIsUp);
}

#[test]
fn the_way_home_takes_down_what_can_spend_first_and_the_record_last() {
    let home = run_in(Phase::Completing, Some(RunVerdict::TimedOut));
    let told = Run { tallied: true, ..home.clone() };
    let all = ObservedState { directories: true, sidecar: SidecarState::Alive, container: ContainerState::Running };
    let rows = [
        (&home, all, vec![Step::StopContainer, Step::DrainSidecar]),
        (&home, ObservedState { sidecar: SidecarState::Absent, ..all }, vec![Step::StopContainer]),
        (
            &home,
            ObservedState { container: ContainerState::Exited, ..all },
            vec![Step::RemoveContainer, Step::DrainSidecar],
        ),
        (&home, ObservedState { container: ContainerState::Absent, ..all }, vec![Step::DrainSidecar]),
        (&home, ObservedState { directories: true, ..NOTHING }, vec![Step::Tally]),
        (&told, ObservedState { directories: true, ..NOTHING }, vec![Step::RemoveDirectories]),
        (&told, NOTHING, vec![Step::Close]),
    ];
    for (run, seen, expected) in rows {
        assert_eq!(plan(run, &seen, MINUTE), Plan::Do(expected), "{seen:?}");
    }
}

#[test]
fn a_run_that_cannot_be_taken_down_is_tallied_and_then_given_up() {
    let setback = |step| StepFailure { step, message: String::new() };
    let stuck = Run {
        teardown_failures: vec![setback(Step::StopContainer); SETBACKS_MAX],
        ..run_in(Phase::Completing, Some(RunVerdict::TimedOut))
    };
    let seen = ObservedState { directories: true, sidecar: SidecarState::Absent, container: ContainerState::Running };
    assert_eq!(plan(&stuck, &seen, MINUTE), Plan::Do(vec![Step::Tally]));
    assert_eq!(plan(&Run { tallied: true, ..stuck.clone() }, &seen, MINUTE), Plan::GiveUp);
    let unreadable =
        Run { teardown_failures: [stuck.teardown_failures.clone(), vec![setback(Step::Tally)]].concat(), ..stuck };
    assert_eq!(plan(&unreadable, &seen, MINUTE), Plan::GiveUp);
}

/// What the world does to a step.
#[derive(Debug, Clone, Copy)]
enum Luck {
    /// It is done, and recorded.
    Works,
    /// It is not done, and that is recorded.
    Fails,
    /// It is done, and the controller dies before it can write that down.
    DiesAfter,
    /// The controller dies before it.
    DiesBefore,
    /// It is done, and the sidecar dies.
    LosesSidecar,
    /// It is done, and the user loses patience.
    Cancelled,
}

fn luck() -> impl Strategy<Value = Luck> {
    prop_oneof![
        6 => Just(Luck::Works),
        1 => Just(Luck::Fails),
        1 => Just(Luck::DiesAfter),
        1 => Just(Luck::DiesBefore),
        1 => Just(Luck::LosesSidecar),
        1 => Just(Luck::Cancelled),
    ]
}

#[derive(Debug)]
struct World {
    seen: ObservedState,
    starts: u32,
    tallied_with_writer: bool,
    started_without_sidecar: bool,
}

impl World {
    fn perform(&mut self, step: Step) {
        match step {
            Step::Prepare => self.seen.directories = true,
            Step::StartSidecar => self.seen.sidecar = SidecarState::Alive,
            Step::CreateContainer => self.seen.container = ContainerState::Created,
            Step::StartContainer => {
                self.starts += 1;
                self.started_without_sidecar |= self.seen.sidecar == SidecarState::Absent;
                self.seen.container = ContainerState::Running;
            }
            Step::StopContainer => self.seen.container = ContainerState::Exited,
            Step::DrainSidecar => self.seen.sidecar = SidecarState::Absent,
            Step::Tally => self.tallied_with_writer |= self.seen.sidecar == SidecarState::Alive,
            Step::RemoveContainer => self.seen.container = ContainerState::Absent,
            Step::RemoveDirectories => self.seen.directories = false,
            Step::Close => {}
        }
    }
}

proptest! {
    /// Whatever happens, a run comes to its end with nothing left, was started at most once and only beside a
    /// sidecar, and its log was read after its writer had ended.
    #[test]
    fn every_run_comes_home(fortune in prop::collection::vec(luck(), 0..40), works in any::<bool>()) {
        let mut world = World { seen: NOTHING, starts: 0, tallied_with_writer: false, started_without_sidecar: false };
        let mut run = Run::new();
        let mut fortune = fortune.into_iter();
        let mut taken_down = 0;
        for _ in 0..200 {
            let steps = match plan(&run, &world.seen, if works { MINUTE } else { Duration::ZERO }) {
                Plan::Do(steps) => steps,
                Plan::Wait(_) => {
                    world.seen.container = ContainerState::Exited;
                    run = run.apply(RunEvent::Exited(ContainerExit { code: 0, oom: false })).expect("it was running");
                    continue;
                }
                Plan::TimeIsUp => {
                    run = run.apply(RunEvent::DeadlinePassed).expect("it was running");
                    continue;
                }
                Plan::Over => break,
                Plan::GiveUp => {
                    // A sweep comes by.
                    run.teardown_failures.clear();
                    continue;
                }
            };
            for step in steps {
                let (performed, event) = match fortune.next().unwrap_or(Luck::Works) {
                    Luck::Works => (true, Some(RunEvent::Done(step))),
                    Luck::Fails => (false, Some(RunEvent::Failed(StepFailure { step, message: String::new() }))),
                    Luck::DiesAfter => (true, None),
                    Luck::DiesBefore => (false, None),
                    Luck::LosesSidecar => (true, Some(RunEvent::SidecarEnded)),
                    Luck::Cancelled => (true, Some(RunEvent::Cancelled(Cancel { signal: 2 }))),
                };
                if performed {
                    world.perform(step);
                }
                match event {
                    Some(event @ RunEvent::SidecarEnded) => {
                        world.seen.sidecar = SidecarState::Absent;
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
        prop_assert_eq!(plan(&run, &world.seen, MINUTE), Plan::Over, "after {} deaths: {:?}", taken_down, run);
        prop_assert_eq!(world.seen, NOTHING);
        prop_assert!(world.starts <= 1);
        prop_assert!(!world.started_without_sidecar);
        prop_assert!(!world.tallied_with_writer);
    }
}
