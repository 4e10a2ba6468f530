//! Pushes of a sandbox to the repository of its run.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::json;
use sluice_contract::text::error_chain;
use sluice_git::Push;
use sluice_runs::run_clone::answer_push;
use sluice_state::git_runs::GitStep;
use sluice_state::sandboxes::Sandbox;
use sluice_state::store::now_us;

use super::RelayCaller;
use crate::api_error::ApiError;
use crate::context::ApiContext;
use crate::git;

/// Answers a request of a push. Git shows bodies of errors if they are text.
pub(super) async fn push(
    State(context): State<Arc<ApiContext>>,
    caller: RelayCaller,
    request: Request,
) -> Result<Response, ApiError> {
    let run = caller.sandbox(&context).await?;
    let Some(repository) = context.git.run_repository(&run.key.run_id).map_err(|error| ApiError::internal(&error))?
    else {
        return Ok((StatusCode::NOT_FOUND, "this run works on no repository\n").into_response());
    };
    // A separate task: the push is recorded even if its client hangs up after the body.
    let task = tokio::spawn(async move {
        let answer = answer_push(&repository, context.conversations.pushes(), request).await;
        if let Some(fault) = answer.fault {
            (context.log)(&format!("run {}: a push failed: {}", run.key, error_chain(&fault)));
        }
        if let Some(pushed) = answer.pushed {
            record(&context, &run, &pushed).await;
        }
        answer.response.map(axum::body::Body::new)
    });
    task.await.map_err(|error| ApiError::internal(&error))
}

async fn record(context: &ApiContext, run: &Sandbox, pushed: &Push) {
    let step = GitStep::Received { head_sha: pushed.new.to_string() };
    if let Err(error) = context.store.record_git_step(&run.key.run_id, step, now_us()).await {
        (context.log)(&format!("run {}: a push is not recorded: {}", run.key, error_chain(&error)));
    }
    let data =
        json!({ "branch": pushed.branch.as_str(), "old_sha": pushed.old.as_str(), "head_sha": pushed.new.as_str() });
    git::add(context, run, "git.pushed", &data).await;
}
