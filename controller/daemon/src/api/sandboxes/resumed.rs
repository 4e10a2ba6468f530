//! The earlier run that a new run continues from.

use sluice_contract::RunKey;
use sluice_contract::text::error_chain;
use sluice_runs::exchange::KeptWorkspace;
use sluice_state::sandboxes::Sandbox;
use tokio::task::spawn_blocking;

use super::{lookup, transcript};
use crate::api_error::ApiError;
use crate::context::ApiContext;
use crate::permission::Operation;
use crate::principal::Principal;

/// An attempt that another run can continue from.
#[derive(Debug)]
pub(super) struct ResumedAttempt {
    pub(super) key: RunKey,
    /// True if its workspace was kept.
    pub(super) has_workspace: bool,
}

/// Returns the newest attempt of a run that has left a transcript or a kept workspace, for another run of the same owner.
///
/// # Errors
/// 404: the owner has no such run. 422: it has left neither, or its workspace was to be kept and is missing, or
/// is too large.
pub(super) async fn resumable(
    context: &ApiContext,
    principal: &Principal,
    owner: &str,
    name: &str,
) -> Result<ResumedAttempt, ApiError> {
    let run: Sandbox = lookup::named(context, principal, Operation::ReadContent, name).await?;
    if run.owner != owner {
        return Err(ApiError::not_found());
    }
    let must_have_workspace = context.stored_request(&run.key.run_id).await?.keep_workspace;
    for attempt in (0..=run.key.attempt).rev() {
        let key = RunKey { run_id: run.key.run_id.clone(), attempt };
        let has_workspace = has_workspace(context, &key).await?;
        let has_transcript = !must_have_workspace && transcript::facts(context, &key).await?.is_some();
        if has_workspace || has_transcript {
            return Ok(ResumedAttempt { key, has_workspace });
        }
    }
    Err(ApiError::invalid("resume_from", if must_have_workspace { NO_WORKSPACE } else { NOTHING }))
}

const NO_WORKSPACE: &str = "the run of resume_from has no kept workspace: it has not ended, or has not begun, or its \
                            workspace was removed; name another run";
const NOTHING: &str = "the run of resume_from has left no transcript, or its record was removed, and it was created \
                       without keep_workspace; name one that has ended and has left either";

/// Returns true if the workspace of an attempt was kept.
///
/// # Errors
/// 422: it is too large for another run.
async fn has_workspace(context: &ApiContext, key: &RunKey) -> Result<bool, ApiError> {
    let (key, paths) = (key.clone(), context.layout.run(key));
    let looked = spawn_blocking(move || match KeptWorkspace::open(&key, &paths)? {
        Some(kept) => Ok(Some(kept.check())),
        None => std::io::Result::Ok(None),
    });
    match looked.await.map_err(|error| ApiError::internal(&error))?? {
        None => Ok(false),
        Some(Ok(_)) => Ok(true),
        Some(Err(error)) => {
            let error = error_chain(&error);
            let message = format!("{error}; take what you need from its files, and create the run without resume_from");
            Err(ApiError::invalid("resume_from", message))
        }
    }
}
