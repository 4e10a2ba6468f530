//! The messages that the sidecar of an attempt adds to calls: given to it, and asked after.
//!
//! The database says what the sidecar is to have, so both functions can be called at any time and by anyone.

use sluice_contract::RunKey;
use sluice_contract::control::{INJECTED_MAX, InjectMessages};
use sluice_runs::sidecar_control::{ControlError, SidecarControl};
use sluice_state::messages::{Injection, MessageError};
use sluice_state::store::now_us;

use crate::context::ApiContext;

/// Type of the event of an interruption by a person.
pub(crate) const INTERRUPTED: &str = "run.interrupted";

/// Reason that messages did not reach the sidecar, or that nothing is known of them.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InjectionError {
    /// The database says no, or cannot be used.
    #[error(transparent)]
    Messages(#[from] MessageError),
    /// The sidecar says no, or cannot be reached.
    #[error(transparent)]
    Control(#[from] ControlError),
}

/// Gives the sidecar the messages that it is to have, and puts those into the queue that it is to have no more. Returns what
/// it has.
///
/// # Errors
/// [`InjectionError`]
pub(crate) async fn push(context: &ApiContext, key: &RunKey) -> Result<Injection, InjectionError> {
    let injection = context.store.offer_messages(key).await?;
    give(context, key, &injection).await?;
    Ok(injection)
}

/// Gives the sidecar these messages.
///
/// # Errors
/// [`InjectionError`]
pub(crate) async fn give(context: &ApiContext, key: &RunKey, injection: &Injection) -> Result<(), InjectionError> {
    let messages = InjectMessages { messages: injection.list.clone(), by: Some("daemon".to_owned()) };
    SidecarControl::of(&context.layout, key).set_messages(&messages).await?;
    if !injection.withdrawn.is_empty() {
        // What it has sent before it got the list does not go back into the queue.
        pull(context, key).await?;
        context.store.take_back_messages(injection.withdrawn.clone()).await?;
    }
    Ok(())
}

/// Records what became of messages at the sidecar.
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
