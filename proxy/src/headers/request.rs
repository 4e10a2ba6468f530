//! The headers that go upstream with a call.
//!
//! Pure. One pass over the client's headers decides which are sent, and names those that are not: the audit log cannot
//! name other headers than the ones that were dropped.

use std::borrow::Cow;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use super::betas::{DEFAULT_BETAS, is_beta};
use super::metadata::{Identity, MetadataError, RESERVED, ascii_json, metadata_around_call_id};
use super::{CALL_ID, header_bytes, header_value};

/// Maker of the head of every call.
#[derive(Debug)]
pub struct Injector {
    /// Headers that are the same for each call, with entries for those that each call sets: a copy is filled in, and
    /// hardly ever grows.
    fixed: HeaderMap,
    /// The metadata before the call id, and after it.
    metadata: (String, String),
    betas: Vec<String>,
}

static END_USER_ID: HeaderName = HeaderName::from_static("x-litellm-end-user-id");
static CUSTOMER_ID: HeaderName = HeaderName::from_static("x-litellm-customer-id");
static METADATA: HeaderName = HeaderName::from_static("x-litellm-metadata");
static SPEND_LOGS_METADATA: HeaderName = HeaderName::from_static("x-litellm-spend-logs-metadata");
static TRACE_ID: HeaderName = HeaderName::from_static("x-litellm-trace-id");
static SESSION_ID: HeaderName = HeaderName::from_static("x-litellm-session-id");
static NUM_RETRIES: HeaderName = HeaderName::from_static("x-litellm-num-retries");
static ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");
static ANTHROPIC_BETA: HeaderName = HeaderName::from_static("anthropic-beta");

/// Members of the metadata that LiteLLM and its callbacks for Langfuse and OpenTelemetry read from headers alone.
const CALLBACK_HEADERS: [(&str, &str); 11] = [
    ("existing_trace_id", "langfuse_existing_trace_id"),
    ("trace_id", "langfuse_trace_id"),
    ("session_id", "langfuse_session_id"),
    ("trace_user_id", "langfuse_trace_user_id"),
    ("trace_name", "langfuse_trace_name"),
    ("trace_metadata", "langfuse_trace_metadata"),
    ("generation_name", "langfuse_generation_name"),
    ("mask_input", "langfuse_mask_input"),
    ("mask_output", "langfuse_mask_output"),
    ("tags", "x-litellm-tags"),
    ("traceparent", "traceparent"),
];

/// The decision about one name among the client's headers.
enum Fate {
    /// Belongs to the connection, or every client sends it: dropped, and not named in the audit log.
    Transport,
    /// Sent with its first value, if that is plain.
    FirstValue,
    /// `anthropic-beta`: sent with those of its values that are allowed.
    Betas,
    /// Telemetry of the SDKs: eight names, one entry in the audit log.
    Telemetry,
    /// Dropped, and named.
    Dropped,
}

impl Injector {
    /// Prepares the headers that are the same for each call.
    ///
    /// # Errors
    /// [`MetadataError`], for metadata that no header can carry.
    pub fn new(
        identity: &Identity,
        host: HeaderValue,
        bearer: HeaderValue,
        betas: Vec<String>,
    ) -> Result<Self, MetadataError> {
        if let Some(name) = RESERVED.into_iter().find(|name| identity.metadata.contains_key(*name)) {
            return Err(MetadataError::Reserved(name));
        }
        let visible = |text: &str| !text.is_empty() && text.len() <= 255 && text.bytes().all(|b| b.is_ascii_graphic());
        if !visible(&identity.graph_id) {
            return Err(MetadataError::GraphId);
        }
        let run = header_value(identity.run_id.as_str());
        let account = header_value(identity.account.as_str());
        let session = header_of(identity, "session_id")?;

        let mut fixed = HeaderMap::with_capacity(24);
        fixed.insert(header::HOST, host);
        fixed.insert(header::AUTHORIZATION, bearer);
        fixed.insert(header::USER_AGENT, HeaderValue::from_static(concat!("sluice-proxy/", env!("CARGO_PKG_VERSION"))));
        // A compressed response could not be read for its usage, nor searched for the key.
        fixed.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        // Each of LiteLLM's own retries may be billed, and none of them is reported: one call is one attempt. The
        // header wins over the body, and no provider gets it.
        fixed.insert(&NUM_RETRIES, HeaderValue::from_static("0"));
        // LiteLLM bills by the customer id before the end-user id; both must be the run's account.
        fixed.insert(&CUSTOMER_ID, account.clone());
        fixed.insert(&END_USER_ID, account);
        // LiteLLM uses the trace id, if there is one, for the session as well: both are the same.
        let chain = session.clone().unwrap_or(run);
        fixed.insert(&TRACE_ID, chain.clone());
        fixed.insert(&SESSION_ID, chain);
        for (member, name) in CALLBACK_HEADERS {
            // An existing trace takes precedence over an id for a new one.
            let is_second = member == "trace_id" && identity.metadata.contains_key("existing_trace_id");
            if let Some(value) = header_of(identity, member)?.filter(|_| !is_second) {
                fixed.insert(name, value);
            }
        }
        for name in [&SPEND_LOGS_METADATA, &METADATA, &CALL_ID, &header::CONTENT_TYPE, &header::ACCEPT] {
            fixed.insert(name, HeaderValue::from_static(""));
        }
        Ok(Self { fixed, metadata: metadata_around_call_id(identity)?, betas })
    }

