//! The conversation with the sandbox of one attempt: its reports, and the messages that its sidecar adds to calls.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use sluice_contract::RunKey;
use sluice_contract::text::error_chain;
use sluice_runs::sidecar_control::ControlError;
use sluice_state::messages::MessageError;
use sluice_state::sandboxes::{Sandbox, SandboxState};
use sluice_state::store::StoreError;
use tokio::time::sleep;

use crate::context::ApiContext;
use crate::conversations::GivenMessages;
use crate::injection::{self, InjectionError};
use crate::relay::RelayListener;

/// Maximum time until the sidecar is read again, while a message waits for its call.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Minimum time between two reads.
const PAUSE: Duration = Duration::from_millis(100);

/// Time at which the sidecar is due to be read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextLook {
    /// After the next event: no message waits, and none can still be lost.
    AfterEvent,
    /// After the next event, but not at once: a message can still be lost.
    Later,
    /// Soon: a message waits for its call.
    Soon,
}

/// Serves the sandbox of an attempt until this is dropped.
pub(super) async fn talk(context: &Arc<ApiContext>, run: &Sandbox) -> Infallible {
    let key = &run.key;
    if run.state == SandboxState::Creating {
        *context.conversations.given(key).lock().await = GivenMessages::Known(Vec::new());
    } else {
        // An earlier daemon may have sent messages to the sidecar.
        context.conversations.note_injected(key);
    }
    let mut pusher = MessagePusher { context: Arc::clone(context), key: key.clone(), is_reported: false };
    let relay = async {
        // A run of an older version has no token, and its sidecar no socket to connect to.
        while !has_token(context, key).await {
            sleep(LOOK_EVERY).await;
        }
        RelayListener::new(Arc::clone(context), key.clone()).serve().await
    };
    let (never, _) = tokio::join!(relay, pusher.run());
    never
}

async fn has_token(context: &ApiContext, key: &RunKey) -> bool {
    let found: Result<bool, StoreError> = context.store.has_run_token(key).await;
    found.unwrap_or_default()
}

/// Sends the sidecar its messages, and reads their state.
#[derive(Debug)]
struct MessagePusher {
    context: Arc<ApiContext>,
    key: RunKey,
    is_reported: bool,
}

impl MessagePusher {
    async fn run(&mut self) -> Infallible {
        let mut committed = self.context.store.events_committed();
        loop {
            committed.mark_unchanged();
            let next = match self.look().await {
                Ok(next) => {
                    self.is_reported = false;
                    next
                }
                Err(error) => {
                    self.report(&error);
                    NextLook::Soon
                }
            };
            // Each event may be a new message, or a call that has carried one. An error means that the store is gone.
            match next {
                NextLook::AfterEvent => drop(committed.changed().await),
                NextLook::Later => {
                    sleep(LOOK_EVERY).await;
                    let _ = committed.changed().await;
                }
                NextLook::Soon => {
                    tokio::select! {
                        _ = committed.changed() => {}
                        () = sleep(LOOK_EVERY) => {}
                    }
                }
            }
            sleep(PAUSE).await;
        }
    }

    async fn look(&mut self) -> Result<NextLook, InjectionError> {
        let has_none = *self.context.conversations.given(&self.key).lock().await == GivenMessages::Known(Vec::new());
        if has_none && !self.context.store.has_injection(&self.key).await? {
            return Ok(NextLook::AfterEvent);
        }
        let injection = injection::push(&self.context, &self.key).await?;
        let is_empty = injection.list.is_empty();
        if !is_empty || injection.is_watched {
            injection::pull(&self.context, &self.key).await?;
        }
        Ok(match (is_empty, injection.is_watched) {
            (false, _) => NextLook::Soon,
            (true, true) => NextLook::Later,
            (true, false) => NextLook::AfterEvent,
        })
    }

    /// Logs a refusal once. While a run is created and removed, its sidecar cannot be reached.
    fn report(&mut self, error: &InjectionError) {
        let is_expected = matches!(
            error,
            InjectionError::Control(ControlError::Unreachable(_)) | InjectionError::Messages(MessageError::RunFinished)
        );
        if !is_expected && !self.is_reported {
            (self.context.log)(&format!("run {}: its messages wait: {}", self.key, error_chain(error)));
            self.is_reported = true;
        }
    }
}

#[cfg(test)]
mod tests;
