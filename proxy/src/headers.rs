//! Which headers may cross, in either direction.
//!
//! Pure. Default deny both ways. A header that we own is set or removed, never passed on; so forgery is
//! not detected, it has no way through. Order of precedence inside LiteLLM: the design notes in
//! ARCHITECTURE.md, "What LiteLLM believes".

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};
use sluice_contract::{Account, RunId};

use crate::refusal::Dialect;
use crate::scrub::is_in;

/// `anthropic-beta` values that the Anthropic SDK and Claude Code send, and that open no way out: they change the form of
/// a request or of its answer. From `@anthropic-ai/sdk` 1.12.0 and Claude Code 2.1.330. Codex sends none.
///
/// Not among them is what makes the provider run something (`code-execution`, `web-search`, `mcp-client`, `skills`,
/// `advisor-tool`), read what it stores (`files-api`, `agent-memory`, `compact`, `thinking-resumption`), use another model
/// or price (`server-side-fallback`, `fast-mode`), or take tools where the body policy does not look for them
/// (`inline-tools`, `mid-conversation-tool-changes`).
pub const DEFAULT_BETAS: &[&str] = &[
    "advanced-tool-use-2025-11-20",
    "claude-code-20250219",
    "computer-use-2024-10-22",
    "computer-use-2025-01-24",
    "computer-use-2025-11-24",
    "context-1m-2025-08-07",
    "context-management-2025-06-27",
    "effort-2025-11-24",
    "extended-cache-ttl-2025-04-11",
    "fine-grained-tool-streaming-2025-05-14",
    "interleaved-thinking-2025-05-14",
    "max-tokens-3-5-sonnet-2024-07-15",
    "mid-conversation-system-2026-04-07",
    "mid-conversation-system-clear-at-2026-08-21",
    "model-context-window-exceeded-2025-08-26",
    "output-128k-2025-02-19",
    "pdfs-2024-09-25",
    "prompt-caching-2024-07-31",
    "prompt-caching-scope-2026-01-05",
    "redact-thinking-2026-02-12",
    "structured-outputs-2025-11-13",
    "structured-outputs-2025-12-15",
    "task-budgets-2026-03-13",
    "thinking-display-updates-2026-08-18",
    "thinking-token-count-2026-05-13",
    "token-counting-2024-11-01",
    "token-efficient-tools-2025-02-19",
    "tool-examples-2025-10-29",
];

/// Names of ours that `--metadata` may not take.
const RESERVED: [&str; 4] = ["run_id", "attempt", "graph_id", "sluice_call_id"];

/// Who every call of this run is.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The run.
    pub run_id: RunId,
    /// Which start of it.
    pub attempt: u32,
    /// Who pays.
    pub account: Account,
    /// The graph that the run belongs to.
    pub graph_id: String,
    /// What the operator wants on every spend row.
    pub metadata: Map<String, Value>,
}

