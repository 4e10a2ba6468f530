//! The header Idempotency-Key: a request that a client repeats is done once.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::request::Parts;
use sluice_contract::Hash;
use sluice_contract::text::error_chain;
use sluice_state::idempotency::{IdempotencyError, IdempotencyKey, KeyReservation};
use sluice_state::store::now_us;

use crate::api_error::ApiError;
use crate::context::ApiContext;
use crate::principal::Principal;

/// The key of a request, if it has one.
#[derive(Debug)]
pub(super) struct RequestKey {
    key: Option<String>,
    method: String,
    path: String,
}

/// State of a request, found by its key.
#[derive(Debug)]
pub(super) enum IdempotentRepeat {
    /// The request is new. The key, if there is one, is reserved.
    New(Option<IdempotencyKey>),
    /// The request was done before, and made the object with this id.
    Done(String),
}

impl FromRequestParts<Arc<ApiContext>> for RequestKey {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<ApiContext>) -> Result<Self, ApiError> {
        let mut keys = parts.headers.get_all("idempotency-key").iter();
        let key = match (keys.next(), keys.next()) {
            (None, _) => None,
            // A key that is not text is invalid, and so are two keys.
            (Some(key), None) => Some(key.to_str().unwrap_or_default().to_owned()),
            (Some(_), Some(_)) => Some(String::new()),
        };
        let (method, path) = (parts.method.to_string(), parts.uri.path().to_owned());
        Ok(Self { key, method, path })
    }
}

impl RequestKey {
    /// Returns an absent key, for one step of a request that has reserved its own key.
    pub(super) fn none() -> Self {
        Self { key: None, method: String::new(), path: String::new() }
    }

    /// Returns whether the request has a key.
    pub(super) fn is_present(&self) -> bool {
        self.key.is_some()
    }

    /// Reserves the key for a request of this digest.
    ///
    /// # Errors
    /// 409: the key belongs to another request, or to one in progress. 422: it is invalid. 429: too many keys.
    pub(super) async fn reserve(
        self,
        context: &ApiContext,
        principal: &Principal,
        digest: Hash,
    ) -> Result<IdempotentRepeat, ApiError> {
        let Self { key: Some(key), method, path } = self else { return Ok(IdempotentRepeat::New(None)) };
        let key = IdempotencyKey { principal: principal.id.clone(), method, route: path, key, request_hash: digest };
        match context.store.reserve_key(key.clone(), now_us()).await? {
            KeyReservation::Reserved => Ok(IdempotentRepeat::New(Some(key))),
            KeyReservation::Done { object_id } => Ok(IdempotentRepeat::Done(object_id)),
        }
    }
}

/// Records that the request of a key is done, and which object it made. The request has its effect already, so it
/// succeeds also if the key cannot be recorded. The key then stays in use until the next start of the daemon.
pub(super) async fn complete(context: &ApiContext, key: Option<IdempotencyKey>, object_id: &str) {
    let Some(key) = key else { return };
    if let Err(error) = context.store.complete_key(key, object_id).await {
        log_fault(context, &error);
    }
}

/// Releases the key of a request that has made nothing. If that fails, the key stays in use until the next start of the
/// daemon, and the client gets the error of the request.
pub(super) async fn release(context: &ApiContext, key: Option<IdempotencyKey>) {
    let Some(key) = key else { return };
    if let Err(error) = context.store.release_key(key).await {
        log_fault(context, &error);
    }
}

fn log_fault(context: &ApiContext, error: &IdempotencyError) {
    (context.log)(&format!("the idempotency key of a request stays in use: {}", error_chain(error)));
}
