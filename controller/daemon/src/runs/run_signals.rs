//! Signals of an execution to the task of its run.

use std::sync::Arc;
use std::time::SystemTime;

use sluice_runs::observer::{Observation, Observer};
use sluice_state::run::{RunPhase, RunStep};
use tokio::sync::mpsc;

/// Something that the task of a run acts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunSignal {
    /// The workspace exists, and the program has not started.
    Prepared(SystemTime),
    /// The program has started.
    Started,
    /// The run has its result; its teardown begins.
    Decided,
    /// No process of the run is left.
    Stopped,
}

/// Passes observations on as signals.
#[derive(Debug)]
struct SignalObserver(mpsc::UnboundedSender<RunSignal>);

impl Observer for SignalObserver {
    fn observe(&self, observation: Observation<'_>) {
        let signal = match observation {
            Observation::StepDone { step: RunStep::Prepare, .. } => RunSignal::Prepared(SystemTime::now()),
            Observation::Entered { phase: RunPhase::Running, .. } => RunSignal::Started,
            Observation::Decided(_) => RunSignal::Decided,
            Observation::StepDone { step: RunStep::StopContainer | RunStep::RemoveContainer, .. } => RunSignal::Stopped,
            _ => return,
        };
        // After the end of the attempt, no task waits for the signal.
        let _ = self.0.send(signal);
    }
}

/// Returns an observer of a run, and its signals.
pub(super) fn run_signals() -> (Arc<dyn Observer>, mpsc::UnboundedReceiver<RunSignal>) {
    let (sender, signals) = mpsc::unbounded_channel();
    (Arc::new(SignalObserver(sender)), signals)
}
