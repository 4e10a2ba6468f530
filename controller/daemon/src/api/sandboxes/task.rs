//! The operation that returns the task of a run.

use axum::Json;
use axum::extract::State;

use super::logs::record_removed;
use super::lookup;
use crate::api::{Context, NoQuery};
use crate::api_error::{ApiError, ErrorBody};
use crate::extract::{PathNames, Query};
use crate::permission::Operation;
use crate::principal::Principal;
use crate::run_task::Task;

/// Returns the messages with which a run began.
#[utoipa::path(
    get, path = "/api/v1/sandboxes/{id}/task",
    params(("id" = String, Path, description = "Id, or a name of the own owner")),
    responses(
        (status = 200, body = Task), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 410, body = ErrorBody), (status = 422, body = ErrorBody)
    )
)]
pub(super) async fn task(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Json<Task>, ApiError> {
    let run = lookup::named(&context, &principal, Operation::ReadContent, &id).await?;
    let is_removed =
        run.state.is_ended() && run.started_us.is_some() && !context.layout.records().of(&run.key).exists();
    if is_removed {
        return Err(record_removed());
    }
    let request = context.stored_request(&run.key.run_id).await?;
    Ok(Json(Task::of(&run.key, request)))
}
