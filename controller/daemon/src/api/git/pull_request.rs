//! The pull request of a run.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sluice_git::forge::{MergeMethod, MergeOutcome, PullRequest, PullRequestState};
use sluice_state::control_log::ControlEntry;
use sluice_state::git_runs::GitRun;
use sluice_state::sandboxes::Sandbox;
use utoipa::ToSchema;

use super::publishing::object_id;
use super::{admit_look, row};
use crate::api::sandboxes::{lookup, record};
use crate::api::{Context, NoQuery};
use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::extract::{JsonBody, PathNames, Query};
use crate::git;
use crate::permission::Operation;
use crate::principal::Principal;
use crate::second_person::is_second_person;

/// A pull request.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PullRequestView {
    number: u64,
    /// Address for people; null at a forge without pages.
    url: Option<String>,
    /// `open`, `merged` or `closed`; null where the forge was not asked.
    state: Option<&'static str>,
    /// Commit of the branch at the forge; null where the forge was not asked.
    head_sha: Option<String>,
    /// True if it can be merged, false if it has conflicts; null while the forge does not know.
    mergeable: Option<bool>,
}

impl PullRequestView {
    /// Returns the pull request as the database has it.
    pub(super) fn recorded(row: &GitRun) -> Option<Self> {
        let url = row.pull_request_url.clone().filter(|url| !url.is_empty());
        row.pull_request.map(|number| Self { number, url, state: None, head_sha: None, mergeable: None })
    }

    fn of(found: PullRequest) -> Self {
        let state = match found.state {
            PullRequestState::Open => "open",
            PullRequestState::Merged => "merged",
            PullRequestState::Closed => "closed",
        };
        Self {
            number: found.number,
            url: found.url,
            state: Some(state),
            head_sha: Some(found.head_sha),
            mergeable: found.mergeable,
        }
    }
}

/// A merge.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Merge {
    /// Commit that was reviewed: `published_sha` of `GET …/git`.
    head_sha: String,
    /// `squash`, `merge` or `rebase`; squash by default.
    method: Option<String>,
}

/// Returns the pull request of a run, as the forge has it now.
#[utoipa::path(
    get, path = "/api/v1/sandboxes/{id}/git/pr",
    params(("id" = String, Path, description = "Id, or a name of the own owner")),
    responses(
        (status = 200, body = PullRequestView), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 429, body = ErrorBody), (status = 502, body = ErrorBody), (status = 503, body = ErrorBody)
    )
)]
pub(super) async fn show(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Json<PullRequestView>, ApiError> {
    let run = lookup::named(&context, &principal, Operation::Read, &id).await?;
    let number = row(&context, &run)
        .await?
        .pull_request
        .ok_or_else(|| ApiError::new(http::StatusCode::NOT_FOUND, "no_pull_request", "the run has no pull request"))?;
    let _counted = admit_look(&context, &principal)?;
    let forge = git::forge(&context, &run).await.map_err(|error| git::refused(&context, &run, error))?;
    let found = forge.pull_request(number).await.map_err(|error| git::refused(&context, &run, error.into()))?;
    Ok(Json(PullRequestView::of(found)))
}

/// Opens the pull request of a published branch, as a draft, or returns the one that is there.
#[utoipa::path(
    post, path = "/api/v1/sandboxes/{id}/git/pr",
    params(("id" = String, Path, description = "Id, or a name of the own owner")),
    responses(
        (status = 200, body = PullRequestView), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 429, body = ErrorBody), (status = 502, body = ErrorBody), (status = 503, body = ErrorBody)
    )
)]
pub(super) async fn open(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Json<PullRequestView>, ApiError> {
    const OPERATION: &str = "git.pull_request";
    let run = lookup::named(&context, &principal, Operation::Publish, &id).await?;
    let seq = record(&context, &principal, OPERATION, &run, ControlEntry::default()).await?;
    match open_now(&context, &run).await {
        Ok(view) => Ok(Json(view)),
        Err(error) => Err(context.record_failure(&principal, OPERATION, seq, error).await),
    }
}

async fn open_now(context: &Arc<ApiContext>, run: &Sandbox) -> Result<PullRequestView, ApiError> {
    let opened = git::open_pull_request(context, run).await;
    let row = opened.map_err(|error| git::refused(context, run, error))?;
    PullRequestView::recorded(&row).ok_or_else(ApiError::not_found)
}

/// Merges the pull request of a run, if the branch is still the commit that was reviewed. Another person than the owner and
/// the creator of the run merges it.
#[utoipa::path(
    post, path = "/api/v1/sandboxes/{id}/git/pr/merge", request_body = Merge,
    params(("id" = String, Path, description = "Id, or a name of the own owner")),
    responses(
        (status = 200, body = PullRequestView), (status = 400, body = ErrorBody), (status = 401, body = ErrorBody),
        (status = 403, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 409, description = "The branch has moved, or has conflicts", body = ErrorBody),
        (status = 413, body = ErrorBody), (status = 415, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 429, body = ErrorBody), (status = 502, body = ErrorBody), (status = 503, body = ErrorBody)
    )
)]
pub(super) async fn merge(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(NoQuery {}): Query<NoQuery>,
    body: JsonBody<Merge>,
) -> Result<Json<PullRequestView>, ApiError> {
    const OPERATION: &str = "git.merge";
    let run = lookup::named(&context, &principal, Operation::Publish, &id).await?;
    row(&context, &run).await?;
    let creator = context.stored_request(&run.key.run_id).await?.creator;
    if !is_second_person(&principal, &run.owner, creator.as_ref()) {
        let message = "another person than the owner and the creator of the run merges it; ask another admin";
        return Err(ApiError::new(http::StatusCode::FORBIDDEN, "second_person", message));
    }
    let head = object_id(&body.value.head_sha)?;
    let method = body.value.method.as_deref().map_or(Ok(MergeMethod::Squash), str::parse);
    let method = method.map_err(|_| ApiError::invalid("method", "method is squash, merge or rebase"))?;
    let entry = ControlEntry {
        request: Some(body.digest),
        after: Some(json!({ "head_sha": head.as_str(), "method": method.as_str() })),
        ..ControlEntry::default()
    };
    let seq = record(&context, &principal, OPERATION, &run, entry).await?;
    match merge_now(&context, &run, &head, method).await {
        Ok(view) => Ok(Json(view)),
        Err(error) => Err(context.record_failure(&principal, OPERATION, seq, error).await),
    }
}

async fn merge_now(
    context: &Arc<ApiContext>,
    run: &Sandbox,
    head: &sluice_git::ObjectId,
    method: MergeMethod,
) -> Result<PullRequestView, ApiError> {
    let outcome = git::merge(context, run, head, method).await;
    let outcome = outcome.map_err(|error| git::refused(context, run, error))?;
    let conflict = |code, message: &str| Err(ApiError::new(http::StatusCode::CONFLICT, code, message));
    match outcome {
        MergeOutcome::Merged { .. } => {}
        MergeOutcome::HasConflicts => {
            return conflict("has_conflicts", "the branch has conflicts with its base; let a new run resolve them");
        }
        MergeOutcome::HeadMoved => return conflict("head_moved", "the branch has moved at the forge; look again"),
        MergeOutcome::Refused(reason) => {
            (context.log)(&format!("run {}: the forge does not merge its pull request: {reason}", run.key));
            return conflict("not_merged", "the forge does not merge it; the pull request there says what is missing");
        }
    }
    let row = row(context, run).await?;
    PullRequestView::recorded(&row).ok_or_else(ApiError::not_found)
}
