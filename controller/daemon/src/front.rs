//! The steps from a request to its handler: source, principal, rate, route, and the headers that every response has.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody, to_bytes};
use axum::response::{IntoResponse, Response};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, Request, StatusCode};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::access::{AccessRefusal, Entrance, RemotePeer};
use crate::api::{metrics, status};
use crate::api_error::ApiError;
use crate::body_rule::takes_no_body;
use crate::client_gone::ClientGone;
use crate::connection::Respond;
use crate::context::ApiContext;
use crate::credential::RequestCredential;
use crate::limits::HttpLimits;
use crate::listen_plan::literal;
use crate::pages::{self, PageRequest};
use crate::principal::{Principal, Way};
use crate::request_source::{Authorities, ForeignRequest, ListenScheme, comes_from_a_file};
use crate::session_channel::SessionChannel;

/// The front of one listener.
#[derive(Debug)]
pub(crate) struct RequestFront {
    context: Arc<ApiContext>,
    router: TowerToHyperService<Router>,
    entrance: Entrance,
    names: Authorities,
    /// Set on a listener of all addresses: a client may name the address that it has reached.
    reached: Option<ListenScheme>,
    is_behind_proxy: bool,
}

impl RequestFront {
    /// Returns the front of a listener with these names.
    #[must_use]
    pub(crate) fn new(context: Arc<ApiContext>, router: Router, entrance: Entrance, names: Authorities) -> Self {
        let router = TowerToHyperService::new(router);
        Self { context, router, entrance, names, reached: None, is_behind_proxy: false }
    }

    /// Accepts, as `Host`, the literal address that a client has reached.
    #[must_use]
    pub(crate) fn with_reached_address(self, scheme: ListenScheme) -> Self {
        Self { reached: Some(scheme), ..self }
    }

    /// Takes the addresses of clients from the header of the proxy.
    #[must_use]
    pub(crate) fn behind_proxy(self) -> Self {
        Self { is_behind_proxy: true, ..self }
    }

    /// Returns what handlers share.
    #[must_use]
    pub(crate) fn context(&self) -> &ApiContext {
        &self.context
    }

    /// Answers a request. `local` is the address that the client has reached.
    pub(crate) async fn answer(
        &self,
        peer: RemotePeer,
        local: Option<SocketAddr>,
        request: Request<Incoming>,
    ) -> Response {
        let is_openai = request.uri().path().starts_with("/v1/");
        let answered = self.route(peer, local, request).await;
        let mut response = match answered {
            Ok(response) => response,
            Err(error) if is_openai => error.for_openai().into_response(),
            Err(error) => error.into_response(),
        };
        self.context.log_internal_cause(&mut response);
        set_headers(response.headers_mut());
        response
    }

    async fn route(
        &self,
        mut peer: RemotePeer,
        local: Option<SocketAddr>,
        mut request: Request<Incoming>,
    ) -> Result<Response, ApiError> {
        let names = self.names(local);
        let opener = check_source(&names, &request)?;
        if self.is_behind_proxy {
            peer.address = forwarded_for(request.headers()).or(peer.address);
        }
        let channel = SessionChannel::of(&names, request.headers(), peer.end.zip(local));
        // Page assets are the same for every client, and a page has dozens of them, so they do not count towards a
        // rate.
        if opener == Opener::Client && !pages::is_asset(request.uri().path()) {
            let principal = self.authenticate(&peer, channel.as_ref(), &request).await?;
            principal.into_iter().for_each(|principal| drop(request.extensions_mut().insert(principal)));
        }
        request.extensions_mut().insert(PageRequest { channel, peer });
        let mut request = without_unexpected_body(request.map(Body::new), self.context.limits.body_time).await?;
        // The sender is dropped with this future, when the client hangs up.
        let (_client, presence) = watch::channel(());
        request.extensions_mut().insert(ClientGone(presence));
        // A client that hangs up does not stop a change in the middle.
        if request.method().is_safe() {
            return self.router.call(request).await.map_err(|never| match never {});
        }
        let called = self.router.call(request);
        match tokio::spawn(called).await {
            Ok(response) => response.map_err(|never| match never {}),
            Err(error) => Err(ApiError::internal(&error)),
        }
    }

