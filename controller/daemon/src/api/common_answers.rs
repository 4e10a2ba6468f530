//! The responses that every route may give, independent of its handler: they come from the front, or from the state.
//!
//! Pure.

use http::StatusCode;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::{Content, OpenApi, Ref, RefOr, Response, ResponseBuilder};

/// Statuses of every route, with their reasons.
const OF_ALL: [(StatusCode, &str); 6] = [
    (StatusCode::UNAUTHORIZED, "The credential is missing or not valid"),
    (StatusCode::FORBIDDEN, "A page of another origin asks, or the role does not have the operation"),
    (StatusCode::MISDIRECTED_REQUEST, "Host is not a name of this daemon"),
    (StatusCode::TOO_MANY_REQUESTS, "The token, or its owner, asks too often; Retry-After says when to come back"),
    (StatusCode::INTERNAL_SERVER_ERROR, "The daemon failed"),
    (StatusCode::SERVICE_UNAVAILABLE, "The daemon cannot do it now: its disk is full, or it is being stopped"),
];
/// Statuses of routes with a body.
const OF_BODIES: [(StatusCode, &str); 4] = [
    (StatusCode::BAD_REQUEST, "The body is not valid JSON"),
    (StatusCode::REQUEST_TIMEOUT, "The body came too slowly"),
    (StatusCode::PAYLOAD_TOO_LARGE, "The body is too large"),
    (StatusCode::UNSUPPORTED_MEDIA_TYPE, "The body is not stated to be JSON"),
];

/// Adds to each operation the answers that its handler does not name.
pub(super) fn add(document: &mut OpenApi) {
    for operation in document.paths.paths.values_mut().flat_map(operations) {
        let of_bodies = if operation.request_body.is_some() { &OF_BODIES[..] } else { &[] };
        for (status, reason) in OF_ALL.iter().chain(of_bodies) {
            operation.responses.responses.entry(status.as_u16().to_string()).or_insert_with(|| error(reason));
        }
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, put, post, delete, patch, .. } = item;
    [get, put, post, delete, patch].into_iter().flatten()
}

fn error(reason: &str) -> RefOr<Response> {
    let content = Content::new(Some(Ref::from_schema_name("ErrorBody")));
    RefOr::T(ResponseBuilder::new().description(reason).content("application/json", content).build())
}
