//! The message of an event: ids, type, state and link. It has no text that an agent or a user has written.
//!
//! Pure.

use std::time::SystemTime;

use serde_json::{Value, json};
use sluice_contract::Hash;
use sluice_contract::time::from_unix_micros;
use sluice_state::events::{EventSource, LoggedEvent};
use sluice_state::sandboxes::SandboxState;
use sluice_state::webhooks::NewWebhookMessage;

/// Type of the message that tests a webhook.
pub const TEST_TYPE: &str = "webhook.test";

/// Returns the message of an event to a webhook. `origin` is the beginning of links: the daemon's own, or empty.
pub(super) fn message(webhook: &str, event: &LoggedEvent, origin: &str) -> NewWebhookMessage {
    // The same event always has the same id at one webhook.
    let hash = Hash::of(format!("{webhook}\0{}", event.id).as_bytes()).to_string();
    let link = event.sandbox_id.as_ref().map(|id| format!("{origin}/api/v1/sandboxes/{id}"));
    let data = json!({
        "agent_id": event.agent_id,
        "attempt": event.attempt,
        "event_id": event.id,
        "link": link,
        "owner_id": event.owner,
        "sandbox_id": event.sandbox_id,
        "seq": event.seq,
        "source": event.source.as_str(),
        "state": state(event),
    });
    NewWebhookMessage {
        id: format!("msg_{}", &hash[..32]),
        seq: event.seq,
        event_type: event.event_type.clone(),
        body: body(&event.event_type, from_unix_micros(event.created_us), &data),
    }
}

/// Returns the body of a message that tests a webhook.
#[must_use]
pub fn test_message(now: SystemTime) -> String {
    body(TEST_TYPE, now, &json!({}))
}

fn body(event_type: &str, at: SystemTime, data: &Value) -> String {
    let timestamp = humantime::format_rfc3339_micros(at).to_string();
    json!({ "type": event_type, "timestamp": timestamp, "data": data }).to_string()
}

/// Returns the state that an event of the system reports. Only the words of states pass.
fn state(event: &LoggedEvent) -> Option<&'static str> {
    let member = match (event.source, event.event_type.as_str()) {
        (EventSource::System, "run.state_changed") => "to",
        (EventSource::System, "sandbox.stopped") => "state",
        _ => return None,
    };
    let data: Value = serde_json::from_str(&event.event_data).ok()?;
    Some(SandboxState::of(data[member].as_str()?)?.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(source: EventSource, event_type: &str, data: &str) -> LoggedEvent {
        LoggedEvent {
            seq: 7,
            id: "evt_1".to_owned(),
            owner: "alice".to_owned(),
            sandbox_id: Some("r1".to_owned()),
            attempt: Some(0),
            agent_id: Some("a1".to_owned()),
            zone_id: None,
            event_type: event_type.to_owned(),
            source,
            event_data: data.to_owned(),
            created_us: 1_772_360_430_123_456,
        }
    }

    #[test]
    fn a_message_has_ids_type_state_and_link_alone() {
        let changed = event(
            EventSource::System,
            "run.state_changed",
            r#"{"from":"RUNNING","to":"COMPLETING","reason":"canary of a person"}"#,
        );
        let message = message("ops", &changed, "https://sluice.example");
        let expected = json!({
            "type": "run.state_changed", "timestamp": "2026-03-01T10:20:30.123456Z",
            "data": {
                "agent_id": "a1", "attempt": 0, "event_id": "evt_1", "owner_id": "alice", "sandbox_id": "r1", "seq": 7,
                "link": "https://sluice.example/api/v1/sandboxes/r1", "source": "system", "state": "COMPLETING",
            },
        });
        assert_eq!(serde_json::from_str::<Value>(&message.body).expect("it is JSON"), expected);
        assert_eq!((message.seq, message.event_type.as_str()), (7, "run.state_changed"));
        assert!(message.id.starts_with("msg_") && message.id.len() == 36, "{}", message.id);
    }

    #[test]
    fn the_id_follows_from_webhook_and_event() {
        let changed = event(EventSource::System, "sandbox.created", "{}");
        let id = |webhook, event: &LoggedEvent| message(webhook, event, "").id;
        assert_eq!(id("a", &changed), id("a", &changed));
        assert_ne!(id("a", &changed), id("b", &changed));
        assert_ne!(id("a", &changed), id("a", &LoggedEvent { id: "evt_2".to_owned(), ..changed.clone() }));
    }

    #[test]
    fn claims_of_agents_have_no_state() {
        for (source, event_type, data, expected) in [
            (EventSource::Agent, "agent.message", r#"{"to":"COMPLETED","text":"canary"}"#, None),
            (EventSource::Worker, "run.state_changed", r#"{"to":"COMPLETED"}"#, None),
            (EventSource::System, "run.state_changed", r#"{"to":"canary"}"#, None),
            (EventSource::System, "sandbox.stopped", r#"{"state":"FAILED"}"#, Some("FAILED")),
        ] {
            let event = event(source, event_type, data);
            assert_eq!(state(&event), expected, "{data}");
            assert!(!message("w", &event, "").body.contains("canary"), "{data}");
        }
    }
}
