//! The life of one call. This file is the order of its steps, and nothing else.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Request, Response, StatusCode, response};
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
use crate::connection::OpenCallGuard;
use crate::intake::{self, BufferedBody};
use crate::policy::{self, Admitted, ApiFormat, Policy, Route};
use crate::refusal::{Reason, Refusal};
use crate::response::{PendingResponse, ResponseBody};
use crate::run::RunContext;
use crate::share::Share;
use crate::tap::Tap;
use crate::upstream::Outgoing;
use crate::usage::ObservedResponse;
use crate::{filter, headers, litellm_budget, models, screen, share, stored, stripped};

/// The bound that the sidecar wrote in the place of the client's.
static MAX_TOKENS: HeaderName = HeaderName::from_static("x-sluice-max-tokens");
/// Members of the body that were dropped and would have changed the answer.
static DROPPED: HeaderName = HeaderName::from_static("x-sluice-dropped");

/// Why there is no answer of the upstream's.
enum Denied {
    /// The request was not forwarded, and the log has to say so.
    Refused(Refusal),
    /// It was, and its outcome is written; the id is that of the call.
    Failed(Refusal, Option<Uuid>),
}

impl From<Refusal> for Denied {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Poisoned> for Denied {
    fn from(_: Poisoned) -> Self {
        // There is no log to say it in.
        Self::Failed(Refusal::audit_unavailable(), None)
    }
}

/// Answers one request, whatever it is.
pub async fn exchange(
    run: Arc<RunContext>,
    peer: Peer,
    request: Request<Incoming>,
    busy: OpenCallGuard,
) -> Result<Response<ResponseBody>, Infallible> {
    let (head, mut body) = request.into_parts();
    let pending = match answer(&run, peer, &head, &mut body).await {
        Ok(pending) => pending,
        Err(denied) => Box::pin(refuse(&run, &head, &mut body, denied)).await,
    };
    Ok(pending.to(busy))
}

async fn answer(
    run: &Arc<RunContext>,
    peer: Peer,
    head: &Parts,
    body: &mut Incoming,
) -> Result<PendingResponse, Denied> {
    admit_peer(run, peer)?;
    let route =
        match run.policy.admit(&head.method, &head.uri).map_err(|refusal| prefer_upgrade(refusal, &head.headers))? {
            Admitted::Health => return Ok(PendingResponse::health(run)),
            Admitted::Relay(resource) => return Box::pin(relay(run, resource, head, body)).await,
            Admitted::Model(route, id) => {
                models::admit(id, &run.body.models)?;
                route
            }
            Admitted::Stored(route, id) => {
                stored::admit(run, id)?;
                route
            }
            Admitted::Call(route) => route,
        };
    call(run, peer, route, head, body).await
}

/// One call, from its head to the head of its answer; the tap sees to the rest.
async fn call(
    run: &Arc<RunContext>,
    peer: Peer,
    route: &Route,
    head: &Parts,
    body: &mut Incoming,
) -> Result<PendingResponse, Denied> {
    let mut clock = Clock::start();
    admit_head(run, head)?;
    let (mut parsed, text) = read(run, route, body).await?;
    clock.waited(clock.began());
    stored::go_on_from(run, &mut parsed)?;
    let Share { reservation, bound, price } = share::take(run, route, &mut parsed, &text, &mut clock).await?;

    let id = run.call_ids.next();
    run.injector.stripped(&head.headers, &mut parsed.stripped);
    let entry = {
        let mut buffer = Uuid::encode_buffer();
        let call_id: &str = id.as_hyphenated().encode_lower(&mut buffer);
        intend(run, peer, route, &mut parsed, &text, call_id, &reservation, bound, &mut clock).await?
    };
    let mut call = CallTracker::new(entry, reservation, price, route.format, clock);

    let request = outbound(run, route, head, id, &mut parsed, text);
    let flight = match run.upstream.send(request).await {
        Ok(flight) => flight,
        Err(broken) => {
            call.end(ObservedResponse::default(), CallResult::UpstreamError, End::CutByUpstream, None).await?;
            return Err(Denied::Failed(screen::lost(broken), Some(id)));
        }
    };
    call.is_being_sent();
    let mut active = ActiveCall::new(Arc::clone(run), call, flight, parsed.hide_usage, route.makes_stored());

    let upstream = match active.head().await {
        Ok(upstream) => upstream,
        Err(broken) => {
            active.broke(broken).await?;
            return Err(Denied::Failed(screen::lost(broken), Some(id)));
        }
    };
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
        return Box::pin(client_error(active, id, upstream, screened)).await;
    }
    if route.format == ApiFormat::Models && upstream.status.is_success() {
        let asked = policy::model_id(head.uri.path());
        if asked.is_some() || !run.body.models.is_empty() {
            return Box::pin(filtered_models(run, active, asked, id, upstream.status, screened)).await;
        }
    }
    let mut length = upstream.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if length == Some(0) || matches!(upstream.status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT) {
        // hyper never asks for the body of such an answer, so its end is here.
        let _ = Box::pin(active.collect(0)).await;
        active.complete().await?;
        return Ok(PendingResponse::whole(upstream.status, screened, Bytes::new()));
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

/// What no call may have in its head, whatever its route.
fn admit_head(run: &RunContext, head: &Parts) -> Result<(), Refusal> {
    if run.shutdown.is_draining() {
        return Err(Refusal::draining());
    }
    if run.journal.refuses() {
        return Err(Refusal::audit_unavailable());
    }
    if head.headers.contains_key(header::UPGRADE) {
        return Err(no_upgrade());
    }
    let encoded = |value: &HeaderValue| !value.as_bytes().eq_ignore_ascii_case(b"identity");
    if head.headers.get_all(header::CONTENT_ENCODING).iter().any(encoded) {
        return Err(Refusal::new(Reason::EncodingNotAllowed, "send the body as it is, without Content-Encoding"));
    }
    Ok(())
}

fn no_upgrade() -> Refusal {
    Refusal::new(Reason::UpgradeNotAllowed, "only plain HTTP/1.1 is carried here; leave out the Upgrade header")
}

/// A WebSocket begins with a GET, also on routes that take POST alone: the method is not what is wrong with it.
fn prefer_upgrade(refusal: Refusal, headers: &HeaderMap) -> Refusal {
    let is_upgrade = refusal.reason == Reason::MethodNotAllowed && headers.contains_key(header::UPGRADE);
    if is_upgrade { no_upgrade() } else { refusal }
}

async fn read(run: &RunContext, route: &Route, body: &mut Incoming) -> Result<(ParsedBody, BufferedBody), Refusal> {
    if route.method == http::Method::GET || route.format == ApiFormat::Stored {
        let no_body = |_: &[u8]| Err(Refusal::new(Reason::BadRequest, "this path takes no body; send none"));
        let text = intake::collect(body, &run.bounds, no_body).await?;
        return Ok((ParsedBody::default(), text));
    }
    intake::read(body, route.format, &run.body, &run.bounds).await
}

#[allow(clippy::too_many_arguments, reason = "each is one fact of the intent")]
async fn intend(
    run: &RunContext,
    peer: Peer,
    route: &Route,
    parsed: &mut ParsedBody,
    text: &BufferedBody,
    call_id: &str,
    reservation: &Reservation,
    bound: Option<u64>,
    clock: &mut Clock,
) -> Result<CallGuard, Poisoned> {
    let asked = Instant::now();
    let limited = reservation.is_limited();
    let (entry, durable) = run.journal.intent(CallIntent {
        bound,
        call_id,
        method: route.method.as_str(),
        model: parsed.model.as_deref(),
        path: route.path,
        peer,
        req_bytes: text.len(),
        reserved_strict: limited.then_some(reservation.is_strict()),
        reserved_tokens: limited.then_some(reservation.tokens()),
        reserved_usd: run.prices.is_some().then(|| Usd::from_nanos(reservation.nanos()).to_string()),
        stream: parsed.stream,
        stripped: stripped::bounded(std::mem::take(&mut parsed.stripped)),
    })?;
    durable.await?;
    clock.waited(asked);
    Ok(entry)
}

fn outbound(
    run: &RunContext,
    route: &Route,
    head: &Parts,
    id: Uuid,
    parsed: &mut ParsedBody,
    text: BufferedBody,
) -> Request<Outgoing> {
    let is_post = route.method == http::Method::POST && route.format != ApiFormat::Stored;
    let edit = std::mem::take(&mut parsed.edit);
    let put = parsed.rare.as_ref().map_or(&[][..], |rare| &rare.put);
    let body = if is_post { text.edited(edit, put) } else { Outgoing::empty() };
    let mut request = Request::new(body);
    *request.method_mut() = route.method.clone();
    *request.uri_mut() = match policy::stored_path(route, head.uri.path()) {
        Some(path) => run.address.target_of(&path),
        None => run.address.target(route.path),
    };
    *request.headers_mut() =
        run.injector.outbound(&head.headers, id.as_hyphenated().encode_lower(&mut Uuid::encode_buffer()), is_post);
    request
}

/// A short answer that says that the request was refused: by a budget of LiteLLM's, or for what only the client can read.
async fn client_error(
    mut active: ActiveCall,
    id: Uuid,
    upstream: response::Parts,
    mut screened: HeaderMap,
) -> Result<PendingResponse, Denied> {
    let body = match active.collect(litellm_budget::MAX).await {
        Ok(pieces) => filter::join(pieces),
        // It is longer than its head said: hyper does not let that happen.
        Err(None) => Bytes::new(),
        Err(Some(broken)) => {
            active.broke(broken).await?;
            return Err(Denied::Failed(screen::lost(broken), Some(id)));
        }
    };
    if let Some(budget) = litellm_budget::read(upstream.status, &upstream.headers, &body) {
        let refusal = litellm_budget::refusal(&budget);
        active.refused_for_budget(budget).await?;
        return Err(Denied::Failed(refusal, Some(id)));
    }
    if let Some(refusal) = screen::reject(&upstream) {
        active.rejected().await?;
        return Err(Denied::Failed(refusal, Some(id)));
    }
    active.complete().await?;
    // What was scrubbed off need not have the length that the head says.
    screened.remove(header::CONTENT_LENGTH);
    Ok(PendingResponse::whole(upstream.status, screened, body))
}

/// Puts the id of the call into the head of its answer.
fn name(answer: &mut HeaderMap, id: Uuid, head: &Parts) {
    let mut buffer = Uuid::encode_buffer();
    let call_id = id.as_hyphenated().encode_lower(&mut buffer);
    headers::name_call(answer, call_id, Policy::dialect(head.uri.path(), &head.headers));
}

/// The list, cut down to what the run may use, or the one entry that was asked for.
async fn filtered_models(
    run: &RunContext,
    mut active: ActiveCall,
    asked: Option<&str>,
    id: Uuid,
    status: StatusCode,
    mut screened: HeaderMap,
) -> Result<PendingResponse, Denied> {
    let refusal = match active.collect(models::MAX).await {
        Ok(pieces) => {
            let list = filter::join(pieces);
            let found = match asked {
                Some(asked) => models::find(&list, asked),
                None => models::filter(&list, &run.body.models).map(Some),
            };
            match (found, asked) {
                (Ok(Some(found)), _) => {
                    active.complete().await?;
                    screened.remove(header::CONTENT_LENGTH);
                    return Ok(PendingResponse::whole(status, screened, found));
                }
                (Ok(None), asked) => {
                    active.complete().await?;
                    return Err(Denied::Failed(models::not_found(asked.unwrap_or_default()), Some(id)));
                }
                (Err(models::NotAList), _) => {
                    Refusal::new(Reason::UpstreamUnreadable, "the upstream's list of models cannot be read")
                }
            }
        }
        Err(None) => Refusal::new(Reason::UpstreamUnreadable, "the upstream's list of models is too long"),
        Err(Some(broken)) => {
            active.broke(broken).await?;
            return Err(Denied::Failed(screen::lost(broken), Some(id)));
        }
    };
    active.rejected().await?;
    Err(Denied::Failed(refusal, Some(id)))
}

async fn relay(
    run: &RunContext,
    resource: &'static str,
    head: &Parts,
    body: &mut Incoming,
) -> Result<PendingResponse, Denied> {
    admit_head(run, head)?;
    let Some(relay) = &run.relay else {
        return Err(Refusal::new(Reason::RouteNotAllowed, "this run has no controller to relay to").into());
    };
    let path = run.policy.relay_path(resource);
    let (status, headers, body) = relay.forward(&head.method, path, body, &run.bounds, run.key.expose()).await?;
    Ok(PendingResponse::whole(status, headers, body))
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
        pending = pending.of_call(call, dialect);
    }
    let is_read = body.is_end_stream() || !run.shutdown.is_draining() && intake::linger(body, &head.headers).await;
    if is_read { pending } else { pending.closing() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tap::Tap;

    /// What a call of this function holds while it waits.
    fn future<A, B, C, D, F: Future>(_: fn(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn what_every_open_call_holds_stays_small() {
        let sizes = (future(exchange), size_of::<Tap>());
        assert!(sizes.0 <= 3500 && sizes.1 <= 160, "{sizes:?}");
    }
}
