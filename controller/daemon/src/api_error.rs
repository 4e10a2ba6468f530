//! The response to a failed request: `{"error":{"code","message","details"?}}`.
//!
//! An internal error is one word and an id; the log of the daemon has the id and the cause. No response names a path of the
//! host, an error of the database, or a chain of errors.

use std::io;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};
use sluice_contract::text::error_chain;
use sluice_state::ledger::LedgerError;
use sluice_state::sandboxes::Sandbox;
use sluice_state::store::StoreError;
use sluice_state::tokens::TokenError;
use utoipa::ToSchema;

/// Seconds after which a request that found the storage full or busy may be sent again.
const STORAGE_RETRY_S: u64 = 5;

/// A request that failed.
#[derive(Debug)]
pub struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    details: Option<Value>,
    retry_after: Option<u64>,
    cause: Option<String>,
    /// True for a client of the OpenAI form, whose errors have a type.
    is_openai: bool,
    /// True if the same request must not be retried automatically, because its effect has already begun.
    is_final: bool,
}

/// The body of the answer.
#[derive(Debug, Serialize, ToSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorFields,
}

/// Members of an error.
#[derive(Debug, Serialize, ToSchema)]
pub struct ErrorFields {
    /// One stable word for each cause.
    pub code: &'static str,
    /// Message that says what went wrong, and what to do.
    pub message: String,
    /// The kind of the error; under `/v1` alone.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    /// Name of the wrong parameter; under `/v1` alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub param: Option<String>,
    /// Facts for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub details: Option<Value>,
}

/// An internal error, in the extensions of its response, for the log only.
#[derive(Debug, Clone)]
pub struct InternalCause {
    /// The id that the answer has.
    pub id: String,
    /// The chain of errors.
    pub cause: String,
}

