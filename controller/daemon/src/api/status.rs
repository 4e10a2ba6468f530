//! Liveness and readiness of the daemon.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::StatusCode;
use serde::Serialize;
use utoipa::{OpenApi, ToSchema};

use super::{Context, NoQuery};
use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::extract::Query;
use crate::permission::Operation;
use crate::principal::Principal;

#[derive(OpenApi)]
#[openapi(paths(alive, ready, health))]
pub(super) struct Doc;

pub(super) fn routes() -> Router<Arc<ApiContext>> {
    Router::new().route("/alive", get(alive)).route("/ready", get(ready)).route("/api/v1/sandboxes/health", get(health))
}

/// Returns whether a path needs no credential.
pub(crate) fn is_anonymous(path: &str) -> bool {
    matches!(path, "/alive" | "/ready")
}

/// Says whether the process lives.
#[utoipa::path(get, path = "/alive", security(()), responses((status = 200, body = String, content_type = "text/plain")))]
async fn alive() -> &'static str {
    "alive\n"
}

/// Readiness, for admins.
#[derive(Debug, Serialize, ToSchema)]
struct Ready {
    /// `ready` or `not_ready`.
    status: &'static str,
    /// Reasons that it is not ready, by part.
    reasons: BTreeMap<&'static str, String>,
}

/// Says whether the daemon takes work: one word; for admins, the reasons too.
#[utoipa::path(
    get, path = "/ready", security((), ("token" = [])),
    responses(
        (status = 200, description = "it does", content((Ready = "application/json"), (String = "text/plain"))),
        (status = 503, description = "it does not", content((Ready = "application/json"), (String = "text/plain")))
    )
)]
async fn ready(State(context): Context, principal: Option<Principal>) -> Response {
    let reasons = context.readiness.reasons();
    let (code, status) = match reasons.is_empty() {
        true => (StatusCode::OK, "ready"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not_ready"),
    };
    match principal.filter(|principal| principal.may(Operation::Diagnose).is_some()) {
        Some(_) => (code, Json(Ready { status, reasons })).into_response(),
        None => (code, format!("{status}\n")).into_response(),
    }
}

/// Health of the service that runs sandboxes.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Health)]
struct HealthView {
    /// `healthy`, or `disabled` if no sandbox can be created.
    status: &'static str,
    /// `sandboxes`.
    service: &'static str,
    /// Time in UTC.
    timestamp: String,
}

/// Says whether sandboxes can be created.
#[utoipa::path(
    get, path = "/api/v1/sandboxes/health",
    responses((status = 200, body = HealthView), (status = 401, body = ErrorBody), (status = 422, body = ErrorBody))
)]
async fn health(
    State(context): Context,
    _: Principal,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Json<HealthView>, ApiError> {
    let status = if context.policy.is_some() { "healthy" } else { "disabled" };
    let timestamp = humantime::format_rfc3339_micros(SystemTime::now()).to_string();
    Ok(Json(HealthView { status, service: "sandboxes", timestamp }))
}
