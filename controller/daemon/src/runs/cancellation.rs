//! Cancellation of a run in any state.

use sluice_contract::RunId;
use sluice_state::sandboxes::{DesiredState, Sandbox, SandboxError, SandboxState, SandboxStep, SandboxVerdict};
use sluice_state::store::now_us;

use crate::context::ApiContext;

/// Maximum number of tries of a change, if the run changes in between.
const TRIES: usize = 8;

/// Cancels a run. A waiting run has ended afterwards; a working run is about to end.
///
/// # Errors
/// The run does not exist; it changes at each try; errors of the database.
pub(crate) async fn cancel(context: &ApiContext, run_id: &RunId) -> Result<Sandbox, SandboxError> {
    let mut generation = 0;
    for _ in 0..TRIES {
        let found = context.store.find_sandbox(None, run_id).await?;
        let sandbox = found.ok_or_else(|| SandboxError::NotFound(run_id.clone()))?;
        generation = sandbox.generation;
        let changed = match (sandbox.state, sandbox.desired_state) {
            (SandboxState::Pending, _) => {
                let step = SandboxStep::Drop(SandboxVerdict::Cancelled);
                context.store.step_sandbox(run_id, generation, step, "cancelled", now_us()).await
            }
            (state, desired) if state.is_ended() || desired == DesiredState::Stopped => Ok(sandbox),
            _ => context.store.set_desired_state(run_id, generation, DesiredState::Stopped).await,
        };
        match changed {
            Ok(sandbox) => {
                if sandbox.state.is_ended() {
                    context.variables.forget(run_id);
                }
                context.work.notify_one();
                return Ok(sandbox);
            }
            // It has changed since it was read.
            Err(SandboxError::StaleGeneration { .. } | SandboxError::IllegalStep(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Err(SandboxError::StaleGeneration { found: generation })
}
