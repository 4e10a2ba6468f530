//! The time limits of one connection: the wait for a request, for the rest of its head, and for a client that does not
//! read.
//!
//! hyper has one time limit for the first two, but an idle connection may wait longer than a head may take.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

/// Event that a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionPhase {
    /// A request.
    Idle,
    /// The rest of a head.
    Head,
    /// The answer of the daemon.
    Busy,
}

/// The clock of a connection. Clones are the same clock.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionClock {
    phase: watch::Sender<(ConnectionPhase, Instant)>,
    head: Duration,
    idle: Duration,
    write: Duration,
}

impl ConnectionClock {
    /// Returns the clock of a new connection, whose first head is awaited.
    #[must_use]
    pub(crate) fn new(head: Duration, idle: Duration, write: Duration) -> Self {
        Self { phase: watch::Sender::new((ConnectionPhase::Head, Instant::now())), head, idle, write }
    }

    /// Notes that the head of a request was read.
    pub(crate) fn head_ended(&self) {
        self.phase.send_replace((ConnectionPhase::Busy, Instant::now()));
    }

    /// Notes that the body of an answer has ended.
    fn answered(&self) {
        self.phase.send_replace((ConnectionPhase::Idle, Instant::now()));
    }

    fn bytes_came(&self) {
        self.phase.send_if_modified(|phase| {
            let begins = phase.0 == ConnectionPhase::Idle;
            if begins {
                *phase = (ConnectionPhase::Head, Instant::now());
            }
            begins
        });
    }

    /// Waits until the time limit of the present phase is reached.
    pub(crate) async fn expired(&self) {
        let mut phase = self.phase.subscribe();
        loop {
            let (now, since) = *phase.borrow_and_update();
            let deadline = match now {
                ConnectionPhase::Idle => since + self.idle,
                ConnectionPhase::Head => since + self.head,
                ConnectionPhase::Busy => {
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

    /// Returns the stream, wrapped so that the clock notices the first bytes of a head.
    pub(crate) fn watch<S>(&self, stream: S) -> WatchedConnection<S> {
        WatchedConnection { stream, clock: self.clone(), stalled: None }
    }

    /// Returns the body, wrapped so that the clock notices its end.
    #[must_use]
    pub(crate) fn watch_body(&self, body: Body) -> WatchedBody {
        WatchedBody { body, clock: self.clone() }
    }
}

/// A stream that reports its reads to the clock, and limits the time of a write that the client does not accept.
#[derive(Debug)]
pub(crate) struct WatchedConnection<S> {
    stream: S,
    clock: ConnectionClock,
    /// Set while the client accepts no bytes.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> WatchedConnection<S> {
    /// Ends a write that waits for the client for too long.
    fn bound<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let time = self.clock.write;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(time)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedConnection<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        if buffer.filled().len() > before {
            self.clock.bytes_came();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedConnection<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.bound(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.bound(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A body that reports its end to the clock.
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
    const WRITE: Duration = Duration::from_secs(30);

    async fn expires_after(clock: &ConnectionClock) -> Duration {
        let start = Instant::now();
        clock.expired().await;
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_has_less_time_than_a_pause() {
        let clock = ConnectionClock::new(HEAD, IDLE, WRITE);
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
        let clock = ConnectionClock::new(HEAD, IDLE, WRITE);
        clock.head_ended();
        let day = Duration::from_secs(86_400);
        assert!(tokio::time::timeout(day, clock.expired()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_left() {
        use tokio::io::AsyncWriteExt;
        let clock = ConnectionClock::new(HEAD, IDLE, WRITE);
        let (ours, mut theirs) = tokio::io::duplex(8);
        let mut ours = clock.watch(ours);
        ours.write_all(b"12345678").await.expect("there is room");
        let start = Instant::now();
        let error = ours.write_all(b"9").await.expect_err("there is no room");
        assert_eq!((error.kind(), start.elapsed()), (io::ErrorKind::TimedOut, WRITE));
        // A client that reads again gets the full time again.
        let mut read = [0; 8];
        tokio::io::AsyncReadExt::read_exact(&mut theirs, &mut read).await.expect("it was written");
        ours.write_all(b"9").await.expect("there is room");
    }
}
