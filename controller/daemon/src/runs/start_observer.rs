//! Reports that the program of a run has started.

use std::sync::Arc;

use sluice_runs::observer::{Observation, Observer};
use sluice_state::run::Phase;
use tokio::sync::mpsc;

/// Reports that the program of a run has started.
#[derive(Debug)]
struct StartObserver(mpsc::UnboundedSender<()>);

impl Observer for StartObserver {
    fn observe(&self, observation: Observation<'_>) {
        if let Observation::Entered { phase: Phase::Running, .. } = observation {
            // Nobody waits for it after the end of the attempt.
            let _ = self.0.send(());
        }
    }
}

/// Returns an observer, and what receives its report.
pub(super) fn start_observer() -> (Arc<dyn Observer>, mpsc::UnboundedReceiver<()>) {
    let (sender, started) = mpsc::unbounded_channel();
    (Arc::new(StartObserver(sender)), started)
}
