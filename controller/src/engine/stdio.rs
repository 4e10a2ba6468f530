//! What a container writes, taken off its hands at once.
//!
//! A reader that stalls makes a container unkillable. So it only takes and counts; what is kept is bounded, and what
//! goes on to a terminal goes through a queue that nobody waits for.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use bollard::container::{AttachContainerResults, LogOutput};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::output::{Capture, Captured};

/// Where output goes.
#[derive(Debug)]
pub struct Output {
    /// How many bytes of both streams together are kept.
    pub max: usize,
    /// Who wants to see the heads of both streams as they come.
    pub live: Option<mpsc::UnboundedSender<Piece>>,
}

/// A piece of output, for whoever looks on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Of stdout.
    Out(Bytes),
    /// Of stderr.
    Err(Bytes),
}

/// A running container's output and end.
#[derive(Debug)]
pub struct Attached {
    captures: Arc<Mutex<(Capture, Capture)>>,
    reader: JoinHandle<()>,
    closed: Arc<OnceLock<SystemTime>>,
    exit: JoinHandle<()>,
}

impl Attached {
    pub(super) fn new(attached: AttachContainerResults, output: Output, exit: JoinHandle<()>) -> Self {
        let capture = || Capture::new(output.max / 2);
        let captures = Arc::new(Mutex::new((capture(), capture())));
        // Nothing is ever written to it: a container has no stdin.
        drop(attached.input);
        let closed = Arc::new(OnceLock::new());
        let (kept, ended) = (Arc::clone(&captures), Arc::clone(&closed));
        let reader = tokio::spawn(async move {
            read(attached.output, kept, output.live).await;
            let _ = ended.set(SystemTime::now());
        });
        Self { captures, reader, closed, exit }
    }

    /// Waits until the container has ended, or has closed its output, which mostly is the same. Cancel-safe.
    pub async fn stirred(&mut self) {
        tokio::select! {
            _ = &mut self.exit, if !self.exit.is_finished() => {}
            _ = &mut self.reader, if !self.reader.is_finished() => {}
            else => std::future::pending().await,
        }
    }

    /// When the output ended, if it has.
    #[must_use]
    pub fn closed(&self) -> Option<SystemTime> {
        self.closed.get().copied()
    }

    /// Waits until all output was read. Cancel-safe.
    pub async fn drained(&mut self) {
        if !self.reader.is_finished() {
            let _ = (&mut self.reader).await;
        }
    }

    /// Lets go of the streams, and returns what was written: stdout, stderr.
    #[must_use]
    pub fn finish(self) -> (Captured, Captured) {
        self.reader.abort();
        self.exit.abort();
        let (out, err) = self.captures.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (out.finish(), err.finish())
    }
}

async fn read(
    mut output: impl Stream<Item = Result<LogOutput, bollard::errors::Error>> + Unpin,
    captures: Arc<Mutex<(Capture, Capture)>>,
    live: Option<mpsc::UnboundedSender<Piece>>,
) {
    // An error is the end: the connection is gone, and with it what was still to come.
    while let Some(Ok(piece)) = output.next().await {
        let mut captures = captures.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = match piece {
            LogOutput::StdOut { message } => Piece::Out(message.slice(..captures.0.push(&message).len())),
            LogOutput::StdErr { message } => Piece::Err(message.slice(..captures.1.push(&message).len())),
            // Without a terminal there is neither.
            LogOutput::StdIn { .. } | LogOutput::Console { .. } => continue,
        };
        drop(captures);
        if let Some(live) = &live {
            // The heads are bounded, and so is this queue.
            let _ = live.send(seen);
        }
    }
}
