//! The requests to the controller: events, messages, interventions, questions, the task and pushes of this run, and no
//! others.
//!
//! The sandbox has no network, so its worker reports through its own socket. The controller knows the run by a token
//! that only the sidecar holds. Relayed requests have their own connections and bounds: a sandbox that floods the
//! relay, and a controller that is away, delay neither calls nor `/health`.

mod bounds;
mod push;

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, StatusCode, Uri};
use hyper::body::Incoming;
use sluice_contract::record::RelayCounts;
use sluice_upstream::Address;

use crate::filter;
use crate::headers;
use crate::intake::{self, BodyLimits};
use crate::policy::{RelayQuery, RelayTarget};
use crate::refusal::{Reason, Refusal};
use crate::scrub::Scrub;
use crate::secret::Secret;
use crate::upstream::{BodyFeed, Outgoing, Upstream};
use bounds::{RelayBounds, RelayKind};
use push::PushBody;

/// Maximum length of a request; an event has at most 100,000 bytes of JSON, escaped.
const REQUEST_MAX: u64 = 1024 * 1024;
const ANSWER_MAX: usize = 1024 * 1024;
/// Time within which a request is read, carried and answered; a long poll waits for 25 s at most.
const WITHIN: Duration = Duration::from_secs(30);
/// Time of a whole push. Silence ends it much earlier.
const PUSH_WITHIN: Duration = Duration::from_secs(3600);

/// Connection of this run to the controller.
#[derive(Debug)]
pub struct Relay {
    address: Address,
    /// Connections to the controller.
    upstream: Arc<Upstream>,
    /// Token of the run.
    token: Secret,
    bounds: Mutex<RelayBounds>,
}

/// A request of the sandbox for the controller.
#[derive(Debug, Clone, Copy)]
pub struct RelayRequest<'a> {
    /// Method of the request.
    pub method: &'a Method,
    /// Resource that is asked for.
    pub target: RelayTarget<'a>,
    /// Path as the controller knows it.
    pub path: &'a str,
    /// Query as the sandbox wrote it.
    pub query: Option<&'a str>,
}

/// Response of the controller, as the sandbox may see it.
pub type RelayResponse = (StatusCode, HeaderMap, Bytes);

/// A response, and whether the request was read to its end.
#[derive(Debug)]
pub struct Relayed {
    /// Response of the controller.
    pub response: RelayResponse,
    /// False if the controller answered before the end of a push.
    pub is_read: bool,
}

/// Place of a request among those under way.
struct RelaySlot<'a> {
    relay: &'a Relay,
    kind: RelayKind,
}

/// A request that may go to the controller.
struct AdmittedRelay<'a> {
    slot: RelaySlot<'a>,
    request: Request<Outgoing>,
    /// Way of the body into the request, for a push.
    feed: Option<Arc<BodyFeed>>,
}

impl Drop for RelaySlot<'_> {
    fn drop(&mut self) {
        self.relay.lock().leave(self.kind);
    }
}

impl Relay {
    /// Creates a relay without any connection yet.
    #[must_use]
    pub fn new(address: Address, upstream: Arc<Upstream>, token: Secret) -> Self {
        Self { address, upstream, token, bounds: Mutex::default() }
    }

    /// Returns the counts of requests so far.
    #[must_use]
    pub fn counts(&self) -> RelayCounts {
        self.lock().counts
    }

    /// Carries one request to the controller, and its whole response back.
    ///
    /// # Errors
    /// The refusal that the client gets instead.
    pub async fn forward(
        &self,
        request: RelayRequest<'_>,
        body: &mut Incoming,
        limits: &BodyLimits,
        key: &[u8],
    ) -> Result<Relayed, Refusal> {
        let is_push = request.target == RelayTarget::Push;
        let within = tokio::time::Instant::now() + if is_push { PUSH_WITHIN } else { WITHIN };
        let AdmittedRelay { slot, request, feed } = match self.admit(request, body, limits, within).await {
            Ok(admitted) => admitted,
            Err(refusal) => {
                self.lock().counts.refused += 1;
                return Err(refusal);
            }
        };
        self.lock().counts.requests += 1;
        let mut push = feed.map(|feed| PushBody::new(body, feed, limits.idle));
        let carried = tokio::time::timeout_at(within, self.carry(request, push.as_mut(), key)).await;
        drop(slot);
        let response = carried.unwrap_or_else(|_| Err(away("the controller did not answer in time; try again")))?;
        Ok(Relayed { response, is_read: push.is_none_or(|push| push.is_read()) })
    }

