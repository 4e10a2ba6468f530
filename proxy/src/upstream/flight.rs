//! One call in flight: the connection that carries it, and its time limits.
//!
//! Polling a flight drives its connection. Dropping it closes the connection, and cancels the call.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use tokio::time::Instant;

use super::{NoConnection, Outgoing, PooledConnection, Upstream};
use crate::idle_timeout::IdleTimeout;

/// Maximum size of a piece that is joined from frames that are ready together.
const GATHER: usize = 64 * 1024;
/// Size from which a piece is written on its own.
const LARGE: usize = 16 * 1024;

/// Reason why an upstream gave no complete answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpstreamError {
    /// The upstream closed before it answered; it may have processed the request.
    Closed,
    /// The upstream broke off in the middle of its answer.
    Cut,
    /// The upstream was silent for too long.
    Timeout,
    /// The operator ended the call.
    Interrupted,
}

type Sent = Result<Response<Incoming>, TrySendError<Request<Outgoing>>>;

/// A request in flight.
pub struct Flight {
    upstream: Arc<Upstream>,
    link: Option<Box<PooledConnection>>,
    head: Option<Pin<Box<dyn Future<Output = Sent> + Send>>>,
    body: Option<Incoming>,
    /// Error to report after the piece that was returned last.
    error: Option<UpstreamError>,
    idle: IdleTimeout,
    /// Time to connect; `None` if the connection was reused.
    pub connected: Option<Duration>,
}

impl fmt::Debug for Flight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flight").field("head_known", &self.head.is_none()).finish_non_exhaustive()
    }
}

impl Upstream {
    /// Puts a request on a connection. Returns before the answer's head is there.
    ///
    /// # Errors
    /// [`NoConnection`]: nothing was sent.
    pub async fn send(self: &Arc<Self>, mut request: Request<Outgoing>) -> Result<Flight, Box<NoConnection>> {
        if let Some(link) = self.pooled() {
            let mut flight = Flight::start(Arc::clone(self), link, request, None);
            // A pooled connection may have died while it was idle. If it did so before a byte was sent, the
            // request comes back, and goes to a new connection. No other request is ever sent twice.
            match poll_fn(|cx| Poll::Ready(flight.unsent(cx))).await {
                None => return Ok(flight),
                Some(unsent) => request = unsent,
            }
        }
        let before = Instant::now();
        // Boxed, like every rare future below `exchange`: otherwise the future of every call would contain it.
        let link = Box::pin(self.connect()).await?;
        Ok(Flight::start(Arc::clone(self), link, request, Some(before.elapsed())))
    }
}

impl Flight {
    fn start(
        upstream: Arc<Upstream>,
        mut link: Box<PooledConnection>,
        request: Request<Outgoing>,
        connected: Option<Duration>,
    ) -> Self {
        let head = Box::pin(link.send.try_send_request(request));
        let idle = IdleTimeout::new(upstream.timeouts().first_byte);
        Self { upstream, link: Some(link), head: Some(head), body: None, error: None, idle, connected }
    }

    /// Drives the connection once; returns the request if it can never be sent on this connection.
    fn unsent(&mut self, cx: &mut Context<'_>) -> Option<Request<Outgoing>> {
        self.drive(cx);
        let Poll::Ready(sent) = self.head.as_mut()?.as_mut().poll(cx) else {
            return None;
        };
        match sent {
            Err(mut error) => match error.take_message() {
                Some(request) => return Some(request),
                None => self.head = Some(Box::pin(std::future::ready(Err(error)))),
            },
            Ok(response) => self.head = Some(Box::pin(std::future::ready(Ok(response)))),
        }
        None
    }

    /// Notes that a piece of the request was put: the time for the answer begins anew.
    pub fn is_fed(&mut self) {
        self.idle.reset();
    }

    /// Waits for the head of the answer.
    ///
    /// # Errors
    /// [`UpstreamError::Closed`] or [`UpstreamError::Timeout`].
    pub fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<http::response::Parts, UpstreamError>> {
        self.drive(cx);
        let Some(head) = self.head.as_mut() else {
            return Poll::Ready(Err(UpstreamError::Closed));
        };
        match head.as_mut().poll(&mut unwoken()) {
            Poll::Pending => self.idle.poll_expired(cx).map(|()| Err(UpstreamError::Timeout)),
            Poll::Ready(sent) => {
                self.head = None;
                let (parts, body) = sent.map_err(|_| UpstreamError::Closed)?.into_parts();
                self.body = Some(body);
                self.idle.begin(self.upstream.timeouts().idle);
                Poll::Ready(Ok(parts))
            }
        }
    }

    /// Returns the part of the answer that is ready, as one piece: the events of a burst are read and written together.
    /// `None` at its end, and then the connection is kept for the next call.
    ///
    /// # Errors
    /// [`UpstreamError::Cut`] or [`UpstreamError::Timeout`].
    pub fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, UpstreamError>>> {
        let first = match self.poll_frame(cx) {
            Poll::Ready(Some(Ok(first))) => first,
            Poll::Pending => return self.idle.poll_expired(cx).map(|()| Some(Err(UpstreamError::Timeout))),
            ended => return ended,
        };
        self.idle.reset();
        if first.len() >= LARGE {
            return Poll::Ready(Some(Ok(first)));
        }
        let mut joined = BytesMut::new();
        while first.len() + joined.len() < GATHER {
            match self.poll_frame(cx) {
                Poll::Ready(Some(Ok(next))) => {
                    if joined.is_empty() {
                        joined.reserve(GATHER / 4);
                        joined.extend_from_slice(&first);
                    }
                    joined.extend_from_slice(&next);
                }
                Poll::Ready(Some(Err(error))) => {
                    self.error = Some(error);
                    break;
                }
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        Poll::Ready(Some(Ok(if joined.is_empty() { first } else { joined.freeze() })))
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, UpstreamError>>> {
        if let Some(error) = self.error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        loop {
            self.drive(cx);
            let Some(body) = self.body.as_mut() else {
                return Poll::Ready(None);
            };
            match ready!(Pin::new(&mut *body).poll_frame(&mut unwoken())) {
                Some(Ok(frame)) => {
                    // The last byte of a known length is the end of the body.
                    if body.is_end_stream() {
                        self.give_back();
                    }
                    // Trailers would bypass the header policy, so they are dropped.
                    if let Ok(piece) = frame.into_data() {
                        return Poll::Ready(Some(Ok(piece)));
                    }
                }
                None => {
                    self.give_back();
                    return Poll::Ready(None);
                }
                Some(Err(_)) => return Poll::Ready(Some(Err(UpstreamError::Cut))),
            }
        }
    }

    fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(link) = self.link.as_mut() {
            // An error shows in the head or the body as well; here it only means that nothing more comes.
            if Pin::new(&mut link.conn).poll(cx).is_ready() {
                self.link = None;
            }
        }
    }

    fn give_back(&mut self) {
        self.body = None;
        // After the end of an answer, hyper needs one more poll to be ready for another request.
        self.drive(&mut unwoken());
        if let Some(link) = self.link.take().filter(|link| link.send.is_ready()) {
            self.upstream.keep(link);
        }
    }
}

/// Context for hyper's channels whose other end has just been driven, and for an idle connection: a
/// wake-up would only poll the same task, or the task of a call that has ended.
fn unwoken() -> Context<'static> {
    Context::from_waker(Waker::noop())
}
