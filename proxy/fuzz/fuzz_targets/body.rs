//! The body policy against serde_json: the body that passes is the one that LiteLLM would read, with the forced
//! members.
//!
//! Input: API format, policy and split, one byte each, a newline, the body.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use sluice_proxy::body::{BodyPolicy, ParsedBody};
use sluice_proxy::policy::ApiFormat;
use sluice_proxy::refusal::Reason;
use sluice_proxy_fuzz::{ACCOUNT, choices_and_input, cut, format_of, object, policy_of, read, sent, value};

/// Names by which some route bounds its output.
const BOUNDS: [&str; 4] = ["max_tokens", "max_completion_tokens", "max_output_tokens", "max_tokens_to_sample"];

/// Members on which LiteLLM acts, known to this build or not.
const DANGEROUS: &[&str] = &[
    "metadata", "litellm_metadata", "safety_identifier", "tags", "no_log", "callbacks", "success_callback", "api_base",
    "base_url", "api_key", "api_version", "organization", "custom_llm_provider", "model_list", "user_config",
    "router_settings_override", "extra_headers", "headers", "extra_body", "fallbacks", "context_window_fallbacks",
    "input_cost_per_token", "output_cost_per_token", "mock_response", "num_retries", "guardrails", "litellm_call_id",
    "litellm_params", "cache", "previous_response_id", "conversation", "web_search_options", "mcp_servers", "plugins",
    "models", "provider", "container", "prompt_id", "proxy_server_request", "turn_off_message_logging",
    "provider_specific_header",
];

fuzz_target!(|data: &[u8]| {
    let Some(([format, policy, split], body)) = choices_and_input(data) else { return };
    let (format, policy) = (format_of(format), policy_of(policy));
    let whole = read(format, &policy, [body]);
    let pieces = read(format, &policy, cut(body, split));
    match (&whole, &pieces) {
        (Ok(a), Ok(b)) => assert_eq!(a, b, "the split changed the reading"),
        // Only the offset in the message may differ.
        (Err(a), Err(b)) => assert_eq!((a.reason, &a.param), (b.reason, &b.param), "the split changed the refusal"),
        _ => panic!("the split changed the answer: {whole:?} {pieces:?}"),
    }
    let Some(members) = object(body) else {
        assert!(whole.is_err(), "accepted a body that is not a JSON object");
        return;
    };
    match whole {
        Ok(parsed) => allowed(format, &policy, body, &members.0, &parsed),
        Err(refusal) => {
            assert!(!refusal.message.is_empty());
            let doubled = (1..members.0.len()).any(|i| members.0[..i].iter().any(|(name, _)| *name == members.0[i].0));
            assert!(refusal.reason != Reason::DuplicateMember || doubled, "no member is twice in the body");
        }
    }
});

/// Checks what must hold for a body that passes.
fn allowed(
    format: ApiFormat,
    policy: &BodyPolicy,
    body: &[u8],
    members: &[(String, &serde_json::value::RawValue)],
    parsed: &ParsedBody,
) {
    let sent = sent(parsed, body);
    let text = sent.as_str();
    let out = object(text.as_bytes()).expect("what goes upstream is one JSON object").0;

    for (i, (name, raw)) in out.iter().enumerate() {
        assert!(out[..i].iter().all(|(other, _)| other != name), "{name} goes up twice: {text}");
        if name == "user" {
            assert_eq!(raw.get(), format!("\"{ACCOUNT}\""));
            continue;
        }
        let plain = name.to_ascii_lowercase().replace('-', "_");
        let opened = policy.params.iter().any(|param| param == name);
        assert!(opened || !DANGEROUS.contains(&plain.as_str()), "{name} goes up: {text}");
        let ours = name == "stream_options" && parsed.hide_usage;
        assert!(
            ours || members.iter().any(|(other, value)| other == name && is_part(raw.get(), value.get(), parsed)),
            "{name} is not the client's: {text}"
        );
    }
    assert!(out.iter().any(|(name, _)| name == "user"), "no account: {text}");
    for (i, (name, _)) in members.iter().enumerate() {
        // A name over 512 bytes is not a known one: each of them is dropped.
        assert!(
            name.len() > 512 || members[..i].iter().all(|(other, _)| other != name),
            "{name} was there twice and passed"
        );
        let gone = !out.iter().any(|(other, _)| other == name);
        assert!(
            !gone || parsed.stripped.iter().any(|stripped| name.starts_with(&**stripped)),
            "{name} was dropped without a name"
        );
    }

    let up = value(text).expect("checked above");
    assert_eq!(up.get("model").and_then(Value::as_str), parsed.model.as_deref());
    assert!(parsed.model.is_some() || format == ApiFormat::Other);
    if let Some(model) = &parsed.model {
        assert!(
            !model.contains(',')
                && !model.contains("://")
                && model.split(':').all(|part| !part.eq_ignore_ascii_case("online"))
        );
        assert!(policy.models.is_empty() || policy.models.contains(model));
    }
    assert_eq!(up.get("stream").and_then(Value::as_bool).unwrap_or(false), parsed.stream);
    if parsed.stream && matches!(format, ApiFormat::Chat | ApiFormat::Completions) {
        assert_eq!(
            up.pointer("/stream_options/include_usage"),
            Some(&Value::Bool(true)),
            "usage is not asked for: {text}"
        );
    }
    assert_ne!(up.get("background"), Some(&Value::Bool(true)));
    if !matches!(format, ApiFormat::Responses | ApiFormat::Compact | ApiFormat::InputTokens) {
        assert_ne!(up.get("store"), Some(&Value::Bool(true)));
    }
    // Each id of a stored object that goes up is one that the exchange looks up.
    for id in [up.get("previous_response_id"), up.get("conversation"), up.pointer("/conversation/id")] {
        let Some(id) = id.and_then(Value::as_str).filter(|_| format != ApiFormat::Other) else { continue };
        assert!(parsed.rare.iter().flat_map(|rare| &rare.stored).any(|stored| stored.id == id), "{text}");
    }
    for name in ["n", "best_of"] {
        assert!(up.get(name).and_then(Value::as_u64).is_none_or(|n| n <= 8 && n <= parsed.choices));
    }
    bounds(format, body, &out, parsed);
    if !policy.remote_media {
        for name in ["messages", "input", "system", "instructions"].iter().filter(|_| format != ApiFormat::Embeddings) {
            up.get(name).into_iter().for_each(|content| no_remote(content, text));
        }
    }
    if let Some(prompt) = up.get("prompt").and_then(Value::as_array) {
        let several = prompt.iter().filter(|one| one.is_string() || one.is_array()).count() as u64;
        assert!(
            format != ApiFormat::Completions || several <= parsed.choices,
            "{several} prompts, {} choices",
            parsed.choices
        );
    }
    assert!(
        parsed.media.media.iter().all(|medium| medium.range.0 < medium.range.1 && medium.range.1 <= body.len() as u64)
    );
}

