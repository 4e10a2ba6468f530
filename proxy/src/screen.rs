//! Answers that no sandbox may see, and the want of an answer: what is said instead.
//!
//! Pure.

use http::header::{self, HeaderValue};
use http::{StatusCode, response};

use crate::refusal::{Reason, Refusal};
use crate::upstream::UpstreamError;

/// It leaks the key, or leads elsewhere, or cannot be read.
#[must_use]
pub fn reject(upstream: &response::Parts) -> Option<Refusal> {
    match upstream.status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            return Some(Refusal::new(
                Reason::UpstreamAuth,
                "the upstream refused the sidecar's key; the operator has to give it another",
            ));
        }
        status if status.is_redirection() || status.is_informational() => {
            return Some(Refusal::new(
                Reason::UpstreamRedirect,
                "the upstream answered with a redirect, which is not followed; the operator has to correct --upstream",
            ));
        }
        _ => {}
    }
    let encoded = |value: &HeaderValue| !value.as_bytes().eq_ignore_ascii_case(b"identity");
    let unreadable = upstream.headers.get_all(header::CONTENT_ENCODING).iter().any(encoded);
    unreadable.then(|| {
        Refusal::new(Reason::UpstreamUnreadable, "the upstream compressed its answer although it was asked not to")
    })
}

/// There is none.
#[must_use]
pub fn lost(broken: UpstreamError) -> Refusal {
    match broken {
        UpstreamError::Unreachable => {
            Refusal::new(Reason::UpstreamUnreachable, "the upstream cannot be reached; nothing was sent").retry_after(1)
        }
        UpstreamError::Closed | UpstreamError::Cut => Refusal::new(
            Reason::UpstreamClosed,
            "the upstream closed the connection before it answered; the call may have been made",
        ),
        UpstreamError::Timeout => {
            Refusal::new(Reason::UpstreamTimeout, "the upstream was silent for too long; the call may have been made")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(status: u16, encoding: &'static str) -> Option<Reason> {
        let mut response = http::Response::new(());
        *response.status_mut() = StatusCode::from_u16(status).expect("a status");
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
        reject(&response.into_parts().0).map(|refusal| refusal.reason)
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
            assert_eq!(rejected(status, encoding), reason, "{status} {encoding}");
        }
    }
}
