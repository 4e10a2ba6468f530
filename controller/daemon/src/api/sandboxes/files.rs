//! Files of a sandbox: lists and content.
//!
//! [`file_roots`](sluice_runs::file_roots) sets the border: a path outside the roots of a run does not exist.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use sluice_runs::blueprint::WORKSPACE;
use sluice_runs::exchange;
use sluice_runs::file_roots::{FileRoot, root_of};
use sluice_runs::rundir::workspace_uid;
use sluice_runs::workspace_files::{FileEntry, FileError, FileKind, FileList, PAGE_MAX, WorkspaceFiles};
use sluice_state::sandboxes::{Sandbox, SandboxState};
use tokio::task::spawn_blocking;
use utoipa::ToSchema;

use super::file_errors::{no_file, no_workspace};
use super::lookup;
use crate::api::admission::admit_file_work;
use crate::api::download::download;
use crate::api::file_name::{FileName, file_time};
use crate::api::paging::invalid_cursor;
use crate::api::tail_path::TailPath;
use crate::api::{Context, NoQuery};
use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::extract::{PathNames, Query};
use crate::permission::Operation;
use crate::principal::{Principal, Role};

/// A path in a sandbox, and where its files are.
pub(super) struct LocatedPath {
    root: FileRoot,
    /// Path below the root.
    below: Vec<u8>,
}

impl LocatedPath {
    /// Finds the root of an absolute path in a run.
    ///
    /// # Errors
    /// 404 outside of all roots; 409 and 410 without a workspace.
    pub(super) async fn of(
        context: &ApiContext,
        run: &Sandbox,
        path: &[u8],
        operation: &'static str,
    ) -> Result<Self, ApiError> {
        let roots = roots(context, run).await?.ok_or_else(|| no_workspace(run, operation))?;
        let (root, below) = root_of(&roots, path).ok_or_else(no_file)?;
        Ok(Self { root: root.clone(), below: below.to_vec() })
    }

    /// Returns whether clients may write in the root.
    pub(super) fn is_writable(&self) -> bool {
        self.root.is_writable
    }

    /// Runs work on files below the root, on a thread that may block. `None` if the root is gone.
    pub(super) async fn with<T: Send + 'static>(
        self,
        work: impl FnOnce(&WorkspaceFiles, &[u8]) -> Result<T, FileError> + Send + 'static,
    ) -> Result<Option<T>, ApiError> {
        let done = spawn_blocking(move || {
            let directory = &self.root.directory;
            let opened = match self.root.is_grant {
                true => WorkspaceFiles::granted(directory),
                false => {
                    workspace_uid(directory).map_err(FileError::from).and_then(|uid| WorkspaceFiles::at(directory, uid))
                }
            };
            match opened {
                Err(FileError::NotFound) => Ok(None),
                Err(error) => Err(error),
                Ok(files) => work(&files, &self.below).map(Some),
            }
        });
        Ok(done.await.map_err(|error| ApiError::internal(&error))??)
    }
}

/// Returns the directories that the owner of a run sees; `None` without a workspace. While the run works, the
/// directories of its mount table are among them.
async fn roots(context: &ApiContext, run: &Sandbox) -> Result<Option<Vec<FileRoot>>, ApiError> {
    let paths = context.layout.run(&run.key);
    let has_begun = !matches!(run.state, SandboxState::Pending | SandboxState::Creating);
    let found = spawn_blocking(move || {
        let kept = exchange::kept_workspace(&paths);
        let directories = [(paths.work, true), (kept, false)];
        directories.into_iter().find(|(directory, _)| directory.is_dir())
    });
    let found = found.await.map_err(|error| ApiError::internal(&error))?.filter(|_| has_begun);
    let Some((directory, is_live)) = found else { return Ok(None) };
    let mut roots = vec![FileRoot { inside: WORKSPACE.to_owned(), directory, is_writable: is_live, is_grant: false }];
    if is_live {
        let mounts = context.stored_request(&run.key.run_id).await?.mounts;
        let granted = mounts.targets().into_iter().zip(mounts.sources());
        roots.extend(granted.map(|(inside, source)| FileRoot {
            inside,
            directory: source.into(),
            is_writable: false,
            is_grant: true,
        }));
    }
    Ok(Some(roots))
}

/// Refuses a viewer, unless the operator lets viewers read files.
fn check_viewer(context: &ApiContext, principal: &Principal) -> Result<(), ApiError> {
    let is_refused = principal.role == Role::Viewer && !context.viewer_files;
    if is_refused { Err(ApiError::forbidden()) } else { Ok(()) }
}

/// Selection of files.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Absolute path of a directory in the sandbox; `/workspace` by default.
    path: Option<String>,
    /// The same in base64url, for a path that is not UTF-8.
    path_base64: Option<String>,
    /// Number of names, 1 to 1,000.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

