//! The path at the end of a request's path: as bytes, because a file name need not be text.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::request::Parts;
use percent_encoding::percent_decode_str;

use crate::api_error::ApiError;
use crate::context::ApiContext;

/// Maximum number of bytes of an id.
const ID_MAX: usize = 255;

/// The run of a path `/api/v1/sandboxes/{id}/WORD/{path}`, and the decoded end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TailPath {
    /// Id, or a name.
    pub(super) id: String,
    /// The end, without the slash before it, unless that slash is encoded or written twice.
    pub(super) tail: Vec<u8>,
}

impl TailPath {
    fn of(path: &str) -> Option<Self> {
        let mut parts = path.strip_prefix("/api/v1/sandboxes/")?.splitn(3, '/');
        let (id, _, tail) = (parts.next()?, parts.next()?, parts.next()?);
        let id = percent_decode_str(id).decode_utf8().ok()?.into_owned();
        let is_name = !id.is_empty() && id.len() <= ID_MAX && !id.contains(char::is_control);
        is_name.then(|| Self { id, tail: percent_decode_str(tail).collect() })
    }

    /// Returns the end as an absolute path.
    pub(super) fn absolute(&self) -> Vec<u8> {
        if self.tail.starts_with(b"/") { self.tail.clone() } else { [b"/", &self.tail[..]].concat() }
    }
}

impl FromRequestParts<Arc<ApiContext>> for TailPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<ApiContext>) -> Result<Self, ApiError> {
        Self::of(parts.uri.path()).ok_or_else(ApiError::not_found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_decoded_once() {
        for (end, expected) in [
            ("workspace/a", &b"/workspace/a"[..]),
            ("/workspace/a", b"/workspace/a"),
            ("%2Fworkspace%2fa", b"/workspace/a"),
            ("workspace/%FF%0A", b"/workspace/\xff\n"),
            ("workspace/%2e%2e/x", b"/workspace/../x"),
            ("workspace/%252e", b"/workspace/%2e"),
            ("workspace/%zz%", b"/workspace/%zz%"),
            ("workspace/a%00b", b"/workspace/a\0b"),
        ] {
            let found = TailPath::of(&format!("/api/v1/sandboxes/r_1/files/{end}")).expect("a path");
            assert_eq!((found.id.as_str(), &found.absolute()[..]), ("r_1", expected), "{end}");
        }
        let named = TailPath::of("/api/v1/sandboxes/bob%2Fx/files/a").expect("a path");
        assert_eq!(named.id, "bob/x");
        for path in ["/api/v1/sandboxes/r_1/files", "/api/v1/sandboxes//files/a", "/api/v1/sandboxes/%FF/files/a"] {
            assert_eq!(TailPath::of(path), None, "{path}");
        }
    }
}
