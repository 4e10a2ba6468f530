//! Responses that are read whole before the client gets them: client errors, and lists of models.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{self, HeaderMap};
use http::{StatusCode, response};
use uuid::Uuid;

use super::denied::Denied;
use crate::active_call::ActiveCall;
use crate::models::NotAList;
use crate::refusal::{Reason, Refusal};
use crate::response::PendingResponse;
use crate::run::RunContext;
use crate::{litellm_budget, models, screen, upstream_failure};

/// Reads a short client error: a budget of LiteLLM's may be the reason, or something that concerns only the client.
pub(super) async fn client_error(
    mut active: ActiveCall,
    id: Uuid,
    upstream: response::Parts,
    mut screened: HeaderMap,
) -> Result<PendingResponse, Denied> {
    let body = match active.collect(litellm_budget::MAX).await {
        Ok(body) => body,
        // The body is longer than its head says: hyper does not let that happen.
        Err(None) => Bytes::new(),
        Err(Some(error)) => {
            active.upstream_failed(error).await?;
            return Err(Denied::Failed(upstream_failure::refusal(error), Some(id)));
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
    // The scrubbed body need not have the length that the head says.
    screened.remove(header::CONTENT_LENGTH);
    Ok(PendingResponse::buffered(upstream.status, screened, body))
}

/// Reads the list of models, and returns those that the run may use, or the one that was asked for.
pub(super) async fn models(
    run: &RunContext,
    mut active: ActiveCall,
    asked: Option<Cow<'_, str>>,
    id: Uuid,
    status: StatusCode,
    mut screened: HeaderMap,
) -> Result<PendingResponse, Denied> {
    let refusal = match active.collect(models::MAX).await {
        Ok(list) => {
            let found = match &asked {
                Some(asked) => models::find(&list, asked),
                None => models::filter(&list, &run.body.models).map(Some),
            };
            match found {
                Ok(Some(found)) => {
                    active.complete().await?;
                    screened.remove(header::CONTENT_LENGTH);
                    return Ok(PendingResponse::buffered(status, screened, found));
                }
                Ok(None) => {
                    active.complete().await?;
                    return Err(Denied::Failed(models::not_found(asked.as_deref().unwrap_or_default()), Some(id)));
                }
                Err(NotAList) => {
                    Refusal::new(Reason::UpstreamUnreadable, "the upstream's list of models cannot be read")
                }
            }
        }
        Err(None) => Refusal::new(Reason::UpstreamUnreadable, "the upstream's list of models is too long"),
        Err(Some(error)) => {
            active.upstream_failed(error).await?;
            return Err(Denied::Failed(upstream_failure::refusal(error), Some(id)));
        }
    };
    active.rejected().await?;
    Err(Denied::Failed(refusal, Some(id)))
}
