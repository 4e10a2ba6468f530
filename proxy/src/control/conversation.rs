//! Messages to the agent, and interruptions: what may be asked, and how it takes effect.

use std::collections::HashSet;
use std::sync::Arc;

use http::StatusCode;
use sluice_contract::control::{
    CONTENT_MAX, InjectMessages, Interrupt, KEPT_BYTES_MAX, KEPT_MAX, PENDING_MAX, PendingMessage, TOO_MANY_MESSAGES,
};
use sluice_contract::record::{ControlCount, ControlValues};

use super::error::ControlRefusal;
use super::request::{names, unreadable};
use crate::conversation::NewMessage;
use crate::run::RunContext;

/// Maximum length of the id of a message.
const ID_MAX: usize = 64;

/// A list of messages that is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MessageList {
    messages: Vec<NewMessage>,
    by: Option<String>,
}

impl MessageList {
    /// Parses the body of a request with messages.
    pub(super) fn parse(body: &[u8]) -> Result<Self, ControlRefusal> {
        let InjectMessages { messages, by } = InjectMessages::from_json(body).map_err(|error| unreadable(&error))?;
        names(by.as_deref(), None)?;
        let waiting = messages.iter().filter(|message| message.anchor.is_none()).count();
        if waiting > PENDING_MAX || messages.len() > KEPT_MAX {
            return Err(too_many());
        }
        let mut ids = HashSet::with_capacity(messages.len());
        for PendingMessage { message_id, content, .. } in &messages {
            let is_id = message_id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
            if !is_id || message_id.is_empty() || message_id.len() > ID_MAX {
                return Err(ControlRefusal::invalid("a message_id has 1 to 64 letters, digits, '-' and '_'"));
            }
            if !ids.insert(message_id.as_str()) {
                return Err(ControlRefusal::invalid(format!("message_id {message_id} is there twice")));
            }
            if content.is_empty() || content.chars().nth(CONTENT_MAX).is_some() {
                let message =
                    format!("the content of {message_id} is empty, or has more than {CONTENT_MAX} characters");
                return Err(ControlRefusal::invalid(message));
            }
        }
        let messages = messages.into_iter().map(NewMessage::try_from).collect::<Result<_, _>>();
        Ok(Self { messages: messages.map_err(ControlRefusal::invalid)?, by })
    }
}

fn too_many() -> ControlRefusal {
    let message = format!(
        "at most {PENDING_MAX} messages wait, and {KEPT_MAX} messages of {} MiB in all stay in the conversation of a run",
        KEPT_BYTES_MAX >> 20
    );
    ControlRefusal::new(StatusCode::CONFLICT, TOO_MANY_MESSAGES, message)
}

/// Parses the body of a request to end the calls under way.
pub(super) fn interruption(body: &[u8]) -> Result<Interrupt, ControlRefusal> {
    let asked = Interrupt::from_json(body).map_err(|error| unreadable(&error))?;
    names(Some(&asked.by), Some(&asked.reason))?;
    if asked.by.is_empty() || asked.reason.is_empty() {
        return Err(ControlRefusal::invalid("by and reason must not be empty"));
    }
    Ok(asked)
}

/// Records a list of messages, and replaces the previous list.
pub(super) async fn inject(run: Arc<RunContext>, list: MessageList) -> Result<(), ControlRefusal> {
    let _changing = run.changing.lock().await;
    if run.shutdown.is_draining() {
        return Err(ControlRefusal::draining());
    }
    let recorded = {
        let store = run.injections.lock();
        if !store.has_room(&list.messages) {
            return Err(too_many());
        }
        let change = store.compare(&list.messages);
        let values = |messages| ControlValues { messages, ..ControlValues::default() };
        let is_change = change.added.is_some() || change.withdrawn.is_some();
        let (from, to) = (values(change.withdrawn), values(change.added));
        is_change.then(|| run.journal.control("inject", from, to, list.by.as_deref(), None))
    };
    if let Some(recorded) = recorded {
        recorded.await.map_err(|_| ControlRefusal::audit_unavailable())?;
    }
    let mut store = run.injections.lock();
    store.replace(list.messages);
    run.injections.update(&store);
    Ok(())
}

