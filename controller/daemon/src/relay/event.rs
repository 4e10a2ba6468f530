//! `POST …/events`: reports of the agent or its worker.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sluice_state::events::{EventDiff, EventSource, HEARTBEAT, NewLoggedEvent};
use sluice_state::store::now_us;

use super::{RelayCaller, effects};
use crate::api_error::ApiError;
use crate::context::ApiContext;
use crate::conversations::Counted;
use crate::extract::JsonBody;
use crate::timestamp::timestamp;

/// Type of the events with a diff.
const FILE_EDITED: &str = "agent.file_edited";
/// Maximum number of bytes of a stored diff.
const DIFF_MAX: usize = 1 << 20;

/// An event that a run reports. Its source is decided by the socket, and is not a member.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReportedEvent {
    event_type: String,
    #[serde(default)]
    event_data: Map<String, Value>,
}

/// An event that is in the log.
#[derive(Debug, Serialize)]
pub(super) struct ReceivedEvent {
    status: &'static str,
    sandbox_id: String,
    event_type: String,
    event_id: String,
    timestamp: String,
}

/// Takes an event. It is on disk when this answers.
pub(super) async fn report(
    State(context): State<Arc<ApiContext>>,
    caller: RelayCaller,
    body: JsonBody<ReportedEvent>,
) -> Result<Json<ReceivedEvent>, ApiError> {
    let ReportedEvent { event_type, mut event_data } = body.value;
    if event_type == HEARTBEAT {
        caller.count(&context, Counted::Heartbeat)?;
    }
    let sandbox = caller.sandbox(&context).await?;
    let diff = if event_type == FILE_EDITED { take_diff(&mut event_data) } else { None };
    let event_data = Value::Object(event_data);
    let now = now_us();
    let run_id = sandbox.key.run_id.as_str();
    let event = NewLoggedEvent {
        attempt: Some(caller.key.attempt),
        agent_id: Some(sandbox.agent_id.clone()),
        // A worker in the sandbox has no secret that the agent cannot read, so its reports are the agent's claims.
        source: EventSource::Agent,
        diff,
        ..NewLoggedEvent::of_run(&sandbox.owner, run_id, &event_type, event_data.to_string(), now)
    };
    let appended = context.events.append(&context.store, event).await?;
    effects::apply(&context, &sandbox, &event_type, &event_data, now).await?;
    Ok(Json(ReceivedEvent {
        status: "received",
        sandbox_id: run_id.to_owned(),
        event_type,
        event_id: appended.id,
        timestamp: timestamp(now),
    }))
}

/// Takes the whole diff out of the data of an event.
fn take_diff(event_data: &mut Map<String, Value>) -> Option<EventDiff> {
    let Value::String(mut text) = event_data.remove("full_diff")? else { return None };
    let truncated = text.len() > DIFF_MAX;
    text.truncate(text.floor_char_boundary(DIFF_MAX));
    Some(EventDiff { text, truncated })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_diff_is_taken_out_and_bounded() {
        let object = |value: Value| value.as_object().cloned().expect("an object");
        let mut data = object(json!({ "file_path": "a", "full_diff": "+x" }));
        let diff = take_diff(&mut data).expect("it has one");
        assert_eq!((diff.text.as_str(), diff.truncated, data), ("+x", false, object(json!({ "file_path": "a" }))));
        let mut data = object(json!({ "full_diff": format!("{}é", "x".repeat(DIFF_MAX - 1)) }));
        let diff = take_diff(&mut data).expect("it has one");
        assert_eq!((diff.text.len(), diff.truncated), (DIFF_MAX - 1, true));
        for other in [json!({}), json!({ "full_diff": 1 })] {
            assert_eq!(take_diff(&mut object(other)), None);
        }
    }
}
