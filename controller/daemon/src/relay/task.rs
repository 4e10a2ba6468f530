//! `GET …/task`: the task of the agent.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;

use super::RelayCaller;
use crate::api_error::ApiError;
use crate::context::ApiContext;
use crate::run_task::Task;

/// Returns the messages with which the run began.
pub(super) async fn task(State(context): State<Arc<ApiContext>>, caller: RelayCaller) -> Result<Json<Task>, ApiError> {
    let request = context.stored_request(&caller.key.run_id).await?;
    Ok(Json(Task::of(&caller.key, request)))
}