/// Returns true for a member as it was sent, or with something taken out of it.
fn is_part(sent: &str, given: &str, parsed: &ParsedBody) -> bool {
    sent == given
        || !parsed.edit.cut.is_empty()
            && value(sent).zip(value(given)).is_some_and(|(sent, given)| is_subset(&sent, &given))
}

fn is_subset(sent: &Value, given: &Value) -> bool {
    match (sent, given) {
        (Value::Object(sent), Value::Object(given)) => {
            sent.iter().all(|(name, value)| given.get(name).is_some_and(|given| is_subset(value, given)))
        }
        (Value::Array(sent), Value::Array(given)) => {
            sent.len() == given.len() && sent.iter().zip(given).all(|(sent, given)| is_subset(sent, given))
        }
        (sent, given) => sent == given,
    }
}

/// Checks that only the route's own bound goes up, and that a bound of the sidecar's is the only one.
fn bounds(format: ApiFormat, body: &[u8], out: &[(String, &serde_json::value::RawValue)], parsed: &ParsedBody) {
    if format == ApiFormat::Other {
        return;
    }
    let own: &[&str] = match format {
        ApiFormat::Chat => &["max_tokens", "max_completion_tokens"],
        ApiFormat::Completions | ApiFormat::Messages | ApiFormat::CountTokens => &["max_tokens"],
        ApiFormat::Responses => &["max_output_tokens"],
        _ => &[],
    };
    let is_bound = |name: &str| BOUNDS.contains(&name);
    for (name, raw) in out.iter().filter(|(name, _)| is_bound(name)) {
        assert!(own.contains(&name.as_str()), "{name} does not belong to this route");
        let n: u64 = raw.get().parse().expect("a whole number");
        // The largest of several is reserved, and a 0 means no bound.
        assert!(
            parsed.max_output.is_none_or(|max| n <= max && n > 0),
            "{name} is {n}, reserved {:?}",
            parsed.max_output
        );
    }
    if own.is_empty() {
        return;
    }
    let mut bounded = parsed.clone();
    bounded.bound_output(format, 7);
    let text = sent(&bounded, body);
    let after = object(text.as_bytes()).expect("it is still one JSON object").0;
    let set: Vec<_> = after.iter().filter(|(name, _)| is_bound(name)).collect();
    assert!(set.len() == 1 && own.contains(&set[0].0.as_str()) && set[0].1.get() == "7", "one bound: {text}");
    let others = |all: &[(String, &serde_json::value::RawValue)]| -> Vec<(String, String)> {
        let others = all.iter().filter(|(name, _)| !is_bound(name));
        others.map(|(name, raw)| (name.clone(), raw.get().to_owned())).collect()
    };
    assert_eq!(others(&after), others(out), "another member changed");
}

/// Checks that there is no URL that would be fetched. The arguments of an agent's own tool are not checked.
fn no_remote(content: &Value, text: &str) {
    let is_remote = |url: &str| {
        let url: String = url.chars().filter(|c| !c.is_whitespace() && !c.is_control()).collect();
        let url = url.to_ascii_lowercase();
        url.contains("://") || url.starts_with("http:") || url.starts_with("https:")
    };
    match content {
        Value::Array(items) => items.iter().for_each(|item| no_remote(item, text)),
        Value::Object(members) => {
            for (name, value) in members {
                if matches!(name.as_str(), "annotations" | "citations" | "input") {
                    continue;
                }
                if matches!(name.as_str(), "url" | "image_url" | "file_url") {
                    assert!(!value.as_str().is_some_and(is_remote), "{name} is remote: {text}");
                }
                no_remote(value, text);
            }
        }
        _ => {}
    }
}