/// The metadata cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// One of our own names.
    #[error("'{0}' is set by the sidecar itself; choose another name")]
    Reserved(&'static str),
    /// Headers have limits.
    #[error("it is {0} bytes as JSON; headers hold at most 8192")]
    TooLong(usize),
    /// Something that Langfuse's headers cannot carry.
    #[error("'{0}' must be text of visible ASCII")]
    NotAHeader(&'static str),
    /// The graph id.
    #[error("a graph id is 1 to 255 characters of visible ASCII")]
    GraphId,
}

/// Makes the head of every call.
#[derive(Debug)]
pub struct Injector {
    /// With a place for what every call sets: a copy is then filled in, and does not grow.
    fixed: HeaderMap,
    /// The metadata up to the call id, and after it.
    metadata: (String, String),
    betas: Vec<String>,
}

static END_USER_ID: HeaderName = HeaderName::from_static("x-litellm-end-user-id");
static CUSTOMER_ID: HeaderName = HeaderName::from_static("x-litellm-customer-id");
static METADATA: HeaderName = HeaderName::from_static("x-litellm-metadata");
static SPEND_LOGS_METADATA: HeaderName = HeaderName::from_static("x-litellm-spend-logs-metadata");
static CALL_ID: HeaderName = HeaderName::from_static("x-litellm-call-id");
static TRACE_ID: HeaderName = HeaderName::from_static("x-litellm-trace-id");
static SESSION_ID: HeaderName = HeaderName::from_static("x-litellm-session-id");
static NUM_RETRIES: HeaderName = HeaderName::from_static("x-litellm-num-retries");
static CACHE_KEY: HeaderName = HeaderName::from_static("x-litellm-cache-key");
static RESPONSE_COST: HeaderName = HeaderName::from_static("x-litellm-response-cost");
static ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");
static ANTHROPIC_BETA: HeaderName = HeaderName::from_static("anthropic-beta");
static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
static REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

impl Injector {
    /// Everything that is the same for each call.
    ///
    /// # Errors
    /// [`MetadataError`] for what no header can carry.
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
        let text = |name: &'static str| match identity.metadata.get(name) {
            None => Ok(None),
            Some(Value::String(text)) if visible(text) => Ok(Some(header_value(text))),
            Some(_) => Err(MetadataError::NotAHeader(name)),
        };
        let run = header_value(identity.run_id.as_str());
        let account = header_value(identity.account.as_str());
        let session = text("session_id")?;

        let mut fixed = HeaderMap::with_capacity(24);
        fixed.insert(header::HOST, host);
        fixed.insert(header::AUTHORIZATION, bearer);
        fixed.insert(header::USER_AGENT, HeaderValue::from_static(concat!("sluice-proxy/", env!("CARGO_PKG_VERSION"))));
        // A compressed answer could not be read for its usage, nor searched for the key.
        fixed.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        // Each of LiteLLM's own retries may be billed, and none of them is told: one call is one attempt. The header wins
        // over the body, and no provider gets it.
        fixed.insert(&NUM_RETRIES, HeaderValue::from_static("0"));
        // LiteLLM bills by the customer id before the end-user id; ours must stand in both.
        fixed.insert(&CUSTOMER_ID, account.clone());
        fixed.insert(&END_USER_ID, account);
        // LiteLLM takes the trace id, when there is one, for the session as well: both say the same.
        let chain = session.clone().unwrap_or(run);
        fixed.insert(&TRACE_ID, chain.clone());
        fixed.insert(&SESSION_ID, chain);
        // Langfuse links traces by these and by nothing else.
        match (text("existing_trace_id")?, text("trace_id")?) {
            (Some(existing), _) => drop(fixed.insert("langfuse_existing_trace_id", existing)),
            (None, Some(trace)) => drop(fixed.insert("langfuse_trace_id", trace)),
            (None, None) => {}
        }
        if let Some(session) = session {
            fixed.insert("langfuse_session_id", session);
        }
        if let Some(user) = text("trace_user_id")? {
            fixed.insert("langfuse_trace_user_id", user);
        }
        for name in [&SPEND_LOGS_METADATA, &METADATA, &CALL_ID, &header::CONTENT_TYPE, &header::ACCEPT] {
            fixed.insert(name, HeaderValue::from_static(""));
        }
        Ok(Self { fixed, metadata: metadata_around_call_id(identity)?, betas })
    }

    /// The head of one call: ours, and the little that the client may say.
    #[must_use]
    pub fn outbound(&self, client: &HeaderMap, call_id: &str, has_body: bool) -> HeaderMap {
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
        let plain = |name| client.get(name).filter(|value| is_plain(value)).cloned();
        match plain(&header::ACCEPT) {
            Some(accept) => drop(out.insert(header::ACCEPT, accept)),
            None => drop(out.remove(header::ACCEPT)),
        }
        if let Some(version) = plain(&ANTHROPIC_VERSION) {
            out.insert(&ANTHROPIC_VERSION, version);
        }
        if let Some(betas) = self.betas(client) {
            out.insert(&ANTHROPIC_BETA, betas);
        }
        out
    }

    /// Those of the client's beta values that are allowed, in its order.
    fn betas(&self, client: &HeaderMap) -> Option<HeaderValue> {
        let asked = client.get_all(&ANTHROPIC_BETA).iter().filter_map(|value| value.to_str().ok());
        let allowed: Vec<_> =
            asked.flat_map(|value| value.split(',')).map(str::trim).filter(|beta| self.allows_beta(beta)).collect();
        (!allowed.is_empty()).then(|| header_value(&allowed.join(",")))
    }

    fn allows_beta(&self, beta: &str) -> bool {
        DEFAULT_BETAS.contains(&beta) || self.betas.iter().any(|allowed| allowed == beta)
    }

    /// Names of those of the client's beta values that do not pass: which one it was tells the operator what to allow.
    fn stripped_betas(&self, client: &HeaderMap, into: &mut Vec<Cow<'static, str>>) {
        let mut unnamed = false;
        for value in client.get_all(&ANTHROPIC_BETA) {
            let betas = value.to_str().unwrap_or("\0");
            for beta in betas.split(',').map(str::trim).filter(|beta| !beta.is_empty() && !self.allows_beta(beta)) {
                if is_beta(beta) {
                    into.push(format!("anthropic-beta:{beta}").into());
                } else if !std::mem::replace(&mut unnamed, true) {
                    into.push("anthropic-beta".into());
                }
            }
        }
    }

    /// Names, for the audit line, of what the client sent and nobody will see: each once, in its order.
    pub fn stripped(&self, client: &HeaderMap, into: &mut Vec<Cow<'static, str>>) {
        let mut stainless = false;
        for name in client.keys() {
            let kept = is_transport(name)
                || (name == header::ACCEPT || name == ANTHROPIC_VERSION) && client.get(name).is_some_and(is_plain);
            if kept {
                continue;
            }
            if name == ANTHROPIC_BETA {
                self.stripped_betas(client, into);
                continue;
            }
            // The SDKs' telemetry: eight names, one entry.
            if name.as_str().starts_with("x-stainless-") {
                if !std::mem::replace(&mut stainless, true) {
                    into.push("x-stainless-*".into());
                }
                continue;
            }
            into.push(if name == header::AUTHORIZATION {
                "authorization".into()
            } else {
                name.as_str().to_owned().into()
            });
        }
    }
}