    /// Returns the headers of one call: the sidecar's own, and the few of the client's that are allowed. The names of
    /// all others are appended to `dropped`, each once, in their order.
    #[must_use]
    pub fn outbound(
        &self,
        client: &HeaderMap,
        call_id: &str,
        has_body: bool,
        dropped: &mut Vec<Cow<'static, str>>,
    ) -> HeaderMap {
        let mut out = self.fixed.clone();
        let metadata = header_bytes([self.metadata.0.as_str(), call_id, &self.metadata.1].concat());
        out.insert(&SPEND_LOGS_METADATA, metadata.clone());
        out.insert(&METADATA, metadata);
        out.insert(&CALL_ID, header_value(call_id));
        if has_body {
            out.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        } else {
            out.remove(header::CONTENT_TYPE);
        }
        let (mut has_accept, mut telemetry) = (false, false);
        for name in client.keys() {
            match fate(name) {
                Fate::Transport => {}
                Fate::FirstValue => {
                    let mut values = client.get_all(name).iter();
                    let first = values.next().filter(|value| is_plain(value));
                    if let Some(value) = first {
                        has_accept |= name == header::ACCEPT;
                        out.insert(name, value.clone());
                    }
                    if first.is_none() || values.next().is_some() {
                        dropped.push(name_of(name));
                    }
                }
                Fate::Betas => {
                    if let Some(betas) = self.betas(client, dropped) {
                        out.insert(&ANTHROPIC_BETA, betas);
                    }
                }
                Fate::Telemetry => {
                    if !std::mem::replace(&mut telemetry, true) {
                        dropped.push("x-stainless-*".into());
                    }
                }
                Fate::Dropped => dropped.push(name_of(name)),
            }
        }
        if !has_accept {
            out.remove(header::ACCEPT);
        }
        out
    }

    /// Returns the allowed beta values, in their order, and appends the names of the others to `dropped`: the name
    /// tells the operator what to allow.
    fn betas(&self, client: &HeaderMap, dropped: &mut Vec<Cow<'static, str>>) -> Option<HeaderValue> {
        let (mut allowed, mut unnamed) = (String::new(), false);
        for value in client.get_all(&ANTHROPIC_BETA) {
            // A value that is not text is one unknown beta.
            let betas = value.to_str().unwrap_or("\0").split(',').map(str::trim);
            for beta in betas.filter(|beta| !beta.is_empty()) {
                if self.allows_beta(beta) {
                    if !allowed.is_empty() {
                        allowed.push(',');
                    }
                    allowed.push_str(beta);
                } else if is_beta(beta) {
                    dropped.push(format!("anthropic-beta:{beta}").into());
                } else if !std::mem::replace(&mut unnamed, true) {
                    dropped.push("anthropic-beta".into());
                }
            }
        }
        (!allowed.is_empty()).then(|| header_bytes(allowed))
    }

    fn allows_beta(&self, beta: &str) -> bool {
        DEFAULT_BETAS.contains(&beta) || self.betas.iter().any(|allowed| allowed == beta)
    }
}

/// Returns the header value of a member: a text as it is, a list joined by commas, true, false and objects as JSON.
#[cold]
#[inline(never)]
fn header_of(identity: &Identity, name: &'static str) -> Result<Option<HeaderValue>, MetadataError> {
    let text = match identity.metadata.get(name) {
        None => return Ok(None),
        Some(Value::String(text)) => Cow::Borrowed(text.as_str()),
        Some(Value::Array(items)) => {
            items.iter().map(|item| item.as_str().unwrap_or("\0")).collect::<Vec<_>>().join(",").into()
        }
        Some(value @ (Value::Bool(_) | Value::Object(_))) => ascii_json(value).into(),
        Some(_) => return Err(MetadataError::NotAHeader(name)),
    };
    let is_printable = !text.is_empty() && text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if is_printable && text.trim() == text {
        Ok(Some(header_value(&text)))
    } else {
        Err(MetadataError::NotAHeader(name))
    }
}

fn fate(name: &HeaderName) -> Fate {
    if is_transport(name) {
        Fate::Transport
    } else if name == header::ACCEPT || name == ANTHROPIC_VERSION {
        Fate::FirstValue
    } else if name == ANTHROPIC_BETA {
        Fate::Betas
    } else if name.as_str().starts_with("x-stainless-") {
        Fate::Telemetry
    } else {
        Fate::Dropped
    }
}

/// Returns the name for the audit log. The most common one is not copied.
fn name_of(name: &HeaderName) -> Cow<'static, str> {
    if name == header::AUTHORIZATION { "authorization".into() } else { name.as_str().to_owned().into() }
}

/// Returns true for headers of the connection and of every client; their removal is not named.
fn is_transport(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "host"
            | "connection"
            | "content-length"
            | "content-type"
            | "transfer-encoding"
            | "expect"
            | "accept-encoding"
            | "user-agent"
            | "keep-alive"
    )
}

fn is_plain(value: &HeaderValue) -> bool {
    value.len() <= 256 && value.as_bytes().iter().all(|b| (0x20..0x7f).contains(b))
}
