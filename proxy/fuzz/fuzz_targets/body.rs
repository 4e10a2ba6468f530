//! The body policy against serde_json: what it lets through is what LiteLLM would read, with ours forced.
//!
//! Input: wire, policy and split, one byte each, a newline, the body.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use sluice_proxy::body::{BodyPolicy, BodyReader, Reading};
use sluice_proxy::policy::Wire;
use sluice_proxy::refusal::{Reason, Refusal};
use sluice_proxy_fuzz::{choices_and_input, cut, object, value};

const ACCOUNT: &str = "acct-1";

/// Acted upon by LiteLLM, whatever else this build knows.
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
    let Some(([wire, policy, split], body)) = choices_and_input(data) else { return };
    let (wire, policy) = (wire_of(wire), policy_of(policy));
    let whole = read(wire, &policy, [body]);
    let pieces = read(wire, &policy, cut(body, split));
    match (&whole, &pieces) {
        (Ok(a), Ok(b)) => assert_eq!(a, b, "the split changed the reading"),
        // Only the offset in the message may differ.
        (Err(a), Err(b)) => assert_eq!((a.reason, &a.param), (b.reason, &b.param), "the split changed the refusal"),
        _ => panic!("the split changed the answer: {whole:?} {pieces:?}"),
    }
    let Some(members) = object(body) else {
        assert!(whole.is_err(), "accepted what is no JSON object");
        return;
    };
    match whole {
        Ok(reading) => allowed(wire, &policy, body, &members.0, &reading),
        Err(refusal) => {
            assert!(!refusal.message.is_empty());
            let doubled = (1..members.0.len()).any(|i| members.0[..i].iter().any(|(name, _)| *name == members.0[i].0));
            assert!(refusal.reason != Reason::DuplicateMember || doubled, "no member stands twice");
        }
    }
});

fn wire_of(choice: u8) -> Wire {
    match choice {
        b'p' => Wire::Completions,
        b'e' => Wire::Embeddings,
        b'r' => Wire::Responses,
        b'm' => Wire::Messages,
        b't' => Wire::CountTokens,
        b'o' => Wire::Other,
        _ => Wire::Chat,
    }
}

fn policy_of(choice: u8) -> BodyPolicy {
    let default = BodyPolicy { account_json: format!("\"{ACCOUNT}\""), ..BodyPolicy::default() };
    match choice {
        b'l' => BodyPolicy { models: vec!["m".to_owned(), "gpt-4o-mini".to_owned()], ..default },
        b'a' => BodyPolicy {
            params: vec!["num_retries".to_owned(), "vendor_x".to_owned()],
            tools: vec!["web_search_20250305".to_owned()],
            remote_media: true,
            ..default
        },
        _ => default,
    }
}

fn read<'a>(wire: Wire, policy: &BodyPolicy, pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Reading, Refusal> {
    let mut reader = BodyReader::new(wire, policy);
    pieces.into_iter().try_for_each(|piece| reader.feed(piece))?;
    reader.finish()
}

