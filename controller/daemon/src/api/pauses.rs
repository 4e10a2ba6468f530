//! Pauses of runs.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use sluice_contract::Hash;
use sluice_state::sandboxes::Sandbox;
use utoipa::OpenApi;

use super::idempotent::{IdempotentRepeat, RequestKey, complete, release};
use super::sandboxes::lookup;
use super::sandboxes::view::SandboxView;
use super::{Context, NoQuery};
use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::extract::{PathNames, Query};
use crate::pause::{self, Requester};
use crate::permission::Operation;
use crate::principal::Principal;

#[derive(OpenApi)]
#[openapi(paths(pause_run, resume_run))]
pub(super) struct Doc;

pub(super) fn routes() -> Router<Arc<ApiContext>> {
    Router::new()
        .route("/api/v1/sandboxes/{id}/pause", post(pause_run))
        .route("/api/v1/sandboxes/{id}/resume", post(resume_run))
}

/// A change of a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PauseChange {
    Pause,
    Resume,
}

/// Pauses a run: its open calls end first, then its program is frozen and its clocks are stopped.
#[utoipa::path(
    post, path = "/api/v1/sandboxes/{id}/pause",
    params(
        ("id" = String, Path, description = "Id, or a name of the own owner"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 characters: the same key pauses once")
    ),
    responses(
        (status = 200, description = "The run; observed_state says when it is paused", body = SandboxView),
        (status = 401, body = ErrorBody), (status = 403, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = 422, body = ErrorBody), (status = 429, body = ErrorBody),
        (status = 503, body = ErrorBody)
    )
)]
async fn pause_run(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(NoQuery {}): Query<NoQuery>,
    key: RequestKey,
) -> Result<Json<SandboxView>, ApiError> {
    once(&context, &principal, &id, key, PauseChange::Pause).await
}

/// Continues a paused run.
#[utoipa::path(
    post, path = "/api/v1/sandboxes/{id}/resume",
    params(
        ("id" = String, Path, description = "Id, or a name of the own owner"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 characters: the same key resumes once")
    ),
    responses(
        (status = 200, description = "The run; observed_state says when it works", body = SandboxView),
        (status = 401, body = ErrorBody), (status = 403, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = 422, body = ErrorBody), (status = 429, body = ErrorBody),
        (status = 503, body = ErrorBody)
    )
)]
async fn resume_run(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(NoQuery {}): Query<NoQuery>,
    key: RequestKey,
) -> Result<Json<SandboxView>, ApiError> {
    once(&context, &principal, &id, key, PauseChange::Resume).await
}

async fn once(
    context: &ApiContext,
    principal: &Principal,
    id: &str,
    key: RequestKey,
    change: PauseChange,
) -> Result<Json<SandboxView>, ApiError> {
    let sandbox = lookup::named(context, principal, Operation::Control, id).await?;
    let key = match key.reserve(context, principal, Hash::of(&[])).await? {
        IdempotentRepeat::Done(_) => return Ok(Json(SandboxView::of(sandbox))),
        IdempotentRepeat::New(key) => key,
    };
    match changed(context, principal, sandbox, change).await {
        Ok(sandbox) => {
            complete(context, key, sandbox.key.run_id.as_str()).await;
            Ok(Json(SandboxView::of(sandbox)))
        }
        Err(error) => {
            release(context, key).await;
            Err(error)
        }
    }
}

async fn changed(
    context: &ApiContext,
    principal: &Principal,
    sandbox: Sandbox,
    change: PauseChange,
) -> Result<Sandbox, ApiError> {
    match change {
        PauseChange::Pause => pause::pause(context, sandbox, Requester::Principal(principal)).await,
        PauseChange::Resume => pause::resume(context, sandbox, principal).await,
    }
}
