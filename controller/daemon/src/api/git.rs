//! The repository of a run: its branch, its commits and its difference from the base.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::StatusCode;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use serde::{Deserialize, Serialize};
use sluice_git::{BranchSummary, ChangedFile, ObjectId, RunRepository, visible_path};
use sluice_runs::publication::{PublicationError, guarded_of};
use sluice_state::git_runs::GitRun;
use sluice_state::sandboxes::Sandbox;
use utoipa::{OpenApi, ToSchema};

use super::sandboxes::lookup;
use super::{Context, NoQuery};
use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::extract::{PathNames, Query};
use crate::permission::Operation;
use crate::principal::Principal;
use crate::stream_count::CountedStream;
use pull_request::PullRequestView;

mod errors;
mod publishing;
mod pull_request;

#[derive(OpenApi)]
#[openapi(paths(
    show, commits, diff, publishing::publish, pull_request::show, pull_request::open, pull_request::merge
))]
pub(super) struct Doc;

pub(super) fn routes() -> Router<Arc<ApiContext>> {
    Router::new()
        .route("/api/v1/sandboxes/{id}/git", get(show))
        .route("/api/v1/sandboxes/{id}/git/commits", get(commits))
        .route("/api/v1/sandboxes/{id}/git/diff", get(diff))
        .route("/api/v1/sandboxes/{id}/git/publish", post(publishing::publish))
        .route("/api/v1/sandboxes/{id}/git/pr", get(pull_request::show).post(pull_request::open))
        .route("/api/v1/sandboxes/{id}/git/pr/merge", post(pull_request::merge))
}

/// Maximum number of bytes of a difference in an answer.
const DIFF_MAX: usize = 4 << 20;

/// The branch of a run.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct GitView {
    /// Address of the repository, without credentials.
    url: String,
    /// Branch that the run began with; null until it has its clone.
    base_branch: Option<String>,
    /// Commit that the run began with.
    base_sha: Option<String>,
    /// Branch of the run. It can get a number when it is published.
    branch: String,
    /// Newest commit that came out of the run.
    head_sha: Option<String>,
    /// Commit that the forge has.
    published_sha: Option<String>,
    /// `approve`, `auto` or `never`.
    publish: &'static str,
    /// Ticket.
    ticket: Option<String>,
    /// Title of the work.
    title: Option<String>,
    /// Number of new commits.
    commits: usize,
    /// Number of commits of the branch that its base did not have when the run began.
    ahead: u64,
    /// Number of commits that the base has got since then, as the last run found it that began there; null if it is not known.
    behind: Option<u64>,
    /// True if both have commits of their own: a merge may meet conflicts.
    diverged: bool,
    /// Changed files.
    files: Vec<ChangedFileView>,
    /// Changed files that CI or the forge obey. To publish them, a person has to accept them.
    guarded_paths: Vec<String>,
    /// True if the change is too large to be reviewed.
    is_too_large: bool,
    /// Pull request; null without one.
    pull_request: Option<PullRequestView>,
    /// Commit of the merge.
    merged_sha: Option<String>,
    /// Error of the last step, if it has failed.
    last_error: Option<String>,
    /// Failed tries of the step that is next.
    retry_count: u32,
}

/// A changed file.
#[derive(Debug, Serialize, ToSchema)]
struct ChangedFileView {
    /// Path; characters that are not shown are escaped.
    path: String,
    /// `added`, `modified`, `deleted` or `type_changed`.
    status: &'static str,
    /// Added lines; null for a binary file.
    added: Option<u64>,
    /// Removed lines; null for a binary file.
    removed: Option<u64>,
}

/// New commits of a run.
#[derive(Debug, Serialize, ToSchema)]
struct Commits {
    /// Newest first.
    commits: Vec<CommitView>,
    /// True if the change is too large to be reviewed.
    is_too_large: bool,
}

/// A commit. The sandbox has written it.
#[derive(Debug, Serialize, ToSchema)]
struct CommitView {
    sha: String,
    /// Name and address.
    author: String,
    /// First line of its message.
    subject: String,
}

