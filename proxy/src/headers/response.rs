//! The headers of a response, as the sandbox may see them.
//!
//! Pure.

use http::header::{self, HeaderMap, HeaderName};

use super::{CALL_ID, header_value};
use crate::refusal::Dialect;
use crate::scrub::is_in;

static CACHE_KEY: HeaderName = HeaderName::from_static("x-litellm-cache-key");
static RESPONSE_COST: HeaderName = HeaderName::from_static("x-litellm-response-cost");
static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
static REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// Returns the head of a response, as the sandbox may see it. hyper sets `content-length`.
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

/// Returns true for the remainder of a rate limit, and for the time of its reset: clients pace themselves by these. The
/// limit itself is the operator's contract with the provider, or a setting of LiteLLM's, and is not passed. Limits that
/// LiteLLM names after a key, a team or a user (`x-ratelimit-api_key-remaining-requests`) are not passed either.
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

/// Returns true for a number, a duration such as `6m0s` or `120ms`, or a time such as `2026-01-27T12:00:30Z`.
pub(super) fn is_amount(value: &[u8]) -> bool {
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

/// Returns true for numbers, each with its unit.
fn is_duration(mut text: &[u8]) -> bool {
    while !text.is_empty() {
        let (_, rest) = text.split_at(text.iter().take_while(|b| b.is_ascii_digit() || **b == b'.').count());
        let unit = [&b"ms"[..], b"s", b"m", b"h", b"d"].into_iter().find(|unit| rest.starts_with(unit));
        let Some(unit) = unit.filter(|_| rest.len() < text.len()) else { return false };
        text = &rest[unit.len()..];
    }
    true
}

/// Adds the id of the call in the headers that the caller's SDK knows: support and logs find the call by it.
pub fn name_call(answer: &mut HeaderMap, call_id: &str, dialect: Dialect) {
    let id = header_value(call_id);
    if dialect == Dialect::Anthropic {
        answer.insert(&REQUEST_ID, id.clone());
    }
    answer.insert(&X_REQUEST_ID, id);
}

/// Returns true if `--pass-response-header` may name this header. The others would reveal the operator's systems, or
/// steer the client.
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

/// Returns the `x-litellm-call-id` of a response.
#[must_use]
pub fn call_id<'a>(upstream: &'a HeaderMap, key: &[u8]) -> Option<&'a str> {
    let id = upstream.get(&CALL_ID)?.to_str().ok().filter(|id| !id.is_empty() && id.len() <= 256)?;
    // The id is written to the audit log, and an upstream may echo anything.
    (!is_in(key, id.as_bytes())).then_some(id)
}

/// Returns true if a response has LiteLLM's `x-litellm-cache-key`. LiteLLM 1.81 to 1.109 sends it only with responses
/// from its cache.
#[must_use]
pub fn has_cache_key(upstream: &HeaderMap) -> bool {
    upstream.get(&CACHE_KEY).is_some_and(|key| !key.is_empty())
}

/// Returns the `x-litellm-response-cost` of a response.
#[must_use]
pub fn response_cost(upstream: &HeaderMap) -> Option<&str> {
    upstream.get(&RESPONSE_COST)?.to_str().ok()
}
