//! Publication of a run's branch by a person.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::json;
use sluice_contract::text::error_chain;
use sluice_git::ObjectId;
use sluice_runs::publication::Consent;
use sluice_state::control_log::ControlEntry;
use sluice_state::sandboxes::Sandbox;
use sluice_state::store::now_us;
use utoipa::ToSchema;

use super::{GitView, view};
use crate::api::sandboxes::{lookup, record};
use crate::api::{Context, NoQuery};
use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::extract::{JsonBody, PathNames, Query};
use crate::git;
use crate::permission::Operation;
use crate::principal::Principal;

/// Consent to a publication: it leaves the host, and CI at the forge executes it with a network.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Publish {
    /// Commit that was reviewed: `head_sha` of `GET …/git`.
    head_sha: String,
    /// True if the changed files of `guarded_paths` may leave, too.
    #[serde(default)]
    accept_guarded_paths: bool,
}

/// Publishes the branch of a run: the named commit, under the name of the branch, or that with a number if it is taken.
#[utoipa::path(
    post, path = "/api/v1/sandboxes/{id}/git/publish", request_body = Publish,
    params(("id" = String, Path, description = "Id, or a name of the own owner")),
    responses(
        (status = 200, description = "The branch; the same commit is published once", body = GitView),
        (status = 400, body = ErrorBody), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 413, body = ErrorBody),
        (status = 415, body = ErrorBody), (status = 422, body = ErrorBody), (status = 429, body = ErrorBody),
        (status = 502, description = "The repository does not take it", body = ErrorBody),
        (status = 503, body = ErrorBody)
    )
)]
pub(super) async fn publish(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(NoQuery {}): Query<NoQuery>,
    body: JsonBody<Publish>,
) -> Result<Json<GitView>, ApiError> {
    const OPERATION: &str = "git.publish";
    let run = lookup::named(&context, &principal, Operation::Publish, &id).await?;
    let consent = body.value.checked()?;
    let entry = ControlEntry {
        request: Some(body.digest),
        after: Some(json!({ "head_sha": consent.head.as_ref().map(ObjectId::as_str), "guarded": consent.has_guarded })),
        ..ControlEntry::default()
    };
    let seq = record(&context, &principal, OPERATION, &run, entry).await?;
    if let Err(error) = publish_now(&context, &run, &consent).await {
        return Err(context.record_failure(&principal, OPERATION, seq, error).await);
    }
    Ok(Json(view(&context, &principal, &run).await?))
}

async fn publish_now(context: &ApiContext, run: &Sandbox, consent: &Consent) -> Result<(), ApiError> {
    git::publish(context, run, consent).await.map_err(|error| git::refused(context, run, error))?;
    if let Err(error) = context.store.settle_publications(&run.key.run_id, now_us()).await {
        // The branch is published. The next start of the daemon detects that, and settles the approval.
        (context.log)(&format!("run {}: its approvals: {}", run.key, error_chain(&error)));
    }
    Ok(())
}

impl Publish {
    fn checked(&self) -> Result<Consent, ApiError> {
        Ok(Consent { head: Some(object_id(&self.head_sha)?), has_guarded: self.accept_guarded_paths })
    }
}

/// Reads the id of a commit in a request.
pub(super) fn object_id(text: &str) -> Result<ObjectId, ApiError> {
    let message = "head_sha is the id of a commit in hexadecimal digits, as GET …/git shows it";
    text.parse().map_err(|_| ApiError::invalid("head_sha", message))
}
