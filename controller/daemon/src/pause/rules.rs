//! The next step of a pause.
//!
//! Pure. The open calls end first. Then waiting calls get the answer to retry later. A second after that, the container
//! is frozen, if no call is open or waits and no tool works: a client that is frozen during a call would find its timer
//! expired, and a tool would find its time used up.

use std::time::Duration;

/// Reason for a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Cause {
    /// A person or a rule wants it.
    Pause,
    /// A call waits for an approval.
    Approval,
}

/// State of the sidecar's gate: new calls pass, or they wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum GateState {
    /// This daemon has neither opened nor closed the gate yet.
    Unknown,
    Open,
    Closed,
    /// The sidecar is of an older version, and has no gate.
    Missing,
}

/// Observed state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PauseView {
    pub(super) cause: Option<Cause>,
    pub(super) gate: GateState,
    /// True if its clocks are stopped.
    pub(super) clocks_stopped: bool,
    /// True if its row says that it is paused.
    pub(super) is_marked: bool,
    pub(super) is_frozen: bool,
    /// Calls in progress.
    pub(super) open_calls: u64,
    /// Requests that wait in the sidecar now.
    pub(super) waiting: u64,
    /// Time since a call was last seen open or waiting.
    pub(super) quiet: Duration,
    /// True while a tool works, or a client waits that would not retry.
    pub(super) is_at_work: bool,
    /// Time since the container could not be frozen.
    pub(super) failed: Option<Duration>,
}

/// A step of the keeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PauseStep {
    CloseGate,
    OpenGate,
    /// Records the pause, and stops the clocks.
    Mark(Cause),
    /// Records the end of the pause, and restarts the clocks.
    Unmark,
    /// Answers every waiting call with a request to retry later.
    AnswerLater,
    Freeze,
    Thaw,
    /// Checks again after this time.
    Look(Duration),
    /// Waits until something is wanted.
    Rest,
}

/// Time after the last answer before the container is frozen: the client has read it then.
const QUIET: Duration = Duration::from_secs(1);
/// Time between two checks of a sidecar.
const LOOK: Duration = Duration::from_millis(200);
/// Time between two checks of calls that wait for an approval.
const HELD_LOOK: Duration = Duration::from_millis(500);
/// Time between two checks of a paused run.
const SLOW_LOOK: Duration = Duration::from_secs(2);
/// Time after which freezing is tried again.
const AGAIN: Duration = Duration::from_secs(2);

/// Returns the next step.
pub(super) fn next_step(view: &PauseView) -> PauseStep {
    match view.cause {
        None => release(view),
        Some(Cause::Pause) => pause(view),
        Some(Cause::Approval) => hold(view),
    }
}

fn release(view: &PauseView) -> PauseStep {
    if view.is_frozen {
        PauseStep::Thaw
    } else if view.is_marked || view.clocks_stopped {
        PauseStep::Unmark
    } else if matches!(view.gate, GateState::Closed | GateState::Unknown) {
        PauseStep::OpenGate
    } else {
        PauseStep::Rest
    }
}

fn pause(view: &PauseView) -> PauseStep {
    match view.gate {
        GateState::Open | GateState::Unknown => return PauseStep::CloseGate,
        GateState::Closed | GateState::Missing => {}
    }
    if view.is_frozen {
        return frozen(view, PauseStep::Mark(Cause::Pause));
    }
    if view.open_calls > 0 {
        return PauseStep::Look(LOOK);
    }
    if !view.is_marked || !view.clocks_stopped {
        return PauseStep::Mark(Cause::Pause);
    }
    if view.waiting > 0 {
        // While a tool works, the container is not frozen, and a client would retry only to wait again.
        return if view.is_at_work { PauseStep::Look(SLOW_LOOK) } else { PauseStep::AnswerLater };
    }
    freeze_when_quiet(view)
}

fn hold(view: &PauseView) -> PauseStep {
    if view.is_marked {
        // The run was paused as well, and no longer is.
        return if view.is_frozen { PauseStep::Thaw } else { PauseStep::Unmark };
    }
    if view.gate == GateState::Closed || view.gate == GateState::Unknown {
        return PauseStep::OpenGate;
    }
    if view.is_frozen {
        return frozen(view, PauseStep::Mark(Cause::Approval));
    }
    if !view.clocks_stopped {
        return PauseStep::Mark(Cause::Approval);
    }
    if view.open_calls > 0 || view.waiting > 0 {
        // After their maximum waiting time, the sidecar itself lets calls retry later; the clients do so after five
        // seconds.
        return PauseStep::Look(HELD_LOOK);
    }
    freeze_when_quiet(view)
}

