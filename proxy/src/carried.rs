//! A call that has been sent: its flight, its bookkeeping, and the filter that its answer goes through.
//!
//! It owns the end of the call. Whoever drops it before that has left; then, as the run wants it, the
//! answer is read on behind them, or the connection closed. Either way one outcome is written.

use std::future::poll_fn;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use sluice_contract::budget::BudgetRefusal;
use sluice_contract::record::{CallResult, End, Usage};

use crate::audit::Ack;
use crate::call::{AnswerHead, Call};
use crate::filter::{Filter, Passed};
use crate::headers;
use crate::run::{Abort, DRAIN_BYTES, DRAIN_TIME, Run};
use crate::scrub::is_in;
use crate::upstream::{Flight, UpstreamError};
use crate::usage::{Observer, Seen};

/// A longer id of an answer is not written to the audit log.
const LOGGED_ID_MAX: usize = 256;

/// A call under way. Boxed: it moves from the exchange to the answer to the drain.
#[derive(Debug)]
pub struct Carried(Option<Box<Inner>>);

/// What is carried.
#[derive(Debug)]
pub struct Inner {
    /// The run.
    pub run: Arc<Run>,
    /// Its bookkeeping.
    pub call: Call,
    flight: Flight,
    filter: Option<Filter>,
    hide_usage: bool,
    /// The answer is an object that the provider stores.
    makes_stored: bool,
    draining: bool,
}

impl Deref for Carried {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        self.0.as_ref().expect("taken by drop alone")
    }
}

impl DerefMut for Carried {
    fn deref_mut(&mut self) -> &mut Inner {
        self.0.as_mut().expect("taken by drop alone")
    }
}

impl Carried {
    /// The request is on its way.
    #[must_use]
    pub fn new(run: Arc<Run>, mut call: Call, flight: Flight, hide_usage: bool, makes_stored: bool) -> Self {
        call.clock.sent(flight.connected);
        Self(Some(Box::new(Inner { run, call, flight, filter: None, hide_usage, makes_stored, draining: false })))
    }

    /// Waits for the head of the answer.
    ///
    /// # Errors
    /// What broke; the outcome is then written.
    pub async fn head(&mut self) -> Result<http::response::Parts, UpstreamError> {
        let inner: &mut Inner = self;
        poll_fn(|cx| inner.poll_head(cx)).await
    }
}

impl Inner {
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<http::response::Parts, UpstreamError>> {
        let parts = ready!(self.flight.poll_head(cx))?;
        self.call.clock.head();
        let is_stream = content_type(&parts).is_some_and(|kind| kind.starts_with("text/event-stream"));
        self.call.head = Some(AnswerHead {
            status: parts.status.as_u16(),
            is_stream,
            litellm_call_id: headers::call_id(&parts.headers, self.run.key.expose()).map(str::to_owned),
            has_cache_key: headers::has_cache_key(&parts.headers),
            response_cost: headers::response_cost(&parts.headers).map(str::to_owned),
        });
        self.hide_usage &= is_stream;
        self.filter = Some(Filter::new(Observer::new(self.call.wire, is_stream), self.hide_usage));
        Poll::Ready(Ok(parts))
    }

