//! Which operations take a body, according to the OpenAPI document.
//!
//! Pure.

use std::sync::LazyLock;

use http::Method;
use utoipa::openapi::path::{Operation, PathItem};

use crate::api::openapi;

/// The documented operations without a body, as a method and the segments of a path.
static WITHOUT_BODY: LazyLock<Vec<(Method, Vec<String>)>> = LazyLock::new(|| {
    let mut found = Vec::new();
    for (path, item) in openapi().paths.paths {
        let PathItem { get, put, post, delete, .. } = item;
        let operations = [(Method::GET, get), (Method::PUT, put), (Method::POST, post), (Method::DELETE, delete)];
        let is_without = |operation: &Operation| operation.request_body.is_none();
        for (method, _) in operations.into_iter().filter(|(_, operation)| operation.as_ref().is_some_and(is_without)) {
            found.push((method, path.split('/').map(str::to_owned).collect()));
        }
    }
    found
});

/// Returns whether a request is for an operation that takes no body. An unknown operation is answered elsewhere.
pub(crate) fn takes_no_body(method: &Method, path: &str) -> bool {
    WITHOUT_BODY.iter().any(|(known, segments)| known == method && matches(segments, path))
}

/// Returns whether a path has these segments; a segment in braces has any value, and a final `{path}` matches several.
fn matches(segments: &[String], path: &str) -> bool {
    let given: Vec<_> = path.split('/').collect();
    let is_tail = segments.last().is_some_and(|last| last == "{path}");
    let has_length = if is_tail { given.len() >= segments.len() } else { given.len() == segments.len() };
    has_length && segments.iter().zip(given).all(|(known, given)| known.starts_with('{') || known == given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documented_operations_alone_are_known() {
        let rows = [
            ("POST", "/api/v1/sandboxes/r_1/retry", true),
            ("DELETE", "/api/v1/sandboxes/r_1", true),
            ("GET", "/api/v1/sandboxes/r_1/files/workspace/a/b", true),
            ("GET", "/alive", true),
            ("PUT", "/api/v1/sandboxes/r_1/files/workspace/a/b", false),
            ("POST", "/api/v1/sandboxes", false),
            ("POST", "/api/v1/sandboxes/r_1/fail", false),
            ("POST", "/api/v1/sandboxes/r_1/nothing", false),
            ("PATCH", "/api/v1/sandboxes/r_1", false),
            ("POST", "/login", false),
        ];
        for (method, path, expected) in rows {
            let method: Method = method.parse().expect("a method");
            assert_eq!(takes_no_body(&method, path), expected, "{method} {path}");
        }
    }
}
