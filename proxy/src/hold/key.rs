//! The key by which a request is known again.
//!
//! Pure.

use sluice_contract::Hash;

use crate::body::ParsedBody;
use crate::intake::BufferedBody;
use crate::policy::Route;

/// Returns the hash of a request: its route, and its body as far as that goes upstream. So names of users and metadata,
/// which a client may write anew for each attempt, are not in it. To be called before the sidecar bounds the output.
pub(crate) fn key(route: &Route, parsed: &ParsedBody, body: &BufferedBody) -> Hash {
    let route = [route.method.as_str().as_bytes(), b" ", route.path.as_bytes(), b"\n"];
    Hash::of_all(route.into_iter().chain(body.within(&parsed.edit.keep)))
}
