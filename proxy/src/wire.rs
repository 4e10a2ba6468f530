//! The client's end of a connection, watched for what hyper does not watch.
//!
//! Three things: a head that can be read in two ways, a head that does not come to its end, and a client
//! that has left while its call is open. A half-closed client has not left; it waits for its answer.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;
use tokio::time::Sleep;

use crate::framing::Framing;
use crate::refusal::{Dialect, Reason, Refusal};

/// A head has so long from its first byte to its last.
const SLOW_HEAD: Duration = Duration::from_secs(10);

/// How often a half-closed client is looked at; the kernel does not tell twice.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What the connection and its calls know of each other.
#[derive(Debug, Default)]
pub struct Line {
    /// Calls whose answer is not yet given; hyper serves one at a time.
    busy: AtomicBool,
    /// The connection ends at the next pause.
    closing: AtomicBool,
    /// Why the connection was ended by us: a [`Reason`] that no call has told.
    fault: AtomicU8,
}

/// A call is open on the line.
#[derive(Debug)]
pub struct Busy(Arc<Line>);

impl Line {
    /// Marks a call as open until the guard is dropped.
    #[must_use]
    pub fn busy(self: &Arc<Self>) -> Busy {
        self.busy.store(true, Ordering::Release);
        Busy(Arc::clone(self))
    }

    /// No further request is read.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// What the connection was ended for.
    #[must_use]
    pub fn fault(&self) -> Option<Reason> {
        match self.fault.load(Ordering::Acquire) {
            1 => Some(Reason::BadRequest),
            2 => Some(Reason::RequestTimeout),
            _ => None,
        }
    }

    fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
    }
}

/// The stream under hyper.
#[derive(Debug)]
pub struct Wire {
    stream: UnixStream,
    line: Arc<Line>,
    framing: Framing,
    ended: bool,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Wire {
    /// A connection that was just accepted.
    #[must_use]
    pub fn new(stream: UnixStream, line: Arc<Line>) -> Self {
        Self { stream, line, framing: Framing::default(), ended: false, timer: None }
    }

    /// The client sends nothing more. That ends the connection, unless it waits for an answer to a whole request.
    fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if !self.line.is_busy() || !self.framing.is_between() || self.has_hung_up(cx) {
                return Poll::Ready(Ok(()));
            }
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(LOOK_AGAIN)));
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.timer = None;
        }
    }

    /// Both directions are closed: the kernel says so without a byte being written.
    fn has_hung_up(&self, cx: &mut Context<'_>) -> bool {
        let ready = pin!(self.stream.ready(Interest::WRITABLE)).poll(cx);
        matches!(ready, Poll::Ready(Ok(ready)) if ready.is_write_closed())
    }

    /// Ends the connection with an answer of our own; hyper has none for this.
    fn fail(&mut self, reason: Reason, message: &'static str) -> io::Error {
        self.line.fault.store(if reason == Reason::BadRequest { 1 } else { 2 }, Ordering::Release);
        if !self.line.is_busy() {
            let body = Refusal::new(reason, message).body(Dialect::OpenAi);
            let head = format!(
                "HTTP/1.1 {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nx-sluice-reason: {}\r\nconnection: close\r\n\r\n",
                reason.status(),
                body.len(),
                reason.as_str(),
            );
            // A client that does not read its answer does not get it.
            let _ = self.stream.try_write(format!("{head}{body}").as_bytes());
        }
        io::Error::new(io::ErrorKind::InvalidData, message)
    }

    fn poll_slow_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.framing.in_head() {
            self.timer = None;
            return Poll::Pending;
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(SLOW_HEAD)));
        timer.as_mut().poll(cx).map(|()| Err(self.fail(Reason::RequestTimeout, "the request's head did not come to its end in 10 s")))
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let wire = &mut *self;
        if wire.ended {
            return wire.poll_left(cx);
        }
        if wire.line.closing.load(Ordering::Acquire) && !wire.line.is_busy() {
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        if Pin::new(&mut wire.stream).poll_read(cx, buf)?.is_pending() {
            return wire.poll_slow_head(cx);
        }
        let read = &buf.filled()[before..];
        if read.is_empty() {
            wire.ended = true;
            wire.timer = None;
            return wire.poll_left(cx);
        }
        if wire.framing.feed(read).is_err() {
            return Poll::Ready(Err(wire.fail(Reason::BadRequest, "the request's length can be read in two ways")));
        }
        if !wire.framing.in_head() {
            wire.timer = None;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
