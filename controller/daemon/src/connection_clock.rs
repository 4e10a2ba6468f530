//! The times of one connection: the wait for a request, and the wait for the rest of its head.
//!
//! hyper has one time for both. An idle connection may wait longer than a head may take.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A request.
    Idle,
    /// The rest of a head.
    Head,
    /// The daemon.
    Busy,
}

/// The clock of a connection. Clones are the same clock.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionClock {
    phase: watch::Sender<(Phase, Instant)>,
    head: Duration,
    idle: Duration,
}

impl ConnectionClock {
    /// Returns the clock of a new connection, whose first head is awaited.
    #[must_use]
    pub(crate) fn new(head: Duration, idle: Duration) -> Self {
        Self { phase: watch::Sender::new((Phase::Head, Instant::now())), head, idle }
    }

    /// The head of a request was read.
    pub(crate) fn head_ended(&self) {
        self.phase.send_replace((Phase::Busy, Instant::now()));
    }

    /// The answer was written.
    fn answered(&self) {
        self.phase.send_replace((Phase::Idle, Instant::now()));
    }

    fn bytes_came(&self) {
        self.phase.send_if_modified(|phase| {
            let begins = phase.0 == Phase::Idle;
            if begins {
                *phase = (Phase::Head, Instant::now());
            }
            begins
        });
    }

    /// Waits until a time is over.
    pub(crate) async fn expired(&self) {
        let mut phase = self.phase.subscribe();
        loop {
            let (now, since) = *phase.borrow_and_update();
            let deadline = match now {
                Phase::Idle => since + self.idle,
                Phase::Head => since + self.head,
                Phase::Busy => {
                    let _ = phase.changed().await;
                    continue;
                }
            };
            tokio::select! {
                () = sleep_until(deadline) => return,
                // This clock holds the sender.
                _ = phase.changed() => {}
            }
        }
    }

    /// Returns the stream, whose first bytes of a head are noticed.
    pub(crate) fn watch<S>(&self, stream: S) -> WatchedStream<S> {
        WatchedStream { stream, clock: self.clone() }
    }

    /// Returns the body, whose end is noticed.
    #[must_use]
    pub(crate) fn watch_body(&self, body: Body) -> WatchedBody {
        WatchedBody { body, clock: self.clone() }
    }
}

/// A stream whose reads the clock sees.
#[derive(Debug)]
pub(crate) struct WatchedStream<S> {
    stream: S,
    clock: ConnectionClock,
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        if buffer.filled().len() > before {
            self.clock.bytes_came();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A body whose end the clock sees.
#[derive(Debug)]
pub(crate) struct WatchedBody {
    body: Body,
    clock: ConnectionClock,
}

impl http_body::Body for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for WatchedBody {
    fn drop(&mut self) {
        self.clock.answered();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Duration = Duration::from_secs(10);
    const IDLE: Duration = Duration::from_secs(60);

    async fn expires_after(clock: &ConnectionClock) -> Duration {
        let start = Instant::now();
        clock.expired().await;
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_has_less_time_than_a_pause() {
        let clock = ConnectionClock::new(HEAD, IDLE);
        assert_eq!(expires_after(&clock).await, HEAD, "the first head");
        clock.head_ended();
        drop(clock.watch_body(Body::empty()));
        assert_eq!(expires_after(&clock).await, IDLE);
        clock.bytes_came();
        clock.bytes_came();
        assert_eq!(expires_after(&clock).await, HEAD, "further bytes give no more time");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_may_take_any_time() {
        let clock = ConnectionClock::new(HEAD, IDLE);
        clock.head_ended();
        let day = Duration::from_secs(86_400);
        assert!(tokio::time::timeout(day, clock.expired()).await.is_err());
    }
}
