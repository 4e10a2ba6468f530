//! Which headers may cross, in either direction.
//!
//! Pure. Default deny both ways. A header that we own is set or removed, never passed on; so forgery is
//! not detected, it has no way through. Order of precedence inside LiteLLM: the design notes in
//! ARCHITECTURE.md, "What LiteLLM believes".

mod betas;
mod metadata;
mod request;
mod response;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};

pub use betas::DEFAULT_BETAS;
pub use metadata::{Identity, MetadataError, ascii_json};
pub use request::Injector;
pub use response::{call_id, has_cache_key, may_pass, name_call, response_cost, screen};

static CALL_ID: HeaderName = HeaderName::from_static("x-litellm-call-id");

/// Without a copy.
fn header_bytes(text: String) -> HeaderValue {
    HeaderValue::from_maybe_shared(Bytes::from(text)).expect("checked to be visible ASCII")
}

fn header_value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("checked to be visible ASCII")
}

#[cfg(test)]
mod tests;
