//! A file that a client writes into a live sandbox.

use std::time::Duration;

use axum::Json;
use axum::body::{Body, HttpBody};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sluice_runs::workspace_files::{FileError, NewFile, WorkspaceFiles, WrittenContent};
use sluice_state::control_log::ControlEntry;
use sluice_state::sandboxes::Sandbox;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use utoipa::ToSchema;

use super::file_errors::no_workspace;
use super::files::LocatedPath;
use super::{check_live, lookup, note_work, record};
use crate::api::Context;
use crate::api::admission::admit_file_work;
use crate::api::download::PART_MAX;
use crate::api::file_name::FileName;
use crate::api::tail_path::TailPath;
use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::extract::Query;
use crate::permission::Operation;
use crate::principal::Principal;

/// Name of the operation in the control log.
const OPERATION: &str = "sandbox.file_put";

/// Object that is written.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct UploadQuery {
    /// Makes a new directory, with the mode 0755; then there is no body.
    #[serde(default)]
    directory: bool,
}

/// A file that was written.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct WrittenFile {
    /// Number of bytes.
    size: u64,
    /// SHA-256 in hex digits.
    sha256: String,
}

/// Writes a file into a live run, at most 64 MiB: programs see the old content or all of the new. Its user is that of the run,
/// its mode 0644; its directory must be there. With `directory`, a new directory is made.
#[utoipa::path(
    put, path = "/api/v1/sandboxes/{id}/files/{path}",
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    params(
        ("id" = String, Path, description = "Id, or a name of the own owner"),
        ("path" = String, Path, description = "Absolute path in the sandbox, each byte percent-encoded where needed"),
        UploadQuery
    ),
    responses(
        (status = 200, body = WrittenFile), (status = 201, description = "The directory is there"), (status = 400, body = ErrorBody), (status = 401, body = ErrorBody),
        (status = 403, body = ErrorBody), (status = 404, body = ErrorBody), (status = 408, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = 413, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 429, body = ErrorBody), (status = 507, body = ErrorBody)
    )
)]
pub(super) async fn write(
    State(context): Context,
    principal: Principal,
    path: TailPath,
    Query(query): Query<UploadQuery>,
    body: Body,
) -> Result<Response, ApiError> {
    let run = lookup::named(&context, &principal, Operation::Execute, &path.id).await?;
    check_live(&run, "file_put")?;
    if body.size_hint().lower() > PART_MAX {
        return Err(FileError::TooLarge(PART_MAX).into());
    }
    let _counted = admit_file_work(&context, &principal)?;
    let absolute = path.absolute();
    let located = LocatedPath::of(&context, &run, &absolute, "file_put").await?;
    if !located.is_writable() {
        let message = "this directory is read-only for the sandbox and for clients";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "read_only", message));
    }
    if query.directory {
        if !body.is_end_stream() {
            return Err(ApiError::unexpected_body());
        }
        return make_directory(&context, &principal, &run, (located, absolute)).await;
    }
    let begun = located.with(|files, path| files.create(path, PART_MAX)).await?;
    let file = begun.ok_or_else(|| no_workspace(&run, "file_put"))?;
    let (whole, piece) = context.limits.upload_time;
    let received = timeout(whole, receive(file, body, piece)).await.map_err(|_| too_slow())?;
    let (file, WrittenContent { size, sha256 }) = received?;
    let after = json!({ "path": FileName::of(absolute), "sha256": sha256, "size": size });
    let entry = ControlEntry { after: Some(after), ..ControlEntry::default() };
    let seq = record(&context, &principal, OPERATION, &run, entry).await?;
    if let Err(error) = blocking(move || file.put_in_place()).await {
        return Err(context.record_failure(&principal, OPERATION, seq, error).await);
    }
    note_work(&context, &run.key).await;
    Ok(Json(WrittenFile { size, sha256 }).into_response())
}

/// Makes a directory, and records it like a file.
async fn make_directory(
    context: &ApiContext,
    principal: &Principal,
    run: &Sandbox,
    (located, absolute): (LocatedPath, Vec<u8>),
) -> Result<Response, ApiError> {
    let after = json!({ "directory": FileName::of(absolute) });
    let entry = ControlEntry { after: Some(after), ..ControlEntry::default() };
    let seq = record(context, principal, OPERATION, run, entry).await?;
    let made = located.with(WorkspaceFiles::make_directory).await;
    let made = made.and_then(|made| made.ok_or_else(|| no_workspace(run, "file_put")));
    if let Err(error) = made {
        return Err(context.record_failure(principal, OPERATION, seq, error).await);
    }
    note_work(context, &run.key).await;
    Ok(StatusCode::CREATED.into_response())
}

/// Writes the body into the file, which gets its name later. If this future is dropped, it leaves nothing.
async fn receive(mut file: NewFile, body: Body, within: Duration) -> Result<(NewFile, WrittenContent), ApiError> {
    let mut pieces = body.into_data_stream();
    while let Some(piece) = timeout(within, pieces.next()).await.map_err(|_| too_slow())? {
        let piece = piece.map_err(|_| {
            ApiError::new(StatusCode::BAD_REQUEST, "body_incomplete", "the body ended before its end; send it again")
        })?;
        file = blocking(move || file.append(&piece).map(|()| file)).await?;
    }
    blocking(move || file.complete().map(|content| (file, content))).await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, ApiError> {
    Ok(spawn_blocking(work).await.map_err(|error| ApiError::internal(&error))??)
}

fn too_slow() -> ApiError {
    ApiError::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", "the body came too slowly; send it again")
}
