//! Approvals of runs: the list, and decisions of people.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_state::approvals::{Approval, ApprovalDecision, RaisableCap, raised_run_cap};
use sluice_state::sandboxes::Sandbox;
use utoipa::{OpenApi, ToSchema};

use super::idempotent::{IdempotentRepeat, RequestKey, complete, release};
use super::names::check_text;
use super::quantity::{Quantity, whole};
use super::sandboxes::lookup;
use super::{Context, NoQuery};
use crate::api_error::{ApiError, ErrorBody};
use crate::approvals::{DecisionInput, decide};
use crate::context::ApiContext;
use crate::extract::{JsonBody, PathNames, Query};
use crate::git::carry_out;
use crate::permission::Operation;
use crate::principal::Principal;
use crate::timestamp::{timestamp, timestamp_of};

#[derive(OpenApi)]
#[openapi(paths(list, decision))]
pub(super) struct Doc;

pub(super) fn routes() -> Router<Arc<ApiContext>> {
    Router::new()
        .route("/api/v1/sandboxes/{id}/approvals", get(list))
        .route("/api/v1/sandboxes/{id}/approvals/{approval_id}/decision", post(decision))
}

/// Beginning of the message of an error after the decision.
const DECIDED: &str = "the approval is recorded, and the branch is not published completely";
/// Maximum length of a reason in characters.
const REASON_MAX: usize = 500;
/// Characters of a digest.
const DIGEST_LENGTH: usize = 64;

/// Approvals of a run, oldest first.
#[derive(Debug, Serialize, ToSchema)]
struct Approvals {
    approvals: Vec<ApprovalView>,
}

/// A question of the system to a person. An agent cannot make one.
#[derive(Debug, Serialize, ToSchema)]
struct ApprovalView {
    approval_id: String,
    sandbox_id: String,
    attempt: u32,
    /// `cap`: a cap of the run is to be raised. `publish`: its branch is to leave this host.
    kind: &'static str,
    /// Facts about the run. For a publication also `url`, `branch`, `base_branch`, `head_sha`, `commits`, `files`,
    /// `pull_request`, and `guarded_paths` (100 at most) with their number `guarded_count`.
    #[schema(value_type = Object)]
    subject: Value,
    /// `max_calls`, `max_tokens` or `max_cost_usd`.
    cap: Option<&'static str>,
    /// Value of the cap: a number, or dollars.
    old: Option<String>,
    /// Value that is proposed.
    new: Option<String>,
    /// Cap of the run with all its attempts after the proposed raise: limits of who may approve it apply to this value. Null
    /// once it is decided.
    new_run_cap: Option<String>,
    /// SHA-256 of what a person sees. A decision names it.
    digest: String,
    created_at: String,
    /// Time at which it is denied by itself.
    expires_at: String,
    /// Time since which a call waits for it; null while the run works.
    held_at: Option<String>,
    /// `approve`, `deny`, `cancel`, `expired` or `changed`; null while it is open.
    decision: Option<&'static str>,
    decided_by: Option<String>,
    decided_at: Option<String>,
    reason: Option<String>,
    /// Value that was approved.
    raised_to: Option<String>,
    /// Time at which the sidecar of the run had the decision, or the branch was published.
    applied_at: Option<String>,
}

impl ApprovalView {
    fn of(approval: Approval, sandbox: &Sandbox) -> Self {
        let open = approval.cap.filter(|_| approval.decision.is_none());
        let cap = approval.cap.map(|(cap, _, _)| cap);
        let value = |value: Option<i64>| cap.zip(value).map(|(cap, value)| cap.show(value));
        Self {
            kind: approval.kind(),
            sandbox_id: approval.key.run_id.to_string(),
            attempt: approval.key.attempt,
            subject: serde_json::from_str(&approval.subject).unwrap_or_default(),
            cap: cap.map(RaisableCap::as_str),
            old: value(approval.cap.map(|(_, old, _)| old)),
            new: value(approval.cap.map(|(_, _, new)| new)),
            new_run_cap: value(open.map(|raise| raised_run_cap(sandbox.cap, raise))),
            raised_to: value(approval.raised_to),
            created_at: timestamp(approval.created_us),
            expires_at: timestamp(approval.expires_us),
            held_at: timestamp_of(approval.held_us),
            decided_at: timestamp_of(approval.decided_us),
            applied_at: timestamp_of(approval.applied_us),
            decision: approval.decision.map(ApprovalDecision::as_str),
            decided_by: approval.decided_by,
            reason: approval.reason,
            digest: approval.digest,
            approval_id: approval.id,
        }
    }
}

/// Lists what the system asks about a run, and what was decided.
#[utoipa::path(
    get, path = "/api/v1/sandboxes/{id}/approvals",
    params(("id" = String, Path, description = "Id, or a name of the own owner")),
    responses(
        (status = 200, body = Approvals), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)
    )
)]
async fn list(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Json<Approvals>, ApiError> {
    let sandbox = lookup::named(&context, &principal, Operation::Read, &id).await?;
    let approvals = context.store.approvals_of(&sandbox.key.run_id).await?;
    Ok(Json(Approvals { approvals: approvals.into_iter().map(|one| ApprovalView::of(one, &sandbox)).collect() }))
}

/// A decision.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct DecisionBody {
    decision: DecisionWord,
    /// The digest of the approval as it was read.
    digest: String,
    /// New value of the cap; the proposed one otherwise.
    raise: Option<Raise>,
    /// Reason, for the record: 1 to 500 characters.
    reason: Option<String>,
}

