//! Messages for an agent, and the end of its calls.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde::de::IgnoredAny;
use sluice_contract::control::{
    INJECT_PATH, INJECTED_PATH, INTERRUPT_PATH, InjectMessages, InjectedMessages, Interrupt,
};

use super::{ANSWER_MAX, ControlError, SidecarControl, json, read};

impl SidecarControl {
    /// Sets the messages that the sidecar adds to the next call. They replace the earlier ones.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn set_messages(&self, messages: &InjectMessages) -> Result<(), ControlError> {
        let _: IgnoredAny = self.request(&format!("PUT {INJECT_PATH}"), &json(messages)).await?;
        Ok(())
    }

    /// Returns the states of messages in the entries after this one.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn injected(&self, after: u64) -> Result<InjectedMessages, ControlError> {
        self.request(&format!("GET {INJECTED_PATH}?after={after}"), "").await
    }

    /// The same, for a caller that cannot wait otherwise: the thread is blocked, and each read or write waits for at
    /// most `within`.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn injected_now(&self, after: u64, within: Duration) -> Result<InjectedMessages, ControlError> {
        let answer = self.look(after, within).map_err(ControlError::Unreachable)?;
        read(&answer)
    }

    fn look(&self, after: u64, within: Duration) -> io::Result<Vec<u8>> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(within))?;
        stream.set_write_timeout(Some(within))?;
        let head =
            format!("GET {INJECTED_PATH}?after={after} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        let mut answer = Vec::new();
        stream.take(ANSWER_MAX).read_to_end(&mut answer)?;
        Ok(answer)
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
