//! The answer with the output of a program. Dropping it ends the program: its client has hung up.

use std::convert::Infallible;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use sluice_runs::exec::{ExecControl, ExecEnd};
use sluice_runs::forward::OutputChunk;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::exec_frames::ExecFrames;
use crate::stream_count::CountedStream;

/// The answer with the output of a program.
pub(super) struct ExecStream {
    /// The first line, until it is sent.
    first: Option<Bytes>,
    /// None after the last line.
    frames: Option<ExecFrames>,
    output: mpsc::UnboundedReceiver<OutputChunk>,
    end: oneshot::Receiver<ExecEnd>,
    control: ExecControl,
    _counted: (CountedStream, OwnedSemaphorePermit),
}

impl ExecStream {
    /// Returns the answer of a program that was started.
    pub(super) fn new(
        exec_id: &str,
        output: mpsc::UnboundedReceiver<OutputChunk>,
        end: oneshot::Receiver<ExecEnd>,
        control: ExecControl,
        counted: (CountedStream, OwnedSemaphorePermit),
    ) -> Self {
        let first = Some(ExecFrames::first(exec_id));
        Self { first, frames: Some(ExecFrames::default()), output, end, control, _counted: counted }
    }

    /// Returns it as a body.
    pub(super) fn into_body(self) -> Body {
        Body::from_stream(stream::unfold(self, async |mut stream| {
            let lines = stream.next().await?;
            Some((Ok::<_, Infallible>(lines), stream))
        }))
    }

    /// Returns the next lines; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        while let Some(chunk) = self.output.recv().await {
            let line = self.frames.as_mut()?.output(&chunk);
            if !line.is_empty() {
                return Some(line);
            }
        }
        let frames = self.frames.take()?;
        // Without a recorded end, the daemon lost track of the program, and the client sees no last line.
        let end = (&mut self.end).await.ok()?;
        Some(frames.end(&end))
    }
}

impl Drop for ExecStream {
    fn drop(&mut self) {
        self.control.cancel();
    }
}
