//! Approval of a publication: asked when a branch waits for a person, and carried out after the decision.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_contract::text::error_chain;
use sluice_contract::time::duration_micros;
use sluice_git::ObjectId;
use sluice_runs::publication::{Consent, PublicationError};
use sluice_runs::run_clone::CloneReport;
use sluice_state::approvals::{Approval, ApprovalDecision, PublicationAsk, approval_id};
use sluice_state::control_log::ControlEntry;
use sluice_state::git_runs::GitRun;
use sluice_state::sandboxes::Sandbox;
use sluice_state::store::now_us;

use super::{open_pull_request, publish, refused};
use crate::api_error::ApiError;
use crate::context::{ACCEPTED, ApiContext};
use crate::principal::Principal;
use crate::run_policy::ASK_TIMEOUT;

/// Maximum number of guarded files in an approval. The commit has all of them.
const GUARDED_MAX: usize = 100;
/// Time after a decision within which a daemon that starts still makes the publication.
const RESUMED_WITHIN: Duration = Duration::from_secs(24 * 60 * 60);

/// Asks a person whether the branch of a run may leave this host.
pub(super) async fn ask(context: &ApiContext, run: &Sandbox, row: &GitRun, report: &CloneReport) {
    let timeout = context.policy.as_ref().map_or(ASK_TIMEOUT, |policy| policy.ask_timeout);
    let ask = PublicationAsk {
        id: approval_id(),
        key: run.key.clone(),
        subject: subject(run, row, report).to_string(),
        ask_timeout_us: duration_micros(timeout),
    };
    if let Err(error) = context.store.ask_publication(ask, now_us()).await {
        (context.log)(&format!("run {}: its publication is not asked about: {}", run.key, error_chain(&error)));
    }
}

/// Returns the facts that a person sees before the decision.
fn subject(run: &Sandbox, row: &GitRun, report: &CloneReport) -> Value {
    json!({
        "account": run.account,
        "agent_id": run.agent_id,
        "base_branch": report.base_branch,
        "branch": row.new.branch,
        "commits": report.ahead,
        "files": report.files,
        "guarded_count": report.guarded.len(),
        "guarded_paths": report.guarded.iter().take(GUARDED_MAX).map(|change| &change.path).collect::<Vec<_>>(),
        "head_sha": report.head,
        "pull_request": row.new.wants_pull_request,
        "run_id": run.key.run_id.as_str(),
        "url": row.new.url,
    })
}

/// Publishes what was approved, and opens the pull request that the run wants. Each of the two is an operation of the control
/// log, by the person or by the daemon itself; one that was done is not repeated. Other approvals stay as they are.
///
/// # Errors
/// The decision stays.
pub(crate) async fn carry_out(
    context: &Arc<ApiContext>,
    by: Option<&Principal>,
    run: &Sandbox,
    approval: Approval,
) -> Result<Approval, ApiError> {
    if approval.cap.is_some() || approval.decision != Some(ApprovalDecision::Approve) || approval.applied_us.is_some() {
        return Ok(approval);
    }
    recorded(context, by, (run, "git.publish"), &approval, publish_approved(context, run, &approval)).await?;
    let row = context.store.find_git_run(&run.key.run_id).await?;
    if row.is_some_and(|row| row.new.wants_pull_request && row.pull_request.is_none()) {
        recorded(context, by, (run, "git.pull_request"), &approval, open_pull_request(context, run)).await?;
    }
    let now = now_us();
    context.store.record_applied(&approval.id, now).await?;
    Ok(Approval { applied_us: Some(now), ..approval })
}

/// Records an operation before it takes effect, and its failure afterwards.
async fn recorded<T>(
    context: &ApiContext,
    by: Option<&Principal>,
    (run, operation): (&Sandbox, &str),
    approval: &Approval,
    step: impl Future<Output = Result<T, PublicationError>>,
) -> Result<(), ApiError> {
    let entry = ControlEntry {
        operation: operation.to_owned(),
        object: Some(run.key.run_id.to_string()),
        owner: Some(run.owner.clone()),
        after: Some(json!({ "approval_digest": approval.digest })),
        ..ControlEntry::default()
    };
    // `record` would count a change of the owner again: the decision has been counted already.
    let seq = match by {
        Some(person) => context.record_end(person, entry, ACCEPTED).await?,
        None => context.record_own(entry).await?,
    };
    let Err(error) = step.await else { return Ok(()) };
    let error = refused(context, run, error);
    Err(match by {
        Some(person) => context.record_failure(person, operation, seq, error).await,
        None => context.record_own_failure(operation, seq, error).await,
    })
}

/// Publishes the approved commit. A publication always goes to the repository that the run began with, which the
/// approval names.
async fn publish_approved(context: &ApiContext, run: &Sandbox, approval: &Approval) -> Result<(), PublicationError> {
    let subject: Value = serde_json::from_str(&approval.subject).unwrap_or_default();
    // An approval without a commit publishes nothing.
    let head = subject["head_sha"].as_str().unwrap_or_default();
    let head: ObjectId = head.parse().map_err(|_| PublicationError::Nothing)?;
    publish(context, run, &Consent { head: Some(head), has_guarded: true }).await
}

/// Makes the publications that were approved within the last 24 hours and that an earlier daemon has not completed.
pub(crate) async fn resume_publications(context: &Arc<ApiContext>) {
    let since_us = now_us().saturating_sub(duration_micros(RESUMED_WITHIN));
    let approved = context.store.unapplied_publications(since_us).await.unwrap_or_default();
    for approval in approved {
        let found = context.store.find_sandbox(None, &approval.key.run_id).await.ok().flatten();
        let Some(run) = found.filter(|run| run.key == approval.key) else { continue };
        // The control log has the reason of a failure.
        let _ = carry_out(context, None, &run, approval).await;
    }
}
