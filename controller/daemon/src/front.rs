//! The way of a request to its handler: source, principal, rate, route, and the headers that every answer has.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, Request, StatusCode};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use tokio::time::sleep;

use crate::access::{Entrance, Peer, Refused};
use crate::api::{metrics, status};
use crate::api_error::{ApiError, InternalCause};
use crate::context::ApiContext;
use crate::credential::Credential;
use crate::listen_plan::literal;
use crate::request_source::{Authorities, ForeignRequest, Scheme};

/// The front of one listener.
#[derive(Debug)]
pub(crate) struct Front {
    context: Arc<ApiContext>,
    router: TowerToHyperService<Router>,
    entrance: Entrance,
    names: Authorities,
    /// Set on a listener of all addresses: a client may state the one that it has reached.
    reached: Option<Scheme>,
    is_behind_proxy: bool,
}

impl Front {
    /// Returns the front of a listener with these names.
    #[must_use]
    pub(crate) fn new(context: Arc<ApiContext>, router: Router, entrance: Entrance, names: Authorities) -> Self {
        let router = TowerToHyperService::new(router);
        Self { context, router, entrance, names, reached: None, is_behind_proxy: false }
    }

    /// Accepts the literal address that a client has reached as its host.
    #[must_use]
    pub(crate) fn with_reached_address(self, scheme: Scheme) -> Self {
        Self { reached: Some(scheme), ..self }
    }

    /// Takes addresses of clients from the proxy.
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
    pub(crate) async fn answer(&self, peer: Peer, local: Option<SocketAddr>, request: Request<Incoming>) -> Response {
        let answered = self.route(peer, local, request).await;
        let mut response = answered.unwrap_or_else(IntoResponse::into_response);
        if let Some(InternalCause { id, cause }) = response.extensions_mut().remove() {
            (self.context.log)(&format!("internal error {id}: {cause}"));
        }
        set_headers(response.headers_mut());
        response
    }

    async fn route(
        &self,
        mut peer: Peer,
        local: Option<SocketAddr>,
        mut request: Request<Incoming>,
    ) -> Result<Response, ApiError> {
        self.check_source(local, &request)?;
        if self.is_behind_proxy {
            peer.address = forwarded_for(request.headers()).or(peer.address);
        }
        let credential = Credential::of(request.headers());
        match self.context.access.authenticate(self.entrance, &peer, credential).await {
            Ok(principal) => drop(request.extensions_mut().insert(principal)),
            Err(Refused::NoCredential) if self.is_anonymous(request.uri().path()) => {}
            Err(refused) => return Err(refuse(refused).await),
        }
        let request = request.map(Body::new);
        // A client that hangs up does not stop a change half way.
        if request.method().is_safe() {
            return self.router.call(request).await.map_err(|never| match never {});
        }
        let called = self.router.call(request);
        match tokio::spawn(called).await {
            Ok(response) => response.map_err(|never| match never {}),
            Err(error) => Err(ApiError::internal(&error)),
        }
    }

    fn is_anonymous(&self, path: &str) -> bool {
        status::is_anonymous(path) || metrics::is_anonymous(&self.context, path)
    }

    fn check_source(&self, local: Option<SocketAddr>, request: &Request<Incoming>) -> Result<(), ApiError> {
        let (method, uri, headers) = (request.method(), request.uri(), request.headers());
        let checked = match (self.reached, local) {
            (Some(scheme), Some(local)) => {
                self.names.clone().with(scheme, &literal(local), local.port()).check(method, uri, headers)
            }
            _ => self.names.check(method, uri, headers),
        };
        checked.map_err(|foreign| match foreign {
            ForeignRequest::Host => ApiError::new(
                StatusCode::MISDIRECTED_REQUEST,
                "wrong_host",
                "Host is not a name of this daemon; use an address of --listen, or the origin of --behind-proxy",
            ),
            ForeignRequest::Origin | ForeignRequest::FetchSite => ApiError::new(
                StatusCode::FORBIDDEN,
                "wrong_origin",
                "a page of another origin sent this request; the daemon serves its own pages alone",
            ),
        })
    }
}

async fn refuse(refused: Refused) -> ApiError {
    match refused {
        Refused::NoCredential => ApiError::unauthorized(),
        Refused::BadCredential(delay) => {
            sleep(delay).await;
            ApiError::unauthorized()
        }
        Refused::Unavailable(error) => error.into(),
        Refused::TooMany(wait) => ApiError::too_many(
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

/// Adds what every answer has: no cache, no guess of its type, no script, no use by other pages.
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
