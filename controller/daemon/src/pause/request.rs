//! Requests to pause a run and to resume it: recorded here, and carried out by the keeper of the run.

use sluice_state::control_log::ControlEntry;
use sluice_state::sandboxes::{DesiredState, IllegalStep, Sandbox, SandboxError};

use crate::api_error::ApiError;
use crate::context::ApiContext;
use crate::principal::Principal;

/// Person or rule that wants a change of a run.
#[derive(Debug, Clone, Copy)]
pub enum Requester<'a> {
    /// A person or a token.
    Principal(&'a Principal),
    /// A rule of the daemon, with its reason.
    Rule(&'a str),
}

/// Maximum number of tries of a change, if the run changes in between.
const TRIES: usize = 8;

/// Pauses a run as soon as no call is open.
///
/// # Errors
/// 409: it does not work, or is paused already. 503: it cannot be recorded.
pub async fn pause(context: &ApiContext, sandbox: Sandbox, by: Requester<'_>) -> Result<Sandbox, ApiError> {
    want(context, sandbox, by, (DesiredState::Paused, "sandbox.pause", "pause")).await
}

/// Lets a paused run go on.
///
/// # Errors
/// 409: it is not paused. 503: it cannot be recorded.
pub async fn resume(context: &ApiContext, sandbox: Sandbox, by: &Principal) -> Result<Sandbox, ApiError> {
    want(context, sandbox, Requester::Principal(by), (DesiredState::Running, "sandbox.resume", "resume")).await
}

/// Returns the error of an operation that a paused run cannot take.
pub(crate) fn paused(sandbox: &Sandbox, operation: &str) -> ApiError {
    let message = format!(
        "the run is paused and cannot take {operation}; sluice resume {id}, or \
         POST /api/v1/sandboxes/{id}/resume, lets it go on",
        id = sandbox.key.run_id
    );
    ApiError::invalid_state(sandbox, message)
}

async fn want(
    context: &ApiContext,
    sandbox: Sandbox,
    by: Requester<'_>,
    (wanted, operation, step): (DesiredState, &str, &'static str),
) -> Result<Sandbox, ApiError> {
    let is_working = sandbox.state.is_active() && sandbox.verdict.is_none();
    if is_working && wanted == DesiredState::Paused && sandbox.desired_state == wanted {
        return Err(paused(&sandbox, step));
    }
    if sandbox.state.is_ended() || sandbox.desired_state == wanted {
        return Err(SandboxError::from(IllegalStep { state: sandbox.state, step }).into());
    }
    let entry = ControlEntry {
        operation: operation.to_owned(),
        object: Some(sandbox.key.run_id.to_string()),
        owner: Some(sandbox.owner.clone()),
        ..ControlEntry::default()
    };
    let seq = match by {
        Requester::Principal(principal) => context.record(principal, entry).await?,
        Requester::Rule(reason) => {
            context.record_own(ControlEntry { reason: Some(reason.to_owned()), ..entry }).await?
        }
    };
    match change(context, sandbox, wanted, step).await {
        Ok(sandbox) => {
            context.work.notify_one();
            Ok(sandbox)
        }
        Err(error) => Err(match by {
            Requester::Principal(principal) => context.record_failure(principal, operation, seq, error).await,
            Requester::Rule(_) => context.record_own_failure(operation, seq, error).await,
        }),
    }
}

/// Changes the wanted state of a run. If the run changes in between, the change is tried again with its newest state.
async fn change(
    context: &ApiContext,
    mut sandbox: Sandbox,
    wanted: DesiredState,
    step: &'static str,
) -> Result<Sandbox, ApiError> {
    let run_id = sandbox.key.run_id.clone();
    for _ in 0..TRIES {
        match context.store.want_pause(&run_id, sandbox.generation, wanted, step).await {
            Err(SandboxError::StaleGeneration { .. }) => {
                let found = context.store.find_sandbox(None, &run_id).await?;
                sandbox = found.ok_or_else(ApiError::not_found)?;
            }
            changed => return changed.map_err(ApiError::from),
        }
    }
    Err(SandboxError::StaleGeneration { found: sandbox.generation }.into())
}
