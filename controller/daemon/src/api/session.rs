//! The caller of a request, and the sessions of browsers.

use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use http::StatusCode;
use http::header::SET_COOKIE;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sluice_state::control_log::ControlEntry;
use sluice_state::ledger::usd;
use utoipa::{OpenApi, ToSchema};

use super::{Context, NoQuery};
use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::extract::{JsonBody, PathNames, Query};
use crate::pages::PageRequest;
use crate::permission::Operation;
use crate::principal::{Principal, Role};
use crate::sessions::{CODE_LIFE, CodeState, Login};

#[derive(OpenApi)]
#[openapi(paths(create_code, code, who, logout))]
pub(super) struct Doc;

pub(super) fn routes() -> Router<Arc<ApiContext>> {
    Router::new()
        .route("/api/v1/login-codes", post(create_code))
        .route("/api/v1/login-codes/{id}", get(code))
        .route("/api/v1/session", get(who))
        .route("/api/v1/session/logout", post(logout))
}

/// A login that is asked for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewLogin {
    /// Keeps the role admin, which a session of an admin does not have otherwise. Admins alone.
    #[serde(default)]
    admin: bool,
}

/// A code that logs a browser in once.
// No Debug: the code is a secret.
#[derive(Serialize, ToSchema)]
struct LoginCode {
    /// Id of the code, for its state.
    login_id: String,
    /// The code. It is shown once.
    code: String,
    /// Owner of the session.
    owner: String,
    /// Role of the session.
    role: &'static str,
    /// Time in UTC until which it can be used.
    expires_at: String,
    /// Origins of the daemon's pages.
    origins: Vec<String>,
}

/// Makes a code that logs a browser in: valid for 60 seconds, once, on the page `/login`. A browser session makes none.
#[utoipa::path(
    post, path = "/api/v1/login-codes", request_body = NewLogin,
    responses(
        (status = 201, description = "The code", body = LoginCode), (status = 400, body = ErrorBody),
        (status = 401, body = ErrorBody), (status = 403, body = ErrorBody), (status = 413, body = ErrorBody),
        (status = 415, body = ErrorBody), (status = 422, body = ErrorBody), (status = 429, body = ErrorBody),
        (status = 503, body = ErrorBody)
    )
)]
async fn create_code(
    State(context): Context,
    principal: Principal,
    Query(NoQuery {}): Query<NoQuery>,
    body: JsonBody<NewLogin>,
) -> Result<Response, ApiError> {
    principal.require(Operation::OpenSession)?;
    let role = match (principal.role, body.value.admin) {
        (Role::Admin, false) => Role::Owner,
        (role @ Role::Admin, true) | (role, false) => role,
        (_, true) => return Err(ApiError::admin_only()),
    };
    let entry = ControlEntry {
        operation: "login_code.create".to_owned(),
        owner: Some(principal.owner.clone()),
        request: Some(body.digest),
        after: Some(json!({ "role": role.as_str() })),
        ..ControlEntry::default()
    };
    context.record(&principal, entry).await?;
    let payer = context.policy.as_deref().map(|policy| policy.account.as_str());
    let payer = payer.filter(|_| principal.role == Role::Admin);
    let made = context.access.sessions.create_code(&principal, Login::of(&principal, role, payer));
    let secret = made.map_err(|error| ApiError::internal(&error))?;
    let answer = LoginCode {
        login_id: secret.id.clone(),
        code: secret.value.to_string(),
        owner: principal.owner,
        role: role.as_str(),
        expires_at: humantime::format_rfc3339_seconds(SystemTime::now() + CODE_LIFE).to_string(),
        origins: context.origins.get().cloned().unwrap_or_default(),
    };
    Ok((StatusCode::CREATED, Json(answer)).into_response())
}

/// State of a code.
#[derive(Debug, Serialize, ToSchema)]
struct LoginCodeState {
    login_id: String,
    /// `waiting` or `used`.
    state: &'static str,
}

/// Says whether a code of this token was used. After 60 seconds it does not exist.
#[utoipa::path(
    get, path = "/api/v1/login-codes/{id}", params(("id" = String, Path, description = "Its login_id")),
    responses(
        (status = 200, body = LoginCodeState), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)
    )
)]
async fn code(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Json<LoginCodeState>, ApiError> {
    principal.require(Operation::OpenSession)?;
    let found = context.access.sessions.code_state(&principal, &id).ok_or_else(ApiError::not_found)?;
    let state = match found {
        CodeState::Waiting => "waiting",
        CodeState::Used => "used",
    };
    Ok(Json(LoginCodeState { login_id: id, state }))
}

/// Sender of a request.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Identity)]
struct SenderView {
    /// Owner of what it makes.
    owner: String,
    /// `admin`, `owner`, `viewer`, `chat` or `metrics`.
    role: &'static str,
    /// `admin_socket`, `bearer` or `session`.
    way: &'static str,
    /// Accounts that it may use, the default first.
    accounts: Vec<String>,
    /// Time in UTC at which the session ends at the latest; null for a token.
    expires_at: Option<String>,
    /// Dollars up to which this session may raise a cap of cost; null for a token, and where the host lets no session do it.
    approval_max_usd: Option<String>,
}

/// Returns the sender of this request.
#[utoipa::path(
    get, path = "/api/v1/session",
    responses((status = 200, body = SenderView), (status = 401, body = ErrorBody), (status = 422, body = ErrorBody))
)]
async fn who(State(context): Context, principal: Principal, Query(NoQuery {}): Query<NoQuery>) -> Json<SenderView> {
    let left = principal.session_id().and_then(|id| context.access.sessions.left(id));
    let expires_at = left.map(|left| humantime::format_rfc3339_seconds(SystemTime::now() + left).to_string());
    let (role, way) = (principal.role.as_str(), principal.way.as_str());
    let may_decide = principal.session_id().is_some() && principal.may(Operation::Decide).is_some();
    let policy = context.policy.as_deref().filter(|_| may_decide);
    let approval_max_usd = policy.and_then(|policy| policy.session_approval_max).map(|max| usd(max.into()));
    Json(SenderView { owner: principal.owner, role, way, accounts: principal.accounts, expires_at, approval_max_usd })
}

/// Ends the browser session that asks, and its streams.
#[utoipa::path(
    post, path = "/api/v1/session/logout",
    responses(
        (status = 204, description = "The session is over"), (status = 401, body = ErrorBody),
        (status = 409, description = "The request has no session", body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 503, body = ErrorBody)
    )
)]
async fn logout(
    State(context): Context,
    principal: Principal,
    Extension(request): Extension<PageRequest>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Response, ApiError> {
    let Some(id) = principal.session_id() else {
        let message = "this request has no browser session; a token ends with sluice token revoke";
        return Err(ApiError::new(StatusCode::CONFLICT, "no_session", message));
    };
    let entry = ControlEntry {
        operation: "session.logout".to_owned(),
        object: Some(id.to_owned()),
        owner: Some(principal.owner.clone()),
        ..ControlEntry::default()
    };
    context.record(&principal, entry).await?;
    context.access.sessions.end(id, "logout");
    let cookie = request.channel.map(|channel| (SET_COOKIE, channel.cookie.clear()));
    let mut response = StatusCode::NO_CONTENT.into_response();
    response.headers_mut().extend(cookie);
    Ok(response)
}
