//! OTLP as JSON: the bodies of `/v1/traces` and `/v1/metrics`.
//!
//! Pure. The JSON encoding of OTLP writes ids as hexadecimal digits, 64-bit integers as strings, and enums as numbers.

use serde_json::{Map, Value, json};

/// Name of the instrumentation scope.
const SCOPE: &str = "sluice";

/// A span.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Span {
    /// Trace, 32 hexadecimal digits.
    pub(super) trace_id: String,
    /// Span, 16 hexadecimal digits.
    pub(super) span_id: String,
    /// Parent, 16 hexadecimal digits.
    pub(super) parent_id: Option<String>,
    pub(super) name: String,
    pub(super) kind: SpanKind,
    pub(super) start_us: i64,
    pub(super) end_us: i64,
    /// Message of a failure.
    pub(super) error: Option<String>,
    pub(super) attributes: Vec<(String, Value)>,
}

/// Kind of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpanKind {
    /// Work inside the daemon's host.
    Internal = 1,
    /// A call to another system.
    Client = 3,
}

impl Span {
    fn to_json(&self) -> Value {
        let mut span = json!({
            "traceId": self.trace_id,
            "spanId": self.span_id,
            "name": self.name,
            "kind": self.kind as i32,
            "startTimeUnixNano": nanos(self.start_us),
            "endTimeUnixNano": nanos(self.end_us.max(self.start_us)),
            "attributes": attributes(self.attributes.iter().map(|(name, value)| (name.as_str(), value))),
            // Code 1 (ok) is reserved for application developers; without a code, the status is unset.
            "status": match &self.error {
                Some(message) => json!({ "code": 2, "message": message }),
                None => json!({}),
            },
        });
        if let Some(parent) = &self.parent_id {
            span["parentSpanId"] = json!(parent);
        }
        span
    }
}

/// Returns the body of `/v1/traces`.
pub(super) fn traces<'a>(spans: impl IntoIterator<Item = &'a Span>) -> String {
    let spans: Vec<_> = spans.into_iter().map(Span::to_json).collect();
    let scope = json!({ "scope": scope(), "spans": spans });
    json!({ "resourceSpans": [{ "resource": resource(), "scopeSpans": [scope] }] }).to_string()
}

/// Returns the body of `/v1/metrics`.
pub(super) fn metrics(metrics: &[Value]) -> String {
    let scope = json!({ "scope": scope(), "metrics": metrics });
    json!({ "resourceMetrics": [{ "resource": resource(), "scopeMetrics": [scope] }] }).to_string()
}

/// Returns microseconds as the text of nanoseconds.
pub(super) fn nanos(us: i64) -> String {
    (i128::from(us.max(0)) * 1000).to_string()
}

/// Returns attributes as OTLP writes them.
pub(super) fn attributes<'a>(attributes: impl IntoIterator<Item = (&'a str, &'a Value)>) -> Vec<Value> {
    attributes.into_iter().map(|(name, value)| json!({ "key": name, "value": any_value(value) })).collect()
}

fn any_value(value: &Value) -> Value {
    match value {
        Value::Null => json!({}),
        Value::Bool(value) => json!({ "boolValue": value }),
        Value::Number(number) => match number.as_i64() {
            Some(number) => json!({ "intValue": number.to_string() }),
            None => json!({ "doubleValue": number.as_f64() }),
        },
        Value::String(text) => json!({ "stringValue": text }),
        Value::Array(items) => json!({ "arrayValue": { "values": items.iter().map(any_value).collect::<Vec<_>>() } }),
        Value::Object(members) => json!({ "stringValue": json_text(members) }),
    }
}

fn json_text(members: &Map<String, Value>) -> String {
    Value::Object(members.clone()).to_string()
}

fn resource() -> Value {
    let (name, version) = (json!(SCOPE), json!(env!("CARGO_PKG_VERSION")));
    json!({ "attributes": attributes([("service.name", &name), ("service.version", &version)]) })
}

fn scope() -> Value {
    json!({ "name": SCOPE, "version": env!("CARGO_PKG_VERSION") })
}
