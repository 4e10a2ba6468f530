//! The export of a run's branch. Each step that is made is an event of the run.

use std::sync::Arc;

use serde_json::Value;
use sluice_contract::text::error_chain;
use sluice_git::ObjectId;
use sluice_git::forge::{Forge, MergeMethod, MergeOutcome};
use sluice_runs::project_access;
use sluice_runs::publication::{Consent, Publication, PublicationError, RunSummary, last_task};
use sluice_state::events::{EventFilter, EventQuery};
use sluice_state::git_runs::GitRun;
use sluice_state::sandboxes::Sandbox;
use sluice_state::store::StoreError;

use super::{report_merged, report_published, report_pull_request, start};
use crate::api_error::ApiError;
use crate::context::ApiContext;
use crate::stored_request::StoredRequest;

/// Returns the branch of a run, and the targets of its publication.
///
/// # Errors
/// [`PublicationError::NoRepository`]; [`PublicationError::ProjectChanged`]: the project no longer has one.
pub(super) async fn publication<'a>(
    context: &'a ApiContext,
    run: &'a Sandbox,
) -> Result<Publication<'a>, PublicationError> {
    context.store.find_git_run(&run.key.run_id).await?.ok_or(PublicationError::NoRepository)?;
    let project = start::project(context, run).ok_or(PublicationError::ProjectChanged)?;
    Ok(Publication { store: &context.store, home: &context.git, project, run_id: &run.key.run_id })
}

/// Returns the forge of a run's project, if the project still has the repository that the run began with.
///
/// # Errors
/// The errors of [`publication`], of [`Publication::row_at_project`] and of [`project_access::forge`].
pub(crate) async fn forge(context: &ApiContext, run: &Sandbox) -> Result<Forge, PublicationError> {
    let publication = publication(context, run).await?;
    publication.row_at_project().await?;
    project_access::forge(publication.project, &context.git)
}

/// Publishes the branch of a run.
///
/// # Errors
/// The errors of [`Publication::publish`].
pub(crate) async fn publish(context: &ApiContext, run: &Sandbox, consent: &Consent) -> Result<(), PublicationError> {
    let branch = publication(context, run).await?.publish(consent).await?;
    report_published(context, run, &branch, consent.head.as_ref().map_or("", ObjectId::as_str)).await;
    Ok(())
}

/// Opens the pull request of a published branch.
///
/// # Errors
/// The errors of [`Publication::open_pull_request`].
pub(crate) async fn open_pull_request(context: &Arc<ApiContext>, run: &Sandbox) -> Result<GitRun, PublicationError> {
    let forge = forge(context, run).await?;
    let summary = summary(context, run).await?;
    let row = publication(context, run).await?.open_pull_request(&forge, &summary).await?;
    report_pull_request(context, run, &row).await;
    Ok(row)
}

/// Merges the pull request of a run.
///
/// # Errors
/// The errors of [`Publication::merge`].
pub(crate) async fn merge(
    context: &Arc<ApiContext>,
    run: &Sandbox,
    head: &ObjectId,
    method: MergeMethod,
) -> Result<MergeOutcome, PublicationError> {
    let forge = forge(context, run).await?;
    let summary = summary(context, run).await?;
    let publication = publication(context, run).await?;
    let outcome = publication.merge(&forge, &summary, head, method).await?;
    if matches!(outcome, MergeOutcome::Merged { .. }) {
        report_merged(context, run, &publication.row().await?).await;
    }
    Ok(outcome)
}

/// Returns the response for a failed step. The log has the details that an owner does not see.
pub(crate) fn refused(context: &ApiContext, run: &Sandbox, error: PublicationError) -> ApiError {
    if error.is_of_host() {
        (context.log)(&format!("run {}: a step of its publication failed: {}", run.key, error_chain(&error)));
    }
    error.into()
}

/// Returns what people see of a run in its pull request.
pub(super) async fn summary(context: &Arc<ApiContext>, run: &Sandbox) -> Result<RunSummary, StoreError> {
    let request = context.store.sandbox_request(&run.key.run_id).await?;
    let request: Option<StoredRequest> = request.and_then(|text| serde_json::from_str(&text).ok());
    let recorded = RunSummary::of_record(&context.layout.records(), &context.store, &run.key).await?;
    let asked = last_task(&Value::from(request.and_then(|request| request.messages).unwrap_or_default()));
    Ok(RunSummary { asked, done: last_words(context, run).await?, ..recorded })
}

/// Returns the last message of the agent.
async fn last_words(context: &ApiContext, run: &Sandbox) -> Result<String, StoreError> {
    let filter = EventFilter {
        sandbox_id: Some(run.key.run_id.to_string()),
        types: vec!["agent.assistant_message".to_owned()],
        ..EventFilter::default()
    };
    let page = context.store.list_events(EventQuery { filter, limit: 1, ..EventQuery::default() }).await?;
    let data = page.events.first().and_then(|event| serde_json::from_str::<Value>(&event.event_data).ok());
    Ok(data.and_then(|data| data["text"].as_str().map(str::to_owned)).unwrap_or_default())
}
