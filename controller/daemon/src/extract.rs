//! Strict readers of requests: JSON bodies, queries, paths, and principals.
//!
//! A member that a type does not have is refused, and the error names it.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{
    FromRequest, FromRequestParts, OptionalFromRequest, OptionalFromRequestParts, Query as AxumQuery, RawPathParams,
    Request,
};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::json;
use sluice_contract::Hash;
use tokio::time::timeout;

use crate::api_error::ApiError;
use crate::context::ApiContext;
use crate::json_bounds::{self, BoundError};
use crate::permission::{Operation, Permission, Scope, permission};
use crate::principal::{Principal, Way};

/// A JSON body.
#[derive(Debug)]
pub struct JsonBody<T> {
    /// Value.
    pub value: T,
    /// Hash of the bytes of the body.
    pub digest: Hash,
}

/// The query of a request.
#[derive(Debug)]
pub struct Query<T>(pub T);

/// The parameters of a path, in their order.
#[derive(Debug)]
pub struct PathNames<const N: usize>(pub [String; N]);

/// Maximum number of bytes of a name in a path.
const NAME_MAX: usize = 255;

impl<T: DeserializeOwned> FromRequest<Arc<ApiContext>> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, context: &Arc<ApiContext>) -> Result<Self, ApiError> {
        if !is_json(request.headers()) {
            let message = "the body is not JSON; send it with Content-Type: application/json";
            return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", message));
        }
        let body = read_body(request.into_body(), context).await?;
        Ok(Self { digest: Hash::of(&body), value: parse(&body, context)? })
    }
}

/// None for a request without a body, on a route that needs none.
impl<T: DeserializeOwned> OptionalFromRequest<Arc<ApiContext>> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, context: &Arc<ApiContext>) -> Result<Option<Self>, ApiError> {
        let is_empty = http_body::Body::size_hint(request.body()).exact() == Some(0);
        if is_empty && !request.headers().contains_key(CONTENT_TYPE) {
            return Ok(None);
        }
        <Self as FromRequest<Arc<ApiContext>>>::from_request(request, context).await.map(Some)
    }
}

/// Reads a body within its limits.
async fn read_body(body: Body, context: &ApiContext) -> Result<bytes::Bytes, ApiError> {
    let limits = &context.limits;
    let too_large = || {
        let message = format!("the body has more than {} bytes; send less", limits.body_bytes);
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
    };
    if http_body::Body::size_hint(&body).lower() > limits.body_bytes as u64 {
        return Err(too_large());
    }
    match timeout(limits.body_time, to_bytes(body, limits.body_bytes)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        // Another read error means a broken connection: no client reads this answer.
        Ok(Err(_)) => Err(too_large()),
        Err(_) => {
            Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", "the body came too slowly; send it again"))
        }
    }
}

fn parse<T: DeserializeOwned>(body: &[u8], context: &ApiContext) -> Result<T, ApiError> {
    let refused = |code, message: &str| ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, code, message);
    json_bounds::check(body, &context.limits).map_err(|error| match error {
        BoundError::Depth => refused("json_too_deep", "the JSON is nested too deeply; at most 32 levels pass"),
        BoundError::Members => {
            refused("json_too_large", "an object or an array of the JSON has more than 1,000 members")
        }
        BoundError::Name => refused("json_too_large", "the name of a member has more than 255 bytes"),
        BoundError::Nul => refused("invalid_text", "a text has the character U+0000, which cannot be stored"),
    })?;
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        json_error(&path, error.inner())
    })?;
    reader.end().map_err(|error| json_error(".", &error))?;
    Ok(value)
}

fn json_error(path: &str, error: &serde_json::Error) -> ApiError {
    let text = error.to_string();
    if !error.is_data() {
        return ApiError::new(StatusCode::BAD_REQUEST, "invalid_json", format!("the body is not valid JSON: {text}"));
    }
    field_error(path, &text)
}

/// Returns the error of a member: it is unknown, or has a wrong value.
fn field_error(path: &str, text: &str) -> ApiError {
    let unknown = text.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`'));
    let (code, field) = match unknown {
        Some((name, _)) if path == "." || path == name => ("unknown_field", name.to_owned()),
        Some((name, _)) if path.ends_with(name) => ("unknown_field", path.to_owned()),
        Some((name, _)) => ("unknown_field", format!("{path}.{name}")),
        None => ("invalid_field", path.to_owned()),
    };
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, code, format!("{field}: {text}"))
        .with_details(json!({ "field": field }))
}

fn is_json(headers: &HeaderMap) -> bool {
    let media = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    media.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

impl<T: DeserializeOwned> FromRequestParts<Arc<ApiContext>> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<ApiContext>) -> Result<Self, ApiError> {
        let query = AxumQuery::<T>::try_from_uri(&parts.uri);
        query.map(|AxumQuery(query)| Self(query)).map_err(|error| {
            let text = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            // The message begins with the path to the member.
            let (path, text) = text.split_once(": ").unwrap_or((".", &text));
            field_error(path, text)
        })
    }
}

impl<const N: usize> FromRequestParts<Arc<ApiContext>> for PathNames<N> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, context: &Arc<ApiContext>) -> Result<Self, ApiError> {
        let params = RawPathParams::from_request_parts(parts, context).await.map_err(|_| ApiError::not_found())?;
        let names: Vec<_> = params.iter().map(|(_, name)| name.to_owned()).collect();
        let is_name = |name: &String| !name.is_empty() && name.len() <= NAME_MAX && !name.contains(char::is_control);
        let names: [String; N] = names.try_into().map_err(|_| ApiError::not_found())?;
        if names.iter().all(is_name) { Ok(Self(names)) } else { Err(ApiError::not_found()) }
    }
}

impl FromRequestParts<Arc<ApiContext>> for Principal {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<ApiContext>) -> Result<Self, ApiError> {
        parts.extensions.get::<Self>().cloned().ok_or_else(ApiError::unauthorized)
    }
}

/// None for a request without a credential, on a route that needs none.
impl OptionalFromRequestParts<Arc<ApiContext>> for Principal {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<ApiContext>) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get::<Self>().cloned())
    }
}

impl Principal {
    /// Returns the objects on which this principal may do an operation.
    ///
    /// # Errors
    /// 403: the role does not have the operation.
    pub fn require(&self, operation: Operation) -> Result<Scope<'_>, ApiError> {
        let is_of_role = || permission(self.role, operation) != Permission::Denied;
        self.may(operation).ok_or_else(|| match operation {
            _ if self.way == Way::Session && is_of_role() => ApiError::needs_token(),
            Operation::ChangeBudget | Operation::GrantAgent | Operation::Monitor | Operation::Steer => {
                ApiError::admin_only()
            }
            _ => ApiError::forbidden(),
        })
    }
}
