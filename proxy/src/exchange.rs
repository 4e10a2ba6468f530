//! The life of one call. This file holds the order of its steps, and nothing else.

mod denied;
mod short_response;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use hyper::body::Incoming;
use sluice_contract::Usd;
use sluice_contract::record::{CallResult, End, Peer};
use uuid::Uuid;

use crate::active_call::ActiveCall;
use crate::audit::{CallGuard, CallIntent, Poisoned};
use crate::body::ParsedBody;
use crate::call::{CallTracker, Clock};
use crate::caps::Reservation;
use crate::connection::{Listener, OpenCallGuard};
use crate::conversation::CallInjection;
use crate::intake::{self, BufferedBody};
use crate::policy::{self, AdmittedRequest, ApiFormat, Policy, RelayTarget, Route};
use crate::refusal::{Reason, Refusal};
use crate::relay::{RelayRequest, Relayed};
use crate::response::{PendingResponse, ResponseBody};
use crate::run::RunContext;
use crate::share::Share;
use crate::tap::Tap;
use crate::upstream::Outgoing;
use crate::usage::ObservedResponse;
use crate::{control, headers, litellm_budget, models, screen, share, stored, stripped, upstream_failure};
use denied::Denied;

/// Response header with the output bound that the sidecar wrote in place of the client's.
static MAX_TOKENS: HeaderName = HeaderName::from_static("x-sluice-max-tokens");
/// Response header with the body members that were dropped and would have changed the response.
static DROPPED: HeaderName = HeaderName::from_static("x-sluice-dropped");

/// Answers one request, whatever it is.
pub async fn exchange(
    run: Arc<RunContext>,
    peer: Peer,
    request: Request<Incoming>,
    guard: OpenCallGuard,
) -> Result<Response<ResponseBody>, Infallible> {
    if guard.listener() == Listener::Control {
        return Ok(Box::pin(control::answer(run, request)).await.into_response(guard));
    }
    let (head, mut body) = request.into_parts();
    let pending = match respond(&run, peer, &head, &mut body).await {
        Ok(pending) => pending,
        Err(denied) => Box::pin(refuse(&run, &head, &mut body, denied)).await,
    };
    Ok(pending.into_response(guard))
}

async fn respond(
    run: &Arc<RunContext>,
    peer: Peer,
    head: &Parts,
    body: &mut Incoming,
) -> Result<PendingResponse, Denied> {
    admit_peer(run, peer)?;
    let route =
        match run.policy.admit(&head.method, &head.uri).map_err(|refusal| prefer_upgrade(refusal, &head.headers))? {
            AdmittedRequest::Health => return Ok(PendingResponse::health(run)),
            AdmittedRequest::Relay(target) => return Box::pin(relay(run, target, head, body)).await,
            AdmittedRequest::Model(route) => {
                models::admit(&policy::model_id(head.uri.path()).unwrap_or_default(), &run.body.models)?;
                route
            }
            AdmittedRequest::Stored(route, id) => {
                stored::admit(run, id)?;
                route
            }
            AdmittedRequest::Call(route) => route,
        };
    call(run, peer, route, head, body).await
}

