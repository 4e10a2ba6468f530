//! Paths: the ids in them, and the route that they match.
//!
//! Pure. Paths are compared byte for byte. Nothing is decoded but the slashes of a model's name, as SDKs encode them.

use std::borrow::Cow;

use super::route::{ApiFormat, Route};

/// The one pattern that a path of `--allow` may have: a segment that is the id of an object that the run has made.
pub(super) const ID: &str = "{id}";
/// Maximum length of such an id, in bytes. LiteLLM puts provider, deployment, user and team into it.
pub const ID_MAX: usize = 768;

/// Returns the model in `/v1/models/{id}`. Only `%2F` in it is decoded, and no segment of it is empty or leads elsewhere. The
/// id is compared with known names, and does not go upstream.
#[must_use]
pub fn model_id(path: &str) -> Option<Cow<'_, str>> {
    let id = path.strip_prefix("/v1").unwrap_or(path).strip_prefix("/models/")?;
    let id = if id.contains('%') { id.replace("%2F", "/").replace("%2f", "/").into() } else { Cow::from(id) };
    let is_plain = id.len() <= 256 && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:/@+-".contains(&b));
    let leads_on = |segment| !matches!(segment, "" | "." | "..");
    (is_plain && id.split('/').all(leads_on)).then_some(id)
}

/// Returns the id in the path of a stored object, byte for byte: nothing is decoded. The fixed routes come first, so
/// their paths never get here.
pub(super) fn stored_id<'p>(route: &Route, path: &'p str) -> Option<&'p str> {
    if route.format != ApiFormat::Stored {
        return None;
    }
    let (before, behind) = route.path.split_once(ID)?;
    let rest = path.strip_prefix(before).or_else(|| path.strip_prefix(before.strip_prefix("/v1")?))?;
    rest.strip_suffix(behind).filter(|id| is_id(id))
}

/// Returns the path that goes upstream for a stored object.
#[must_use]
pub fn stored_path(route: &Route, path: &str) -> Option<String> {
    stored_id(route, path).map(|id| route.path.replacen(ID, id, 1))
}

/// Returns true if the text may be an id of a stored object: one segment of a path that no parser splits or decodes.
#[must_use]
pub fn is_id(text: &str) -> bool {
    let is_plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.=+~:".contains(&b));
    is_plain && (1..=ID_MAX).contains(&text.len()) && text.bytes().any(|b| b.is_ascii_alphanumeric())
}

/// Returns true for the route's path, also without `/v1`: SDKs differ in what they call a base URL.
pub(super) fn same_route(route: &Route, path: &str) -> bool {
    route.path == path || (route.format != ApiFormat::Other && route.path.strip_prefix("/v1") == Some(path))
}
