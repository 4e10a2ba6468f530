//! Responses of the upstream that no sandbox may see, and the refusals that replace them.
//!
//! Pure.

use http::header::{self, HeaderValue};
use http::{StatusCode, response};

use crate::refusal::{Reason, Refusal};

/// Returns a refusal if the upstream refused the key, or if the response is a redirect or cannot be read.
#[must_use]
pub fn reject(upstream: &response::Parts) -> Option<Refusal> {
    match upstream.status {
        status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
            let (refused, remedy) = refused_key(status);
            let status = status.as_u16();
            let message = format!("the upstream refused {refused} with status {status}; the operator has to {remedy}");
            return Some(Refusal::new(Reason::UpstreamAuth, message));
        }
        status if status.is_redirection() || status.is_informational() => {
            let message = format!(
                "the upstream answered with status {}, which is not followed; the operator has to correct --upstream",
                status.as_u16()
            );
            return Some(Refusal::new(Reason::UpstreamRedirect, message));
        }
        _ => {}
    }
    let encoded = |value: &HeaderValue| !value.as_bytes().eq_ignore_ascii_case(b"identity");
    let unreadable = upstream.headers.get_all(header::CONTENT_ENCODING).iter().any(encoded);
    unreadable.then(|| {
        Refusal::new(Reason::UpstreamUnreadable, "the upstream compressed its answer although it was asked not to")
    })
}

/// Returns what the upstream refused, and what the operator has to do. LiteLLM answers with 401 if a key is not valid,
/// and with 403 if it may not use the model.
#[cold]
#[inline(never)]
fn refused_key(status: StatusCode) -> (&'static str, &'static str) {
    if status == StatusCode::FORBIDDEN {
        ("the sidecar's key, or this model or route for it,", "check which models and routes the key may use")
    } else {
        ("the sidecar's key", "give it another")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, encoding: &'static str) -> Option<Refusal> {
        let mut response = http::Response::new(());
        *response.status_mut() = StatusCode::from_u16(status).expect("a status");
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
        reject(&response.into_parts().0)
    }

    #[test]
    fn keys_redirects_and_codes_stay_outside() {
        for (status, encoding, reason) in [
            (200, "identity", None),
            (429, "identity", None),
            (500, "identity", None),
            (401, "identity", Some(Reason::UpstreamAuth)),
            (403, "gzip", Some(Reason::UpstreamAuth)),
            (307, "identity", Some(Reason::UpstreamRedirect)),
            (101, "identity", Some(Reason::UpstreamRedirect)),
            (200, "gzip", Some(Reason::UpstreamUnreadable)),
        ] {
            assert_eq!(refusal(status, encoding).map(|refusal| refusal.reason), reason, "{status} {encoding}");
        }
    }

    #[test]
    fn a_forbidden_model_is_not_a_bad_key() {
        for (status, text) in [
            (401, "the upstream refused the sidecar's key with status 401; the operator has to give it another"),
            (
                403,
                "the upstream refused the sidecar's key, or this model or route for it, with status 403; the operator \
                 has to check which models and routes the key may use",
            ),
        ] {
            assert_eq!(refusal(status, "identity").map(|refusal| refusal.message), Some(text.into()));
        }
    }
}