/// Carries one call up to the head of its response; the tap carries the rest.
async fn call(
    run: &Arc<RunContext>,
    peer: Peer,
    route: &Route,
    head: &Parts,
    body: &mut Incoming,
) -> Result<PendingResponse, Denied> {
    let mut clock = Clock::start();
    admit_head(run, head)?;
    let (mut parsed, buffered) = read(run, route, body).await?;
    // The rate counts calls when they could go on: a client may hold many back, and send their last bytes at once.
    let now = clock.waited(clock.began());
    stored::admit_references(run, &mut parsed)?;
    let Share { reservation, bound, price } = share::take(run, route, &mut parsed, &buffered, &mut clock, now).await?;
    run.interrupts.check(&clock).map_err(|_| run.interrupts.refuse(&parsed, &buffered))?;

    let id = run.call_ids.next();
    let (headers, guard) = {
        let mut buffer = Uuid::encode_buffer();
        let call_id: &str = id.as_hyphenated().encode_lower(&mut buffer);
        // Before the intent: it names the headers that this drops.
        let headers = run.injector.outbound(&head.headers, call_id, sends_body(route), &mut parsed.stripped);
        let guard = intend(run, peer, route, &mut parsed, &buffered, call_id, &reservation, bound, &mut clock).await?;
        (headers, guard)
    };
    let mut call = CallTracker::new(guard, reservation, price, route.format, clock);
    call.fingerprint = run.interrupts.fingerprint(&parsed, &buffered);

    let request = outbound(run, route, head, headers, &mut parsed, buffered);
    let flight = match run.upstream.send(request).await {
        Ok(flight) => flight,
        Err(error) => {
            let refusal = upstream_failure::unreachable(error.failure);
            call.connect_error = Some(error);
            call.end(ObservedResponse::default(), CallResult::UpstreamError, End::CutByUpstream, None).await?;
            return Err(Denied::Failed(refusal, Some(id)));
        }
    };
    call.is_being_sent();
    if let Some(injection) = parsed.injection() {
        run.injections.sent(injection, id);
    }
    let mut active = ActiveCall::new(Arc::clone(run), call, flight, parsed.hide_usage, route.makes_stored());

    let upstream = match active.head().await {
        Ok(upstream) => upstream,
        Err(error) => {
            active.upstream_failed(error).await?;
            return Err(Denied::Failed(upstream_failure::refusal(error), Some(id)));
        }
    };
    if let Some(injection) = parsed.injection().filter(|_| upstream.status.is_success()) {
        run.injections.acknowledged(injection, id);
    }
    let may_be_budget = litellm_budget::is_candidate(&upstream);
    if !may_be_budget && let Some(refusal) = screen::reject(&upstream) {
        active.rejected().await?;
        return Err(Denied::Failed(refusal, Some(id)));
    }
    let mut screened = headers::screen(&upstream.headers, &run.pass_response_headers, run.key.expose());
    name(&mut screened, id, head);
    if let Some(bound) = bound {
        screened.insert(&MAX_TOKENS, HeaderValue::from(bound));
    }
    if let Some(dropped) = parsed.dropped.as_deref().and_then(|names| HeaderValue::from_str(names).ok()) {
        screened.insert(&DROPPED, dropped);
    }
    if may_be_budget {
        return Box::pin(short_response::client_error(active, id, upstream, screened)).await;
    }
    if route.format == ApiFormat::Models && upstream.status.is_success() {
        let asked = policy::model_id(head.uri.path());
        if asked.is_some() || !run.body.models.is_empty() {
            return Box::pin(short_response::models(run, active, asked, id, upstream.status, screened)).await;
        }
    }
    let mut length = upstream.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if length == Some(0) || matches!(upstream.status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT) {
        // hyper never asks for the body of such a response, so its end is here.
        let _ = Box::pin(active.collect(0)).await;
        active.complete().await?;
        return Ok(PendingResponse::buffered(upstream.status, screened, Bytes::new()));
    }
    if active.hides_usage() {
        length = None;
    }
    if length.is_none() {
        screened.remove(header::CONTENT_LENGTH);
    }
    Ok(PendingResponse::tapped(upstream.status, screened, Tap::new(active, length)))
}

fn admit_peer(run: &RunContext, peer: Peer) -> Result<(), Refusal> {
    if run.peer_uids.is_empty() || run.peer_uids.contains(&peer.uid) {
        return Ok(());
    }
    Err(Refusal::new(Reason::PeerNotAllowed, format!("user {} may not use this socket", peer.uid)))
}

/// Refuses headers that no call may have, whatever its route, and all calls once the run is ending.
fn admit_head(run: &RunContext, head: &Parts) -> Result<(), Refusal> {
    if run.shutdown.is_draining() {
        return Err(Refusal::draining());
    }
    if run.journal.refuses() {
        return Err(Refusal::audit_unavailable());
    }
    if wants_upgrade(&head.headers) {
        return Err(no_upgrade());
    }
    let encoded = |value: &HeaderValue| !value.as_bytes().eq_ignore_ascii_case(b"identity");
    if head.headers.get_all(header::CONTENT_ENCODING).iter().any(encoded) {
        return Err(Refusal::new(Reason::EncodingNotAllowed, "send the body as it is, without Content-Encoding"));
    }
    Ok(())
}

/// Returns whether a client asks for another protocol. Java's client offers HTTP/2 with each request, and takes a refusal
/// for its answer; a server may ignore that offer.
fn wants_upgrade(headers: &HeaderMap) -> bool {
    headers.get_all(header::UPGRADE).iter().any(|upgrade| !upgrade.as_bytes().eq_ignore_ascii_case(b"h2c"))
}

fn no_upgrade() -> Refusal {
    Refusal::new(Reason::UpgradeNotAllowed, "only plain HTTP/1.1 is carried here; leave out the Upgrade header")
}

/// Refuses a WebSocket for its upgrade. It begins with a GET, also on routes that take only POST: the method is not the
/// mistake.
fn prefer_upgrade(refusal: Refusal, headers: &HeaderMap) -> Refusal {
    let is_upgrade = refusal.reason == Reason::MethodNotAllowed && wants_upgrade(headers);
    if is_upgrade { no_upgrade() } else { refusal }
}

async fn read(run: &RunContext, route: &Route, body: &mut Incoming) -> Result<(ParsedBody, BufferedBody), Denied> {
    if route.method == Method::GET || route.format == ApiFormat::Stored {
        let no_body = |_: &[u8]| Err(Refusal::new(Reason::BadRequest, "this path takes no body; send none"));
        let buffered = intake::collect(body, &run.limits, no_body).await?;
        return Ok((ParsedBody::default(), buffered));
    }
    let read = if run.injections.reads(route.format) {
        Box::pin(run.injections.read(body, route.format, &run.body, &run.limits, &run.interrupts)).await?
    } else {
        intake::read(body, route.format, &run.body, &run.limits).await?
    };
    if run.interrupts.remembers() && run.interrupts.knows(run.interrupts.fingerprint(&read.0, &read.1)) {
        // A repeat is answered from memory, and counts nowhere.
        return Err(Denied::Failed(Refusal::interrupted(), None));
    }
    Ok(read)
}

