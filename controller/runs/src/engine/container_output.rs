//! The output of a running container, from an attach or from the engine's log.

use std::time::{Duration, SystemTime};

use tokio::time::timeout;

use super::attached::{AttachedContainer, StdioConfig};
use super::logged::{LogConfig, LogLoss, LoggedContainer};
use crate::capture::Captured;

/// Source of a container's output.
#[derive(Debug)]
pub enum OutputConfig {
    /// Over attached streams: it ends with this process.
    Attached(StdioConfig),
    /// From the engine's log: another process can continue.
    Logged(Box<LogConfig>),
}

impl OutputConfig {
    /// Returns the maximum number of bytes that are captured of both streams together.
    #[must_use]
    pub fn max(&self) -> usize {
        match self {
            Self::Attached(output) => output.max,
            Self::Logged(output) => output.max,
        }
    }
}

/// A running container with its output.
#[derive(Debug)]
#[allow(missing_docs, reason = "named like their types")]
pub enum RunningContainer {
    Attached(AttachedContainer),
    Logged(LoggedContainer),
}

/// Captured output of a container.
#[derive(Debug)]
pub struct ContainerOutput {
    /// Stdout and stderr.
    pub captured: (Captured, Captured),
    /// Output of the engine's log that is missing.
    pub loss: Option<LogLoss>,
    /// Error of the record.
    pub record_error: Option<String>,
}

impl RunningContainer {
    /// Waits until the container may have ended. Cancel-safe.
    pub async fn changed(&mut self) {
        match self {
            Self::Attached(attached) => attached.changed().await,
            Self::Logged(logged) => logged.changed().await,
        }
    }

    /// Returns the time at which attached output ended, if it has.
    #[must_use]
    pub fn closed(&self) -> Option<SystemTime> {
        match self {
            Self::Attached(attached) => attached.closed(),
            Self::Logged(_) => None,
        }
    }

    /// Limits the wait of attached output for its reader, since the program is about to be stopped.
    pub fn stop_waiting(&self, within: Duration) {
        if let Self::Attached(attached) = self {
            attached.stop_waiting(within);
        }
    }

    /// Takes the last output of a program that has ended.
    pub async fn drained(&mut self) {
        /// Time within which the last attached output is read.
        const LAST_OUTPUT: Duration = Duration::from_secs(20);
        /// Time within which a log is read as a whole.
        const LAST_LOG: Duration = Duration::from_secs(60);
        match self {
            Self::Attached(attached) => {
                let _ = timeout(LAST_OUTPUT, attached.drained()).await;
            }
            Self::Logged(logged) => logged.drained(LAST_LOG).await,
        }
    }

    /// Returns the output, and releases the container.
    #[must_use]
    pub fn finish(self) -> ContainerOutput {
        match self {
            Self::Attached(attached) => ContainerOutput { captured: attached.finish(), loss: None, record_error: None },
            Self::Logged(logged) => {
                let (out, err, loss, record_error) = logged.finish();
                ContainerOutput { captured: (out, err), loss, record_error }
            }
        }
    }
}
