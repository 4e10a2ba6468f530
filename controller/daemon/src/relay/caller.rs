//! Identifies the attempt whose sidecar sends a request.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use http::request::Parts;
use sluice_contract::RunKey;
use sluice_state::sandboxes::Sandbox;
use sluice_state::store::now_us;
use tokio::time::timeout;

use crate::api_error::ApiError;
use crate::context::ApiContext;
use crate::conversations::Counted;
use crate::injection;

/// Maximum time that the first request of a worker waits until its messages are taken back from the sidecar.
const WITHDRAW_WITHIN: Duration = Duration::from_secs(2);

/// The attempt whose sidecar sends a request.
#[derive(Debug, Clone)]
pub(crate) struct RelayCaller {
    /// Run and attempt.
    pub(crate) key: RunKey,
}

impl FromRequestParts<Arc<ApiContext>> for RelayCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<ApiContext>) -> Result<Self, ApiError> {
        parts.extensions.get::<Self>().cloned().ok_or_else(ApiError::unauthorized)
    }
}

impl RelayCaller {
    /// Returns the run. It had not ended when the token was checked.
    ///
    /// # Errors
    /// 404
    pub(crate) async fn sandbox(&self, context: &ApiContext) -> Result<Sandbox, ApiError> {
        context.store.find_sandbox(None, &self.key.run_id).await?.ok_or_else(ApiError::not_found)
    }

    /// Counts a request.
    ///
    /// # Errors
    /// 429
    pub(crate) fn count(&self, context: &ApiContext, counted: Counted) -> Result<(), ApiError> {
        context.conversations.count(counted, self.key.run_id.as_str()).map_err(|wait| {
            let message = "this run sends more of these requests than it may in a minute; wait as Retry-After says";
            ApiError::too_many("rate_limited", message, wait.as_secs() + 1)
        })
    }

    /// Records that the attempt has a worker that takes messages. A worker that only reports events is not recorded:
    /// the sidecar adds the messages to its calls.
    ///
    /// # Errors
    /// 503
    pub(crate) async fn note_worker(&self, context: &ApiContext) -> Result<(), ApiError> {
        if context.conversations.is_new_worker(&self.key) {
            context.store.note_worker(&self.key, now_us()).await?;
            context.conversations.note_worker(&self.key);
            // Messages that still wait in the sidecar now belong to the worker. If this fails, the run's task repeats it.
            let _ = timeout(WITHDRAW_WITHIN, injection::push(context, &self.key)).await;
        }
        Ok(())
    }
}
