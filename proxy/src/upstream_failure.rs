//! The messages that the client gets when the upstream fails: a refusal before the response, an event within it.

use bytes::Bytes;
use sluice_contract::record::ConnectFailure;

use crate::policy::ApiFormat;
use crate::refusal::{Reason, Refusal};
use crate::upstream::UpstreamError;

/// Returns the refusal for a call that found no connection. It names no address: the sandbox does not know the
/// upstream.
#[must_use]
pub fn unreachable(failure: ConnectFailure) -> Refusal {
    let message = match failure {
        ConnectFailure::Dns => "the upstream cannot be reached (dns: its name has no address); nothing was sent",
        ConnectFailure::Refused => {
            "the upstream cannot be reached (refused: its host refused the connection); nothing was sent"
        }
        ConnectFailure::Timeout => {
            "the upstream cannot be reached (timeout: no connection was made in time); nothing was sent"
        }
        ConnectFailure::Tls => "the upstream cannot be reached (tls: the TLS handshake failed); nothing was sent",
        ConnectFailure::Other => {
            "the upstream cannot be reached (other: the log of the operator says why); nothing was sent"
        }
    };
    Refusal::new(Reason::UpstreamUnreachable, message).retry_after(1)
}

/// Returns the refusal for a call that got no response.
#[must_use]
pub fn refusal(error: UpstreamError) -> Refusal {
    match error {
        UpstreamError::Closed | UpstreamError::Cut => Refusal::new(
            Reason::UpstreamClosed,
            "the upstream closed the connection before it answered; the call may have been made",
        ),
        UpstreamError::Interrupted => Refusal::interrupted(),
        UpstreamError::Timeout => {
            Refusal::new(Reason::UpstreamTimeout, "the upstream was silent for too long; the call may have been made")
        }
    }
}

/// Returns the error event for a stream that broke off, in the formats that have one. A chat stream that broke off gets
/// no event and no false end, so that its client may repeat the call. An interrupted chat stream gets an error in place
/// of a chunk, which its clients know.
#[must_use]
pub fn event(format: ApiFormat, error: UpstreamError) -> Option<Bytes> {
    let message = match error {
        UpstreamError::Interrupted => return interruption(format),
        UpstreamError::Timeout => "the upstream went silent in the middle of its answer",
        UpstreamError::Closed | UpstreamError::Cut => "the upstream broke off in the middle of its answer",
    };
    match format {
        ApiFormat::Messages => Some(Bytes::from(format!(
            "event: error\ndata: {{\"type\":\"error\",\"error\":{{\"type\":\"api_error\",\"message\":\"{message}\"}}}}\n\n"
        ))),
        ApiFormat::Responses => Some(Bytes::from(format!(
            "event: error\ndata: {{\"type\":\"error\",\"code\":\"upstream_cut\",\"message\":\"{message}\",\"param\":null,\"sequence_number\":0}}\n\n"
        ))),
        ApiFormat::Chat
        | ApiFormat::Completions
        | ApiFormat::Embeddings
        | ApiFormat::CountTokens
        | ApiFormat::Compact
        | ApiFormat::InputTokens
        | ApiFormat::Models
        | ApiFormat::Stored
        | ApiFormat::Other => None,
    }
}

/// Returns the error event for a stream that the operator interrupted.
fn interruption(format: ApiFormat) -> Option<Bytes> {
    let refusal = Refusal::interrupted();
    let body = refusal.body(format.dialect());
    match format {
        ApiFormat::Messages => Some(Bytes::from(format!("event: error\ndata: {body}\n\n"))),
        ApiFormat::Responses => Some(Bytes::from(format!(
            "event: error\ndata: {{\"type\":\"error\",\"code\":\"{}\",\"message\":\"{}\",\"param\":null,\"sequence_number\":0}}\n\n",
            refusal.reason.as_str(),
            refusal.message
        ))),
        ApiFormat::Chat | ApiFormat::Completions => Some(Bytes::from(format!("data: {body}\n\n"))),
        ApiFormat::Embeddings
        | ApiFormat::CountTokens
        | ApiFormat::Compact
        | ApiFormat::InputTokens
        | ApiFormat::Models
        | ApiFormat::Stored
        | ApiFormat::Other => None,
    }
}