    /// Checks a request against the bounds, and reads it.
    async fn admit(
        &self,
        request: RelayRequest<'_>,
        body: &mut Incoming,
        limits: &BodyLimits,
        within: tokio::time::Instant,
    ) -> Result<AdmittedRelay<'_>, Refusal> {
        let query = match request.target {
            RelayTarget::Resource(_) => RelayQuery::parse(request.method, request.query)?,
            RelayTarget::PushedRefs | RelayTarget::Push => RelayQuery::default(),
        };
        let kind = match request.target {
            RelayTarget::Push => RelayKind::Push,
            _ if query.waits() => RelayKind::Poll,
            _ => RelayKind::Short,
        };
        self.lock().enter(kind, Instant::now())?;
        let slot = RelaySlot { relay: self, kind };
        if kind == RelayKind::Push {
            push::admit(body)?;
            let feed = Arc::<BodyFeed>::default();
            let request = self.outbound(request, &query, Outgoing::fed(Arc::clone(&feed)))?;
            return Ok(AdmittedRelay { slot, request, feed: Some(feed) });
        }
        let limits = BodyLimits { max: REQUEST_MAX, ..limits.clone() };
        let read = tokio::time::timeout_at(within, intake::collect(body, &limits, |_| Ok(()))).await;
        let slow = |_| Refusal::new(Reason::RequestTimeout, "the body was not complete after 30 s");
        let text = read.map_err(slow)??;
        let body = if text.is_empty() { Outgoing::empty() } else { text.whole() };
        Ok(AdmittedRelay { slot, request: self.outbound(request, &query, body)?, feed: None })
    }

    #[cold]
    #[inline(never)]
    fn outbound(
        &self,
        request: RelayRequest<'_>,
        query: &RelayQuery,
        body: Outgoing,
    ) -> Result<Request<Outgoing>, Refusal> {
        let mut outbound = Request::new(body);
        *outbound.method_mut() = request.method.clone();
        *outbound.uri_mut() = Uri::try_from(format!("{}{query}", request.path))
            .map_err(|_| away("the controller's path is not valid; the operator has to act"))?;
        let host = HeaderValue::from_str(&self.address.authority)
            .map_err(|_| away("the controller's name is not valid; the operator has to act"))?;
        let content_type = HeaderValue::from_static(match request.target {
            RelayTarget::Resource(_) => "application/json",
            RelayTarget::PushedRefs | RelayTarget::Push => "application/x-git-receive-pack-request",
        });
        *outbound.headers_mut() = HeaderMap::from_iter([
            (header::HOST, host),
            (header::AUTHORIZATION, self.token.bearer()),
            (header::CONTENT_TYPE, content_type),
        ]);
        Ok(outbound)
    }

    async fn carry(
        &self,
        request: Request<Outgoing>,
        mut push: Option<&mut PushBody<'_>>,
        key: &[u8],
    ) -> Result<RelayResponse, Refusal> {
        let unreachable = |_| away("the controller cannot be reached; try again");
        let mut flight = self.upstream.send(request).await.map_err(unreachable)?;
        let head = poll_fn(|cx| {
            loop {
                let is_fed = match &mut push {
                    Some(push) => push.feed(cx)?,
                    None => false,
                };
                if is_fed {
                    flight.is_fed();
                }
                let was_full = push.as_ref().is_some_and(|push| push.is_full());
                match flight.poll_head(cx) {
                    // A place that has become free is filled in this turn: nothing else would wake this task for it.
                    Poll::Pending if is_fed || (was_full && push.as_ref().is_some_and(|push| !push.is_full())) => {}
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(head) => {
                        return Poll::Ready(head.map_err(|_| away("the controller did not answer; try again")));
                    }
                }
            }
        })
        .await?;
        let token = self.token.expose();
        let (mut pieces, mut len, mut scrub, mut scrub_token) = (Vec::new(), 0, Scrub::default(), Scrub::default());
        while let Some(piece) = poll_fn(|cx| flight.poll_piece(cx)).await {
            let piece = piece.map_err(|_| away("the controller broke off; try again"))?;
            len += piece.len();
            if len > ANSWER_MAX {
                let message = "the controller's answer is longer than 1 MiB; ask for less with limit";
                return Err(Refusal::new(Reason::UpstreamUnreadable, message));
            }
            pieces.push(scrub_token.pass(token, scrub.pass(key, piece)));
        }
        pieces.push(scrub_token.pass(token, scrub.finish()));
        pieces.push(scrub_token.finish());
        let also = [header::CACHE_CONTROL];
        let mut screened = headers::screen(&headers::screen(&head.headers, &also, key), &also, token);
        screened.remove(header::CONTENT_LENGTH);
        Ok((head.status, screened, filter::join(pieces)))
    }

    fn lock(&self) -> MutexGuard<'_, RelayBounds> {
        self.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cold]
#[inline(never)]
fn away(what: &'static str) -> Refusal {
    Refusal::new(Reason::ControllerUnavailable, what).retry_after(1)
}
