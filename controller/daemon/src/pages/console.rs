//! The pages of the console, as they are before its script runs.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use http::header::LOCATION;
use serde::Deserialize;
use sluice_state::events::{EventFilter, EventQuery};
use sluice_state::sandboxes::{Awaited, SandboxFilter, SandboxState};

use super::console_html::{events, list, run_facts};
use super::empty_query::EmptyQuery;
use super::html::{Page, not_logged_in};
use crate::api_error::ApiError;
use crate::context::ApiContext;
use crate::extract::{PathNames, Query};
use crate::permission::Operation;
use crate::principal::Principal;

type Context = State<Arc<ApiContext>>;

/// Maximum number of rows of a page without its script.
const ROWS: u32 = 100;
/// Maximum number of characters of a search.
const SEARCH_MAX: usize = 200;

pub(super) fn routes() -> Router<Arc<ApiContext>> {
    Router::new()
        .route("/", get(home))
        .route("/sandboxes", get(sandboxes))
        .route("/sandboxes/{id}", get(sandbox))
        .route("/approvals", get(approvals))
}

/// Selection of runs, as the script of the page writes it into the address.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    q: Option<String>,
    state: Option<String>,
    waiting_for: Option<String>,
}

/// Redirects to the list of runs.
async fn home(principal: Option<Principal>, Query(EmptyQuery {}): Query<EmptyQuery>) -> Response {
    match principal {
        Some(_) => (StatusCode::SEE_OTHER, [(LOCATION, "/sandboxes")]).into_response(),
        None => not_logged_in(),
    }
}

/// The list of runs.
async fn sandboxes(
    State(context): Context,
    principal: Option<Principal>,
    Query(query): Query<ListQuery>,
) -> Result<Response, ApiError> {
    let Some(principal) = principal else { return Ok(not_logged_in()) };
    let scope = principal.require(Operation::Read)?;
    let owner = scope.owner().map(str::to_owned);
    let words = query.state.as_deref().unwrap_or_default().split(',').filter(|word| !word.is_empty());
    let wrong = || ApiError::invalid("state", "state is a list of states, joined by commas, such as RUNNING");
    let states = words.map(|word| SandboxState::of(word).ok_or_else(wrong)).collect::<Result<_, _>>()?;
    let awaited = match query.waiting_for.as_deref() {
        None => None,
        Some("approval") => Some(Awaited::Approval),
        Some(_) => return Err(ApiError::invalid("waiting_for", "waiting_for is approval")),
    };
    let text = query.q.filter(|text| !text.is_empty());
    if text.as_ref().is_some_and(|text| text.chars().count() > SEARCH_MAX || text.contains('\0')) {
        return Err(ApiError::invalid("q", "q is a text of at most 200 characters"));
    }
    let filter = SandboxFilter { owner, states, text: text.clone(), awaited, ..SandboxFilter::default() };
    let found = context.store.list_sandboxes(filter, None, ROWS).await?;
    let causes = context.store.wait_causes(&found.sandboxes).await?;
    let main = list(&found, &causes, text.as_deref().unwrap_or_default(), context.policy.is_some());
    Ok(Page::of_console(&principal, "sandboxes", "Sandboxes", "", main).into_response())
}

/// A run, with its newest events.
async fn sandbox(
    State(context): Context,
    principal: Option<Principal>,
    PathNames([id]): PathNames<1>,
    Query(EmptyQuery {}): Query<EmptyQuery>,
) -> Result<Response, ApiError> {
    let Some(principal) = principal else { return Ok(not_logged_in()) };
    let scope = principal.require(Operation::Read)?;
    let id = id.parse().map_err(|_| ApiError::not_found())?;
    let run = context.store.find_sandbox(scope.owner(), &id).await?.ok_or_else(ApiError::not_found)?;
    let filter = EventFilter {
        owner: scope.owner().map(str::to_owned),
        sandbox_id: Some(id.to_string()),
        ..EventFilter::default()
    };
    let page = context.store.list_events(EventQuery { filter, limit: ROWS, ..EventQuery::default() }).await?;
    let main = format!("{}{}", run_facts(&run), events(&page.events));
    let title = run.name.as_deref().unwrap_or(id.as_str());
    Ok(Page::of_console(&principal, "sandbox", title, id.as_str(), main).into_response())
}

/// Page of approvals and questions. Without its script it shows none.
async fn approvals(
    principal: Option<Principal>,
    Query(EmptyQuery {}): Query<EmptyQuery>,
) -> Result<Response, ApiError> {
    let Some(principal) = principal else { return Ok(not_logged_in()) };
    principal.require(Operation::Read)?;
    let main = "<noscript><p>This page needs JavaScript. <code>sluice approve</code>, <code>sluice deny</code> and \
                <code>sluice answer</code> do the same in a terminal.</p></noscript>\n";
    Ok(Page::of_console(&principal, "approvals", "Approvals and questions", "", main.to_owned()).into_response())
}
