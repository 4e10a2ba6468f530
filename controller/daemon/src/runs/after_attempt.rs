//! Work after the program of an attempt has ended: last reads, and removal.

use sluice_contract::RunKey;
use sluice_contract::text::error_chain;
use sluice_runs::removal;
use sluice_runs::verdict::ErrorCode;
use sluice_state::events::{EventFilter, EventQuery};
use sluice_state::store::now_us;

use super::service::shown;
use crate::context::ApiContext;
use crate::injection::INTERRUPTED;

/// Takes the token of a sidecar that has ended, records its last signs of life and the state of its messages, and forgets
/// the conversation.
pub(super) async fn forget(context: &ApiContext, key: &RunKey) {
    let signs = context.conversations.take();
    if !signs.is_empty()
        && let Err(error) = context.store.record_activity(signs.clone()).await
    {
        // Signs of other runs are recorded later.
        signs.into_iter().for_each(|seen| context.conversations.add(seen));
        (context.log)(&format!("run {key}: its last signs of life are not recorded: {}", error_chain(&error)));
    }
    let last = context.conversations.forget(key);
    if !last.is_empty()
        && let Err(error) = context.store.record_injected(key, last, now_us()).await
    {
        (context.log)(&format!("run {key}: the end of its messages is not recorded: {}", error_chain(&error)));
    }
    if let Err(error) = context.store.revoke_run_token(key).await {
        // The next attempt, or the end of the run, makes it invalid.
        (context.log)(&format!("run {key}: its token is not revoked: {}", error_chain(&error)));
    }
}

/// Deletes the directory that was renamed at the end of the run. A sweep deletes the remains after a failure.
pub(super) async fn remove_workspace(context: &ApiContext, key: &RunKey) {
    let (runs, own) = (context.layout.runs_directory(), key.to_string());
    let removing = tokio::task::spawn_blocking(move || removal::remove_all(&runs, Some(&own), None));
    let remaining = removing.await.unwrap_or_default().into_iter().find(|it| it.name == key.to_string());
    if let Some(remaining) = remaining {
        (context.log)(&format!("{}: its directory is not removed: {}", shown(key), remaining.reason));
    }
}

/// Returns the failure code of an attempt: a program that failed after a person had interrupted it, and made no call since,
/// ended by the interruption.
pub(super) async fn failure_code<'a>(context: &ApiContext, key: &RunKey, code: &'a str) -> &'a str {
    if code != ErrorCode::ContainerFailed.as_str() {
        return code;
    }
    let filter = EventFilter {
        sandbox_id: Some(key.run_id.to_string()),
        types: vec![INTERRUPTED.to_owned(), "llm.call_started".to_owned()],
        ..EventFilter::default()
    };
    let found = context.store.list_events(EventQuery { filter, limit: 1, ..EventQuery::default() }).await;
    let last = found.ok().and_then(|page| page.events.into_iter().next());
    let is_interrupted = last.is_some_and(|last| last.event_type == INTERRUPTED && last.attempt == Some(key.attempt));
    if is_interrupted { "interrupted" } else { code }
}
