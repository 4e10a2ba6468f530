//! The steps from a sidecar's request to its handler: its token, its run, its route.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use sluice_contract::RunKey;

use super::RelayCaller;
use crate::access::RemotePeer;
use crate::api_error::ApiError;
use crate::connection::Respond;
use crate::context::ApiContext;
use crate::credential::RequestCredential;
use crate::limits::HttpLimits;

/// Beginning of the paths of the API.
const ROOT: &str = "/api/v1/sandboxes/";
/// Beginning of the paths of repositories.
const GIT_ROOT: &str = "/git/";

/// The front of the socket of one attempt.
#[derive(Debug)]
pub(super) struct RelayFront {
    context: Arc<ApiContext>,
    router: TowerToHyperService<Router>,
    key: RunKey,
}

impl RelayFront {
    pub(super) fn new(context: Arc<ApiContext>, key: RunKey) -> Self {
        let router = TowerToHyperService::new(super::router(&context));
        Self { context, router, key }
    }

    async fn route(&self, mut request: Request<Incoming>) -> Result<Response, ApiError> {
        self.authenticate(&request).await?;
        let path = request.uri().path();
        let of_run = path.strip_prefix(ROOT).map(|rest| rest.split('/').next() == Some(self.key.run_id.as_str()));
        let of_git = path
            .strip_prefix(GIT_ROOT)
            .map(|rest| rest.split_once(".git/").is_some_and(|(run_id, _)| run_id == self.key.run_id.as_str()));
        if of_run.or(of_git) == Some(false) {
            let message = "a sandbox reaches only its own run; name the run of this sandbox in the path";
            return Err(ApiError::new(StatusCode::FORBIDDEN, "not_own_run", message));
        }
        request.extensions_mut().insert(RelayCaller { key: self.key.clone() });
        let request = request.map(Body::new);
        if request.method().is_safe() {
            return self.router.call(request).await.map_err(|never| match never {});
        }
        // A sidecar that hangs up does not stop a change in the middle.
        match tokio::spawn(self.router.call(request)).await {
            Ok(response) => response.map_err(|never| match never {}),
            Err(error) => Err(ApiError::internal(&error)),
        }
    }

    /// Checks that the token belongs to the attempt of this socket, and that the attempt is the present one.
    async fn authenticate(&self, request: &Request<Incoming>) -> Result<(), ApiError> {
        if let RequestCredential::Bearer(token) = RequestCredential::of(request.headers(), None)
            && self.context.store.find_run_token(&token).await?.as_ref() == Some(&self.key)
        {
            return Ok(());
        }
        let message = "the token of this run is not valid, or its attempt is over; nothing more can be reported";
        Err(ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", message))
    }
}

impl Respond for RelayFront {
    fn limits(&self) -> HttpLimits {
        self.context.limits
    }

    async fn answer(&self, _: RemotePeer, _: Option<SocketAddr>, request: Request<Incoming>) -> Response {
        let mut response = self.route(request).await.unwrap_or_else(IntoResponse::into_response);
        self.context.log_internal_cause(&mut response);
        response
    }
}
