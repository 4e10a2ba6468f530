//! The inside of members that go upstream, against models of it in serde_json: schemas, tools, and media.
//!
//! Input: API format, policy and split, one byte each, a newline, the body.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};
use sluice_proxy::body::{BodyPolicy, ParsedBody};
use sluice_proxy::estimate::Estimate;
use sluice_proxy::policy::ApiFormat;
use sluice_proxy_fuzz::{choices_and_input, cut, format_of, policy_of, read, sent, value};

fuzz_target!(|data: &[u8]| {
    let Some(([format, policy, split], body)) = choices_and_input(data) else { return };
    let (format, policy) = (format_of(format), policy_of(policy));
    // Only the operator knows the members of such a route.
    if format == ApiFormat::Other {
        return;
    }
    let Ok(parsed) = read(format, &policy, [body]) else { return };
    let text = sent(&parsed, body);
    let up = value(&text).expect("what goes upstream is JSON");

    let mut grown = 0;
    for holder in ["response_format", "text", "output_format", "output_config"] {
        if let Some(holder) = up.get(holder) {
            answer(holder, &mut grown, &text);
        }
    }
    for name in ["tools", "functions"] {
        tools(format, up.get(name), &policy, &mut grown, &text);
    }
    for name in ["tool_choice", "function_call"] {
        up.get(name).into_iter().for_each(|choice| no_gateway_name(choice, &text));
    }
    if format != ApiFormat::Embeddings {
        let contents = ["messages", "input", "system", "instructions"];
        contents
            .iter()
            .filter_map(|name| up.get(name))
            .for_each(|it| inner_tools(format, it, 1, &policy, &mut grown, &text));
    }
    assert!(
        grown <= parsed.cost_factors.expanded_bytes,
        "{grown} bytes more, reserved {:?}: {text}",
        parsed.cost_factors
    );
    tokens(format, &up, &parsed, body, split, &text);
});

/// Checks the schema of a response: no member makes the gateway validate, and no reference leads outside.
fn answer(holder: &Value, grown: &mut u64, text: &str) {
    let Value::Object(members) = holder else { return };
    for (name, inner) in members {
        assert!(!["enforce_validation", "response_schema"].contains(&name.as_str()), "{name} goes up: {text}");
        if name == "schema" {
            local(inner, text);
            *grown += growth(inner);
        } else {
            answer(inner, grown, text);
        }
    }
}

fn local(schema: &Value, text: &str) {
    match schema {
        Value::Array(items) => items.iter().for_each(|item| local(item, text)),
        Value::Object(members) => {
            for (name, inner) in members {
                match (name.as_str(), inner) {
                    ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(to)) => {
                        assert!(to == "#" || to.starts_with("#/"), "{name} points to {to:?}: {text}");
                    }
                    ("$id", Value::String(id)) => assert!(id.starts_with('#'), "$id is {id:?}: {text}"),
                    ("$schema", Value::String(dialect)) => {
                        assert!(dialect.contains("://json-schema.org/draft"), "$schema is {dialect:?}: {text}");
                    }
                    _ => local(inner, text),
                }
            }
        }
        _ => {}
    }
}

/// Returns the bytes by which a schema grows when each reference is written out, as LiteLLM's `unpack_defs` does it:
/// by the last part of the reference, from the definitions around it, and not again inside itself.
fn growth(schema: &Value) -> u64 {
    let mut left = 4 << 20;
    let after = unpacked(schema, &Map::new(), &[], &mut left);
    assert!(left > 0, "a schema that was accepted grows to megabytes");
    after.saturating_sub(schema.to_string().len()) as u64
}

/// Returns the length of a schema after unpacking.
fn unpacked<'a>(node: &'a Value, around: &Map<String, Value>, chain: &[&'a str], left: &mut i64) -> usize {
    if *left <= 0 {
        return 0;
    }
    match node {
        Value::Array(items) => {
            let inner: usize = items.iter().map(|item| unpacked(item, around, chain, left)).sum();
            2 + inner + items.len().saturating_sub(1)
        }
        Value::Object(members) => {
            let mut definitions = around.clone();
            for name in ["$defs", "definitions"] {
                let here = members.get(name).and_then(Value::as_object).into_iter().flatten();
                definitions.extend(here.map(|(name, definition)| (name.clone(), definition.clone())));
            }
            if let Some(Value::String(to)) = members.get("$ref") {
                let name = to.rsplit('/').next().unwrap_or_default();
                let found = definitions.get(name).filter(|found| found.is_object() && !chain.contains(&name)).cloned();
                let Some(found) = found else { return node.to_string().len() };
                *left -= 1 + found.to_string().len() as i64;
                let chain: Vec<&str> = chain.iter().copied().chain([name]).collect();
                return unpacked(&found, &definitions, &chain, left);
            }
            let inner: usize = members
                .iter()
                .map(|(name, inner)| {
                    Value::from(name.as_str()).to_string().len() + 1 + unpacked(inner, &definitions, chain, left)
                })
                .sum();
            2 + inner + members.len().saturating_sub(1)
        }
        scalar => scalar.to_string().len(),
    }
}

