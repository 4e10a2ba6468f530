//! A request as the upstream received it.

use serde_json::Value;

use crate::http1;

/// A request as the upstream received it.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    /// Number of its connection, from 0.
    pub connection: usize,
    /// The method.
    pub method: String,
    /// The target as sent, query included.
    pub target: String,
    /// The headers in wire order, names as sent.
    pub headers: Vec<(String, String)>,
    /// The head's raw bytes, blank line included.
    pub head: Vec<u8>,
    /// The body, without its chunked coding.
    pub body: Vec<u8>,
}

impl ReceivedRequest {
    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        http1::first(&self.headers, name)
    }

    /// All values of a header.
    pub fn headers_named(&self, name: &str) -> Vec<&str> {
        http1::all(&self.headers, name)
    }

    /// The header names in wire order, in lower case.
    pub fn header_names(&self) -> Vec<String> {
        self.headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect()
    }

    /// The JSON value of a header, such as `x-litellm-spend-logs-metadata`.
    pub fn header_json(&self, name: &str) -> Value {
        let text = self.header(name).unwrap_or_else(|| panic!("the upstream got no {name}: {:?}", self.headers));
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{name} is not JSON ({error}): {text}"))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("no JSON ({error}): {}", self.text()))
    }

    /// The target without its query and its `/v1`.
    pub(super) fn route(&self) -> String {
        let path = self.target.split('?').next().unwrap_or_default();
        path.trim_start_matches("/v1").trim_start_matches('/').to_owned()
    }

    /// The model that was asked for.
    pub(super) fn model(&self) -> String {
        self.member("model")
            .and_then(|model| model.as_str().map(str::to_owned))
            .unwrap_or_else(|| "gpt-test".to_owned())
    }

    pub(super) fn wants(&self, member: &str) -> bool {
        self.member(member) == Some(Value::Bool(true))
    }

    pub(super) fn wants_usage(&self) -> bool {
        self.member("stream_options").is_some_and(|options| options["include_usage"] == true)
    }

    fn member(&self, name: &str) -> Option<Value> {
        serde_json::from_slice::<Value>(&self.body).ok()?.get(name).cloned()
    }
}