    /// The next piece of the answer, filtered into `passed`; `None` at its end.
    pub fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
        passed: &mut Passed,
    ) -> Poll<Option<Result<usize, UpstreamError>>> {
        let next = ready!(self.flight.poll_piece(cx));
        let Some(filter) = self.filter.as_mut() else {
            return Poll::Ready(None);
        };
        Poll::Ready(match next {
            None => {
                filter.finish(passed);
                None
            }
            Some(Err(broken)) => Some(Err(broken)),
            Some(Ok(piece)) => {
                let len = piece.len();
                self.call.resp_bytes += len as u64;
                passed.output = false;
                filter.pass(self.run.key.expose(), piece, passed);
                self.call.clock.piece(passed.output);
                Some(Ok(len))
            }
        })
    }

    /// The client gets less than the upstream sends, so a length would be wrong.
    #[must_use]
    pub fn hides_usage(&self) -> bool {
        self.hide_usage
    }

    /// Reads a whole small answer.
    ///
    /// # Errors
    /// What broke, or `None` for an answer over `max`.
    pub async fn collect(&mut self, max: usize) -> Result<Vec<Bytes>, Option<UpstreamError>> {
        let (mut passed, mut len) = (Passed::default(), 0);
        while let Some(piece) = poll_fn(|cx| self.poll_piece(cx, &mut passed)).await {
            len += piece.map_err(Some)?;
            if len > max {
                return Err(None);
            }
        }
        passed.on.append(&mut passed.held);
        Ok(passed.on)
    }

    /// What has been seen of the answer; it moves into the outcome.
    fn take_seen(&mut self) -> Seen {
        let mut seen = self.filter.as_mut().map(Filter::take_seen).unwrap_or_default();
        // These go to the audit log, decoded: what was no key in the bytes may be one here.
        let key = self.run.key.expose();
        for name in [&mut seen.response_id, &mut seen.model] {
            name.take_if(|name| is_in(key, name.as_bytes()));
        }
        self.know(&seen);
        seen.response_id.take_if(|id| id.len() > LOGGED_ID_MAX);
        seen
    }

    /// Notes the id of an object that the provider stores, so that this run may name it from now on. An error may repeat
    /// what the agent wrote, so it makes no id known.
    fn know(&mut self, seen: &Seen) {
        let is_success = self.call.head.as_ref().is_some_and(|head| (200..300).contains(&head.status));
        if let Some(id) =
            seen.response_id.as_deref().filter(|_| self.makes_stored && is_success && !self.call.has_ended())
        {
            let tokens = seen.usage.as_ref().map_or_else(|| self.call.reserved_tokens(), Usage::all);
            self.run.known_ids.lock().unwrap_or_else(PoisonError::into_inner).add(id, tokens);
        }
    }

    /// The answer came to its own end.
    pub fn complete(&mut self) -> Ack {
        let seen = self.take_seen();
        let failed = seen.error || self.call.head.as_ref().is_some_and(|head| head.status >= 400);
        let result = match failed {
            _ if seen.gateway_fault => CallResult::Unknown,
            true => CallResult::UpstreamError,
            false => CallResult::Ok,
        };
        self.call.end(seen, result, End::Complete, None)
    }

    /// The upstream broke off, or stayed silent.
    pub fn broke(&mut self, broken: UpstreamError) -> Ack {
        let seen = self.take_seen();
        let result = match broken {
            UpstreamError::Timeout => CallResult::Timeout,
            UpstreamError::Closed => CallResult::Unknown,
            UpstreamError::Cut | UpstreamError::Unreachable => CallResult::UpstreamError,
        };
        self.call.end(seen, result, End::CutByUpstream, None)
    }

    /// The answer is refused: it is complete as far as anybody will look.
    pub fn rejected(&mut self) -> Ack {
        let seen = self.take_seen();
        self.call.end(seen, CallResult::UpstreamError, End::Complete, None)
    }

    /// LiteLLM refused the call for a budget of its own, before any provider was asked.
    pub fn refused_for_budget(&mut self, budget: BudgetRefusal) -> Ack {
        self.call.budget = Some(Box::new(budget));
        self.rejected()
    }

    fn cut(&mut self) {
        let seen = self.take_seen();
        drop(self.call.end(seen, CallResult::Deadline, End::CutByLimit, None));
    }

    fn aborted(&mut self, drained: bool) {
        let seen = self.take_seen();
        drop(self.call.end(seen, CallResult::ClientAbort, End::CutByClient, Some(drained)));
    }

    /// Reads on to the end of the answer, within bounds; the outcome says whether it got there.
    async fn drain(mut self: Box<Self>) {
        self.draining = true;
        let mut carried = Carried(Some(self));
        let inner: &mut Inner = &mut carried;
        let drained = tokio::time::timeout(DRAIN_TIME, inner.read_on()).await.unwrap_or(false);
        inner.aborted(drained);
    }

    async fn read_on(&mut self) -> bool {
        if self.filter.is_none() && poll_fn(|cx| self.poll_head(cx)).await.is_err() {
            return false;
        }
        let mut left = DRAIN_BYTES;
        loop {
            let mut passed = Passed::default();
            match poll_fn(|cx| self.poll_piece(cx, &mut passed)).await {
                None => return true,
                // What the client waited for is known; the rest is the upstream's own end.
                Some(Ok(_)) if passed.terminal => return true,
                Some(Ok(len)) if len as u64 <= left => left -= len as u64,
                Some(Ok(_) | Err(_)) => return false,
            }
        }
    }
}

fn content_type(parts: &http::response::Parts) -> Option<&str> {
    parts.headers.get(http::header::CONTENT_TYPE)?.to_str().ok()
}

impl Drop for Carried {
    fn drop(&mut self) {
        let Some(mut inner) = self.0.take() else { return };
        if inner.call.has_ended() {
            return;
        }
        let run = Arc::clone(&inner.run);
        if run.journal.is_cutting() {
            inner.cut();
        } else if inner.draining || run.abort == Abort::Cancel {
            inner.aborted(false);
        } else {
            run.ending.spawn_drain(inner.drain());
        }
    }
}
