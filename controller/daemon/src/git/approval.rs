//! Approval of a publication: asked when a branch waits for a person, and carried out after the decision.

use std::sync::Arc;

use serde_json::{Value, json};
use sluice_contract::text::error_chain;
use sluice_contract::time::duration_micros;
use sluice_git::ObjectId;
use sluice_runs::project_access;
use sluice_runs::publication::{Consent, Publication, PublicationError};
use sluice_runs::run_clone::CloneReport;
use sluice_state::approvals::{Approval, PublicationAsk, approval_id};
use sluice_state::git_runs::GitRun;
use sluice_state::sandboxes::Sandbox;
use sluice_state::store::now_us;

use super::{report_published, report_pull_request, start, summary};
use crate::context::ApiContext;
use crate::run_policy::ASK_TIMEOUT;

/// Maximum number of guarded files in an approval. The commit has all of them.
const GUARDED_MAX: usize = 100;

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

/// Returns what a person sees.
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

/// Publishes what was approved, and opens the pull request that the run wants. Steps that were done are not repeated.
///
/// # Errors
/// [`PublicationError`]
pub(crate) async fn publish_approved(
    context: &Arc<ApiContext>,
    run: &Sandbox,
    approval: &Approval,
) -> Result<(), PublicationError> {
    let project = start::project(context, run).ok_or(PublicationError::NoRepository)?;
    let publication = Publication { store: &context.store, home: &context.git, project, run_id: &run.key.run_id };
    let subject: Value = serde_json::from_str(&approval.subject).unwrap_or_default();
    // Without its commit, the approval is about nothing.
    let head: ObjectId =
        subject["head_sha"].as_str().and_then(|head| head.parse().ok()).ok_or(PublicationError::Nothing)?;
    let name = head.to_string();
    let branch = publication.publish(&Consent { head: Some(head), has_guarded: true }).await?;
    report_published(context, run, &branch, &name).await;
    if publication.row().await?.new.wants_pull_request {
        let forge = project_access::forge(project, &context.git)?;
        let summary = summary(context, run).await.map_err(|_| PublicationError::NotPublished)?;
        let row = publication.open_pull_request(&forge, &summary).await?;
        report_pull_request(context, run, &row).await;
    }
    if let Err(error) = context.store.record_applied(&approval.id, now_us()).await {
        // The next start finds that the steps are done.
        (context.log)(&format!("run {}: approval {}: {}", run.key, approval.id, error_chain(&error)));
    }
    Ok(())
}

/// Carries out the approved publications of an earlier daemon, which may have been killed before.
pub(crate) async fn publish_left(context: &Arc<ApiContext>) {
    let left = context.store.unapplied_publications().await.unwrap_or_default();
    for approval in left {
        let found = context.store.find_sandbox(None, &approval.key.run_id).await.ok().flatten();
        let Some(run) = found.filter(|run| run.key == approval.key) else { continue };
        if let Err(error) = publish_approved(context, &run, &approval).await {
            (context.log)(&format!("run {}: its branch stays here: {}", run.key, error_chain(&error)));
        }
    }
}