/// The word of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum DecisionWord {
    /// The cap is raised, or the branch is published.
    Approve,
    /// The call that waits is refused for good, or the branch stays on this host.
    Deny,
    /// The run is cancelled. Not for a publication.
    Cancel,
}

/// A new value of a cap, absolute.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Raise {
    max_calls: Option<Quantity>,
    max_tokens: Option<Quantity>,
    /// Dollars.
    max_cost_usd: Option<Quantity>,
}

impl Raise {
    fn values(&self) -> Result<Vec<(RaisableCap, i64)>, ApiError> {
        let count = |field: &'static str, value: &Option<Quantity>| match value {
            Some(value) => value.read(field, whole).map(|number| Some(number.cast_signed())),
            None => Ok(None),
        };
        let calls = count("raise.max_calls", &self.max_calls)?;
        let tokens = count("raise.max_tokens", &self.max_tokens)?;
        let cost = self.max_cost_usd.as_ref().map(|usd| usd.usd("raise.max_cost_usd")).transpose()?;
        let all = [(RaisableCap::MaxCalls, calls), (RaisableCap::MaxTokens, tokens), (RaisableCap::MaxCostUsd, cost)];
        Ok(all.into_iter().filter_map(|(cap, value)| Some((cap, value?))).collect())
    }
}

impl DecisionBody {
    fn checked(&self, request: sluice_contract::Hash) -> Result<DecisionInput, ApiError> {
        if let Some(reason) = &self.reason {
            check_text("reason", reason, REASON_MAX)?;
        }
        let is_digest = self.digest.len() == DIGEST_LENGTH && self.digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_digest {
            return Err(ApiError::invalid("digest", "the digest is the 64 characters that the approval shows"));
        }
        let decision = match self.decision {
            DecisionWord::Approve => ApprovalDecision::Approve,
            DecisionWord::Deny => ApprovalDecision::Deny,
            DecisionWord::Cancel => ApprovalDecision::Cancel,
        };
        let raise = self.raise.as_ref().map_or(Ok(Vec::new()), Raise::values)?;
        let (digest, reason) = (self.digest.to_ascii_lowercase(), self.reason.clone());
        Ok(DecisionInput { decision, digest, raise, reason, request })
    }
}

/// Decides about what the system asks. The first decision stays.
#[utoipa::path(
    post, path = "/api/v1/sandboxes/{id}/approvals/{approval_id}/decision", request_body = DecisionBody,
    params(
        ("id" = String, Path, description = "Id of the run"),
        ("approval_id" = String, Path, description = "Id of the approval"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 characters: the same key decides once")
    ),
    responses(
        (status = 200, description = "The approval with its decision", body = ApprovalView),
        (status = 400, body = ErrorBody), (status = 401, body = ErrorBody), (status = 402, body = ErrorBody),
        (status = 403, body = ErrorBody), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody),
        (status = 413, body = ErrorBody), (status = 415, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 429, body = ErrorBody), (status = 502, body = ErrorBody), (status = 503, body = ErrorBody)
    )
)]
async fn decision(
    State(context): Context,
    principal: Principal,
    PathNames([id, approval_id]): PathNames<2>,
    Query(NoQuery {}): Query<NoQuery>,
    key: RequestKey,
    body: JsonBody<DecisionBody>,
) -> Result<Json<ApprovalView>, ApiError> {
    let sandbox = lookup::identified(&context, &principal, Operation::Decide, &id).await?;
    let input = body.value.checked(body.digest)?;
    let key = match key.reserve(&context, &principal, body.digest).await? {
        IdempotentRepeat::Done(_) => {
            let found = context.store.find_approval(&sandbox.key.run_id, &approval_id).await?;
            return found.map(|found| Json(ApprovalView::of(found, &sandbox))).ok_or_else(ApiError::not_found);
        }
        IdempotentRepeat::New(key) => key,
    };
    match decide(&context, &principal, &sandbox, &approval_id, input).await {
        Ok(approval) => {
            complete(&context, key, &approval.id).await;
            let done = carry_out(&context, Some(&principal), &sandbox, approval).await;
            Ok(Json(ApprovalView::of(done.map_err(|error| error.after(DECIDED))?, &sandbox)))
        }
        Err(error) => {
            release(&context, key).await;
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::test_daemon::TestDaemon;

    const USD: i64 = 1_000_000_000;

    #[tokio::test]
    async fn a_view_has_the_cap_of_all_attempts() {
        let daemon = TestDaemon::with_runs().await;
        let id = daemon.create("slu_alice", json!({ "task": "x", "max_cost_usd": 3 })).await;
        let id = id.parse().expect("an id");
        let run = daemon.store().find_sandbox(None, &id).await.expect("it is readable").expect("it is there");
        let shown = |cap, decision| {
            let approval = Approval {
                id: "apr-1".to_owned(),
                key: run.key.clone(),
                cap,
                subject: "{}".to_owned(),
                digest: String::new(),
                created_us: 1,
                expires_us: 2,
                held_us: None,
                decision,
                decided_by: None,
                reason: None,
                raised_to: None,
                decided_us: None,
                applied_us: None,
            };
            ApprovalView::of(approval, &run).new_run_cap
        };
        // Earlier attempts have spent two dollars of the three.
        let cost = Some((RaisableCap::MaxCostUsd, USD, 2 * USD));
        assert_eq!(shown(cost, None).as_deref(), Some("4"));
        assert_eq!(shown(cost, Some(ApprovalDecision::Approve)), None, "the cap of the run has the raise already");
        assert_eq!(shown(Some((RaisableCap::MaxCalls, 10, 20)), None).as_deref(), Some("20"));
        assert_eq!(shown(None, None), None);
    }
}