/// Returns the step for a frozen container: a call that arrived just before the freeze is answered first.
fn frozen(view: &PauseView, mark: PauseStep) -> PauseStep {
    if view.open_calls > 0 || view.waiting > 0 {
        return PauseStep::Thaw;
    }
    let is_marked = view.clocks_stopped && (view.is_marked || view.cause == Some(Cause::Approval));
    if is_marked { PauseStep::Look(SLOW_LOOK) } else { mark }
}

fn freeze_when_quiet(view: &PauseView) -> PauseStep {
    if view.is_at_work {
        return PauseStep::Look(SLOW_LOOK);
    }
    if let Some(failed) = view.failed.filter(|failed| *failed < AGAIN) {
        return PauseStep::Look((AGAIN - failed).min(SLOW_LOOK));
    }
    match QUIET.checked_sub(view.quiet).filter(|left| !left.is_zero()) {
        Some(left) => PauseStep::Look(left),
        None => PauseStep::Freeze,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VIEW: PauseView = PauseView {
        cause: Some(Cause::Pause),
        gate: GateState::Closed,
        clocks_stopped: true,
        is_marked: true,
        is_frozen: false,
        open_calls: 0,
        waiting: 0,
        quiet: QUIET,
        is_at_work: false,
        failed: None,
    };

    #[test]
    fn a_pause_goes_step_by_step() {
        let fresh = PauseView { gate: GateState::Open, clocks_stopped: false, is_marked: false, ..VIEW };
        let soon = Duration::from_millis(400);
        for (view, expected) in [
            (fresh, PauseStep::CloseGate),
            (PauseView { gate: GateState::Unknown, ..fresh }, PauseStep::CloseGate),
            (PauseView { gate: GateState::Closed, open_calls: 1, ..fresh }, PauseStep::Look(LOOK)),
            (PauseView { gate: GateState::Closed, ..fresh }, PauseStep::Mark(Cause::Pause)),
            (PauseView { gate: GateState::Missing, ..fresh }, PauseStep::Mark(Cause::Pause)),
            (PauseView { waiting: 2, ..VIEW }, PauseStep::AnswerLater),
            (PauseView { waiting: 2, is_at_work: true, ..VIEW }, PauseStep::Look(SLOW_LOOK)),
            (PauseView { quiet: QUIET - soon, ..VIEW }, PauseStep::Look(soon)),
            (PauseView { is_at_work: true, ..VIEW }, PauseStep::Look(SLOW_LOOK)),
            (PauseView { failed: Some(Duration::ZERO), ..VIEW }, PauseStep::Look(SLOW_LOOK)),
            (PauseView { failed: Some(AGAIN), ..VIEW }, PauseStep::Freeze),
            (VIEW, PauseStep::Freeze),
            (PauseView { is_frozen: true, ..VIEW }, PauseStep::Look(SLOW_LOOK)),
            (PauseView { is_frozen: true, waiting: 1, ..VIEW }, PauseStep::Thaw),
        ] {
            assert_eq!(next_step(&view), expected, "{view:?}");
        }
    }

    #[test]
    fn an_approval_waits_for_the_sidecars_answer() {
        let held = PauseView { cause: Some(Cause::Approval), gate: GateState::Open, is_marked: false, ..VIEW };
        for (view, expected) in [
            (PauseView { clocks_stopped: false, ..held }, PauseStep::Mark(Cause::Approval)),
            (PauseView { waiting: 1, ..held }, PauseStep::Look(HELD_LOOK)),
            (PauseView { open_calls: 1, ..held }, PauseStep::Look(HELD_LOOK)),
            (held, PauseStep::Freeze),
            (PauseView { is_frozen: true, ..held }, PauseStep::Look(SLOW_LOOK)),
            (PauseView { is_frozen: true, is_marked: true, ..held }, PauseStep::Thaw),
            (PauseView { is_marked: true, gate: GateState::Closed, ..held }, PauseStep::Unmark),
            (PauseView { gate: GateState::Closed, ..held }, PauseStep::OpenGate),
        ] {
            assert_eq!(next_step(&view), expected, "{view:?}");
        }
    }

    #[test]
    fn a_run_that_goes_on_is_thawed_first() {
        let free = PauseView { cause: None, ..VIEW };
        for (view, expected) in [
            (PauseView { is_frozen: true, ..free }, PauseStep::Thaw),
            (free, PauseStep::Unmark),
            (PauseView { is_marked: false, ..free }, PauseStep::Unmark),
            (PauseView { is_marked: false, clocks_stopped: false, ..free }, PauseStep::OpenGate),
            (PauseView { is_marked: false, clocks_stopped: false, gate: GateState::Open, ..free }, PauseStep::Rest),
            (PauseView { is_marked: false, clocks_stopped: false, gate: GateState::Missing, ..free }, PauseStep::Rest),
        ] {
            assert_eq!(next_step(&view), expected, "{view:?}");
        }
    }

    fn view() -> impl Strategy<Value = PauseView> {
        let cause = proptest::sample::select(vec![None, Some(Cause::Pause), Some(Cause::Approval)]);
        let gate =
            proptest::sample::select(vec![GateState::Unknown, GateState::Open, GateState::Closed, GateState::Missing]);
        let flags = proptest::array::uniform4(any::<bool>());
        (cause, gate, flags, 0..3u64, 0..3u64, 0..3000u64, proptest::option::of(0..20_000u64)).prop_map(
            |(cause, gate, [clocks_stopped, is_marked, is_frozen, is_at_work], open_calls, waiting, quiet, failed)| {
                let quiet = Duration::from_millis(quiet);
                let failed = failed.map(Duration::from_millis);
                PauseView {
                    cause,
                    gate,
                    clocks_stopped,
                    is_marked,
                    is_frozen,
                    open_calls,
                    waiting,
                    quiet,
                    is_at_work,
                    failed,
                }
            },
        )
    }

    /// Performs a step as if it succeeds, and nothing else happens.
    fn done(view: PauseView, step: PauseStep) -> PauseView {
        match step {
            PauseStep::CloseGate => PauseView { gate: GateState::Closed, ..view },
            PauseStep::OpenGate => PauseView { gate: GateState::Open, ..view },
            PauseStep::Mark(cause) => {
                PauseView { clocks_stopped: true, is_marked: view.is_marked || cause == Cause::Pause, ..view }
            }
            PauseStep::Unmark => {
                PauseView { is_marked: false, clocks_stopped: view.cause == Some(Cause::Approval), ..view }
            }
            PauseStep::AnswerLater => PauseView { waiting: 0, quiet: Duration::ZERO, ..view },
            PauseStep::Freeze => PauseView { is_frozen: true, ..view },
            PauseStep::Thaw => PauseView { is_frozen: false, quiet: Duration::ZERO, ..view },
            // Calls end, tools end, time passes.
            PauseStep::Look(time) => PauseView {
                open_calls: 0,
                waiting: if view.cause == Some(Cause::Approval) { 0 } else { view.waiting },
                is_at_work: false,
                quiet: view.quiet + time,
                failed: view.failed.map(|failed| failed + time),
                ..view
            },
            PauseStep::Rest => view,
        }
    }

    proptest! {
        #[test]
        fn nothing_is_frozen_while_something_works(view in view()) {
            if next_step(&view) == PauseStep::Freeze {
                prop_assert!(view.open_calls == 0 && view.waiting == 0 && !view.is_at_work && view.quiet >= QUIET);
                prop_assert!(view.cause.is_some() && view.clocks_stopped);
            }
        }

        #[test]
        fn each_run_comes_to_what_is_wanted(start in view()) {
            let mut view = start;
            for _ in 0..60 {
                view = done(view, next_step(&view));
            }
            let is_wanted = match view.cause {
                None => !view.is_frozen && !view.is_marked && !view.clocks_stopped && view.gate != GateState::Closed,
                Some(Cause::Pause) => view.is_frozen && view.is_marked && view.clocks_stopped && view.gate != GateState::Open,
                Some(Cause::Approval) => view.is_frozen && !view.is_marked && view.clocks_stopped && view.gate != GateState::Closed,
            };
            prop_assert!(is_wanted, "{:?} came to {:?}", start, view);
        }
    }
}
