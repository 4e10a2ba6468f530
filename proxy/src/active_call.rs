//! A call that was sent: the request in flight, the bookkeeping, and the filter of its response.
//!
//! This type owns the end of the call. If it is dropped before the end, the client has left; then the response is
//! read on, or the connection closed, as the run's settings say. In each case one outcome is written.

use std::future::poll_fn;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use sluice_contract::budget::BudgetRefusal;
use sluice_contract::record::{CallResult, End, Usage};

use crate::abort::AbortMode;
use crate::audit::Ack;
use crate::call::{CallTracker, ResponseHead};
use crate::filter::{Filtered, ResponseFilter};
use crate::headers;
use crate::run::{DRAIN_BYTES, DRAIN_TIME, RunContext};
use crate::scrub::is_in;
use crate::upstream::{Flight, UpstreamError};
use crate::usage::{ObservedResponse, ResponseEnd, ResponseObserver};

/// Maximum length of a response id in the audit log; a longer one is not written.
const LOGGED_ID_MAX: usize = 256;

/// A call in flight. Boxed, because it moves from the exchange to the response body, and from there to the drain.
#[derive(Debug)]
pub struct ActiveCall(Option<Box<Inner>>);

/// State of a call in flight.
#[derive(Debug)]
pub struct Inner {
    /// The run of the call.
    pub run: Arc<RunContext>,
    /// Bookkeeping of the call.
    pub call: CallTracker,
    flight: Flight,
    filter: Option<ResponseFilter>,
    hide_usage: bool,
    /// True if the response is an object that the provider stores.
    makes_stored: bool,
    draining: bool,
}

impl Deref for ActiveCall {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        self.0.as_ref().expect("taken by drop alone")
    }
}

impl DerefMut for ActiveCall {
    fn deref_mut(&mut self) -> &mut Inner {
        self.0.as_mut().expect("taken by drop alone")
    }
}

impl ActiveCall {
    /// Starts the response side of a call that was sent.
    #[must_use]
    pub fn new(
        run: Arc<RunContext>,
        mut call: CallTracker,
        flight: Flight,
        hide_usage: bool,
        makes_stored: bool,
    ) -> Self {
        call.clock.sent(flight.connected);
        Self(Some(Box::new(Inner { run, call, flight, filter: None, hide_usage, makes_stored, draining: false })))
    }

    /// Waits for the head of the response.
    ///
    /// # Errors
    /// The failure of the upstream. The caller writes the outcome.
    pub async fn head(&mut self) -> Result<http::response::Parts, UpstreamError> {
        let inner: &mut Inner = self;
        poll_fn(|cx| inner.poll_head(cx)).await
    }
}

impl Inner {
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<http::response::Parts, UpstreamError>> {
        self.run.interrupts.check(&self.call.clock)?;
        let parts = ready!(self.flight.poll_head(cx))?;
        self.call.clock.head();
        let is_stream = content_type(&parts).is_some_and(|kind| kind.starts_with("text/event-stream"));
        self.call.head = Some(ResponseHead {
            status: parts.status.as_u16(),
            is_stream,
            litellm_call_id: headers::call_id(&parts.headers, self.run.key.expose()).map(str::to_owned),
            has_cache_key: headers::has_cache_key(&parts.headers),
            response_cost: headers::response_cost(&parts.headers).map(str::to_owned),
        });
        self.hide_usage &= is_stream;
        self.filter = Some(ResponseFilter::new(ResponseObserver::new(self.call.format, is_stream), self.hide_usage));
        Poll::Ready(Ok(parts))
    }

