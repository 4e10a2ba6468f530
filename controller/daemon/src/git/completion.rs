//! Records the branch of a run that is over, and publishes it if the rule says so.

use std::sync::Arc;

use serde_json::json;
use sluice_contract::text::error_chain;
use sluice_git::ObjectId;
use sluice_runs::publication::{Consent, PublicationError};
use sluice_runs::run_clone::{CloneReport, recall};
use sluice_state::git_runs::{GitRun, PublishRule};
use sluice_state::sandboxes::{DesiredState, Sandbox, SandboxVerdict};
use sluice_state::store::now_us;

use super::export::publication;
use super::{add_once, approval, open_pull_request, publish};
use crate::context::ApiContext;

/// Completes the branch of a run from its stored state, after a failure or after a daemon was killed. Steps that were
/// already done are detected, and not repeated.
pub(crate) async fn complete_stored(context: &Arc<ApiContext>, run: &Sandbox, has_succeeded: bool) {
    let found = context.store.find_git_run(&run.key.run_id).await.ok().flatten();
    let Some(row) = found else { return };
    if let Ok(Some(repository)) = context.git.run_repository(&run.key.run_id) {
        let report = match recall(&context.layout.records(), &run.key, &repository, &row.new.url).await {
            Some(report) => report,
            None => {
                let mut report = CloneReport::of(&repository, &row.new.url, &row.new.branch, 0).await;
                report.faults.push("the clone in the workspace is not known: only what was pushed came out".to_owned());
                report
            }
        };
        complete(context, run, &report, has_succeeded).await;
    }
}

/// Records the branch of a run. If the run has succeeded, publishes the branch by the rule `auto`, or asks a person by
/// the rule `approve`. A failure leaves the branch on this host, where a person can publish it.
pub(crate) async fn complete(context: &Arc<ApiContext>, run: &Sandbox, report: &CloneReport, has_succeeded: bool) {
    let log = |text: &str| (context.log)(&format!("run {}: {text}", run.key));
    report.faults.iter().for_each(|fault| log(fault));
    report.uncommitted_fault.iter().for_each(|fault| log(&format!("what was not committed did not come out: {fault}")));
    for step in report.steps() {
        if let Err(error) = context.store.record_git_step(&run.key.run_id, step, now_us()).await {
            log(&format!("the state of its branch is not recorded: {}", error_chain(&error)));
        }
    }
    let data = json!({
        "branch": report.branch, "base_sha": report.base, "head_sha": report.head, "commits": report.ahead,
        "files": report.files, "insertions": report.insertions, "deletions": report.deletions,
        "guarded_paths": report.guarded.iter().map(|change| &change.path).collect::<Vec<_>>(),
        "is_too_large": report.too_large, "has_uncommitted": report.uncommitted.is_some(),
        "uncommitted_fault": report.uncommitted_reason, "is_complete": report.faults.is_empty(),
    });
    add_once(context, run, "git.received", &data).await;
    if !has_succeeded || !report.has_commits() || is_stopped(context, run).await {
        return;
    }
    if let Err(error) = Box::pin(publish_by_rule(context, run, report)).await {
        if let PublicationError::Guarded { .. } = &error
            && let Ok(Some(row)) = context.store.find_git_run(&run.key.run_id).await
        {
            approval::ask(context, run, &row, report).await;
        }
        let text = error.public_text();
        log(&format!("a step of its publication failed: {}", error_chain(&error)));
        let data = json!({ "head_sha": report.head, "reason": text });
        add_once(context, run, "git.held", &data).await;
    }
}

async fn publish_by_rule(
    context: &Arc<ApiContext>,
    run: &Sandbox,
    report: &CloneReport,
) -> Result<(), PublicationError> {
    let publication = publication(context, run).await?;
    let row = publication.row().await?;
    // The rule of the project may have become stricter since.
    let rule = row.new.publish.stricter(publication.project.publish);
    if rule == PublishRule::Never {
        return Ok(());
    }
    publication.row_at_project().await?;
    if rule == PublishRule::Approve {
        return ask_about_new_commits(context, run, &row, report).await;
    }
    let head: Option<ObjectId> = report.head.parse().ok();
    if is_stopped(context, run).await {
        return Ok(());
    }
    publish(context, run, &Consent { head, has_guarded: false }).await?;
    if row.new.wants_pull_request && !is_stopped(context, run).await {
        open_pull_request(context, run).await?;
    }
    Ok(())
}

/// Asks a person about commits that the forge does not have, even if it has the commits of an earlier attempt.
///
/// # Errors
/// [`PublicationError::TooLarge`]: a person could not review the change.
async fn ask_about_new_commits(
    context: &ApiContext,
    run: &Sandbox,
    row: &GitRun,
    report: &CloneReport,
) -> Result<(), PublicationError> {
    if row.published_sha.as_deref() == Some(report.head.as_str()) {
        return Ok(());
    }
    if report.too_large {
        return Err(PublicationError::TooLarge);
    }
    approval::ask(context, run, row, report).await;
    Ok(())
}

/// Returns true if the run was stopped or failed, perhaps during its teardown, or if that cannot be read. No rule
/// publishes the branch of such a run.
async fn is_stopped(context: &ApiContext, run: &Sandbox) -> bool {
    match context.store.find_sandbox(None, &run.key.run_id).await {
        Ok(Some(now)) => {
            let is_success = now.verdict.is_none_or(|verdict| verdict == SandboxVerdict::Success);
            now.key != run.key || now.desired_state == DesiredState::Stopped || !is_success
        }
        Ok(None) | Err(_) => true,
    }
}