/// The head of the answer, as the sandbox may see it. `content-length` is hyper's to set.
#[must_use]
pub fn screen(upstream: &HeaderMap, also: &[HeaderName], key: &[u8]) -> HeaderMap {
    let mut out = HeaderMap::with_capacity(12);
    let ours = [&header::CONTENT_TYPE, &header::CONTENT_LENGTH, &header::RETRY_AFTER, &CALL_ID, &RESPONSE_COST];
    for name in ours.into_iter().chain(also) {
        let Some(value) = upstream.get(name) else { continue };
        if !is_in(key, value.as_bytes()) {
            out.insert(name, value.clone());
        }
    }
    for (name, value) in upstream {
        if is_rate_limit(name.as_str()) && is_amount(value.as_bytes()) && !is_in(key, value.as_bytes()) {
            out.insert(name, value.clone());
        }
    }
    out
}

/// What is left of a rate limit, and when it is full again: clients pace themselves by it. The limit itself is the
/// operator's contract with the provider, or a setting of LiteLLM's, and stays outside. So do limits that LiteLLM names
/// after a key, a team or a user (`x-ratelimit-api_key-remaining-requests`).
fn is_rate_limit(name: &str) -> bool {
    let split = match (name.strip_prefix("x-ratelimit-"), name.strip_prefix("anthropic-ratelimit-")) {
        (Some(rest), _) => rest.split_once('-'),
        (None, Some(rest)) => rest.rsplit_once('-').map(|(unit, fact)| (fact, unit)),
        (None, None) => None,
    };
    split.is_some_and(|(fact, unit)| {
        matches!(fact, "remaining" | "reset")
            && matches!(unit, "requests" | "tokens" | "input-tokens" | "output-tokens")
    })
}

/// A number, a duration such as `6m0s` or `120ms`, or a time such as `2026-01-27T12:00:30Z`.
fn is_amount(value: &[u8]) -> bool {
    let is_number = |text: &[u8]| text.iter().all(|b| b.is_ascii_digit() || *b == b'.');
    let is_time = |text: &[u8]| {
        let of_time = |(at, b): (usize, &u8)| at == 10 || b.is_ascii_digit() || b"-:.+Z".contains(b);
        text.get(10) == Some(&b'T') && text.iter().enumerate().all(of_time)
    };
    let plain = value.strip_prefix(b"-").unwrap_or(value);
    value.len() <= 40
        && plain.first().is_some_and(u8::is_ascii_digit)
        && (is_number(plain) || is_duration(plain) || is_time(value))
}