    /// Filters the next piece of the response into `filtered`. Returns the number of bytes that came, and `None` at the
    /// end.
    pub fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
        filtered: &mut Filtered,
    ) -> Poll<Option<Result<usize, UpstreamError>>> {
        if let Err(error) = self.run.interrupts.check(&self.call.clock) {
            return Poll::Ready(Some(Err(error)));
        }
        let next = ready!(self.flight.poll_piece(cx));
        let Some(filter) = self.filter.as_mut() else {
            return Poll::Ready(None);
        };
        Poll::Ready(match next {
            None => {
                filter.finish(filtered);
                None
            }
            Some(Err(error)) => Some(Err(error)),
            Some(Ok(piece)) => {
                let len = piece.len();
                self.call.resp_bytes += len as u64;
                filtered.output = false;
                filter.pass(self.run.key.expose(), piece, filtered);
                self.call.clock.piece(filtered.output);
                Some(Ok(len))
            }
        })
    }

    /// Returns true if the client gets fewer bytes than the upstream sends, so that a length would be wrong.
    #[must_use]
    pub fn hides_usage(&self) -> bool {
        self.hide_usage
    }

    /// Reads a small response to its end.
    ///
    /// # Errors
    /// The failure of the upstream, or `None` for a response over `max` bytes.
    pub async fn collect(&mut self, max: usize) -> Result<Bytes, Option<UpstreamError>> {
        let (mut filtered, mut body, mut len) = (Filtered::default(), BytesMut::new(), 0);
        while let Some(piece) = poll_fn(|cx| self.poll_piece(cx, &mut filtered)).await {
            len += piece.map_err(Some)?;
            if len > max {
                return Err(None);
            }
            // Joined at once: a piece can be one byte, and takes more memory by itself.
            filtered.take_into(&mut body);
        }
        filtered.take_into(&mut body);
        Ok(body.freeze())
    }

    /// Moves the observed facts of the response out, for the outcome.
    fn take_observed(&mut self) -> ObservedResponse {
        let mut observed = self.filter.as_mut().map(ResponseFilter::take_observed).unwrap_or_default();
        // These are decoded for the audit log: text that was not the key in the raw bytes may be the key now.
        let key = self.run.key.expose();
        for name in [&mut observed.response_id, &mut observed.model] {
            name.take_if(|name| is_in(key, name.as_bytes()));
        }
        self.know(&observed);
        observed.response_id.take_if(|id| id.len() > LOGGED_ID_MAX);
        observed
    }

    /// Notes the id of an object that the provider stores, so that this run may name it from now on. An error may
    /// repeat text that the agent wrote, so an error makes no id known.
    fn know(&mut self, observed: &ObservedResponse) {
        let is_success = self.call.head.as_ref().is_some_and(|head| (200..300).contains(&head.status));
        if let Some(id) =
            observed.response_id.as_deref().filter(|_| self.makes_stored && is_success && !self.call.has_ended())
        {
            let usage = observed.usage.as_ref().filter(|_| observed.end == ResponseEnd::Reached);
            let tokens = usage.map_or_else(|| self.call.reserved_tokens(), Usage::all);
            self.run.known_ids.lock().unwrap_or_else(PoisonError::into_inner).add(id, tokens);
        }
    }

    /// Ends a call after its response has ended. A stream may end before the last event of its format.
    pub fn complete(&mut self) -> Ack {
        let observed = self.take_observed();
        let (is_error, is_stream) =
            self.call.head.as_ref().map_or((false, false), |head| (head.status >= 400, head.is_stream));
        // LiteLLM ends a stream cleanly after its provider broke off.
        let is_cut = is_stream && !is_error && observed.end != ResponseEnd::Reached;
        let result = match observed.error || is_error || is_cut {
            _ if observed.gateway_fault => CallResult::Unknown,
            true => CallResult::UpstreamError,
            false => CallResult::Ok,
        };
        let end = if is_cut { End::CutByUpstream } else { End::Complete };
        self.call.end(observed, result, end, None)
    }

    /// Ends a call whose upstream broke off or was silent for too long, or that the operator interrupted.
    pub fn upstream_failed(&mut self, error: UpstreamError) -> Ack {
        let observed = self.take_observed();
        let (result, end) = match error {
            UpstreamError::Timeout => (CallResult::Timeout, End::CutByUpstream),
            UpstreamError::Closed => (CallResult::Unknown, End::CutByUpstream),
            UpstreamError::Cut => (CallResult::UpstreamError, End::CutByUpstream),
            UpstreamError::Interrupted => {
                self.run.interrupts.remember(self.call.fingerprint);
                (CallResult::Interrupted, End::CutByLimit)
            }
        };
        self.call.end(observed, result, end, None)
    }

    /// Ends a call whose response the client must not see. The record says that the response was complete.
    pub fn rejected(&mut self) -> Ack {
        let observed = self.take_observed();
        self.call.end(observed, CallResult::UpstreamError, End::Complete, None)
    }

    /// Ends a call that LiteLLM refused for one of its budgets, before it asked a provider.
    pub fn refused_for_budget(&mut self, budget: BudgetRefusal) -> Ack {
        self.call.budget = Some(Box::new(budget));
        self.rejected()
    }

    fn cut(&mut self) {
        let observed = self.take_observed();
        drop(self.call.end(observed, CallResult::Deadline, End::CutByLimit, None));
    }

    fn aborted(&mut self, drained: bool) {
        let observed = self.take_observed();
        drop(self.call.end(observed, CallResult::ClientAbort, End::CutByClient, Some(drained)));
    }

    /// Reads the response on to its end, within limits. The outcome says whether all of it was read.
    async fn drain(mut self: Box<Self>) {
        self.draining = true;
        let mut active = ActiveCall(Some(self));
        let inner: &mut Inner = &mut active;
        let drained = tokio::time::timeout(DRAIN_TIME, inner.read_on()).await.unwrap_or(false);
        inner.aborted(drained);
    }

    /// Returns true if the response that has ended is complete, so that its usage is the usage of the call. A stream
    /// with an error is not complete.
    fn is_whole(&self) -> bool {
        let is_stream = self.call.head.as_ref().is_some_and(|head| head.is_stream);
        let observed = self.filter.as_ref().map(ResponseFilter::observed);
        observed.is_some_and(|observed| !is_stream || observed.end == ResponseEnd::Reached && !observed.error)
    }

    async fn read_on(&mut self) -> bool {
        if self.filter.is_none() && poll_fn(|cx| self.poll_head(cx)).await.is_err() {
            return false;
        }
        let mut left = DRAIN_BYTES;
        loop {
            let mut filtered = Filtered::default();
            match poll_fn(|cx| self.poll_piece(cx, &mut filtered)).await {
                None => return self.is_whole(),
                // The client's part of the response is known; the rest is only the end of the connection.
                Some(Ok(_)) if filtered.terminal => return self.is_whole(),
                Some(Ok(len)) if len as u64 <= left => left -= len as u64,
                Some(Ok(_) | Err(_)) => return false,
            }
        }
    }
}

fn content_type(parts: &http::response::Parts) -> Option<&str> {
    parts.headers.get(http::header::CONTENT_TYPE)?.to_str().ok()
}

impl Drop for ActiveCall {
    fn drop(&mut self) {
        let Some(mut inner) = self.0.take() else { return };
        if inner.call.has_ended() {
            return;
        }
        let run = Arc::clone(&inner.run);
        if run.journal.is_cutting() {
            inner.cut();
        } else if inner.draining || run.abort == AbortMode::Cancel {
            inner.aborted(false);
        } else {
            run.shutdown.spawn_drain(Box::pin(inner.drain()));
        }
    }
}
