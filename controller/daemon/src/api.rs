//! The routes of the API, one file for each group.
//!
//! A group has `routes()` and a `Doc`, and is named once in each of the two lists below. A handler reads in this order:
//! extractors (who, path, query, body), permission, record, call of the state, typed answer.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};

use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::extract::Query;
use crate::pages;
use crate::principal::Principal;

mod accounts;
mod admission;
mod agents;
mod approvals;
mod attachment;
mod budgets;
mod byte_range;
mod chat;
mod chat_session;
mod chat_start;
mod chat_worker;
mod commands;
mod common_answers;
mod completions;
mod download;
mod event_stream;
mod event_view;
mod events;
mod file_name;
mod git;
mod idempotent;
mod messages;
pub(crate) mod metrics;
mod monitoring;
mod names;
mod output_lines;
mod paging;
mod pauses;
mod quantity;
mod questions;
mod receipts;
pub(crate) mod sandboxes;
mod session;
mod state_errors;
pub(crate) mod status;
mod streams;
mod tail_path;
mod usage;

/// State that all handlers share.
type Context = State<Arc<ApiContext>>;

/// The query of a route that takes none.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct NoQuery {}

/// Answers that each route may give.
#[derive(OpenApi)]
#[openapi(
    paths(document),
    info(title = "Sluice", description = "Runs of AI agents in containers without a network"),
    components(schemas(ErrorBody))
)]
struct Doc;

/// Returns the routes of all groups.
pub(crate) fn router(context: &Arc<ApiContext>) -> Router {
    Router::new()
        .route("/api/openapi.json", get(document))
        .merge(status::routes())
        .merge(metrics::routes())
        .merge(monitoring::routes())
        .merge(budgets::routes())
        .merge(receipts::routes())
        .merge(usage::routes())
        .merge(sandboxes::routes())
        .merge(messages::routes())
        .merge(pauses::routes())
        .merge(approvals::routes())
        .merge(questions::routes())
        .merge(git::routes())
        .merge(agents::routes())
        .merge(events::routes())
        .merge(streams::routes())
        .merge(chat::routes())
        .merge(completions::routes())
        .merge(session::routes())
        .merge(commands::routes())
        .merge(pages::routes())
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .with_state(Arc::clone(context))
}

/// Returns the OpenAPI document of all groups.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    let mut document = Doc::openapi();
    for group in groups() {
        document.merge(group);
    }
    chat::add_root_paths(&mut document);
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("a token of sluice token create"));
    let components = document.components.get_or_insert_default();
    components.add_security_scheme("token", SecurityScheme::Http(bearer.build()));
    document.security = Some(vec![SecurityRequirement::new("token", Vec::<String>::new())]);
    common_answers::add(&mut document);
    document
}

/// Returns the documents of the groups of paths.
fn groups() -> [utoipa::openapi::OpenApi; 19] {
    [
        status::Doc::openapi(),
        metrics::Doc::openapi(),
        monitoring::Doc::openapi(),
        budgets::Doc::openapi(),
        receipts::Doc::openapi(),
        usage::Doc::openapi(),
        sandboxes::Doc::openapi(),
        messages::Doc::openapi(),
        pauses::Doc::openapi(),
        approvals::Doc::openapi(),
        questions::Doc::openapi(),
        git::Doc::openapi(),
        agents::Doc::openapi(),
        events::Doc::openapi(),
        streams::Doc::openapi(),
        chat::Doc::openapi(),
        completions::Doc::openapi(),
        session::Doc::openapi(),
        commands::Doc::openapi(),
    ]
}

/// Returns this document.
#[utoipa::path(
    get, path = "/api/openapi.json",
    responses((status = 200, body = Object), (status = 422, body = ErrorBody))
)]
async fn document(_: Principal, Query(NoQuery {}): Query<NoQuery>) -> Json<utoipa::openapi::OpenApi> {
    Json(openapi())
}

async fn unknown_path() -> ApiError {
    ApiError::not_found()
}

async fn wrong_method() -> ApiError {
    ApiError::method_not_allowed()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Bug: two types had the same name, so the document had the schema of one of them for both.
    #[test]
    fn no_two_types_share_a_schema() {
        let mut schemas = BTreeMap::new();
        for group in groups() {
            for (name, schema) in group.components.unwrap_or_default().schemas {
                let schema = serde_json::to_value(schema).expect("plain data");
                assert_eq!(schemas.entry(name.clone()).or_insert_with(|| schema.clone()), &schema, "{name}");
            }
        }
        assert!(schemas.len() > 50, "{}", schemas.len());
    }

    #[test]
    fn each_documented_error_has_the_common_shape() {
        let document = serde_json::to_value(openapi()).expect("plain data");
        assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")));
        let mut seen = 0;
        for (path, methods) in document["paths"].as_object().expect("paths") {
            for (method, operation) in methods.as_object().expect("methods") {
                for (status, response) in operation["responses"].as_object().expect("responses") {
                    let schema = &response["content"]["application/json"]["schema"]["$ref"];
                    // The body of /ready says what is missing.
                    let is_error = status.as_str() >= "400" && !(path == "/ready" && status == "503");
                    assert!(!is_error || schema == "#/components/schemas/ErrorBody", "{method} {path} {status}");
                    seen += 1;
                }
            }
        }
        assert!(seen > 10, "{seen}");
    }
}
