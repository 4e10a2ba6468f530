//! The client's end of a connection, watched for four events that hyper does not report.
//!
//! The events are a head that can be read in two ways, a head that does not end, a head that hyper refuses without a
//! body, and a client that leaves while its call is open. A half-closed client has not left; it waits for its response.

mod socket;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use memchr::memmem;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::framing::Framing;
use crate::refusal::{Dialect, Reason, Refusal};
use crate::slots::{Activity, Slot};

pub use socket::ClientSocket;

/// Maximum time from the first byte of a head to its last.
const SLOW_HEAD: Duration = Duration::from_secs(10);

/// Interval at which a half-closed client is checked; the kernel does not report its end a second time.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Listener that accepted a connection; it decides which code answers the requests of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listener {
    /// The sandbox's socket.
    Calls,
    /// The controller's socket.
    Control,
}

/// State that the connection and its calls share.
#[derive(Debug)]
pub struct ConnState {
    activity: Arc<Activity>,
    listener: Listener,
    /// True between two requests, as far as the bytes were read.
    between: AtomicBool,
    /// True while a response is not yet given; hyper serves one call at a time.
    has_open_call: AtomicBool,
    /// True if the last head that was read became a call. If it did not, hyper writes an error of its own.
    called: AtomicBool,
    /// True if the connection is to end before the next request.
    closing: AtomicBool,
    /// Fault for which the sidecar ended the connection: a [`Reason`] that no call has recorded.
    fault: AtomicU8,
}

/// Guard of an open call on the connection.
#[derive(Debug)]
pub struct OpenCallGuard(Arc<ConnState>);

impl ConnState {
    /// Creates the state of a connection that was just accepted.
    #[must_use]
    pub fn new(slot: &Slot, listener: Listener) -> Self {
        Self {
            activity: Arc::clone(slot.activity()),
            listener,
            between: AtomicBool::new(true),
            has_open_call: AtomicBool::new(false),
            called: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            fault: AtomicU8::new(0),
        }
    }

    /// Marks a call as open until the guard is dropped.
    #[must_use]
    pub fn open_call(self: &Arc<Self>) -> OpenCallGuard {
        self.activity.busy();
        self.has_open_call.store(true, Ordering::Release);
        self.called.store(true, Ordering::Release);
        OpenCallGuard(Arc::clone(self))
    }

    /// Stops reading requests.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// Returns the fault for which the connection was ended.
    #[must_use]
    pub fn fault(&self) -> Option<Reason> {
        match self.fault.load(Ordering::Acquire) {
            1 => Some(Reason::BadRequest),
            2 => Some(Reason::RequestTimeout),
            3 => Some(Reason::HeadTooLarge),
            _ => None,
        }
    }

    /// Notes whether the bytes that were read end between two requests, or within one.
    fn has_read(&self, between: bool) {
        self.between.store(between, Ordering::Release);
        if !between {
            self.activity.busy();
        } else if !self.has_open_call() {
            // This is a blank line, or a request that becomes a call before any other task can look.
            self.activity.idle();
        }
    }

    fn has_open_call(&self) -> bool {
        self.has_open_call.load(Ordering::Acquire)
    }
}

impl OpenCallGuard {
    /// Returns the listener that the connection of the call came by.
    #[must_use]
    pub fn listener(&self) -> Listener {
        self.0.listener
    }
}

impl Drop for OpenCallGuard {
    fn drop(&mut self) {
        self.0.has_open_call.store(false, Ordering::Release);
        if self.0.between.load(Ordering::Acquire) {
            self.0.activity.idle();
        }
    }
}

/// The stream that hyper reads and writes.
#[derive(Debug)]
pub struct WatchedStream {
    /// Before the stream, whose descriptor it names: fields are dropped in this order.
    _slot: Slot,
    stream: ClientSocket,
    state: Arc<ConnState>,
    framing: Framing,
    ended: bool,
    /// True if hyper has bytes that the client did not take yet: hyper would drop them at the end of the input.
    unflushed: bool,
    timer: Option<Pin<Box<Sleep>>>,
}

impl WatchedStream {
    /// Wraps a connection that was just accepted.
    #[must_use]
    pub fn new(stream: ClientSocket, state: Arc<ConnState>, slot: Slot) -> Self {
        Self { _slot: slot, stream, state, framing: Framing::default(), ended: false, unflushed: false, timer: None }
    }

