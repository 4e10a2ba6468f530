//! Control of a program that a client has started: input, size of the terminal, end.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sluice_state::control_log::ControlEntry;
use sluice_state::sandboxes::Sandbox;
use tokio::time::Instant;
use utoipa::ToSchema;

use super::{lookup, note_work, record};
use crate::api::{Context, NoQuery};
use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::execs::LiveExec;
use crate::extract::{JsonBody, PathNames, Query};
use crate::permission::Operation;
use crate::principal::Principal;

/// Maximum number of rows or columns of a terminal.
const SIZE_MAX: u16 = 4096;

async fn find(
    context: &Arc<ApiContext>,
    principal: &Principal,
    id: &str,
    exec_id: &str,
) -> Result<(Sandbox, LiveExec), ApiError> {
    let run = lookup::named(context, principal, Operation::Execute, id).await?;
    let live = context.execs.find(&run.key.run_id, exec_id).ok_or_else(ApiError::not_found)?;
    Ok((run, live))
}

/// State of the input after these bytes.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct InputQuery {
    /// Closes stdin after the bytes.
    #[serde(default)]
    close: bool,
}

/// Passes the bytes of the body to a program's stdin, as fast as it reads them.
#[utoipa::path(
    post, path = "/api/v1/sandboxes/{id}/exec/{exec_id}/stdin",
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    params(
        ("id" = String, Path, description = "Id, or a name of the own owner"),
        ("exec_id" = String, Path, description = "Id of the program"), InputQuery
    ),
    responses(
        (status = 204, description = "The program has the bytes, or a buffer before it"),
        (status = 401, body = ErrorBody), (status = 403, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = 422, body = ErrorBody)
    )
)]
pub(super) async fn write(
    State(context): Context,
    principal: Principal,
    PathNames([id, exec_id]): PathNames<2>,
    Query(query): Query<InputQuery>,
    body: Body,
) -> Result<StatusCode, ApiError> {
    let (run, live) = find(&context, &principal, &id, &exec_id).await?;
    let busy = || conflict("stdin_busy", "another request writes to this stdin; wait for its end");
    let closed = || conflict("stdin_closed", "the program has ended, or its stdin is closed");
    let _own = live.stdin.try_lock().map_err(|_| busy())?;
    let mut bytes = body.into_data_stream();
    let mut checked = Instant::now();
    loop {
        let piece = tokio::select! {
            piece = bytes.next() => piece,
            () = live.control.input_closed() => return Err(closed()),
        };
        let Some(piece) = piece else { break };
        // Data that a client sent before it hung up has already been received.
        let Ok(piece) = piece else { return Err(conflict("stdin_incomplete", "the body ended before its end")) };
        if checked.elapsed() >= context.limits.stream_check {
            checked = Instant::now();
            if !context.access.is_current(&principal).await.unwrap_or(false) {
                return Err(ApiError::unauthorized());
            }
        }
        if !live.control.write(piece).await {
            return Err(closed());
        }
    }
    note_work(&context, &run.key).await;
    if query.close && !live.control.close_input().await {
        return Err(closed());
    }
    Ok(StatusCode::NO_CONTENT)
}

fn conflict(code: &'static str, message: &str) -> ApiError {
    ApiError::new(StatusCode::CONFLICT, code, message)
}

/// Size of a terminal.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TerminalSize {
    #[schema(minimum = 1, maximum = 4096)]
    rows: u16,
    #[schema(minimum = 1, maximum = 4096)]
    columns: u16,
}

/// Sets the size of a program's terminal.
#[utoipa::path(
    post, path = "/api/v1/sandboxes/{id}/exec/{exec_id}/resize", request_body = TerminalSize,
    params(
        ("id" = String, Path, description = "Id, or a name of the own owner"),
        ("exec_id" = String, Path, description = "Id of the program")
    ),
    responses(
        (status = 204, description = "It has the size"), (status = 400, body = ErrorBody),
        (status = 401, body = ErrorBody), (status = 403, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = 413, body = ErrorBody), (status = 415, body = ErrorBody),
        (status = 422, body = ErrorBody)
    )
)]
pub(super) async fn resize(
    State(context): Context,
    principal: Principal,
    PathNames([id, exec_id]): PathNames<2>,
    Query(NoQuery {}): Query<NoQuery>,
    body: JsonBody<TerminalSize>,
) -> Result<StatusCode, ApiError> {
    let (_, live) = find(&context, &principal, &id, &exec_id).await?;
    let TerminalSize { rows, columns } = body.value;
    for (field, size) in [("rows", rows), ("columns", columns)] {
        if !(1..=SIZE_MAX).contains(&size) {
            return Err(ApiError::invalid(field, format!("{field} is a number from 1 to {SIZE_MAX}")));
        }
    }
    if !live.has_terminal {
        return Err(conflict("no_terminal", "the program was started without tty, so it has no terminal"));
    }
    match live.control.resize(rows, columns).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        // The program has ended meanwhile.
        Err(_) => Err(ApiError::not_found()),
    }
}

/// A program that ends.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CancelledExec {
    exec_id: String,
}

/// Ends a program and what it has started. The answer of its start says when it has ended.
#[utoipa::path(
    delete, path = "/api/v1/sandboxes/{id}/exec/{exec_id}",
    params(
        ("id" = String, Path, description = "Id, or a name of the own owner"),
        ("exec_id" = String, Path, description = "Id of the program")
    ),
    responses(
        (status = 202, description = "It ends", body = CancelledExec), (status = 401, body = ErrorBody),
        (status = 403, body = ErrorBody), (status = 404, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 503, body = ErrorBody)
    )
)]
pub(super) async fn cancel(
    State(context): Context,
    principal: Principal,
    PathNames([id, exec_id]): PathNames<2>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Response, ApiError> {
    let (run, live) = find(&context, &principal, &id, &exec_id).await?;
    let entry = ControlEntry { after: Some(json!({ "exec_id": exec_id })), ..ControlEntry::default() };
    record(&context, &principal, "sandbox.exec_cancel", &run, entry).await?;
    live.control.cancel();
    Ok((StatusCode::ACCEPTED, Json(CancelledExec { exec_id })).into_response())
}
