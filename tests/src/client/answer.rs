//! A response as the agent receives it.

use std::ops::Deref;

use serde_json::Value;

use crate::http1::{self, HeadLines, first_event, sse_data};

/// The head of a response.
#[derive(Debug, Clone)]
pub struct Head {
    /// `HTTP/1.1` or `HTTP/1.0`.
    pub version: String,
    /// The status code.
    pub status: u16,
    /// The headers in wire order, names as sent.
    pub headers: Vec<(String, String)>,
    /// The head's raw bytes, blank line included.
    pub raw: Vec<u8>,
    /// The statuses of the interim responses that came before it.
    pub interim: Vec<u16>,
}

impl Head {
    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        http1::first(&self.headers, name)
    }

    /// All values of a header.
    pub fn headers_named(&self, name: &str) -> Vec<&str> {
        http1::all(&self.headers, name)
    }

    /// The sidecar's reason of refusal: `x-sluice-reason`, or an empty text.
    pub fn reason(&self) -> &str {
        self.header("x-sluice-reason").unwrap_or_default()
    }
}

/// A complete response; it gives access to the fields of its head.
#[derive(Debug, Clone)]
pub struct ClientAnswer {
    /// Everything before the body.
    pub head: Head,
    /// The body, without its chunked coding.
    pub body: Vec<u8>,
    /// False if a chunked body ended without its last chunk, a body with a length ended too early, or a body without a
    /// length was ended by a reset.
    pub complete: bool,
}

impl Deref for ClientAnswer {
    type Target = Head;

    fn deref(&self) -> &Head {
        &self.head
    }
}

impl ClientAnswer {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        let parsed = serde_json::from_slice(&self.body);
        parsed.unwrap_or_else(|error| panic!("{} and no JSON ({error}): {}", self.status, self.text()))
    }

    /// The texts of its SSE events, each without its blank line.
    pub fn events(&self) -> Vec<String> {
        let (mut rest, mut events) = (&self.body[..], Vec::new());
        while let Some((text, length)) = first_event(rest) {
            events.push(String::from_utf8_lossy(text).into_owned());
            rest = &rest[length..];
        }
        if !rest.is_empty() {
            events.push(String::from_utf8_lossy(rest).into_owned());
        }
        events
    }

    /// The `data:` of each of its SSE events.
    pub fn data(&self) -> Vec<String> {
        self.events().iter().map(|event| sse_data(event)).collect()
    }

    /// The error object of a refusal, in either dialect.
    pub fn error(&self) -> Value {
        self.json()["error"].clone()
    }

    /// Fails unless the answer is complete and has this status; the message has the answer.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert!(self.status == status && self.complete, "{status} was due, came {}: {}", self.status, self.text());
        self
    }

    /// Fails unless the answer is this refusal: status, header and the body's `code` or, in the Anthropic
    /// dialect (which has no code), its shape.
    #[track_caller]
    pub fn expect_refusal(self, status: u16, reason: &str) -> Self {
        assert_eq!((self.status, self.reason()), (status, reason), "came {}", self.text());
        let body = self.json();
        assert!(body["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "no message in {body}");
        if body["type"] != "error" {
            assert_eq!(body["error"]["code"], reason, "the code of {body}");
        }
        self
    }
}

pub(super) fn parse_head(lines: HeadLines) -> Head {
    let mut parts = lines.first.splitn(3, ' ');
    let version = parts.next().unwrap_or_default().to_owned();
    let status = parts.next().and_then(|status| status.parse().ok());
    let status = status.filter(|_| version.starts_with("HTTP/1."));
    let status = status.unwrap_or_else(|| panic!("not a status line: {:?}", lines.first));
    Head { version, status, headers: lines.headers, raw: lines.raw, interim: Vec::new() }
}

/// Fails on a header that is not in the allow list. All tests check this, so each of them finds leaks.
pub(super) fn check_headers(head: &Head, allowed: &[String]) {
    for (name, value) in &head.headers {
        let known = allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(name));
        assert!(known, "response header `{name}: {value}` must not reach an agent");
    }
}
