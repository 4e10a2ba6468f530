//! Steps of a run's life, taken against its newest state.

use sluice_contract::RunId;
use sluice_state::sandboxes::{Sandbox, SandboxError, SandboxStep};
use sluice_state::store::{Store, now_us};

/// Maximum number of changes of one run between a read and a step.
const TRIES: usize = 100;

/// Takes the step that `choose` returns for the present state of a run, if it returns one. Returns the run after the
/// step.
///
/// # Errors
/// [`SandboxError`]; [`SandboxError::StaleGeneration`] only if the run changes without end.
pub(super) async fn take_step(
    store: &Store,
    run: &RunId,
    reason: &str,
    choose: impl Fn(&Sandbox) -> Option<SandboxStep>,
) -> Result<Sandbox, SandboxError> {
    let mut last = None;
    for _ in 0..TRIES {
        let sandbox = store.find_sandbox(None, run).await?.ok_or_else(|| SandboxError::NotFound(run.clone()))?;
        let Some(step) = choose(&sandbox) else { return Ok(sandbox) };
        match store.step_sandbox(run, sandbox.generation, step, reason, now_us()).await {
            Err(SandboxError::StaleGeneration { found }) => last = Some(found),
            done => return done,
        }
    }
    Err(SandboxError::StaleGeneration { found: last.unwrap_or_default() })
}

/// A try to take a step that may have to wait for the storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepTry {
    First,
    Again,
}

/// Returns true for a temporary error, such as a full disk.
pub(super) fn is_retryable(error: &SandboxError) -> bool {
    match error {
        SandboxError::Store(error) => error.is_retryable(),
        SandboxError::Budget(error) => error.is_retryable(),
        _ => false,
    }
}