/// Checks a list of tools: each is run by the agent, and none has a name that the gateway runs.
fn tools(format: ApiFormat, list: Option<&Value>, policy: &BodyPolicy, grown: &mut u64, text: &str) {
    for tool in list.and_then(Value::as_array).into_iter().flatten() {
        assert!(tool.is_object(), "a tool is {tool}");
        let kind = tool.get("type");
        if kind.and_then(Value::as_str).is_some_and(|kind| policy.tools.iter().any(|allowed| allowed == kind)) {
            continue;
        }
        no_gateway_name(tool, text);
        let word = |path: &str| tool.pointer(path).and_then(Value::as_str);
        match kind {
            None => assert!(["function", "input_schema", "name"].iter().any(|name| tool.get(name).is_some()), "{tool}"),
            Some(Value::String(kind)) => match kind.as_str() {
                "function"
                | "custom"
                | "namespace"
                | "local_shell"
                | "apply_patch"
                | "computer"
                | "computer_use_preview" => {}
                "tool_search" => assert_eq!(word("/execution"), Some("client"), "{text}"),
                "shell" => assert_eq!(word("/environment/type"), Some("local"), "{text}"),
                kind => {
                    let dated = ["bash_20", "text_editor_20", "memory_20", "computer_20"];
                    assert!(dated.iter().any(|start| kind.starts_with(start)), "tool {kind}: {text}");
                }
            },
            Some(kind) => panic!("a tool's type is {kind}"),
        }
        assert!(
            format != ApiFormat::Messages || word("/name") != Some("web_search"),
            "a search of the provider's: {text}"
        );
        for name in ["server_url", "googleSearch", "connector_id", "container", "model", "api_base", "api_key"] {
            assert!(tool.get(name).is_none(), "{name} in a tool: {text}");
        }
        for path in
            ["/parameters", "/input_schema", "/output_schema", "/function/parameters", "/function/output_schema"]
        {
            *grown += tool.pointer(path).map_or(0, growth);
        }
        tools(format, tool.get("tools"), policy, grown, text);
    }
}

/// Checks that no tool has a name that LiteLLM runs itself.
fn no_gateway_name(tool: &Value, text: &str) {
    for path in ["/name", "/function/name", "/custom/name"] {
        if let Some(Value::String(name)) = tool.pointer(path) {
            let plain: String = name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
            assert!(!plain.starts_with("litellm"), "{name}: {text}");
        }
    }
}

/// Checks the tools within the content of a conversation. The arguments of a tool call may look like anything.
fn inner_tools(format: ApiFormat, content: &Value, depth: usize, policy: &BodyPolicy, grown: &mut u64, text: &str) {
    match content {
        Value::Array(items) => items.iter().for_each(|item| inner_tools(format, item, depth + 1, policy, grown, text)),
        Value::Object(members) => {
            for (name, inner) in members {
                if is_own(format, name, depth + 1) {
                    continue;
                }
                if name == "tools" {
                    tools(format, Some(inner), policy, grown, text);
                } else {
                    inner_tools(format, inner, depth + 1, policy, grown, text);
                }
            }
        }
        _ => {}
    }
}

fn is_own(format: ApiFormat, name: &str, depth: usize) -> bool {
    let is_input = name == "input" && depth == 5 && matches!(format, ApiFormat::Messages | ApiFormat::CountTokens);
    is_input || matches!(name, "annotations" | "citations")
}

/// Checks that a strict reservation has a token for each byte of the text, and for each image at least what LiteLLM
/// counts.
fn tokens(format: ApiFormat, up: &Value, parsed: &ParsedBody, body: &[u8], split: u8, text: &str) {
    let mut estimate = Estimate::of(parsed, body.len() as u64, None, format);
    let by_bytes = estimate.by_bytes();
    let by_words = estimate.by_words(parsed, std::iter::once(body));
    assert_eq!(by_words, estimate.by_words(parsed, cut(body, split).into_iter()), "the split changed the words");
    assert!(by_words.tokens <= by_bytes.tokens && by_words.strict == by_bytes.strict);
    if !by_bytes.strict || !format.is_billed() {
        return;
    }
    let least: u64 = ["messages", "input", "system", "instructions", "prompt"]
        .iter()
        .filter_map(|name| up.get(name))
        .map(content_tokens)
        .sum();
    assert!(least <= by_bytes.tokens, "{least} tokens, reserved {}: {text}", by_bytes.tokens);
}

fn content_tokens(content: &Value) -> u64 {
    const IMAGE: u64 = 85;
    match content {
        Value::String(string) => string.len() as u64,
        Value::Array(items) => items.iter().map(content_tokens).sum(),
        Value::Object(members) => {
            let all: u64 = members.iter().map(|(name, inner)| name.len() as u64 + content_tokens(inner)).sum();
            let is_image = members.get("type").and_then(Value::as_str).is_some_and(|kind| IMAGES.contains(&kind));
            // All but the image itself is text.
            longest(content).filter(|_| is_image).map_or(all, |image| all.saturating_sub(image) + IMAGE)
        }
        _ => 0,
    }
}

const IMAGES: [&str; 4] = ["image", "image_url", "input_image", "computer_screenshot"];

/// Returns the longest string in a part that may be its image.
fn longest(part: &Value) -> Option<u64> {
    const NAMES: [&str; 7] = ["image_url", "source", "file", "input_audio", "url", "data", "file_data"];
    match part {
        Value::String(string) => Some(string.len() as u64),
        Value::Object(members) => NAMES.iter().filter_map(|name| longest(members.get(*name)?)).max(),
        _ => None,
    }
}