/// What has to be true of a body that goes on.
fn allowed(
    wire: Wire,
    policy: &BodyPolicy,
    body: &[u8],
    members: &[(String, &serde_json::value::RawValue)],
    reading: &Reading,
) {
    let mut sent = reading.edit.prefix.clone().into_bytes();
    for (from, to) in &reading.edit.keep {
        sent.push(b',');
        sent.extend_from_slice(&body[*from as usize..*to as usize]);
    }
    sent.push(b'}');
    let out = object(&sent).expect("what goes upstream is one JSON object").0;
    let text = std::str::from_utf8(&sent).expect("JSON is UTF-8");

    for (i, (name, raw)) in out.iter().enumerate() {
        assert!(out[..i].iter().all(|(other, _)| other != name), "{name} goes up twice: {text}");
        if name == "user" {
            assert_eq!(raw.get(), format!("\"{ACCOUNT}\""));
            continue;
        }
        let plain = name.to_ascii_lowercase().replace('-', "_");
        let opened = policy.params.iter().any(|param| param == name);
        assert!(opened || !DANGEROUS.contains(&plain.as_str()), "{name} goes up: {text}");
        let ours = name == "stream_options" && reading.hide_usage;
        assert!(
            ours || members.iter().any(|(other, value)| other == name && value.get() == raw.get()),
            "{name} is not the client's: {text}"
        );
    }
    assert!(out.iter().any(|(name, _)| name == "user"), "no account: {text}");
    for (i, (name, _)) in members.iter().enumerate() {
        // A name over 512 bytes is nobody's: each of them goes.
        assert!(
            name.len() > 512 || members[..i].iter().all(|(other, _)| other != name),
            "{name} stood twice and was let through"
        );
        let gone = !out.iter().any(|(other, _)| other == name);
        assert!(
            !gone || reading.stripped.iter().any(|stripped| name.starts_with(&**stripped)),
            "{name} went without a word"
        );
    }

    let up = value(text).expect("checked above");
    assert_eq!(up.get("model").and_then(Value::as_str), reading.model.as_deref());
    assert!(reading.model.is_some() || wire == Wire::Other);
    if let Some(model) = &reading.model {
        assert!(
            !model.contains(',')
                && !model.contains("://")
                && model.split(':').all(|part| !part.eq_ignore_ascii_case("online"))
        );
        assert!(policy.models.is_empty() || policy.models.contains(model));
    }
    assert_eq!(up.get("stream").and_then(Value::as_bool).unwrap_or(false), reading.stream);
    if reading.stream && matches!(wire, Wire::Chat | Wire::Completions) {
        assert_eq!(
            up.pointer("/stream_options/include_usage"),
            Some(&Value::Bool(true)),
            "usage is not asked for: {text}"
        );
    }
    for name in ["store", "background"] {
        assert_ne!(up.get(name), Some(&Value::Bool(true)));
    }
    for name in ["n", "best_of"] {
        assert!(up.get(name).and_then(Value::as_u64).is_none_or(|n| n <= 8 && n <= reading.choices));
    }
    for name in ["max_tokens", "max_completion_tokens", "max_output_tokens"] {
        assert!(up.get(name).and_then(Value::as_u64).is_none_or(|n| reading.max_output.is_some_and(|max| n <= max)));
    }
    if !policy.remote_media {
        for name in ["messages", "input", "system", "instructions"].iter().filter(|_| wire != Wire::Embeddings) {
            up.get(name).into_iter().for_each(|content| no_remote(content, text));
        }
    }
    if let Some(prompt) = up.get("prompt").and_then(Value::as_array) {
        let several = prompt.iter().filter(|one| one.is_string() || one.is_array()).count() as u64;
        assert!(
            wire != Wire::Completions || several <= reading.choices,
            "{several} prompts, {} choices",
            reading.choices
        );
    }
    for tool in ["tools", "functions"].iter().filter_map(|name| up.get(name)?.as_array()).flatten() {
        let kind = tool.get("type").and_then(Value::as_str).unwrap_or("function");
        assert!(
            matches!(kind, "function" | "custom") || policy.tools.iter().any(|allowed| allowed == kind),
            "tool {kind}: {text}"
        );
        assert!(
            tool.get("server_url").is_none() && tool.get("googleSearch").is_none()
                || policy.tools.iter().any(|allowed| allowed == kind)
        );
    }
    assert!(reading.media_bytes <= body.len() as u64);
}

/// No URL where somebody would fetch one. What an agent's own tool was called with is its own affair.
fn no_remote(content: &Value, text: &str) {
    let is_remote = |url: &str| {
        let url: String = url.chars().filter(|c| !c.is_whitespace() && !c.is_control()).take(8).collect();
        url.to_ascii_lowercase().starts_with("http:") || url.to_ascii_lowercase().starts_with("https:")
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
