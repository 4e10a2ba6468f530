//! Style and script of the pages. Their paths have their hash, so that a browser may keep them.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use sluice_contract::Hash;

use crate::api_error::ApiError;
use crate::extract::PathNames;

/// A file that is built in.
struct Asset {
    name: &'static str,
    kind: &'static str,
    content: &'static str,
}

const ASSETS: [Asset; 2] = [
    Asset { name: "page.css", kind: "text/css; charset=utf-8", content: include_str!("assets/page.css") },
    Asset { name: "session.js", kind: "text/javascript; charset=utf-8", content: include_str!("assets/session.js") },
];

/// One hash for all of them: a new build has new paths.
static HASH: LazyLock<String> = LazyLock::new(|| {
    let pieces = ASSETS.iter().map(|asset| asset.content.as_bytes());
    Hash::of_all(pieces).to_hex()
});

/// Returns the path of an asset.
pub(super) fn path(name: &str) -> String {
    format!("/assets/{}/{name}", *HASH)
}

/// Serves an asset.
pub(super) async fn serve(PathNames([hash, name]): PathNames<2>) -> Result<Response, ApiError> {
    let found = ASSETS.iter().find(|asset| asset.name == name && hash == *HASH);
    let asset = found.ok_or_else(ApiError::not_found)?;
    let headers = [(CONTENT_TYPE, asset.kind), (CACHE_CONTROL, "private, max-age=31536000, immutable")];
    Ok((StatusCode::OK, headers, asset.content).into_response())
}