/// Numbers, each with its unit.
fn is_duration(mut text: &[u8]) -> bool {
    while !text.is_empty() {
        let (_, rest) = text.split_at(text.iter().take_while(|b| b.is_ascii_digit() || **b == b'.').count());
        let unit = [&b"ms"[..], b"s", b"m", b"h", b"d"].into_iter().find(|unit| rest.starts_with(unit));
        let Some(unit) = unit.filter(|_| rest.len() < text.len()) else { return false };
        text = &rest[unit.len()..];
    }
    true
}

/// Names the call, as the caller's SDK wants it: support and logs find it by this id.
pub fn name_call(answer: &mut HeaderMap, call_id: &str, dialect: Dialect) {
    let id = header_value(call_id);
    if dialect == Dialect::Anthropic {
        answer.insert(&REQUEST_ID, id.clone());
    }
    answer.insert(&X_REQUEST_ID, id);
}

/// The form of Anthropic's beta values: a name and a date. Only such a value is written to the log.
fn is_beta(value: &str) -> bool {
    let name = value.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-');
    let date = value[name.len()..].bytes().filter(u8::is_ascii_digit).count();
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    value.len() <= 64 && !name.is_empty() && date >= 8 && value.bytes().all(plain)
}

/// What `--pass-response-header` may not name: it would leak the operator's side, or steer the client.
#[must_use]
pub fn may_pass(name: &HeaderName) -> bool {
    let never = [
        &header::SET_COOKIE,
        &header::LOCATION,
        &header::CONNECTION,
        &header::TRANSFER_ENCODING,
        &header::UPGRADE,
        &header::CONTENT_ENCODING,
        &header::PROXY_AUTHENTICATE,
        &header::WWW_AUTHENTICATE,
        &header::TRAILER,
    ];
    !never.contains(&name) && !matches!(name.as_str(), "keep-alive" | "proxy-connection" | "llm_provider-set-cookie")
}

/// `x-litellm-call-id` of an answer.
#[must_use]
pub fn call_id<'a>(upstream: &'a HeaderMap, key: &[u8]) -> Option<&'a str> {
    let id = upstream.get(&CALL_ID)?.to_str().ok().filter(|id| !id.is_empty() && id.len() <= 256)?;
    // It is written to the audit log, and an upstream may echo anything.
    (!is_in(key, id.as_bytes())).then_some(id)
}

/// Whether an answer has LiteLLM's `x-litellm-cache-key`. LiteLLM 1.81 to 1.109 sends it with answers of its cache alone.
#[must_use]
pub fn has_cache_key(upstream: &HeaderMap) -> bool {
    upstream.get(&CACHE_KEY).is_some_and(|key| !key.is_empty())
}

/// `x-litellm-response-cost` of an answer.
#[must_use]
pub fn response_cost(upstream: &HeaderMap) -> Option<&str> {
    upstream.get(&RESPONSE_COST)?.to_str().ok()
}

/// JSON in ASCII: LiteLLM reads headers as latin-1, and would make mojibake of UTF-8.
#[must_use]
pub fn ascii_json(value: &Value) -> String {
    let mut out = String::new();
    for c in value.to_string().chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    out
}

fn metadata_around_call_id(identity: &Identity) -> Result<(String, String), MetadataError> {
    let ours = serde_json::json!({
        "run_id": identity.run_id.as_str(),
        "attempt": identity.attempt,
        "graph_id": identity.graph_id,
    });
    let ours = ascii_json(&ours);
    let extra = ascii_json(&Value::Object(identity.metadata.clone()));
    if extra.len() > 8192 {
        return Err(MetadataError::TooLong(extra.len()));
    }
    let open = format!("{},\"sluice_call_id\":\"", ours.trim_end_matches('}'));
    let rest = if identity.metadata.is_empty() { "\"}".to_owned() } else { format!("\",{}", &extra[1..]) };
    Ok((open, rest))
}

/// Headers of the connection and of every client; removing them says nothing about anybody.
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

/// Without a copy.
fn header_bytes(text: String) -> HeaderValue {
    HeaderValue::from_maybe_shared(Bytes::from(text)).expect("checked to be visible ASCII")
}

fn header_value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("checked to be visible ASCII")
}

#[cfg(test)]
mod tests;
