//! The pages of the daemon: the login of a browser, and the console.
//!
//! A page has no script or style inside it, except for the map of the console's libraries.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::header::{CONTENT_TYPE, LOCATION, ORIGIN, SET_COOKIE};
use http::{HeaderMap, Method, StatusCode};
use serde_json::json;
use sluice_state::control_log::ControlEntry;
use tokio::time::sleep;

use crate::access::RemotePeer;
use crate::api_error::ApiError;
use crate::context::ApiContext;
use crate::extract::Query;
use crate::principal::{Principal, Way};
use crate::session_channel::SessionChannel;
use crate::sessions::{LoginView, new_session};

mod assets;
mod console;
mod console_html;
mod empty_query;
mod foreign;
mod form;
mod html;
mod new_run;
mod new_run_html;
mod overview;
mod overview_html;

use empty_query::EmptyQuery;
use form::LoginForm;
use html::{Page, confirm_page, login_page, message_page};

type Context = State<Arc<ApiContext>>;

/// Maximum number of bytes of a form.
const FORM_MAX: usize = 1024;

/// Facts that the front passes with a request for a page: its channel, and its client.
#[derive(Debug, Clone)]
pub(crate) struct PageRequest {
    pub(crate) channel: Option<SessionChannel>,
    pub(crate) peer: RemotePeer,
}

pub(crate) fn routes() -> Router<Arc<ApiContext>> {
    Router::new()
        .merge(console::routes())
        .merge(new_run::routes())
        .merge(overview::routes())
        .route("/login", get(login).post(preview))
        .route("/login/confirm", post(confirm))
        .route("/assets/{hash}/{name}", get(assets::serve))
}

/// Returns whether a path is a page. A page is answered without a credential too, and a browser opens it without
/// `X-Sluice`.
pub(crate) fn is_page(path: &str) -> bool {
    const PAGES: [&str; 9] =
        ["/", "/login", "/login/confirm", "/sandboxes", "/approvals", "/agents", "/spending", "/host", "/chat"];
    PAGES.contains(&path) || is_asset(path) || path.starts_with("/sandboxes/")
}

/// Returns whether a path that is not a page may be a path of the API. Other paths do not exist.
pub(crate) fn may_be_of_the_api(path: &str) -> bool {
    const API: [&str; 6] = ["/api/", "/ai/", "/v1/", "/alive", "/ready", "/metrics"];
    API.iter().any(|prefix| path.starts_with(prefix))
}

/// Returns whether a path is a style, a script or a picture of pages.
pub(crate) fn is_asset(path: &str) -> bool {
    path.starts_with("/assets/")
}

/// Returns whether a file of the client's machine may send this request: it only shows a page.
pub(crate) fn is_opened_by_a_file(method: &Method, path: &str) -> bool {
    method == Method::POST && path == "/login"
}

/// The page that asks for a code. It does not consume a code.
async fn login(Query(EmptyQuery {}): Query<EmptyQuery>) -> Page {
    login_page()
}

/// The page that shows which principal a code logs in. The code stays valid.
async fn preview(
    State(context): Context,
    axum::Extension(request): axum::Extension<PageRequest>,
    Query(EmptyQuery {}): Query<EmptyQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let form = read_form(&headers, body).await?;
    Ok(match context.access.sessions.preview(&form.code) {
        Some(view) => confirm_page(&form, &view).into_response(),
        None => bad_code(&context, &request.peer).await,
    })
}

/// Exchanges a code for a session. Only our own page may ask.
async fn confirm(
    State(context): Context,
    principal: Option<Principal>,
    axum::Extension(request): axum::Extension<PageRequest>,
    Query(EmptyQuery {}): Query<EmptyQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    // The front has checked that the value is an origin of this daemon.
    if !headers.contains_key(ORIGIN) {
        return Err(ApiError::wrong_origin());
    }
    let Some(channel) = request.channel else {
        let message = "a browser logs in over TLS, or over a loopback address; open another address of --listen";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "login_needs_tls", message));
    };
    let Some(binding) = channel.binding().await else { return Err(ApiError::unauthorized()) };
    let form = read_form(&headers, body).await?;
    let sessions = &context.access.sessions;
    let Some(view) = sessions.preview(&form.code) else { return Ok(bad_code(&context, &request.peer).await) };
    let present = present_session(&context, principal.as_ref());
    if present.as_ref().is_some_and(|(_, maker)| *maker != view.maker) {
        let text = "This browser has a session of another login. Log out there first, then run sluice open again.";
        return Ok(message_page(StatusCode::CONFLICT, "You are already logged in", text).into_response());
    }
    // Another request may have used the code since.
    let Some(view) = sessions.take_code(&form.code) else { return Ok(bad_code(&context, &request.peer).await) };
    let secret = new_session().map_err(|error| ApiError::internal(&error))?;
    record_login(&context, &request.peer, &secret.id, &view).await?;
    sessions.begin(&secret, view, binding, present.as_ref().map(|(id, _)| id.as_str()));
    let target = form.run.map_or_else(|| "/".to_owned(), |run| format!("/sandboxes/{run}"));
    let cookie = channel.cookie.set(&secret.value);
    Ok((StatusCode::SEE_OTHER, [(LOCATION, target)], [(SET_COOKIE, cookie)]).into_response())
}

/// Returns the session of a request, and the maker of its code.
fn present_session(context: &ApiContext, principal: Option<&Principal>) -> Option<(String, String)> {
    let id = principal.filter(|principal| principal.way == Way::Session)?.session_id()?;
    Some((id.to_owned(), context.access.sessions.maker(id)?))
}

/// Records a login before it takes effect.
async fn record_login(context: &ApiContext, peer: &RemotePeer, id: &str, view: &LoginView) -> Result<u64, ApiError> {
    let login = &view.login;
    let by = Principal {
        id: format!("session:{id}"),
        owner: login.owner.clone(),
        role: login.role,
        accounts: Vec::new(),
        way: Way::Session,
        source: peer.address,
    };
    let entry = ControlEntry {
        operation: "session.create".to_owned(),
        object: Some(id.to_owned()),
        owner: Some(login.owner.clone()),
        after: Some(json!({ "maker": view.maker, "role": login.role.as_str() })),
        ..ControlEntry::default()
    };
    context.record(&by, entry).await
}

async fn bad_code(context: &ApiContext, peer: &RemotePeer) -> Response {
    sleep(context.access.failed_login(peer)).await;
    let text = "It was used, it is older than 60 seconds, or it never was one. Run sluice open again.";
    message_page(StatusCode::UNAUTHORIZED, "This login code is not valid", text).into_response()
}

async fn read_form(headers: &HeaderMap, body: Body) -> Result<LoginForm, ApiError> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let invalid = || ApiError::invalid("code", "the form of the login page has a code, and may have the id of a run");
    if !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return Err(invalid());
    }
    let body = to_bytes(body, FORM_MAX).await.map_err(|_| invalid())?;
    LoginForm::parse(&body).ok_or_else(invalid)
}
