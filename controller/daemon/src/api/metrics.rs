//! The metrics, for a monitoring system.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::CONTENT_TYPE;
use utoipa::OpenApi;

use super::{Context, NoQuery};
use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::extract::Query;
use crate::monitor::{METRICS_TYPE, MetricsReaders};
use crate::permission::Operation;
use crate::principal::Principal;

#[derive(OpenApi)]
#[openapi(paths(metrics))]
pub(super) struct Doc;

/// The path of the metrics.
const PATH: &str = "/metrics";

pub(super) fn routes() -> Router<Arc<ApiContext>> {
    Router::new().route("/metrics", get(metrics))
}

/// Returns whether a path needs no credential, because the metrics are public.
pub(crate) fn is_anonymous(context: &ApiContext, path: &str) -> bool {
    path == PATH && context.monitor.readers == MetricsReaders::Everyone
}

/// Metrics as `OpenMetrics` text: for admins, for tokens of the role `metrics`, and with `metrics_public` for everyone.
#[utoipa::path(
    get, path = "/metrics",
    responses(
        (status = 200, body = String, content_type = "application/openmetrics-text"), (status = 401, body = ErrorBody),
        (status = 403, body = ErrorBody), (status = 422, body = ErrorBody)
    )
)]
async fn metrics(
    State(context): Context,
    principal: Option<Principal>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Response, ApiError> {
    if context.monitor.readers != MetricsReaders::Everyone {
        principal.ok_or_else(ApiError::unauthorized)?.require(Operation::Monitor)?;
    }
    let text = context.monitor.text(&context.store, context.streams.open()).await;
    let text = text.map_err(|error| ApiError::internal(&error))?;
    Ok(([(CONTENT_TYPE, METRICS_TYPE)], Body::from(text)).into_response())
}
