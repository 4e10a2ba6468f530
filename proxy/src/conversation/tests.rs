//! Tests of messages in conversations: helpers that send the calls of an agent.

use serde_json::{Value, json};
use sluice_contract::control::InjectionStatus;

use super::*;
use crate::policy::ApiFormat;

mod places;
mod properties;
mod store;

const FORMATS: [ApiFormat; 3] = [ApiFormat::Messages, ApiFormat::Chat, ApiFormat::Responses];

fn message(id: &str, content: &str) -> NewMessage {
    NewMessage { id: id.into(), content: content.into(), anchor: None }
}

/// Returns a store with these messages, which have their ids for contents.
fn store(ids: &[&str]) -> MessageStore {
    let mut store = MessageStore::default();
    store.replace(ids.iter().map(|id| message(id, id)).collect());
    store
}

/// Returns the body as it is sent, and the messages in it.
fn send_raw(store: &mut MessageStore, format: ApiFormat, body: &str, size: usize) -> (String, CallInjection) {
    let pieces: Vec<&[u8]> = body.as_bytes().chunks(size).collect();
    let Some(call) = scan(format, &pieces, &store.anchors()) else {
        return (body.to_owned(), CallInjection::default());
    };
    let InjectionPlan { splices, injection } = store.plan(format, &call, 1 << 20);
    let (mut sent, mut from) = (String::new(), 0);
    for (at, text) in &splices {
        sent.push_str(&body[from..*at as usize]);
        sent.push_str(text);
        from = *at as usize;
    }
    sent.push_str(&body[from..]);
    (sent, injection)
}

/// Sends a body. Returns the body as it is sent, and the messages in it.
fn send(store: &mut MessageStore, format: ApiFormat, body: &Value) -> (Value, CallInjection) {
    let (sent, injection) = send_raw(store, format, &body.to_string(), 7);
    (serde_json::from_str(&sent).unwrap_or_else(|error| panic!("{error}: {sent}")), injection)
}

/// Sends a body that is answered with success.
fn answered(store: &mut MessageStore, format: ApiFormat, body: &Value) -> Value {
    let (sent, injection) = send(store, format, body);
    store.sent(&injection, "call");
    store.acknowledged(&injection, "call");
    sent
}

fn status(store: &MessageStore) -> Vec<(String, InjectionStatus)> {
    store.entries_after(0).entries.into_iter().map(|entry| (entry.message_id, entry.status)).collect()
}

/// Step of a conversation, which ends in a turn of the model's.
#[derive(Debug, Clone)]
enum Turn {
    User(String),
    /// Number of tools that the model calls at once.
    Tools(usize),
}

/// Returns the items of a conversation that waits for the model: all turns but the last are answered.
fn items(format: ApiFormat, turns: &[Turn], blocks: bool) -> Vec<Value> {
    let mut items = Vec::new();
    for (at, turn) in turns.iter().enumerate() {
        let ids = |count: usize| (0..count).map(move |n| format!("tool_{at}_{n}"));
        match (turn, format) {
            (Turn::User(text), ApiFormat::Responses) if blocks => {
                items.push(
                    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}),
                );
            }
            (Turn::User(text), _) if blocks => {
                items.push(json!({"role": "user", "content": [{"type": "text", "text": text}]}));
            }
            (Turn::User(text), _) => items.push(json!({"role": "user", "content": text})),
            (Turn::Tools(count), ApiFormat::Messages) => {
                let calls =
                    ids(*count).map(|id| json!({"type": "tool_use", "id": id, "name": "f", "input": {"id": 1}}));
                let thinking = json!({"type": "thinking", "thinking": format!("{at}"), "signature": "s"});
                let blocks: Vec<_> = [thinking].into_iter().chain(calls).collect();
                items.push(json!({"role": "assistant", "content": blocks}));
                let results =
                    ids(*count).map(|id| json!({"type": "tool_result", "tool_use_id": id, "content": "done"}));
                items.push(json!({"role": "user", "content": results.collect::<Vec<_>>()}));
            }
            (Turn::Tools(count), ApiFormat::Chat) => {
                let calls = ids(*count)
                    .map(|id| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}}));
                items.push(json!({"role": "assistant", "content": null, "tool_calls": calls.collect::<Vec<_>>()}));
                items.extend(ids(*count).map(|id| json!({"role": "tool", "tool_call_id": id, "content": "done"})));
            }
            (Turn::Tools(count), _) => {
                items.push(
                    json!({"type": "reasoning", "id": format!("rs_{at}"), "summary": [], "encrypted_content": "x"}),
                );
                items.extend(
                    ids(*count)
                        .map(|id| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"})),
                );
                items.extend(
                    ids(*count).map(|id| json!({"type": "function_call_output", "call_id": id, "output": "done"})),
                );
            }
        }
        if matches!(turn, Turn::User(_)) && at + 1 < turns.len() && matches!(turns[at + 1], Turn::User(_)) {
            items.push(json!({"role": "assistant", "content": "answer"}));
        }
    }
    items
}

