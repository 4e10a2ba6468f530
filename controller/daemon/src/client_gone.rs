//! The moment at which the client of a request hangs up before it has an answer.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::request::Parts;
use tokio::sync::watch;

use crate::api_error::ApiError;
use crate::context::ApiContext;

/// Signals that the client of a request is gone. A handler that changes state continues without it.
#[derive(Debug, Clone)]
pub(crate) struct ClientGone(pub(crate) watch::Receiver<()>);

impl ClientGone {
    /// Waits until the client is gone.
    pub(crate) async fn wait(&mut self) {
        // Nothing is ever sent: the loop ends when the sender is dropped.
        while self.0.changed().await.is_ok() {}
    }
}

impl FromRequestParts<Arc<ApiContext>> for ClientGone {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<ApiContext>) -> Result<Self, ApiError> {
        parts.extensions.get::<Self>().cloned().ok_or_else(ApiError::not_found)
    }
}
