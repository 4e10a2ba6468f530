//! Messages for an agent, and the end of its calls.

use serde::de::IgnoredAny;
use sluice_contract::control::{
    INJECT_PATH, INJECTED_PATH, INTERRUPT_PATH, InjectMessages, InjectedMessages, Interrupt,
};

use super::{ControlError, SidecarControl, json};

impl SidecarControl {
    /// Sets the messages that the sidecar adds to the next call. They take the place of those before.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn set_messages(&self, messages: &InjectMessages) -> Result<(), ControlError> {
        let _: IgnoredAny = self.request(&format!("PUT {INJECT_PATH}"), &json(messages)).await?;
        Ok(())
    }

    /// Returns what became of messages, after this entry.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn injected(&self, after: u64) -> Result<InjectedMessages, ControlError> {
        self.request(&format!("GET {INJECTED_PATH}?after={after}"), "").await
    }

    /// Ends the calls under way.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn interrupt(&self, interrupt: &Interrupt) -> Result<(), ControlError> {
        let _: IgnoredAny = self.request(&format!("POST {INTERRUPT_PATH}"), &json(interrupt)).await?;
        Ok(())
    }
}
