//! A step that is chosen by the present state of a run.

use rusqlite::TransactionBehavior;
use sluice_contract::RunId;

use super::SandboxError;
use super::change::take_step;
use super::lifecycle::{IllegalStep, SandboxStep};
use super::row::{Sandbox, find};
use crate::events::announce;
use crate::store::Store;

impl Store {
    /// Takes the step that `choose` finds for the present state of a run, if any. The state does not change between the
    /// read and the step. Claims and further attempts have functions of their own. Returns the run as it is then.
    ///
    /// # Errors
    /// [`SandboxError::NotFound`], [`SandboxError::IllegalStep`].
    pub async fn step_sandbox_by(
        &self,
        run_id: &RunId,
        reason: &str,
        choose: impl FnOnce(&Sandbox) -> Option<SandboxStep> + Send + 'static,
        now_us: i64,
    ) -> Result<Sandbox, SandboxError> {
        let (run_id, reason, signal) = (run_id.clone(), reason.to_owned(), self.event_signal());
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let mut sandbox = find(&transaction, &run_id)?.ok_or(SandboxError::NotFound(run_id))?;
            let Some(step) = choose(&sandbox) else { return Ok(sandbox) };
            if matches!(step, SandboxStep::Claim | SandboxStep::Retry | SandboxStep::Reopen) {
                return Err(IllegalStep { state: sandbox.state, step: step.name() }.into());
            }
            let seq = take_step(&transaction, &mut sandbox, &step, &reason, now_us)?;
            transaction.commit()?;
            announce(&signal, seq);
            Ok(sandbox)
        })
        .await
    }
}
