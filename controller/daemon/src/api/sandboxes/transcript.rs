//! The transcript that a run has left, kept with its record.

use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;
use sluice_contract::RunKey;
use sluice_runs::workspace_files::{FileError, OpenFile};
use sluice_state::records::{TRANSCRIPT, TranscriptFacts};
use tokio::task::spawn_blocking;

use super::logs::attempt;
use super::lookup;
use crate::api::Context;
use crate::api::download::download;
use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::extract::{PathNames, Query};
use crate::permission::Operation;
use crate::principal::Principal;

/// The attempt of a transcript.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TranscriptQuery {
    /// An attempt; the newest that has begun by default.
    attempt: Option<u32>,
}

/// Returns the transcript that the worker of a run has written, once the run has ended, or a part of it by `Range`. It is what
/// the sandbox says.
#[utoipa::path(
    get, path = "/api/v1/sandboxes/{id}/transcript",
    params(
        ("id" = String, Path, description = "Id, or a name of the own owner"), TranscriptQuery,
        ("Range" = Option<String>, Header, description = "One range of bytes")
    ),
    responses(
        (
            status = 200, body = Vec<u8>, content_type = "application/octet-stream",
            headers(("x-truncated" = bool, description = "Whether the end of the transcript was cut off"))
        ),
        (status = 206, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 401, body = ErrorBody), (status = 403, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 410, body = ErrorBody), (status = 416, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 429, body = ErrorBody)
    )
)]
pub(super) async fn transcript(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(query): Query<TranscriptQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let run = lookup::named(&context, &principal, Operation::ReadContent, &id).await?;
    let key = attempt(&context, &run, query.attempt)?;
    let facts = facts(&context, &key).await?.ok_or_else(no_transcript)?;
    let record = context.layout.records().of(&key);
    let opened = spawn_blocking(move || OpenFile::of(record.open_transcript()?));
    let file: Result<OpenFile, FileError> = opened.await.map_err(|error| ApiError::internal(&error))?;
    let mut response = download(&context, principal, &headers, TRANSCRIPT.as_bytes(), file?)?;
    let truncated = if facts.truncated { "true" } else { "false" };
    response.headers_mut().insert("x-truncated", HeaderValue::from_static(truncated));
    Ok(response)
}

/// Returns the stored facts about the transcript of an attempt; `None` if it has none.
pub(super) async fn facts(context: &ApiContext, key: &RunKey) -> Result<Option<TranscriptFacts>, ApiError> {
    let record = context.layout.records().of(key);
    let read = spawn_blocking(move || record.transcript());
    Ok(read.await.map_err(|error| ApiError::internal(&error))??)
}

fn no_transcript() -> ApiError {
    let message = "this attempt has left no transcript; the transcript of a run is kept at its end";
    ApiError::new(StatusCode::NOT_FOUND, "no_transcript", message)
}