impl ApiError {
    /// Returns an error with a stable word.
    #[must_use]
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, code, message, details: None, retry_after: None, cause: None, is_openai: false, is_final: false }
    }

    /// Returns the error with a text before its message, which says what was done before the failure.
    #[must_use]
    pub(crate) fn after(mut self, done: &str) -> Self {
        self.message = format!("{done}: {}", self.message);
        self
    }

    /// Adds facts for programs.
    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// Returns the error of something that does not exist, or that belongs to another owner: both have the same bytes.
    #[must_use]
    pub fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", "there is no such object; list the objects that you may see")
    }

    /// Returns the error of a request without a valid credential.
    #[must_use]
    pub fn unauthorized() -> Self {
        let message = "a valid token is needed; send Authorization: Bearer slu_..., made by sluice token create";
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }

    /// Returns the error of an operation that the role does not have.
    #[must_use]
    pub fn forbidden() -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", "the role of this token does not allow it; use another token")
    }

    /// Returns the error of an operation that only admins may do.
    #[must_use]
    pub fn admin_only() -> Self {
        let message = "only an admin may do this; use a token with the role admin, or admin.sock as root";
        Self::new(StatusCode::FORBIDDEN, "admin_only", message)
    }

    /// Returns the error of an operation that a browser session does not have.
    #[must_use]
    pub fn needs_token() -> Self {
        let message = "a browser session may not do this; use the command line, with a token or as root on admin.sock";
        Self::new(StatusCode::FORBIDDEN, "needs_token", message)
    }

    /// Returns the error of a request that a page of another origin sent.
    #[must_use]
    pub fn wrong_origin() -> Self {
        let message = "a page of another origin sent this request; the daemon serves its own pages alone";
        Self::new(StatusCode::FORBIDDEN, "wrong_origin", message)
    }

    /// Returns the error of a value that is not valid.
    #[must_use]
    pub fn invalid(field: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_field", message).with_details(json!({ "field": field }))
    }

    /// Returns the error of a body where a route takes none.
    #[must_use]
    pub fn unexpected_body() -> Self {
        let message = "this request takes no body; send it without one";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "unexpected_body", message)
    }

    /// Returns the error of a path that does not take the method of the request.
    #[must_use]
    pub(crate) fn method_not_allowed() -> Self {
        let message = "this path does not take this method; Allow lists those that it takes";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
    }

    /// Returns the error of an operation that a run cannot take in its present state.
    #[must_use]
    pub(crate) fn invalid_state(run: &Sandbox, message: String) -> Self {
        Self::new(StatusCode::CONFLICT, "invalid_state", message).with_details(json!({ "state": run.state.as_str() }))
    }

    /// Returns the error of a rate that is exceeded.
    #[must_use]
    pub fn too_many(code: &'static str, message: impl Into<String>, retry_after: u64) -> Self {
        let error = Self::new(StatusCode::TOO_MANY_REQUESTS, code, message);
        Self { retry_after: Some(retry_after), ..error }
    }

    /// Replaces the field that the error names.
    #[must_use]
    pub(crate) fn of_field(self, field: &str) -> Self {
        self.with_details(json!({ "field": field }))
    }

    /// Says after how many seconds the request may be sent again.
    #[must_use]
    pub fn retry_after(self, seconds: u64) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }

    /// Returns the error of an operation that cannot be recorded, and is not done.
    #[must_use]
    pub fn audit_unavailable(cause: &dyn std::error::Error) -> Self {
        let message = "the operation cannot be recorded, so it is not done; the log of the daemon says why";
        Self {
            cause: Some(error_chain(cause)),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "audit_unavailable", message)
        }
    }

    /// Returns an internal error. Only the log gets the cause.
    #[must_use]
    pub fn internal(cause: &dyn std::error::Error) -> Self {
        let message = "the daemon failed; its log has the cause under this id";
        Self { cause: Some(error_chain(cause)), ..Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message) }
    }

    /// Returns the error of state that cannot be written or read now: its disk is full, or it is in use.
    #[must_use]
    pub fn storage_unavailable(cause: &dyn std::error::Error) -> Self {
        let message = "the daemon cannot use its storage now, and nothing was changed; send the request again later";
        Self {
            cause: Some(error_chain(cause)),
            retry_after: Some(STORAGE_RETRY_S),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "storage_unavailable", message)
        }
    }

    /// Returns the error of the state: a temporary one, or one that the operator has to fix.
    pub(crate) fn of_state(cause: &dyn std::error::Error, is_retryable: bool) -> Self {
        if is_retryable { Self::storage_unavailable(cause) } else { Self::internal(cause) }
    }

    /// Returns the error for a chat client: an invalid request gets status 400.
    #[must_use]
    pub(crate) fn for_chat(mut self) -> Self {
        if matches!(self.status, StatusCode::UNPROCESSABLE_ENTITY | StatusCode::UNSUPPORTED_MEDIA_TYPE) {
            self.status = StatusCode::BAD_REQUEST;
        }
        self
    }

    /// Returns the error in the form of OpenAI.
    #[must_use]
    pub(crate) fn for_openai(self) -> Self {
        Self { is_openai: true, ..self.for_chat() }
    }

    /// Returns the error of a run that was made, and has failed: clients that retry by themselves must not make another.
    #[must_use]
    pub(crate) fn after_run(self) -> Self {
        Self { is_final: true, ..self }
    }

    /// Returns the stable word.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.code
    }

    #[cfg(test)]
    pub(crate) fn details(&self) -> Option<&Value> {
        self.details.as_ref()
    }
}

impl IntoResponse for ApiError {
    fn into_response(mut self) -> Response {
        let internal =
            self.cause.take().map(|cause| InternalCause { id: uuid::Uuid::new_v4().simple().to_string(), cause });
        if let Some(internal) = &internal {
            self.details = Some(json!({ "error_id": internal.id }));
        }
        let param = self.details.as_ref().and_then(|details| details["field"].as_str()).map(str::to_owned);
        let error = ErrorFields {
            code: self.code,
            message: self.message,
            kind: self.is_openai.then(|| openai_type(self.status)),
            param: param.filter(|_| self.is_openai),
            details: self.details,
        };
        let mut response = (self.status, Json(ErrorBody { error })).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.is_final {
            response.headers_mut().insert("x-should-retry", HeaderValue::from_static("false"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(internal) = internal {
            response.extensions_mut().insert(internal);
        }
        response
    }
}

/// Returns the type of an error in the form of OpenAI.
fn openai_type(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::PAYMENT_REQUIRED => "insufficient_quota",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::REQUEST_TIMEOUT => "timeout_error",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        status if status.is_server_error() => "server_error",
        _ => "invalid_request_error",
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        Self::of_state(&error, error.is_retryable())
    }
}

impl From<LedgerError> for ApiError {
    fn from(error: LedgerError) -> Self {
        Self::of_state(&error, error.is_retryable())
    }
}

impl From<TokenError> for ApiError {
    fn from(error: TokenError) -> Self {
        let is_retryable = matches!(&error, TokenError::Store(error) if error.is_retryable());
        Self::of_state(&error, is_retryable)
    }
}

impl From<io::Error> for ApiError {
    fn from(error: io::Error) -> Self {
        Self::internal(&error)
    }
}
