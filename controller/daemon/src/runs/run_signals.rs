//! Signals of an execution to the task of its run.

use std::sync::Arc;
use std::time::SystemTime;

use sluice_runs::observer::{Observation, Observer};
use sluice_state::run::{RunPhase, RunStep};
use tokio::sync::mpsc;

use crate::live_run::LiveRun;

/// Something that the task of a run acts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunSignal {
    /// The workspace exists, and the program has not started.
    Prepared(SystemTime),
    /// The program has started.
    Started,
    /// No process of the run is left.
    Stopped,
}

/// Passes observations on as signals, and records at once that the run has its result.
#[derive(Debug)]
struct SignalObserver {
    sender: mpsc::UnboundedSender<RunSignal>,
    live: Arc<LiveRun>,
}

impl Observer for SignalObserver {
    fn observe(&self, observation: Observation<'_>) {
        let signal = match observation {
            Observation::StepDone { step: RunStep::Prepare, .. } => RunSignal::Prepared(SystemTime::now()),
            Observation::Entered { phase: RunPhase::Running, .. } => RunSignal::Started,
            Observation::Decided(_) => return self.live.note_decision(),
            Observation::StepDone { step: RunStep::StopContainer | RunStep::RemoveContainer, .. } => RunSignal::Stopped,
            _ => return,
        };
        // After the end of the attempt, no task waits for the signal.
        let _ = self.sender.send(signal);
    }
}

/// Returns an observer of a run, and its signals.
pub(super) fn run_signals(live: &Arc<LiveRun>) -> (Arc<dyn Observer>, mpsc::UnboundedReceiver<RunSignal>) {
    let (sender, signals) = mpsc::unbounded_channel();
    (Arc::new(SignalObserver { sender, live: Arc::clone(live) }), signals)
}
