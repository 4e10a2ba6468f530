//! The response that the client gets: one of the sidecar's own, or the upstream's through the tap.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use sluice_contract::Health;
use uuid::Uuid;

use crate::connection::OpenCallGuard;
use crate::headers;
use crate::refusal::{Dialect, Reason, Refusal};
use crate::run::RunContext;
use crate::tap::{ResponseCut, Tap};

static REASON: HeaderName = HeaderName::from_static("x-sluice-reason");
static SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// A response that is not sent yet.
#[derive(Debug)]
pub struct PendingResponse {
    status: StatusCode,
    headers: HeaderMap,
    content: ResponseContent,
}

/// Body of a response that is being sent.
#[derive(Debug)]
pub struct ResponseBody {
    content: ResponseContent,
    /// Keeps the client's connection busy until the response is given or dropped.
    _guard: OpenCallGuard,
}

#[derive(Debug)]
enum ResponseContent {
    /// A body of the sidecar's own.
    Buffered(Bytes),
    /// The body of the upstream's response.
    Tapped(Box<Tap>),
}

impl PendingResponse {
    /// Creates a response whose body is complete.
    #[must_use]
    pub fn buffered(status: StatusCode, headers: HeaderMap, body: Bytes) -> Self {
        Self { status, headers, content: ResponseContent::Buffered(body) }
    }

    /// Creates a response whose body comes through the tap.
    #[must_use]
    pub fn tapped(status: StatusCode, headers: HeaderMap, tap: Tap) -> Self {
        Self { status, headers, content: ResponseContent::Tapped(Box::new(tap)) }
    }

    /// Creates a refusal, in the caller's dialect.
    #[must_use]
    pub fn refusal(refusal: &Refusal, dialect: Dialect) -> Self {
        let mut headers = json_type();
        if dialect == Dialect::Git {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        }
        headers.insert(&REASON, HeaderValue::from_static(refusal.reason.as_str()));
        if let Some(retry) = refusal.should_retry() {
            headers.insert(&SHOULD_RETRY, HeaderValue::from_static(if retry { "true" } else { "false" }));
        }
        if refusal.reason == Reason::UpgradeNotAllowed {
            // RFC 9110, 15.5.22: a 426 names the protocol to use, and `Connection` names `Upgrade`.
            headers.insert(header::UPGRADE, HeaderValue::from_static("HTTP/1.1"));
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        }
        if !refusal.allow.is_empty()
            && let Ok(methods) = HeaderValue::from_str(&refusal.allow.to_string())
        {
            headers.insert(header::ALLOW, methods);
        }
        if let Some(seconds) = refusal.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        Self::buffered(refusal.status(), headers, Bytes::from(refusal.body(dialect)))
    }

    /// Adds the id of the call that was made: the caller may ask for the call by it.
    #[must_use]
    pub fn with_call_id(mut self, call: Uuid, dialect: Dialect) -> Self {
        headers::name_call(&mut self.headers, call.as_hyphenated().encode_lower(&mut Uuid::encode_buffer()), dialect);
        self
    }

    /// Closes the connection after the response: no further request is read.
    #[must_use]
    pub fn close_connection(mut self) -> Self {
        let names_upgrade = self.headers.contains_key(header::UPGRADE);
        let close = HeaderValue::from_static(if names_upgrade { "upgrade, close" } else { "close" });
        self.headers.insert(header::CONNECTION, close);
        self
    }

    /// Creates the response to `GET /health`, and to the paths by which agents look for a server: an error as soon as
    /// the run carries no further call.
    #[must_use]
    pub fn health(run: &RunContext) -> Self {
        let (code, status) = if run.journal.refuses() {
            (StatusCode::SERVICE_UNAVAILABLE, Reason::AuditUnavailable.as_str())
        } else if run.shutdown.is_draining() {
            (StatusCode::SERVICE_UNAVAILABLE, Reason::Draining.as_str())
        } else {
            (StatusCode::OK, "ok")
        };
        let body = Health { run_id: run.run_id.as_str().into(), status: status.into() }.to_body();
        Self::buffered(code, json_type(), Bytes::from(body))
    }

    /// Makes the HTTP response; the connection is busy until its end.
    #[must_use]
    pub fn into_response(self, guard: OpenCallGuard) -> Response<ResponseBody> {
        let mut response = Response::new(ResponseBody { content: self.content, _guard: guard });
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}

fn json_type() -> HeaderMap {
    HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))])
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ResponseCut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ResponseCut>>> {
        match &mut self.content {
            ResponseContent::Buffered(whole) if whole.is_empty() => Poll::Ready(None),
            ResponseContent::Buffered(whole) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(whole))))),
            ResponseContent::Tapped(tap) => Pin::new(&mut **tap).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            ResponseContent::Buffered(whole) => whole.is_empty(),
            ResponseContent::Tapped(tap) => tap.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            ResponseContent::Buffered(whole) => SizeHint::with_exact(whole.len() as u64),
            ResponseContent::Tapped(_) => SizeHint::new(),
        }
    }
}
