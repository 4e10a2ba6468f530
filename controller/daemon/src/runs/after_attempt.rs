//! Work after the program of an attempt has ended: last reads, and removal.

use sluice_contract::RunKey;
use sluice_contract::text::error_chain;
use sluice_runs::removal;
use sluice_runs::verdict::ErrorCode;
use sluice_state::events::{EventFilter, EventQuery, LoggedEvent};
use sluice_state::store::now_us;

use super::call_events;
use super::service::shown;
use crate::context::ApiContext;
use crate::injection::INTERRUPTED;

/// Revokes the token of a sidecar that has ended, records its last signs of life and the state of its messages, and
/// forgets the conversation.
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

/// Returns the failure code of an attempt. It is `interrupted` for a program that a person interrupted, and that failed
/// without a further call.
pub(super) async fn failure_code<'a>(context: &ApiContext, key: &RunKey, code: &'a str) -> &'a str {
    if code != ErrorCode::ContainerFailed.as_str() {
        return code;
    }
    let Some(interrupted) = last_event(context, key, INTERRUPTED).await else { return code };
    let call = last_event(context, key, call_events::STARTED).await;
    if ended_by(&interrupted, call.as_ref()) { "interrupted" } else { code }
}

/// Returns the last event of a type in this attempt.
async fn last_event(context: &ApiContext, key: &RunKey, event_type: &str) -> Option<LoggedEvent> {
    let filter = EventFilter {
        sandbox_id: Some(key.run_id.to_string()),
        types: vec![event_type.to_owned()],
        ..EventFilter::default()
    };
    let found = context.store.list_events(EventQuery { filter, limit: 1, ..EventQuery::default() }).await;
    let last = found.ok().and_then(|page| page.events.into_iter().next());
    last.filter(|last| last.attempt == Some(key.attempt))
}

/// Returns whether the last call began before the interruption. The log reads calls from the audit file, so a call that
/// was interrupted can come after its interruption there: the sidecar's time decides.
fn ended_by(interrupted: &LoggedEvent, call: Option<&LoggedEvent>) -> bool {
    call.and_then(call_events::began_us).is_none_or(|began| began < interrupted.created_us)
}

#[cfg(test)]
mod tests {
    use sluice_state::events::EventSource;

    use super::*;

    fn event(event_type: &str, event_data: &str, created_us: i64) -> LoggedEvent {
        LoggedEvent {
            seq: 1,
            id: "evt_1".to_owned(),
            owner: "alice".to_owned(),
            sandbox_id: Some("r1".to_owned()),
            attempt: Some(0),
            agent_id: None,
            zone_id: None,
            event_type: event_type.to_owned(),
            source: EventSource::System,
            event_data: event_data.to_owned(),
            created_us,
        }
    }

    #[test]
    fn the_call_that_was_interrupted_may_be_logged_after_it() {
        let interrupted = event(INTERRUPTED, "{}", 2_000_000);
        let call = |ts| event(call_events::STARTED, &format!(r#"{{"ts":"1970-01-01T00:00:{ts}Z"}}"#), 2_500_000);
        assert!(ended_by(&interrupted, Some(&call("01.900000"))));
        assert!(!ended_by(&interrupted, Some(&call("02.100000"))), "the agent went on");
        assert!(ended_by(&interrupted, None), "a call that was held has no start");
    }
}
