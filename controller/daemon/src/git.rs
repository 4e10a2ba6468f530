//! Repositories of runs: the clone that a run begins with, its pushes, and the publication of its branch.
//!
//! The daemon calls `sluice-git` and the publication of `sluice-runs`, and records each step as an event of the run.

use serde_json::{Value, json};
use sluice_contract::text::error_chain;
use sluice_state::events::{EventFilter, EventQuery, EventQuota, EventSource, NewLoggedEvent};
use sluice_state::git_runs::GitRun;
use sluice_state::sandboxes::Sandbox;
use sluice_state::store::now_us;

use crate::context::ApiContext;

mod approval;
mod completion;
mod export;
mod start;

pub(crate) use approval::{carry_out, resume_publications};
pub(crate) use completion::{complete, complete_stored};
pub(crate) use export::{forge, merge, open_pull_request, publish, refused};
pub(crate) use start::{adopted, begin, project};

/// Adds an event of a run, unless the last event of its type is the same: a step that is repeated after a crash is
/// recorded once.
pub(crate) async fn add_once(context: &ApiContext, run: &Sandbox, event_type: &str, data: &Value) {
    let filter = EventFilter {
        sandbox_id: Some(run.key.run_id.to_string()),
        types: vec![event_type.to_owned()],
        ..EventFilter::default()
    };
    let found = context.store.list_events(EventQuery { filter, limit: 1, ..EventQuery::default() }).await;
    let last = found.ok().and_then(|page| page.events.into_iter().next());
    let is_there = last.is_some_and(|last| {
        last.attempt == Some(run.key.attempt)
            && serde_json::from_str::<Value>(&last.event_data).ok().as_ref() == Some(data)
    });
    if !is_there {
        add(context, run, event_type, data).await;
    }
}

/// Adds the event of a published branch.
async fn report_published(context: &ApiContext, run: &Sandbox, branch: &str, head: &str) {
    add_once(context, run, "git.published", &json!({ "branch": branch, "head_sha": head })).await;
}

/// Adds the event of a pull request.
async fn report_pull_request(context: &ApiContext, run: &Sandbox, row: &GitRun) {
    let data = json!({ "number": row.pull_request, "url": row.pull_request_url, "branch": row.new.branch });
    add_once(context, run, "git.pull_request", &data).await;
}

/// Adds the event of a merge.
async fn report_merged(context: &ApiContext, run: &Sandbox, row: &GitRun) {
    let data = json!({ "number": row.pull_request, "sha": row.merged_sha });
    add_once(context, run, "git.merged", &data).await;
}

/// Adds an event of a run. If that fails, `…/git` still reports the result.
pub(crate) async fn add(context: &ApiContext, run: &Sandbox, event_type: &str, data: &Value) {
    let event = NewLoggedEvent {
        attempt: Some(run.key.attempt),
        agent_id: Some(run.agent_id.clone()),
        source: EventSource::System,
        ..NewLoggedEvent::of_run(&run.owner, run.key.run_id.as_str(), event_type, data.to_string(), now_us())
    };
    let appended = context.store.append_events(vec![event], EventQuota::default()).await;
    if let Err(error) = appended {
        (context.log)(&format!("run {}: {event_type} is not in the event log: {}", run.key, error_chain(&error)));
    }
}

#[cfg(test)]
mod tests;
