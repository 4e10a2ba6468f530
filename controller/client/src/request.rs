//! A request to the API.
//!
//! Pure.

use std::fmt::Write;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode, utf8_percent_encode};
use serde::Serialize;

/// Characters that are percent-encoded: all but the unreserved ones of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A request below `/api/v1`.
#[derive(Debug, Clone)]
pub struct ApiRequest {
    pub(crate) method: Method,
    /// Path, and query after it.
    pub(crate) target: String,
    pub(crate) body: Bytes,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// Further time that the server may take on purpose.
    pub(crate) wait: Duration,
}

impl ApiRequest {
    /// Returns a `GET` of the path with these parts.
    #[must_use]
    pub fn get(parts: &[&str]) -> Self {
        Self::new(Method::GET, parts)
    }

    /// Returns a `DELETE`.
    #[must_use]
    pub fn delete(parts: &[&str]) -> Self {
        Self::new(Method::DELETE, parts)
    }

    /// Returns a `POST` without a body.
    #[must_use]
    pub fn post(parts: &[&str]) -> Self {
        Self::new(Method::POST, parts)
    }

    /// Returns a `POST` of bytes.
    #[must_use]
    pub fn post_bytes(parts: &[&str], body: Bytes) -> Self {
        let octets = HeaderValue::from_static("application/octet-stream");
        Self { body, ..Self::post(parts) }.header(http::header::CONTENT_TYPE, octets)
    }

    /// Returns a `PUT` of bytes.
    #[must_use]
    pub fn put(parts: &[&str], body: Bytes) -> Self {
        let octets = HeaderValue::from_static("application/octet-stream");
        Self { body, ..Self::new(Method::PUT, parts) }.header(http::header::CONTENT_TYPE, octets)
    }

    fn new(method: Method, parts: &[&str]) -> Self {
        let mut target = "/api/v1".to_owned();
        for part in parts {
            let _ = write!(target, "/{}", utf8_percent_encode(part, RESERVED));
        }
        Self { method, target, body: Bytes::new(), headers: Vec::new(), wait: Duration::ZERO }
    }

    /// Adds a path with slashes, such as the path of a file in a sandbox.
    #[must_use]
    pub fn path(mut self, path: &[u8]) -> Self {
        for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            let _ = write!(self.target, "/{}", percent_encode(part, RESERVED));
        }
        self
    }

    /// Adds a member of the query.
    #[must_use]
    pub fn query(mut self, name: &str, value: &str) -> Self {
        let mark = if self.target.contains('?') { '&' } else { '?' };
        let _ = write!(self.target, "{mark}{name}={}", utf8_percent_encode(value, RESERVED));
        self
    }

    /// Adds a member of the query, if there is a value.
    #[must_use]
    pub fn query_of(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.query(name, value),
            None => self,
        }
    }

    /// Sets a body of JSON.
    #[must_use]
    pub fn json(self, body: &impl Serialize) -> Self {
        let body = serde_json::to_vec(body).expect("plain data").into();
        Self { body, ..self }.header(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Adds time for which the server may wait on purpose before it answers.
    #[must_use]
    pub fn waiting(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// Returns method and path for messages, without the query.
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.method, self.target.split('?').next().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_place_in_the_path() {
        let request = ApiRequest::get(&["sandboxes", "../x?y#z/ü"]).query("q", "a&b=c d").query_of("r", None);
        assert_eq!(request.target, "/api/v1/sandboxes/..%2Fx%3Fy%23z%2F%C3%BC?q=a%26b%3Dc%20d");
        assert_eq!(request.name(), "GET /api/v1/sandboxes/..%2Fx%3Fy%23z%2F%C3%BC");
        let file = ApiRequest::get(&["sandboxes", "r", "files"]).path(b"/workspace//a b/\xff");
        assert_eq!(file.target, "/api/v1/sandboxes/r/files/workspace/a%20b/%FF");
    }
}
