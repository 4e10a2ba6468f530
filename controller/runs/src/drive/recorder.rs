//! Records the state of a driven run in the database.

use sluice_contract::Witness;
use sluice_contract::text::error_chain;
use sluice_state::process::Process;
use sluice_state::run::{Run, RunPhase, RunStep, RunVerdict, StepFailure};
use sluice_state::store::StoreError;

use super::DriveContext;
use crate::resources::RunSnapshot;

/// Writes the state of a run when it has changed, and the witness of each new line of its audit file.
pub(super) struct Recorder {
    recorded: Option<(RunPhase, Option<RunVerdict>, Option<Process>)>,
    record_error: Option<String>,
    /// Witness of the last line that was read and is not recorded; it also covers all lines before it.
    pending_witness: Option<Witness>,
    witness_error: Option<String>,
}

impl Recorder {
    /// Starts with a line of the audit file that is not recorded yet.
    pub(super) fn new(pending_witness: Option<Witness>) -> Self {
        Self { recorded: None, record_error: None, pending_witness, witness_error: None }
    }

    /// Records the run. The lines of its audit file come first, and an error there does not end the run: on a full disk the
    /// audit log reports its own failure, and the run stays alive to receive that.
    pub(super) async fn record(
        &mut self,
        run: &Run,
        snapshot: &RunSnapshot,
        context: &DriveContext,
    ) -> Result<(), StoreError> {
        self.record_witness(snapshot.witness, context).await;
        let sidecar = snapshot.sidecar.as_ref();
        // A change of the sidecar's process is recorded only while another controller may have to find it.
        let state = Some((run.phase, run.verdict.clone(), sidecar.filter(|_| run.verdict.is_none()).cloned()));
        if state != self.recorded {
            let result = context.host.store.record(&context.key, context.generation, run, sidecar).await;
            self.record_error = result.as_ref().err().map(|error| error_chain(error));
            result?;
            self.recorded = state;
        }
        Ok(())
    }

    async fn record_witness(&mut self, witness: Option<Witness>, context: &DriveContext) {
        self.pending_witness = witness.or(self.pending_witness);
        if let Some(witness) = self.pending_witness {
            let result = context.host.store.add_witness(&context.key, witness).await;
            self.witness_error = result.err().map(|error| error_chain(&error));
            self.pending_witness = self.pending_witness.filter(|_| self.witness_error.is_some());
        }
    }

    /// Returns the run. It is not closed if a part of it could not be recorded.
    pub(super) fn finish(self, mut run: Run) -> Run {
        if let Some(message) = self.record_error.or(self.witness_error) {
            run.phase = RunPhase::Completing;
            run.teardown_failures.push(StepFailure { step: RunStep::Close, message });
        }
        run
    }
}