    /// Returns the principal of a request; `None` if it needs no credential and has none.
    async fn authenticate(
        &self,
        peer: &RemotePeer,
        channel: Option<&SessionChannel>,
        request: &Request<Incoming>,
    ) -> Result<Option<Principal>, ApiError> {
        let path = request.uri().path();
        let credential = RequestCredential::of(request.headers(), channel.map(|channel| &channel.cookie));
        let binding = match (&credential, channel) {
            (RequestCredential::Session(_), Some(channel)) => channel.binding().await,
            _ => None,
        };
        match self.context.access.authenticate(self.entrance, peer, credential, binding).await {
            Ok(principal) if principal.way == Way::Session && !pages::is_page(path) && !has_mark(request.headers()) => {
                // A browser has followed a link to a page that does not exist.
                if request.method().is_safe() && !pages::may_be_of_the_api(path) {
                    return Err(ApiError::not_found());
                }
                let message = "a request with the cookie of a session has the header X-Sluice: 1; send it";
                Err(ApiError::new(StatusCode::FORBIDDEN, "x_sluice_required", message))
            }
            Ok(principal) => Ok(Some(principal)),
            Err(AccessRefusal::NoCredential) if self.is_anonymous(path) => Ok(None),
            // A browser keeps the cookie of a session that has ended, and a page of another port can set a second one:
            // the pages answer as without a session.
            Err(AccessRefusal::BadSession(_)) if pages::is_page(path) => Ok(None),
            Err(refused) => Err(refuse(refused).await),
        }
    }

    fn is_anonymous(&self, path: &str) -> bool {
        pages::is_page(path) || status::is_anonymous(path) || metrics::is_anonymous(&self.context, path)
    }

    /// Returns the names of this listener for a client that has reached this address.
    fn names(&self, local: Option<SocketAddr>) -> Cow<'_, Authorities> {
        match (self.reached, local) {
            (Some(scheme), Some(local)) => Cow::Owned(self.names.clone().with(scheme, &literal(local), local.port())),
            _ => Cow::Borrowed(&self.names),
        }
    }
}

impl Respond for RequestFront {
    fn limits(&self) -> HttpLimits {
        self.context().limits
    }

    async fn answer(&self, peer: RemotePeer, local: Option<SocketAddr>, request: Request<Incoming>) -> Response {
        Self::answer(self, peer, local, request).await
    }
}

/// Refuses a body where an operation takes none: the daemon would ignore its content.
async fn without_unexpected_body(request: Request<Body>, within: Duration) -> Result<Request<Body>, ApiError> {
    if request.body().is_end_stream() || !takes_no_body(request.method(), request.uri().path()) {
        return Ok(request);
    }
    let (parts, body) = request.into_parts();
    // An empty body may have come without a length.
    match timeout(within, to_bytes(body, 0)).await {
        Ok(Ok(_)) => Ok(Request::from_parts(parts, Body::empty())),
        Ok(Err(_)) | Err(_) => Err(ApiError::unexpected_body()),
    }
}

/// Sender of a request that was meant for this daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opener {
    /// A client, or one of our pages.
    Client,
    /// A file that a browser shows. Its request has no credential, whatever it carries.
    File,
}

fn check_source(names: &Authorities, request: &Request<Incoming>) -> Result<Opener, ApiError> {
    let (method, uri, headers) = (request.method(), request.uri(), request.headers());
    match names.check(method, uri, headers) {
        Ok(()) => Ok(Opener::Client),
        Err(ForeignRequest::Host) => Err(ApiError::new(
            StatusCode::MISDIRECTED_REQUEST,
            "wrong_host",
            "Host is not a name of this daemon; use an address of --listen, or the origin of --behind-proxy",
        )),
        Err(ForeignRequest::Origin | ForeignRequest::FetchSite)
            if pages::is_opened_by_a_file(method, uri.path()) && comes_from_a_file(headers) =>
        {
            Ok(Opener::File)
        }
        Err(ForeignRequest::Origin | ForeignRequest::FetchSite) => Err(ApiError::wrong_origin()),
    }
}

/// Returns whether a request has the header that no form and no page of another origin can send.
fn has_mark(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all("x-sluice").iter();
    values.next().is_some_and(|value| value == "1") && values.next().is_none()
}

async fn refuse(refused: AccessRefusal) -> ApiError {
    match refused {
        AccessRefusal::NoCredential => ApiError::unauthorized(),
        AccessRefusal::BadCredential(delay) | AccessRefusal::BadSession(delay) => {
            sleep(delay).await;
            ApiError::unauthorized()
        }
        AccessRefusal::Unavailable(error) => error.into(),
        AccessRefusal::TooMany(wait) => ApiError::too_many(
            "rate_limited",
            "this token sends more requests than the daemon takes; wait as Retry-After says",
            // Whole seconds, rounded up.
            wait.saturating_add(Duration::from_nanos(999_999_999)).as_secs().max(1),
        ),
    }
}

/// Returns the address that the nearest proxy has seen.
fn forwarded_for(headers: &HeaderMap) -> Option<IpAddr> {
    let last = headers.get_all("x-forwarded-for").iter().next_back()?.to_str().ok()?;
    last.rsplit(',').next()?.trim().parse().ok()
}

/// Adds the headers that every answer has: they forbid caching, guessing the content type, scripts, and use by other
/// pages.
fn set_headers(headers: &mut HeaderMap) {
    const OPENER: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
    const RESOURCE: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
    for (name, value) in [
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'; sandbox"),
        (REFERRER_POLICY, "no-referrer"),
        (OPENER, "same-origin"),
        (RESOURCE, "same-origin"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}
