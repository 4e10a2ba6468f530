//! One run, started and completed by this process.

use std::sync::Arc;

use sluice_state::budget::Admitted;
use sluice_state::run::Cancel;
use sluice_state::store::StoreError;
use tokio::sync::watch;

pub use crate::admission::{RunRequest, admit, check};
use crate::engine::{OutputConfig, StdioConfig};
use crate::execution::Execution;
use crate::forward::Printer;
use crate::host::Host;
use crate::observer::Observer;
use crate::outcome::CompletedRun;
use crate::record::RunRecorder;
use crate::stop::StopPolicy;

/// An admitted run with all its resources. It owns them, so that a task can run it.
#[derive(Debug)]
#[allow(missing_docs, reason = "named like their types")]
pub struct OneShot {
    pub host: Arc<Host>,
    pub request: RunRequest,
    pub admitted: Admitted,
    pub output: StdioConfig,
    /// Writes the forwarded output.
    pub printer: Option<Printer>,
    pub stop: StopPolicy,
    /// Writes the record of the run, if it has one.
    pub recorder: Option<RunRecorder>,
    pub observer: Arc<dyn Observer>,
}

/// Runs it, from its admission to its last record.
///
/// # Errors
/// [`StoreError`] when its record cannot be written.
pub async fn run(
    one_shot: OneShot,
    mut cancelled: watch::Receiver<Option<Cancel>>,
) -> Result<CompletedRun, StoreError> {
    let OneShot { host, request, admitted, mut output, printer, stop, recorder, observer } = one_shot;
    if let Some(recorder) = &recorder {
        output.record = recorder.output();
    }
    let output = OutputConfig::Attached(output);
    Execution {
        host,
        request,
        admitted,
        generation: 0,
        output,
        printer,
        stop,
        clock: Arc::default(),
        recorder,
        observer,
    }
    .complete(&mut cancelled)
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn require_task<T: Send + 'static>(_: &T) {}

    #[test]
    fn a_task_can_own_a_run() {
        // Compiles only if the future of a run is Send and borrows nothing.
        let _ = |one_shot: OneShot, cancelled: watch::Receiver<Option<Cancel>>| require_task(&run(one_shot, cancelled));
    }
}