/// Records an interruption, and ends the calls under way.
pub(super) async fn interrupt(run: Arc<RunContext>, asked: Interrupt) -> Result<(), ControlRefusal> {
    let _changing = run.changing.lock().await;
    if run.shutdown.is_draining() {
        return Err(ControlRefusal::draining());
    }
    let open = |calls| ControlValues { open_calls: Some(ControlCount(calls)), ..ControlValues::default() };
    let (from, to) = (open(run.caps.in_force().1.open), open(0));
    let recorded = run.journal.control("interrupt", from, to, Some(&asked.by), Some(&asked.reason));
    recorded.await.map_err(|_| ControlRefusal::audit_unavailable())?;
    run.interrupts.interrupt();
    tracing::info!(by = asked.by, "interrupted by the control socket");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code<T>(result: Result<T, ControlRefusal>) -> (u16, &'static str) {
        result.err().map_or((200, "ok"), |refusal| (refusal.status.as_u16(), refusal.code))
    }

    fn list(messages: usize, content: &str) -> String {
        let message =
            |n| serde_json::json!({"message_id": format!("m{n}"), "content": content, "message_type": "user_message"});
        serde_json::json!({"messages": (0..messages).map(message).collect::<Vec<_>>()}).to_string()
    }

    #[test]
    fn lists_are_checked_message_by_message() {
        let anchor = |chain: &str| {
            format!(
                r#"{{"messages":[{{"message_id":"a","content":"x","message_type":"system","anchor":{{"chain":"{chain}","item":"{}"}}}}]}}"#,
                "0".repeat(64)
            )
        };
        for (body, expected) in [
            (r#"{"messages":[]}"#.to_owned(), (200, "ok")),
            (list(1, "hello"), (200, "ok")),
            (list(100, "hello"), (200, "ok")),
            (list(101, "hello"), (409, "too_many_messages")),
            (list(1, &"é".repeat(20_000)), (200, "ok")),
            (list(1, &"é".repeat(20_001)), (422, "invalid_member")),
            (list(1, ""), (422, "invalid_member")),
            (list(2, "x").replace("m1", "m0"), (422, "invalid_member")),
            (list(1, "x").replace("m0", "m 0"), (422, "invalid_member")),
            (list(1, "x").replace("m0", &"m".repeat(65)), (422, "invalid_member")),
            (list(1, "x").replace("m0", ""), (422, "invalid_member")),
            (list(1, "x").replace("user_message", "assistant"), (422, "invalid_member")),
            (list(1, "x").replace("message_type", "kind"), (422, "invalid_member")),
            (anchor(&"0".repeat(64)), (200, "ok")),
            (anchor("0"), (422, "invalid_member")),
            (r#"{"messages":[],"by":"a\n"}"#.to_owned(), (422, "invalid_member")),
            ("{}".to_owned(), (422, "invalid_member")),
            ("[".to_owned(), (400, "invalid_json")),
        ] {
            assert_eq!(code(MessageList::parse(body.as_bytes())), expected, "{}", &body[..body.len().min(200)]);
        }
    }

    #[test]
    fn an_interruption_has_an_author_and_a_reason() {
        for (body, expected) in [
            (r#"{"by":"alice","reason":"wrong file"}"#, (200, "ok")),
            (r#"{"by":"","reason":"r"}"#, (422, "invalid_member")),
            (r#"{"by":"alice"}"#, (422, "invalid_member")),
            (r#"{"by":"alice","reason":"r","call":1}"#, (422, "invalid_member")),
        ] {
            assert_eq!(code(interruption(body.as_bytes())), expected, "{body}");
        }
    }
}
