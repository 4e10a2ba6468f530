//! Sends the sidecar of an attempt the messages that it adds to calls, and reads their state.
//!
//! The database holds the messages that the sidecar is to have, so both functions can be called at any time and by any task.

use sluice_contract::RunKey;
use sluice_contract::control::{INJECTED_MAX, InjectMessages};
use sluice_runs::sidecar_control::{ControlError, SidecarControl};
use sluice_state::messages::{Injection, MessageError};
use sluice_state::store::now_us;

use crate::context::ApiContext;
use crate::conversations::GivenMessages;

/// Type of the event that a person interrupted a run.
pub(crate) const INTERRUPTED: &str = "run.interrupted";

/// Reason that messages did not reach the sidecar, or that their state is unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InjectionError {
    /// The database refuses, or cannot be used.
    #[error(transparent)]
    Messages(#[from] MessageError),
    /// The sidecar refuses, or cannot be reached.
    #[error(transparent)]
    Control(#[from] ControlError),
}

/// Sends the sidecar its current messages, unless it has them already. Messages that are withdrawn from the sidecar go
/// back into the queue. Returns the messages that the sidecar has.
///
/// # Errors
/// [`InjectionError`]
pub(crate) async fn push(context: &ApiContext, key: &RunKey) -> Result<Injection, InjectionError> {
    let given = context.conversations.given(key);
    let mut given = given.lock().await;
    let injection = context.store.offer_messages(key).await?;
    let wanted = GivenMessages::Known(injection.list.clone());
    if *given != wanted {
        // The state is unknown until the sidecar has answered.
        let before = std::mem::take(&mut *given);
        let messages = InjectMessages { messages: injection.list.clone(), by: Some("daemon".to_owned()) };
        context.conversations.note_injected(key);
        if let Err(error) = SidecarControl::of(&context.layout, key).set_messages(&messages).await {
            let ids = injection.list.into_iter().map(|message| message.message_id).chain(injection.withdrawn);
            let free = ids.filter(|id| !may_have(&error, &before, id)).collect();
            if matches!(error, ControlError::Refused { .. }) {
                // The sidecar still has the earlier list.
                *given = before;
            }
            context.store.take_back_messages(free).await?;
            return Err(error.into());
        }
        *given = wanted;
    }
    if !injection.withdrawn.is_empty() {
        // Messages that the sidecar sent before it got the list do not go back into the queue.
        pull(context, key).await?;
        context.store.take_back_messages(injection.withdrawn.clone()).await?;
    }
    Ok(injection)
}

/// Returns whether a sidecar that did not confirm a list may have a message: from an earlier list, or because it accepted the
/// list, and only its answer was lost.
fn may_have(error: &ControlError, before: &GivenMessages, id: &str) -> bool {
    match error {
        ControlError::Unreachable(_) => !error.is_absent(),
        // A sidecar of an older version does not know the request.
        ControlError::Refused { code, .. } if code == "not_found" => false,
        // The sidecar still has the earlier list.
        ControlError::Refused { .. } => match before {
            GivenMessages::Unknown => true,
            GivenMessages::Known(list) => list.iter().any(|message| message.message_id == id),
        },
        ControlError::Silent | ControlError::Unreadable => true,
    }
}

/// Records the state of messages at the sidecar.
///
/// # Errors
/// [`InjectionError`]
pub(crate) async fn pull(context: &ApiContext, key: &RunKey) -> Result<(), InjectionError> {
    let control = SidecarControl::of(&context.layout, key);
    loop {
        let after = context.store.conversation(key).await.map_err(MessageError::from)?.injected;
        let entries = control.injected(after).await?.entries;
        let is_last = entries.len() < INJECTED_MAX || entries.iter().all(|entry| entry.number <= after);
        if !entries.is_empty() {
            context.store.record_injected(key, entries, now_us()).await?;
        }
        if is_last {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use sluice_contract::control::{MessageType, PendingMessage};

    use super::*;

    #[test]
    fn only_a_message_that_nobody_has_is_queued_again() {
        let refused = |code: &str| ControlError::Refused { code: code.to_owned(), message: String::new() };
        let unreachable = |kind: ErrorKind| ControlError::Unreachable(kind.into());
        let given = GivenMessages::Known(vec![PendingMessage {
            message_id: "old".to_owned(),
            content: "x".to_owned(),
            message_type: MessageType::UserMessage,
            anchor: None,
        }]);
        for (error, old, new) in [
            (unreachable(ErrorKind::NotFound), false, false),
            (unreachable(ErrorKind::ConnectionRefused), false, false),
            (unreachable(ErrorKind::BrokenPipe), true, true),
            (refused("not_found"), false, false),
            (refused("too_many_messages"), true, false),
            (ControlError::Silent, true, true),
            (ControlError::Unreadable, true, true),
        ] {
            assert_eq!((may_have(&error, &given, "old"), may_have(&error, &given, "new")), (old, new), "{error}");
        }
        assert!(may_have(&refused("too_many_messages"), &GivenMessages::Unknown, "new"));
    }
}
