//! Messages for an agent, and the end of its calls.

use std::io::ErrorKind;
use std::time::Duration;

use serde::de::IgnoredAny;
use sluice_contract::control::{
    INJECT_PATH, INJECTED_PATH, INTERRUPT_PATH, InjectMessages, InjectedMessages, Interrupt,
};
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::{ControlError, SidecarControl, json, read};

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
        self.request(&injected_line(after), "").await
    }

    /// The same, for a thread that runs no tasks. The thread is blocked for at most `within`.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn injected_now(&self, after: u64, within: Duration) -> Result<InjectedMessages, ControlError> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(ControlError::Unreachable)?;
        // One limit for the whole request: a compromised sidecar can send one byte at a time.
        let answered = runtime.block_on(async { timeout(within, self.exchange(&injected_line(after), "")).await });
        let answer = answered.map_err(|_| ControlError::Unreachable(ErrorKind::TimedOut.into()))?;
        read(&answer.map_err(ControlError::Unreachable)?)
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

fn injected_line(after: u64) -> String {
    format!("GET {INJECTED_PATH}?after={after}")
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixListener;
    use tokio::time::interval;

    use super::*;

    /// Bug: only each read was limited, so a sidecar could block the thread with one byte at a time.
    #[tokio::test]
    async fn an_answer_in_single_bytes_times_out() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let socket = dir.path().join("control.sock");
        let listener = UnixListener::bind(&socket).expect("a fresh name");
        let control = SidecarControl { socket };
        let asked = std::thread::spawn(move || control.injected_now(0, Duration::from_millis(200)));
        let (mut stream, _) = listener.accept().await.expect("a connection");
        // The client closes the connection long before the last byte.
        let mut ticks = interval(Duration::from_millis(20));
        for _ in 0..500 {
            ticks.tick().await;
            if stream.write_all(b"x").await.is_err() {
                break;
            }
        }
        drop(stream);
        let failed = asked.join().expect("it does not panic").expect_err("it is no answer");
        let is_late = matches!(&failed, ControlError::Unreachable(cause) if cause.kind() == ErrorKind::TimedOut);
        assert!(is_late, "{failed:?}");
    }
}
