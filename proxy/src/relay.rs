//! The requests to the controller: events, messages, interventions, questions and the task of this run, and no others.
//!
//! The sandbox has no network, so its worker reports through its own socket. The controller knows the run by a token
//! that only the sidecar holds. The connections are not those of calls, and the bounds are the sidecar's own: a sandbox
//! that floods the relay, and a controller that is away, delay neither calls nor `/health`.

mod bounds;

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, StatusCode, Uri};
use hyper::body::Incoming;
use sluice_contract::record::RelayCounts;
use sluice_upstream::Address;

use crate::filter;
use crate::headers;
use crate::intake::{self, BodyLimits, BufferedBody};
use crate::policy::RelayQuery;
use crate::refusal::{Reason, Refusal};
use crate::scrub::Scrub;
use crate::secret::Secret;
use crate::upstream::{Outgoing, Upstream};
use bounds::RelayBounds;

/// Maximum length of a request; an event has at most 100,000 bytes of JSON, escaped.
const REQUEST_MAX: u64 = 1024 * 1024;
const ANSWER_MAX: usize = 1024 * 1024;
/// Time within which a request is read, carried and answered; a long poll waits for 25 s at most.
const WITHIN: Duration = Duration::from_secs(30);

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
    /// Path as the controller knows it.
    pub path: &'a str,
    /// Query as the sandbox wrote it.
    pub query: Option<&'a str>,
}

/// Response of the controller, as the sandbox may see it.
pub type RelayResponse = (StatusCode, HeaderMap, Bytes);

/// Place of a request among those under way.
struct RelaySlot<'a> {
    relay: &'a Relay,
    waits: bool,
}

impl Drop for RelaySlot<'_> {
    fn drop(&mut self) {
        self.relay.lock().leave(self.waits);
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
    ) -> Result<RelayResponse, Refusal> {
        let within = tokio::time::Instant::now() + WITHIN;
        let (slot, request) = match self.admit(request, body, limits, within).await {
            Ok(admitted) => admitted,
            Err(refusal) => {
                self.lock().counts.refused += 1;
                return Err(refusal);
            }
        };
        self.lock().counts.requests += 1;
        let carried = tokio::time::timeout_at(within, self.carry(request, key)).await;
        drop(slot);
        carried.unwrap_or_else(|_| Err(away("the controller did not answer within 30 s; try again")))
    }

    /// Checks a request against the bounds, and reads it.
    async fn admit(
        &self,
        request: RelayRequest<'_>,
        body: &mut Incoming,
        limits: &BodyLimits,
        within: tokio::time::Instant,
    ) -> Result<(RelaySlot<'_>, Request<Outgoing>), Refusal> {
        let query = RelayQuery::parse(request.method, request.query)?;
        let waits = query.waits();
        self.lock().enter(waits, Instant::now())?;
        let slot = RelaySlot { relay: self, waits };
        let limits = BodyLimits { max: REQUEST_MAX, ..limits.clone() };
        let read = tokio::time::timeout_at(within, intake::collect(body, &limits, |_| Ok(()))).await;
        let slow = |_| Refusal::new(Reason::RequestTimeout, "the body was not complete after 30 s");
        let text = read.map_err(slow)??;
        Ok((slot, self.outbound(request, &query, text)?))
    }

    fn outbound(
        &self,
        request: RelayRequest<'_>,
        query: &RelayQuery,
        text: BufferedBody,
    ) -> Result<Request<Outgoing>, Refusal> {
        let mut outbound = Request::new(if text.is_empty() { Outgoing::empty() } else { text.whole() });
        *outbound.method_mut() = request.method.clone();
        *outbound.uri_mut() = Uri::try_from(format!("{}{query}", request.path))
            .map_err(|_| away("the controller's path is not valid; the operator has to act"))?;
        let host = HeaderValue::from_str(&self.address.authority)
            .map_err(|_| away("the controller's name is not valid; the operator has to act"))?;
        let json = HeaderValue::from_static("application/json");
        *outbound.headers_mut() = HeaderMap::from_iter([
            (header::HOST, host),
            (header::AUTHORIZATION, self.token.bearer()),
            (header::CONTENT_TYPE, json),
        ]);
        Ok(outbound)
    }

    async fn carry(&self, request: Request<Outgoing>, key: &[u8]) -> Result<RelayResponse, Refusal> {
        let unreachable = |_| away("the controller cannot be reached; try again");
        let mut flight = self.upstream.send(request).await.map_err(unreachable)?;
        let head =
            poll_fn(|cx| flight.poll_head(cx)).await.map_err(|_| away("the controller did not answer; try again"))?;
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
        let mut screened = headers::screen(&headers::screen(&head.headers, &[], key), &[], token);
        screened.remove(header::CONTENT_LENGTH);
        Ok((head.status, screened, filter::join(pieces)))
    }

    fn lock(&self) -> MutexGuard<'_, RelayBounds> {
        self.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn away(what: &'static str) -> Refusal {
    Refusal::new(Reason::ControllerUnavailable, what).retry_after(1)
}