/// Returns the branch of a run, and what it changes.
#[utoipa::path(
    get, path = "/api/v1/sandboxes/{id}/git",
    params(("id" = String, Path, description = "Id, or a name of the own owner")),
    responses(
        (status = 200, body = GitView), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 429, body = ErrorBody), (status = 503, body = ErrorBody)
    )
)]
async fn show(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Json<GitView>, ApiError> {
    let run = lookup::named(&context, &principal, Operation::ReadContent, &id).await?;
    Ok(Json(view(&context, &principal, &run).await?))
}

/// Returns the new commits of a run.
#[utoipa::path(
    get, path = "/api/v1/sandboxes/{id}/git/commits",
    params(("id" = String, Path, description = "Id, or a name of the own owner")),
    responses(
        (status = 200, body = Commits), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 429, body = ErrorBody), (status = 503, body = ErrorBody)
    )
)]
async fn commits(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Json<Commits>, ApiError> {
    let run = lookup::named(&context, &principal, Operation::ReadContent, &id).await?;
    let _counted = admit_look(&context, &principal)?;
    let look = look(&context, &run).await?;
    let view = |commit: &sluice_git::CommitLine| CommitView {
        sha: commit.id.to_string(),
        author: commit.author.clone(),
        subject: commit.subject.clone(),
    };
    let commits = look.iter().flat_map(|look| &look.commits).map(view).collect();
    Ok(Json(Commits { commits, is_too_large: look.is_some_and(|look| look.too_large) }))
}

/// Selection of a commit.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct DiffQuery {
    /// Commit that must be the newest of the run.
    head_sha: Option<String>,
}

/// Returns the difference of a run's branch from its base, as `git apply` takes it. The sandbox has written it.
#[utoipa::path(
    get, path = "/api/v1/sandboxes/{id}/git/diff",
    params(("id" = String, Path, description = "Id, or a name of the own owner"), DiffQuery),
    responses(
        (
            status = 200, body = Vec<u8>, content_type = "application/octet-stream",
            headers(("x-head-sha" = String, description = "Commit that the difference leads to"))
        ),
        (status = 401, body = ErrorBody), (status = 403, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = 422, body = ErrorBody), (status = 429, body = ErrorBody),
        (status = 503, body = ErrorBody)
    )
)]
async fn diff(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(query): Query<DiffQuery>,
) -> Result<Response, ApiError> {
    let run = lookup::named(&context, &principal, Operation::ReadContent, &id).await?;
    let seen = query.head_sha.as_deref().map(publishing::object_id).transpose()?;
    let _counted = admit_look(&context, &principal)?;
    row(&context, &run).await?;
    let repository = context
        .git
        .run_repository(&run.key.run_id)
        .map_err(|error| errors::of_git(&error))?
        .ok_or_else(no_clone_yet)?;
    let head = newest(&repository, seen.as_ref()).await?;
    let Some(text) = repository.diff(DIFF_MAX).await.map_err(|error| errors::of_git(&error))? else {
        let message = "the difference is larger than 4 MiB; fetch the branch once it is published";
        return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "too_large", message));
    };
    // A push may have come meanwhile.
    newest(&repository, Some(&head)).await?;
    let headers = [
        (CONTENT_TYPE.as_str(), "application/octet-stream"),
        (CONTENT_DISPOSITION.as_str(), "attachment; filename=\"run.patch\""),
        ("x-head-sha", head.as_str()),
    ];
    Ok((headers, text).into_response())
}

/// Returns the newest commit of a run.
///
/// # Errors
/// 409 `head_moved` if it is not the expected one.
async fn newest(repository: &RunRepository, expected: Option<&ObjectId>) -> Result<ObjectId, ApiError> {
    let head = repository.head().await.map_err(|error| errors::of_git(&error))?;
    match expected {
        Some(expected) if *expected != head => Err(PublicationError::HeadMoved { head: head.to_string() }.into()),
        _ => Ok(head),
    }
}

