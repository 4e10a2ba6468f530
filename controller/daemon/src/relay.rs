//! Reports of sandboxes: one unix socket for each live attempt, with a router of its own that accepts only run tokens.
//!
//! The sidecar of the attempt relays a closed list of requests, with a token that only it has. A route is one function in a
//! file of its own, and is named once in [`router`]. Other parts of the API cannot be reached from here.

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use http::StatusCode;

use crate::api_error::ApiError;
use crate::context::ApiContext;

mod acknowledgement;
mod caller;
mod effects;
mod event;
mod front;
mod interventions;
mod listener;
mod messages;
mod push;
mod questions;
mod task;

pub(crate) use caller::RelayCaller;
pub(crate) use listener::RelayListener;

/// Returns the routes that a sandbox reaches.
pub(crate) fn router(context: &Arc<ApiContext>) -> Router {
    Router::new()
        .route("/api/v1/sandboxes/{id}/events", post(event::report))
        .route("/api/v1/sandboxes/{id}/messages", get(messages::take))
        .route("/api/v1/sandboxes/{id}/messages/ack", post(acknowledgement::acknowledge))
        .route("/api/v1/sandboxes/{id}/task", get(task::task))
        .route("/api/v1/sandboxes/{id}/interventions", get(interventions::list))
        .route("/api/v1/sandboxes/{id}/questions", post(questions::ask))
        .route("/api/v1/sandboxes/{id}/questions/{question}", get(questions::own))
        .route("/git/{repository}/info/refs", get(push::push))
        .route("/git/{repository}/git-receive-pack", post(push::push))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .with_state(Arc::clone(context))
}

async fn unknown_path() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "not_found", "a sandbox does not reach this path")
}

async fn wrong_method() -> ApiError {
    ApiError::method_not_allowed()
}