    /// Handles the end of the client's input. It ends the connection, unless the client waits for the response to a
    /// whole request.
    fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if !self.is_answering() || !self.framing.is_between() || self.stream.has_hung_up() {
                return Poll::Ready(Ok(()));
            }
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(LOOK_AGAIN)));
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.timer = None;
        }
    }

    /// Returns true while the client still gets bytes of a response.
    fn is_answering(&self) -> bool {
        self.state.has_open_call() || self.unflushed
    }

    /// Ends the connection with a response of the sidecar's own; hyper has none for this.
    fn fail(&mut self, reason: Reason, message: &'static str) -> io::Error {
        let fault = match reason {
            Reason::RequestTimeout => 2,
            Reason::HeadTooLarge => 3,
            _ => 1,
        };
        self.state.fault.store(fault, Ordering::Release);
        if !self.is_answering() {
            let body = Refusal::new(reason, message).body(Dialect::OpenAi);
            let head = format!(
                "HTTP/1.1 {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nx-sluice-reason: {}\r\nconnection: close\r\n\r\n",
                reason.status(),
                body.len(),
                reason.as_str(),
            );
            // A client that does not read its response does not get it.
            let _ = self.stream.try_write(format!("{head}{body}").as_bytes());
        }
        io::Error::new(io::ErrorKind::InvalidData, message)
    }

    /// Replaces hyper's response to a head that it cannot read, which has no body, with one of the sidecar's own.
    fn replaces(&mut self, written: &[u8]) -> bool {
        let empty =
            !self.state.called.load(Ordering::Acquire) && memmem::find(written, b"\r\ncontent-length: 0\r\n").is_some();
        let (reason, message) = match written.get(9..12) {
            Some(b"400") if empty => (Reason::BadRequest, "the request's head is not valid HTTP/1.1"),
            Some(b"414" | b"431") if empty => {
                (Reason::HeadTooLarge, "the request's head is over 64 KiB, or has more than 100 headers")
            }
            _ => return false,
        };
        self.fail(reason, message);
        true
    }

    fn poll_slow_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.framing.in_head() {
            self.timer = None;
            return Poll::Pending;
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(SLOW_HEAD)));
        timer
            .as_mut()
            .poll(cx)
            .map(|()| Err(self.fail(Reason::RequestTimeout, "the request's head was not complete after 10 s")))
    }
}

impl AsyncRead for WatchedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.ended {
            return this.poll_left(cx);
        }
        if this.state.closing.load(Ordering::Acquire) && !this.is_answering() {
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        if Pin::new(&mut this.stream).poll_read(cx, buf)?.is_pending() {
            return this.poll_slow_head(cx);
        }
        let read = &buf.filled()[before..];
        if read.is_empty() {
            this.ended = true;
            this.timer = None;
            return this.poll_left(cx);
        }
        if !this.state.has_open_call() {
            this.state.called.store(false, Ordering::Release);
        }
        if this.framing.feed(read).is_err() {
            return Poll::Ready(Err(this.fail(Reason::BadRequest, "the request's length can be read in two ways")));
        }
        if !this.framing.in_head() {
            this.timer = None;
        }
        this.state.has_read(this.framing.is_between());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for WatchedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.replaces(buf) {
            return Poll::Ready(Ok(buf.len()));
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.unflushed |= !matches!(written, Poll::Ready(Ok(n)) if n == buf.len());
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if bufs.first().is_some_and(|head| self.replaces(head)) {
            return Poll::Ready(Ok(bufs.iter().map(|buf| buf.len()).sum()));
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.unflushed |=
            !matches!(written, Poll::Ready(Ok(n)) if n == bufs.iter().map(|buf| buf.len()).sum::<usize>());
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper flushes only when it has nothing left.
        self.unflushed = false;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::Slots;
    use std::os::fd::AsRawFd;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;

    /// Returns a connection on which the client has sent these bytes, read once.
    async fn sent(bytes: &[u8]) -> (UnixStream, WatchedStream, Arc<ConnState>) {
        let (mut client, server) = UnixStream::pair().expect("a pair of sockets");
        let slot = Slots::new(1).take(server.as_raw_fd()).expect("a free slot");
        let state = Arc::new(ConnState::new(&slot, Listener::Calls));
        let server = server.into_std().and_then(ClientSocket::new).expect("a descriptor");
        let mut stream = WatchedStream::new(server, Arc::clone(&state), slot);
        client.write_all(bytes).await.expect("the other end is open");
        let read = stream.read(&mut [0; 256]).await.expect("it reads what came");
        assert_eq!(read, bytes.len());
        (client, stream, state)
    }

    async fn told(client: &mut UnixStream) -> String {
        let mut answer = vec![0; 1024];
        let len = client.read(&mut answer).await.expect("an answer");
        String::from_utf8_lossy(&answer[..len]).into_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn an_incomplete_head_is_answered_with_408() {
        let (mut client, mut stream, state) = sent(b"GET /health HT").await;
        let began = tokio::time::Instant::now();

        let ended = stream.read(&mut [0; 256]).await;

        assert_eq!((ended.is_err(), began.elapsed() >= SLOW_HEAD), (true, true));
        assert_eq!(state.fault(), Some(Reason::RequestTimeout));
        let answer = told(&mut client).await;
        assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("x-sluice-reason: request_timeout"), "{answer}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_complete_head_may_be_followed_by_silence() {
        let (_client, mut stream, state) = sent(b"GET /health HTTP/1.1\r\n\r\n").await;

        let waited = tokio::time::timeout(SLOW_HEAD * 10, stream.read(&mut [0; 256])).await;

        assert!(waited.is_err() && state.fault().is_none(), "the next request may come whenever it likes");
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_half_closed_client_still_gets_its_response() {
        let (mut client, mut stream, state) = sent(b"GET /health HTTP/1.1\r\n\r\n").await;
        let busy = state.open_call();
        client.shutdown().await.expect("half of it closes");
        let waited = tokio::time::timeout(LOOK_AGAIN * 5, stream.read(&mut [0; 256])).await;
        assert!(waited.is_err(), "its call is still open");

        drop(client);
        assert_eq!(stream.read(&mut [0; 256]).await.expect("an end of input"), 0);
        drop(busy);
    }

    #[tokio::test]
    async fn an_error_of_hyper_gets_a_body() {
        let (mut client, mut stream, state) = sent(b"nonsense\r\n\r\n").await;
        let empty = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";

        assert_eq!(stream.write(empty).await.expect("taken"), empty.len());

        assert!(told(&mut client).await.contains("x-sluice-reason: bad_request"));
        assert_eq!(state.fault(), Some(Reason::BadRequest));
    }
}