fn body(format: ApiFormat, items: Vec<Value>) -> Value {
    match format {
        ApiFormat::Messages => json!({"model": "m", "system": "be good", "messages": items, "tools": [{"name": "f"}]}),
        ApiFormat::Chat => {
            let system = json!({"role": "system", "content": "be good"});
            let items: Vec<_> = [system].into_iter().chain(items).collect();
            json!({"model": "m", "messages": items, "tools": [{"type": "function"}]})
        }
        _ => json!({"model": "m", "instructions": "be good", "input": items, "tools": [{"type": "function"}]}),
    }
}

fn items_of(format: ApiFormat, body: &Value) -> Vec<Value> {
    let name = if format == ApiFormat::Responses { "input" } else { "messages" };
    body[name].as_array().cloned().expect("a list")
}

/// Fails for a conversation that a provider would refuse.
fn assert_legal(format: ApiFormat, items: &[Value]) {
    match format {
        ApiFormat::Messages => {
            for pair in items.windows(2) {
                let calls = ids(&pair[0]["content"], "tool_use", "id");
                assert_eq!(ids(&pair[1]["content"], "tool_result", "tool_use_id"), calls, "{pair:?}");
            }
            for item in items.iter().filter(|item| item["role"] == "user") {
                let Some(blocks) = item["content"].as_array() else { continue };
                let is_result: Vec<_> = blocks.iter().map(|block| block["type"] == "tool_result").collect();
                assert!(is_result.is_sorted_by_key(|is_result| !is_result), "results come first: {item}");
                assert!(!blocks.is_empty() && blocks.iter().all(|block| block["text"] != ""), "{item}");
            }
        }
        ApiFormat::Chat => {
            for (at, item) in items.iter().enumerate() {
                let calls = item["tool_calls"].as_array().map_or(0, Vec::len);
                let results = &items[at + 1..(at + 1 + calls).min(items.len())];
                assert!(results.iter().filter(|item| item["role"] == "tool").count() == calls, "{items:?}");
            }
        }
        _ => {
            let of_type = |name: &str| items.iter().filter(|item| item["type"] == name).count();
            assert_eq!(of_type("function_call"), of_type("function_call_output"));
            assert!(
                items
                    .iter()
                    .all(|item| item["role"] != "user" || item["content"].is_string() || item["content"].is_array())
            );
        }
    }
}

fn ids(blocks: &Value, kind: &str, name: &str) -> Vec<String> {
    let blocks = blocks.as_array().into_iter().flatten().filter(|block| block["type"] == kind);
    blocks.map(|block| block[name].as_str().unwrap_or_default().to_owned()).collect()
}

/// Returns the items with every content as a list of blocks.
fn normal(items: &[Value]) -> Vec<Value> {
    let mut items = items.to_vec();
    for item in &mut items {
        if let Some(text) = item["content"].as_str().map(str::to_owned)
            && item["role"] == "user"
        {
            item["content"] = json!([{"type": "text", "text": text}]);
        }
    }
    items
}

/// Returns the indices of the items that contain the message with this id.
fn found(items: &[Value], id: &str) -> Vec<usize> {
    let quoted = format!("\"{id}\"");
    items.iter().enumerate().filter(|(_, item)| item.to_string().contains(&quoted)).map(|(at, _)| at).collect()
}

fn first(format: ApiFormat) -> Value {
    body(format, items(format, &[Turn::User("do it".to_owned())], false))
}

fn long(format: ApiFormat) -> Value {
    body(format, items(format, &[Turn::User("do it".to_owned()), Turn::Tools(2)], false))
}
