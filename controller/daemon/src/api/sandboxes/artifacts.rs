//! The files that a run has left in `/workspace/out`, kept with its record.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use sluice_contract::RunKey;
use sluice_runs::workspace_files::{FileError, OpenFile};
use sluice_state::records::{Artifact, ArtifactList, LeftOutFile};
use tokio::task::spawn_blocking;
use utoipa::ToSchema;

use super::file_errors::no_file;
use super::logs::attempt;
use super::lookup;
use crate::api::download::download;
use crate::api::file_name::{FileName, file_time};
use crate::api::tail_path::TailPath;
use crate::api::{Context, paging};
use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::extract::{PathNames, Query};
use crate::permission::Operation;
use crate::principal::Principal;

/// Selection of artifacts.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// An attempt; the newest that has begun by default.
    attempt: Option<u32>,
    /// Number of artifacts, 1 to 500.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<usize>,
}

/// A page of artifacts.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Artifacts {
    /// True if the run has left them: they are collected at its end. Until then the list is empty.
    collected: bool,
    artifacts: Vec<ArtifactView>,
    /// Number of files and directories that are no artifacts.
    left_out: u64,
    /// The first of them.
    first_left_out: Vec<LeftOutView>,
    /// `too_many`, `too_deep`, `paths_too_long` or `not_readable`, if not all that was there is in the list or left out.
    error: Option<String>,
    /// Cursor of the next page; null on the last one.
    next_cursor: Option<usize>,
    /// True if more artifacts follow.
    has_more: bool,
}

/// A file that the run has left. Its name is its path below `/workspace/out`.
#[derive(Debug, Serialize, ToSchema)]
struct ArtifactView {
    #[serde(flatten)]
    name: FileName,
    /// Size in bytes.
    size: u64,
    /// `0644`, or `0755` for a program.
    mode: String,
    /// SHA-256 in hex digits.
    sha256: String,
    /// Time of the last change, as the sandbox stated it.
    modified_at: Option<String>,
}

/// A file that is no artifact.
#[derive(Debug, Serialize, ToSchema)]
struct LeftOutView {
    #[serde(flatten)]
    name: FileName,
    /// `link`, `special`, `git`, `too_large` or `path_too_long`.
    reason: String,
}

impl From<Artifact> for ArtifactView {
    fn from(artifact: Artifact) -> Self {
        let Artifact { path, size, mode, sha256, modified } = artifact;
        let name = FileName::of(path);
        Self { name, size, mode: format!("{mode:04o}"), sha256, modified_at: file_time(modified) }
    }
}

impl From<LeftOutFile> for LeftOutView {
    fn from(LeftOutFile { path, reason }: LeftOutFile) -> Self {
        Self { name: FileName::of(path), reason }
    }
}

/// Lists the files that a run has left in `/workspace/out`, as long as its record is kept.
#[utoipa::path(
    get, path = "/api/v1/sandboxes/{id}/artifacts",
    params(("id" = String, Path, description = "Id, or a name of the own owner"), ListQuery),
    responses(
        (status = 200, body = Artifacts), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 410, body = ErrorBody), (status = 422, body = ErrorBody)
    )
)]
pub(super) async fn list(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Artifacts>, ApiError> {
    let run = lookup::named(&context, &principal, Operation::ReadContent, &id).await?;
    let key = attempt(&context, &run, query.attempt)?;
    let limit = paging::limit(query.limit, paging::LIST_MAX)? as usize;
    let list = stored(&context, key).await?;
    let collected = list.is_some();
    let ArtifactList { artifacts, left_out, first_left_out, error } = list.unwrap_or_default();
    let (begin, total) = (query.cursor.unwrap_or_default(), artifacts.len());
    let page: Vec<_> = artifacts.into_iter().skip(begin).take(limit).map(ArtifactView::from).collect();
    let next = begin.saturating_add(page.len());
    let has_more = !page.is_empty() && next < total;
    Ok(Json(Artifacts {
        collected,
        artifacts: page,
        left_out,
        first_left_out: first_left_out.into_iter().map(LeftOutView::from).collect(),
        error,
        next_cursor: has_more.then_some(next),
        has_more,
    }))
}

async fn stored(context: &ApiContext, key: RunKey) -> Result<Option<ArtifactList>, ApiError> {
    let record = context.layout.records().of(&key);
    let read = spawn_blocking(move || record.artifacts());
    Ok(read.await.map_err(|error| ApiError::internal(&error))??)
}

/// The attempt of an artifact.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ReadQuery {
    /// An attempt; the newest that has begun by default.
    attempt: Option<u32>,
}

/// Returns an artifact, or a part of it by `Range`; an answer has at most 64 MiB.
#[utoipa::path(
    get, path = "/api/v1/sandboxes/{id}/artifacts/{name}",
    params(
        ("id" = String, Path, description = "Id, or a name of the own owner"),
        ("name" = String, Path, description = "Name in the list, each byte percent-encoded where needed"),
        ReadQuery, ("Range" = Option<String>, Header, description = "One range of bytes")
    ),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 206, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 401, body = ErrorBody), (status = 403, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 410, body = ErrorBody), (status = 416, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 429, body = ErrorBody)
    )
)]
pub(super) async fn read(
    State(context): Context,
    principal: Principal,
    path: TailPath,
    Query(query): Query<ReadQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let run = lookup::named(&context, &principal, Operation::ReadContent, &path.id).await?;
    let key = attempt(&context, &run, query.attempt)?;
    let list = stored(&context, key.clone()).await?.unwrap_or_default();
    // Only the number is used to find a file.
    let number = list.artifacts.iter().position(|artifact| artifact.path == path.tail).ok_or_else(no_file)?;
    let record = context.layout.records().of(&key);
    let opened = spawn_blocking(move || OpenFile::of(record.open_artifact(number)?));
    let file: Result<OpenFile, FileError> = opened.await.map_err(|error| ApiError::internal(&error))?;
    download(&context, principal, &headers, &path.tail, file?)
}