#[allow(clippy::too_many_arguments, reason = "each is one fact of the intent")]
async fn intend(
    run: &RunContext,
    peer: Peer,
    route: &Route,
    parsed: &mut ParsedBody,
    buffered: &BufferedBody,
    call_id: &str,
    reservation: &Reservation,
    bound: Option<u64>,
    clock: &mut Clock,
) -> Result<CallGuard, Poisoned> {
    let asked = Instant::now();
    let limited = reservation.is_limited();
    let (guard, durable) = run.journal.intent(CallIntent {
        bound,
        call_id,
        injected: parsed.injection().and_then(CallInjection::listed),
        method: route.method.as_str(),
        model: parsed.model.as_deref(),
        path: route.path,
        peer,
        req_bytes: buffered.len(),
        reserved_strict: limited.then_some(reservation.is_strict()),
        reserved_tokens: limited.then_some(reservation.tokens()),
        reserved_usd: run.prices.is_some().then(|| Usd::from_nanos(reservation.nanos()).to_string()),
        stream: parsed.stream,
        stripped: stripped::bounded(std::mem::take(&mut parsed.stripped)),
    })?;
    durable.await?;
    clock.waited(asked);
    Ok(guard)
}

fn sends_body(route: &Route) -> bool {
    route.method == Method::POST && route.format != ApiFormat::Stored
}

fn outbound(
    run: &RunContext,
    route: &Route,
    head: &Parts,
    headers: HeaderMap,
    parsed: &mut ParsedBody,
    buffered: BufferedBody,
) -> Request<Outgoing> {
    let edit = std::mem::take(&mut parsed.edit);
    let put = parsed.rare.as_ref().map_or(&[][..], |rare| &rare.put);
    let body = if sends_body(route) { buffered.edited(edit, put) } else { Outgoing::empty() };
    let mut request = Request::new(body);
    *request.method_mut() = route.method.clone();
    *request.uri_mut() = match policy::stored_path(route, head.uri.path()) {
        Some(path) => run.address.target_of(&path),
        None => run.address.target(route.path),
    };
    *request.headers_mut() = headers;
    request
}

/// Puts the id of the call into the head of its response.
fn name(response: &mut HeaderMap, id: Uuid, head: &Parts) {
    let mut buffer = Uuid::encode_buffer();
    let call_id = id.as_hyphenated().encode_lower(&mut buffer);
    headers::name_call(response, call_id, Policy::dialect(head.uri.path(), &head.headers));
}

async fn relay(
    run: &RunContext,
    target: RelayTarget<'_>,
    head: &Parts,
    body: &mut Incoming,
) -> Result<PendingResponse, Denied> {
    admit_head(run, head)?;
    let Some(relay) = &run.relay else {
        return Err(Refusal::new(Reason::RouteNotAllowed, "this run has no controller to relay to").into());
    };
    let path = run.policy.relay_path(target);
    let request = RelayRequest { method: &head.method, target, path: &path, query: head.uri.query() };
    match relay.forward(request, body, &run.limits, run.key.expose()).await {
        Ok(Relayed { response: (status, headers, answer), is_read }) => {
            let pending = PendingResponse::buffered(status, headers, answer);
            Ok(if is_read { pending } else { settle(run, head, body, pending).await })
        }
        // The refusal is counted in `close`: a worker that polls must not displace the records of refused calls.
        Err(refusal) => Err(Denied::Failed(refusal, None)),
    }
}

async fn refuse(run: &RunContext, head: &Parts, body: &mut Incoming, denied: Denied) -> PendingResponse {
    let (refusal, call) = match denied {
        Denied::Failed(refusal, call) => (refusal, call),
        Denied::Refused(refusal) => {
            // A refusal that cannot be written is still a refusal.
            let _ = run.journal.refused(head.method.as_str(), head.uri.path(), &refusal).await;
            (refusal, None)
        }
    };
    tracing::debug!(reason = refusal.reason.as_str(), "refused");
    let dialect = Policy::dialect(head.uri.path(), &head.headers);
    let mut pending = PendingResponse::refusal(&refusal, dialect);
    if let Some(call) = call {
        if refusal.reason == Reason::UpstreamAuth {
            run.key_refusals.warn(call, &refusal.message);
        }
        pending = pending.with_call_id(call, dialect);
    }
    settle(run, head, body, pending).await
}

/// Reads what is left of the request, or has the connection closed after the response.
async fn settle(run: &RunContext, head: &Parts, body: &mut Incoming, pending: PendingResponse) -> PendingResponse {
    let is_read = body.is_end_stream() || !run.shutdown.is_draining() && intake::linger(body, &head.headers).await;
    if is_read { pending } else { pending.close_connection() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Size of the future that this function returns: the memory that a call holds while it waits.
    fn future<A, B, C, D, F: Future>(_: fn(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn an_open_call_holds_little_memory() {
        let sizes = (future(exchange), size_of::<Tap>());
        assert!(sizes.0 <= 3500 && sizes.1 <= 160, "{sizes:?}");
    }
}