/// Returns the branch of a run as the API shows it.
///
/// # Errors
/// 404 for a run without a repository; errors from reading its changes.
async fn view(context: &Arc<ApiContext>, principal: &Principal, run: &Sandbox) -> Result<GitView, ApiError> {
    let row = row(context, run).await?;
    let _counted = admit_look(context, principal)?;
    let look = look(context, run).await?;
    let pull_request = PullRequestView::recorded(&row);
    let ahead = look.as_ref().map_or(0, |look| look.ahead);
    let behind = match &look {
        Some(look) => behind(context, run, &row, look).await,
        None => None,
    };
    let head_sha = newest_seen(&row, look.as_ref());
    let files = look.as_ref().map(|look| look.files.iter().map(file).collect()).unwrap_or_default();
    Ok(GitView {
        url: row.new.url,
        base_branch: row.new.base_branch,
        base_sha: row.base_sha.or_else(|| look.as_ref().map(|look| look.base.to_string())),
        branch: row.new.branch,
        head_sha,
        published_sha: row.published_sha,
        publish: row.new.publish.as_str(),
        ticket: row.new.ticket,
        title: row.new.title,
        commits: look.as_ref().map_or(0, |look| look.commits.len()),
        ahead,
        behind,
        diverged: ahead > 0 && behind.is_some_and(|behind| behind > 0),
        files,
        guarded_paths: look.as_ref().map(guarded_of).unwrap_or_default(),
        is_too_large: look.is_some_and(|look| look.too_large),
        pull_request,
        merged_sha: row.merged_sha,
        last_error: row.last_error,
        retry_count: row.retry_count,
    })
}

/// Returns the newest commit of a run. It is the commit of `look`, so that a person sees it together with its own
/// files, and not a later commit.
fn newest_seen(row: &GitRun, look: Option<&BranchSummary>) -> Option<String> {
    let looked = look.filter(|look| look.head != look.base).map(|look| look.head.to_string());
    looked.or_else(|| row.head_sha.clone())
}

/// Returns how many commits the base of a run has got since the run began; `None` if that is not known, because the
/// mirror may be removed at any time.
async fn behind(context: &ApiContext, run: &Sandbox, row: &GitRun, look: &BranchSummary) -> Option<u64> {
    let project = crate::git::project(context, run)?;
    let branch = row.new.base_branch.as_deref()?.parse().ok()?;
    let options = project.mirror_options(run.project.clone()?, None);
    context.git.commits_since(&project.url, &options, &branch, &look.base).await.ok().flatten()
}

fn file(file: &ChangedFile) -> ChangedFileView {
    ChangedFileView {
        path: visible_path(&file.path),
        status: file.status.as_str(),
        added: file.added,
        removed: file.removed,
    }
}

/// Returns the state of a run's branch.
async fn row(context: &ApiContext, run: &Sandbox) -> Result<GitRun, ApiError> {
    context.store.find_git_run(&run.key.run_id).await?.ok_or_else(|| {
        let message = "this run works on no repository; create one with the member repository";
        ApiError::new(StatusCode::NOT_FOUND, "no_repository", message)
    })
}

/// Returns the summary of the branch of a run; `None` until the run has its clone.
async fn look(context: &ApiContext, run: &Sandbox) -> Result<Option<BranchSummary>, ApiError> {
    match context.git.run_repository(&run.key.run_id).map_err(|error| errors::of_git(&error))? {
        Some(repository) => repository.look().await.map(Some).map_err(|error| errors::of_git(&error)),
        None => Ok(None),
    }
}

fn admit_look(context: &Arc<ApiContext>, principal: &Principal) -> Result<CountedStream, ApiError> {
    super::admission::admit_file_work(context, principal)
}

fn no_clone_yet() -> ApiError {
    let message = "the run has no clone yet; it gets one when it begins";
    ApiError::new(StatusCode::CONFLICT, "invalid_state", message)
}