impl ListQuery {
    fn path(&self) -> Result<Vec<u8>, ApiError> {
        match (&self.path, &self.path_base64) {
            (Some(_), Some(_)) => Err(ApiError::invalid("path_base64", "give path or path_base64, not both")),
            (None, Some(text)) => {
                bytes(text).ok_or_else(|| ApiError::invalid("path_base64", "path_base64 is not in base64url"))
            }
            (path, None) => Ok(path.as_deref().unwrap_or(WORKSPACE).as_bytes().to_vec()),
        }
    }

    fn limit(&self) -> Result<usize, ApiError> {
        let limit = self.limit.unwrap_or(PAGE_MAX);
        let is_valid = (1..=PAGE_MAX).contains(&limit);
        if is_valid { Ok(limit) } else { Err(ApiError::invalid("limit", "limit is a number from 1 to 1000")) }
    }

    fn after(&self) -> Result<Vec<u8>, ApiError> {
        self.cursor.as_deref().map_or(Ok(Vec::new()), |text| bytes(text).ok_or_else(invalid_cursor))
    }
}

/// Reads base64url, with or without padding.
fn bytes(text: &str) -> Option<Vec<u8>> {
    BASE64_URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()
}

/// A page of names of a directory, in the order of their bytes.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Files {
    files: Vec<DirectoryEntryView>,
    /// Cursor of the next page; null on the last one.
    next_cursor: Option<String>,
    /// True if more names follow.
    has_more: bool,
}

/// A name in a directory.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FileView)]
struct DirectoryEntryView {
    #[serde(flatten)]
    name: FileName,
    /// `file`, `directory`, `link`, or `other` for devices, FIFOs and sockets.
    kind: &'static str,
    /// Size in bytes.
    size: u64,
    /// Time of the last change, as the sandbox states it.
    modified_at: Option<String>,
}

impl From<FileEntry> for DirectoryEntryView {
    fn from(entry: FileEntry) -> Self {
        let kind = match entry.kind {
            FileKind::File => "file",
            FileKind::Directory => "directory",
            FileKind::Link => "link",
            FileKind::Other => "other",
        };
        let (size, modified_at) = (entry.size, file_time(entry.modified));
        Self { name: FileName::of(entry.name), kind, size, modified_at }
    }
}

/// Lists the names of a directory in a run. Links are listed and never followed.
#[utoipa::path(
    get, path = "/api/v1/sandboxes/{id}/files",
    params(("id" = String, Path, description = "Id, or a name of the own owner"), ListQuery),
    responses(
        (status = 200, body = Files), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 410, body = ErrorBody),
        (status = 422, body = ErrorBody), (status = 429, body = ErrorBody)
    )
)]
pub(super) async fn list(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Files>, ApiError> {
    check_viewer(&context, &principal)?;
    let run = lookup::named(&context, &principal, Operation::ReadContent, &id).await?;
    let (path, after, limit) = (query.path()?, query.after()?, query.limit()?);
    let counted = admit_file_work(&context, &principal)?;
    let located = LocatedPath::of(&context, &run, &path, "files").await?;
    let list = move |files: &WorkspaceFiles, path: &[u8]| {
        // A client that hangs up does not end this work, so the work keeps its slot.
        let _counted = counted;
        files.list(path, &after)
    };
    let listed = located.with(list).await?;
    let FileList { mut entries, mut has_more } = listed.ok_or_else(|| no_workspace(&run, "files"))?;
    has_more |= entries.len() > limit;
    entries.truncate(limit);
    // The sandbox may have removed the whole page meanwhile.
    has_more &= !entries.is_empty();
    let next_cursor = entries.last().filter(|_| has_more).map(|last| BASE64_URL_SAFE_NO_PAD.encode(&last.name));
    Ok(Json(Files { files: entries.into_iter().map(DirectoryEntryView::from).collect(), next_cursor, has_more }))
}

/// Returns a regular file of a run, or a part of it by `Range`; an answer has at most 64 MiB.
#[utoipa::path(
    get, path = "/api/v1/sandboxes/{id}/files/{path}",
    params(
        ("id" = String, Path, description = "Id, or a name of the own owner"),
        ("path" = String, Path, description = "Absolute path in the sandbox, each byte percent-encoded where needed"),
        ("Range" = Option<String>, Header, description = "One range of bytes")
    ),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 206, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 401, body = ErrorBody), (status = 403, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = 410, body = ErrorBody), (status = 416, body = ErrorBody),
        (status = 422, body = ErrorBody), (status = 429, body = ErrorBody)
    )
)]
pub(super) async fn read(
    State(context): Context,
    principal: Principal,
    path: TailPath,
    Query(NoQuery {}): Query<NoQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    check_viewer(&context, &principal)?;
    let run = lookup::named(&context, &principal, Operation::ReadContent, &path.id).await?;
    let absolute = path.absolute();
    let located = LocatedPath::of(&context, &run, &absolute, "files").await?;
    let file = located.with(WorkspaceFiles::read).await?.ok_or_else(|| no_workspace(&run, "files"))?;
    download(&context, principal, &headers, &absolute, file)
}
