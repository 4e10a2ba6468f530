//! The headers that may pass, in both directions.
//!
//! Pure. Default deny in both directions. A header that the sidecar sets is set or removed, and never passed on; so a
//! forged header cannot pass, and need not be detected. For the order of precedence inside LiteLLM see
//! docs/design/litellm-identity.md.

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

/// Makes a header value of text, without a copy.
fn header_bytes(text: String) -> HeaderValue {
    HeaderValue::from_maybe_shared(Bytes::from(text)).expect("checked to be visible ASCII")
}

fn header_value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("checked to be visible ASCII")
}

#[cfg(test)]
mod tests;
