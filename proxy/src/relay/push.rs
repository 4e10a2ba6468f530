//! The body of a push: it goes to the controller as it comes, and is never held as a whole.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::Body;
use hyper::body::Incoming;

use crate::idle_timeout::IdleTimeout;
use crate::refusal::{Reason, Refusal};
use crate::upstream::BodyFeed;

/// Maximum length of a push. It bounds the relay alone: the controller takes less (`PACK_BYTES` in `sluice-git`), and
/// says so.
const PUSH_MAX: u64 = 1024 * 1024 * 1024;

/// Body of a push, on its way.
pub(super) struct PushBody<'a> {
    body: &'a mut Incoming,
    feed: Arc<BodyFeed>,
    idle: IdleTimeout,
    len: u64,
    ended: bool,
}

/// Refuses a push with a `Content-Length` that is too long.
///
/// # Errors
/// `body_too_large`
pub(super) fn admit(body: &Incoming) -> Result<(), Refusal> {
    if body.size_hint().lower() > PUSH_MAX { Err(too_large()) } else { Ok(()) }
}

impl<'a> PushBody<'a> {
    /// Creates a push that moves a body into a feed; `idle` is the maximum silence.
    pub(super) fn new(body: &'a mut Incoming, feed: Arc<BodyFeed>, idle: Duration) -> Self {
        Self { body, feed, idle: IdleTimeout::new(idle), len: 0, ended: false }
    }

    /// Returns true if nothing more of the push will come.
    pub(super) fn is_read(&self) -> bool {
        self.ended
    }

    /// Returns true if a piece waits for the connection, and the next one for its place.
    pub(super) fn is_full(&self) -> bool {
        !self.ended && !self.feed.is_free()
    }

    /// Puts the next piece if there is one and it has a place; returns true if it did.
    ///
    /// # Errors
    /// `body_too_large`, `request_timeout`, `bad_request`
    #[cold]
    #[inline(never)]
    pub(super) fn feed(&mut self, cx: &mut Context<'_>) -> Result<bool, Refusal> {
        if self.ended || !self.feed.is_free() {
            return Ok(false);
        }
        let Poll::Ready(frame) = Pin::new(&mut *self.body).poll_frame(cx) else {
            return match self.idle.poll_expired(cx) {
                Poll::Ready(()) => Err(Refusal::new(Reason::RequestTimeout, "the push stopped coming")),
                Poll::Pending => Ok(false),
            };
        };
        self.idle.reset();
        let Some(frame) = frame else {
            self.ended = true;
            self.feed.put(None);
            return Ok(true);
        };
        let frame = frame
            .map_err(|_| Refusal::new(Reason::BadRequest, "the push ended too early, or its framing is broken"))?;
        // Trailers are dropped.
        if let Ok(piece) = frame.into_data() {
            self.len += piece.len() as u64;
            if self.len > PUSH_MAX {
                return Err(too_large());
            }
            self.feed.put(Some(piece));
        }
        Ok(true)
    }
}

fn too_large() -> Refusal {
    Refusal::new(Reason::BodyTooLarge, "the push is too large; push fewer or smaller commits")
}
