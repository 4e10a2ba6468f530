use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_contract::control::InjectionStatus;

use super::*;
use crate::policy::ApiFormat;

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

/// Sends a body, and returns the texts of the messages in it.
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

/// Returns every text of the operator in a conversation, with the number of its item.
fn found(items: &[Value], id: &str) -> Vec<usize> {
    let quoted = format!("\"{id}\"");
    items.iter().enumerate().filter(|(_, item)| item.to_string().contains(&quoted)).map(|(at, _)| at).collect()
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let turn = prop_oneof!["[a-c\"\\\\é\n]{1,9}".prop_map(Turn::User), (1..4_usize).prop_map(Turn::Tools),];
    prop::collection::vec(turn, 1..7).prop_map(|mut turns| {
        turns.insert(0, Turn::User("do it".to_owned()));
        turns
    })
}

proptest! {
    #[test]
    fn a_message_stays_at_its_place(turns in turns(), blocks: bool, format in prop::sample::select(FORMATS.to_vec()), from in 0..4_usize) {
        let mut store = MessageStore::default();
        let mut before: Vec<Value> = Vec::new();
        let from = from.min(turns.len() - 1);
        for at in 0..turns.len() {
            if at == from {
                store.replace(vec![message("msg-1", "msg-1"), message("msg-2", "msg-2")]);
            }
            let asked = body(format, items(format, &turns[..=at], blocks));
            let sent = answered(&mut store, format, &asked);
            let all = items_of(format, &sent);
            assert_legal(format, &all);
            if at < from {
                prop_assert_eq!(&sent, &asked);
            } else {
                prop_assert_eq!(found(&all, "msg-1").len(), 1, "{}", sent);
                prop_assert_eq!(found(&all, "msg-2").len(), 1);
                let all = normal(&all);
                prop_assert!(before.is_empty() || all.starts_with(&before), "{:?} after {:?}", all, before);
                before = all;
            }
        }
    }

    #[test]
    fn the_bytes_of_the_agent_stay(turns in turns(), blocks: bool, format in prop::sample::select(FORMATS.to_vec()), size in 1..64_usize) {
        let mut store = store(&["msg-1"]);
        let asked = body(format, items(format, &turns, blocks)).to_string();
        let (sent, injection) = send_raw(&mut store, format, &asked, size);
        // A message without an answer is at the same place in a retry.
        prop_assert_eq!(send_raw(&mut store, format, &asked, 64).0, sent.clone());
        prop_assert_eq!(&*injection.placed, &[Box::<str>::from("msg-1")][..]);
        // What was added is at most two runs of bytes.
        let mut rest = sent.as_str();
        let common = |a: &str, b: &str| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
        let head = common(&asked, rest);
        rest = &rest[head..];
        let tail = asked[head..].bytes().rev().zip(rest.bytes().rev()).take_while(|(a, b)| a == b).count();
        let middle = &asked.as_bytes()[head..asked.len() - tail];
        prop_assert!(memchr::memmem::find(rest.as_bytes(), middle).is_some());
    }

    #[test]
    fn any_text_is_read_without_a_panic(text in "[\\[\\]{}:,\"a-z0-9 ]{0,200}", format in prop::sample::select(FORMATS.to_vec())) {
        let text = format!("{{\"messages\":[{text}");
        let _ = send_raw(&mut store(&["msg-1"]), format, &text, 5);
    }
}

fn first(format: ApiFormat) -> Value {
    body(format, items(format, &[Turn::User("do it".to_owned())], false))
}

fn long(format: ApiFormat) -> Value {
    body(format, items(format, &[Turn::User("do it".to_owned()), Turn::Tools(2)], false))
}

#[test]
fn a_message_stands_where_its_format_wants_it() {
    let text = json!({"type": "text", "text": "msg-1"});
    for (format, asked, path, expected) in [
        (
            ApiFormat::Messages,
            first(ApiFormat::Messages),
            "/messages/0/content",
            json!([{"type": "text", "text": "do it"}, text]),
        ),
        (ApiFormat::Messages, long(ApiFormat::Messages), "/messages/2/content/2", text.clone()),
        (ApiFormat::Chat, first(ApiFormat::Chat), "/messages/2", json!({"role": "user", "content": "msg-1"})),
        (ApiFormat::Chat, long(ApiFormat::Chat), "/messages/5", json!({"role": "user", "content": "msg-1"})),
        (
            ApiFormat::Responses,
            long(ApiFormat::Responses),
            "/input/6",
            json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "msg-1"}]}),
        ),
    ] {
        let (sent, _) = send(&mut store(&["msg-1"]), format, &asked);
        assert_eq!(sent.pointer(path), Some(&expected), "{sent}");
    }
}

#[test]
fn a_message_stands_before_a_reminder_of_the_system() {
    let mut asked = long(ApiFormat::Chat);
    let reminder = json!({"role": "system", "content": "remember"});
    asked["messages"].as_array_mut().expect("a list").push(reminder.clone());
    let (sent, _) = send(&mut store(&["msg-1"]), ApiFormat::Chat, &asked);
    assert_eq!(sent["messages"][5], json!({"role": "user", "content": "msg-1"}));
    assert_eq!(sent["messages"][6], reminder);
}

#[test]
fn an_input_that_is_one_text_becomes_a_list() {
    let mut store = store(&["msg-1"]);
    let asked = json!({"model": "m", "input": "do it", "tools": [{}]});
    let sent = answered(&mut store, ApiFormat::Responses, &asked);
    assert_eq!(sent["input"][0], json!({"role": "user", "content": "do it"}));
    assert_eq!(sent["input"][1]["content"][0]["text"], "msg-1");
    // The same item in a list is the same anchor.
    let later = json!({"model": "m", "tools": [{}], "input": [
        {"role": "user", "content": "do it"}, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}
    ]});
    let sent = answered(&mut store, ApiFormat::Responses, &later);
    assert_eq!(found(&items_of(ApiFormat::Responses, &sent), "msg-1"), [1]);
}

#[test]
fn marks_of_caches_and_thinking_do_not_move_a_message() {
    let mut store = store(&["msg-1"]);
    let mut asked = long(ApiFormat::Messages);
    asked["messages"][2]["content"][1]["cache_control"] = json!({"type": "ephemeral"});
    let sent = answered(&mut store, ApiFormat::Messages, &asked);
    assert_eq!(sent["messages"][2]["content"][1]["cache_control"]["type"], "ephemeral", "a mark stays where it is");
    assert_eq!(sent["messages"][2]["content"][2], json!({"type": "text", "text": "msg-1"}));

    let turns = [Turn::User("do it".to_owned()), Turn::Tools(2), Turn::Tools(1)];
    let mut later = body(ApiFormat::Messages, items(ApiFormat::Messages, &turns, true));
    later["messages"][1]["content"].as_array_mut().expect("blocks").remove(0);
    later["system"] = json!("another process");
    let sent = answered(&mut store, ApiFormat::Messages, &later);
    assert_eq!(sent["messages"][2]["content"][2], json!({"type": "text", "text": "msg-1"}), "{sent}");
    assert_eq!(status(&store).len(), 2, "sent and acknowledged, once");
}

#[test]
fn an_anchor_is_found_by_chain_item_and_tool() {
    let format = ApiFormat::Chat;
    for (change, is_found) in [("/messages/1/content", true), ("/messages/4/content", true), ("both", false)] {
        let mut store = store(&["msg-1"]);
        answered(&mut store, format, &long(format));
        let turns = [Turn::User("do it".to_owned()), Turn::Tools(2), Turn::User("go on".to_owned())];
        let mut later = body(format, items(format, &turns, false));
        for path in if change == "both" { vec!["/messages/1/content", "/messages/4/content"] } else { vec![change] } {
            *later.pointer_mut(path).expect("it is there") = json!("something else");
        }
        if change == "both" {
            later["messages"][4]["tool_call_id"] = json!("another");
        }
        let sent = answered(&mut store, format, &later);
        let expected = if is_found { vec![5] } else { vec![] };
        assert_eq!(found(&items_of(format, &sent), "msg-1"), expected, "{change}");
        let lost = status(&store).contains(&("msg-1".to_owned(), InjectionStatus::Lost));
        assert_eq!(lost, !is_found, "{change}");
        // It is reported once, and comes back with its anchor.
        answered(&mut store, format, &later);
        assert_eq!(status(&store).len(), 2 + usize::from(!is_found));
        let again = answered(&mut store, format, &long(format));
        assert_eq!(found(&items_of(format, &again), "msg-1"), [5]);
    }
}

#[test]
fn calls_beside_the_conversation_are_left_alone() {
    for format in FORMATS {
        let mut store = store(&["msg-1"]);
        let mut title = first(format);
        title.as_object_mut().expect("a body").remove("tools");
        let form = json!({"type": "json_schema", "schema": {}, "name": "t"});
        match format {
            ApiFormat::Messages => title["output_config"] = json!({"effort": "low", "format": form}),
            ApiFormat::Chat => title["response_format"] = form,
            _ => title["text"] = json!({"verbosity": "low", "format": form}),
        }
        assert_eq!(send(&mut store, format, &title).0, title, "a title");

        answered(&mut store, format, &first(format));
        assert_eq!(send(&mut store, format, &title).0, title, "a title that holds the anchor");
        let other = first(format).to_string().replace("do it", "search").replace("be good", "you search");
        let other: Value = serde_json::from_str(&other).expect("it is JSON still");
        store.replace(vec![message("msg-2", "msg-2")]);
        assert_eq!(send(&mut store, format, &other).0, other, "a subagent");
        let mut without_tools = long(format);
        without_tools.as_object_mut().expect("a body").remove("tools");
        assert_eq!(send(&mut store, format, &without_tools).0, without_tools, "a helper without tools");
        let sent = answered(&mut store, format, &long(format));
        assert_eq!(found(&items_of(format, &sent), "msg-2").len(), 1, "{sent}");
    }
}

#[test]
fn a_run_without_tools_has_its_first_conversation() {
    let mut store = store(&["msg-1"]);
    let chat =
        |text: &str| json!({"messages": [{"role": "system", "content": text}, {"role": "user", "content": text}]});
    let sent = answered(&mut store, ApiFormat::Chat, &chat("edit"));
    assert_eq!(found(&items_of(ApiFormat::Chat, &sent), "msg-1"), [2]);
    assert_eq!(send(&mut store, ApiFormat::Chat, &chat("commit message")).0, chat("commit message"));
    // The first conversation with tools is the agent's own.
    store.replace(vec![message("msg-2", "msg-2")]);
    let sent = answered(&mut store, ApiFormat::Chat, &first(ApiFormat::Chat));
    assert_eq!(found(&items_of(ApiFormat::Chat, &sent), "msg-2"), [2]);
}

#[test]
fn new_messages_wait_for_the_turn_of_the_user() {
    let format = ApiFormat::Messages;
    let mut store = store(&["msg-1"]);
    let mut prefilled = first(format);
    prefilled["messages"].as_array_mut().expect("a list").push(json!({"role": "assistant", "content": "{"}));
    assert_eq!(send(&mut store, format, &prefilled).0, prefilled);
    // A tool that the provider runs, and has not answered.
    let open = |blocks: Value| {
        let mut paused = first(format);
        let items = paused["messages"].as_array_mut().expect("a list");
        items.push(json!({"role": "assistant", "content": blocks}));
        items.push(json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]}));
        paused
    };
    let call = json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}});
    let client = json!({"type": "tool_use", "id": "t", "name": "f", "input": {}});
    let waits = open(json!([call, client]));
    assert_eq!(send(&mut store, format, &waits).0, waits);
    let result = json!({"type": "web_search_tool_result", "tool_use_id": "s", "content": []});
    let (sent, _) = send(&mut store, format, &open(json!([call, result, client])));
    assert_eq!(found(&items_of(format, &sent), "msg-1"), [2]);
}

#[test]
fn a_message_without_an_answer_moves_to_the_end() {
    let format = ApiFormat::Chat;
    let mut store = store(&["msg-1"]);
    let (_, injection) = send(&mut store, format, &first(format));
    store.sent(&injection, "one");
    // The call failed. A retry has the message at its place, and the next turn at its own.
    assert_eq!(found(&items_of(format, &send(&mut store, format, &first(format)).0), "msg-1"), [2]);
    let sent = answered(&mut store, format, &long(format));
    assert_eq!(found(&items_of(format, &sent), "msg-1"), [5]);
    let turns = [Turn::User("do it".to_owned()), Turn::Tools(2), Turn::Tools(1)];
    let sent = answered(&mut store, format, &body(format, items(format, &turns, false)));
    assert_eq!(found(&items_of(format, &sent), "msg-1"), [5]);
    assert_eq!(
        status(&store).iter().map(|entry| entry.1).collect::<Vec<_>>(),
        [InjectionStatus::Sent, InjectionStatus::Sent, InjectionStatus::Acknowledged]
    );
}

#[test]
fn a_stored_conversation_gets_a_message_once() {
    let format = ApiFormat::Responses;
    let mut store = store(&["msg-1"]);
    let turn = |before: &str, text: &str| json!({"instructions": "be good", "input": [{"role": "user", "content": text}], "tools": [{}], "previous_response_id": before});
    let sent = answered(&mut store, format, &turn("resp_1", "go on"));
    assert_eq!(found(&items_of(format, &sent), "msg-1"), [1]);
    assert_eq!(answered(&mut store, format, &turn("resp_1", "go on")), sent, "a retry gets the same");
    for later in [turn("resp_2", "go on"), turn("resp_3", "and on")] {
        assert_eq!(answered(&mut store, format, &later), later);
    }
    assert_eq!(status(&store).len(), 2, "the provider keeps it, so it is not lost");
}

#[test]
fn a_restarted_sidecar_goes_on_with_its_anchors() {
    let format = ApiFormat::Messages;
    let mut first_store = store(&["msg-1"]);
    let sent = answered(&mut first_store, format, &long(format));
    let anchor = first_store.entries_after(0).entries[0].anchor.clone().expect("it was sent");
    assert_eq!(anchor.tool.as_deref(), Some("tool_1_1"));

    let mut second = MessageStore::default();
    let anchor = PlacedAnchor::parse(&anchor);
    second.replace(vec![NewMessage { anchor, ..message("msg-1", "msg-1") }, message("msg-2", "msg-2")]);
    let both = answered(&mut second, format, &long(format));
    assert_eq!(both["messages"][2]["content"][2], sent["messages"][2]["content"][2]);
    assert_eq!(both["messages"][2]["content"][3]["text"], "msg-2");
    // A list without them leaves what was sent.
    second.replace(Vec::new());
    assert_eq!(answered(&mut second, format, &long(format)), both);
}

#[test]
fn one_call_gets_as_many_bytes_as_it_may() {
    let format = ApiFormat::Chat;
    let mut store = MessageStore::default();
    store.replace((0..4).map(|n| message(&format!("m{n}"), &"x".repeat(12_000))).collect());
    let (_, injection) = send(&mut store, format, &first(format));
    assert_eq!(injection.placed.len(), 2, "32 KiB");
    // One message alone may be longer, where the body has room for it.
    for (room, placed) in [(39_000, 0), (41_000, 1)] {
        let mut store = MessageStore::default();
        store.replace(vec![message("long", &"é".repeat(20_000))]);
        let call = scan(format, &[long(format).to_string().as_bytes()], &store.anchors()).expect("a conversation");
        assert_eq!(store.plan(format, &call, room).injection.placed.len(), placed);
    }
}

#[test]
fn a_changed_list_names_what_is_new_and_what_is_withdrawn() {
    let mut store = store(&["a", "b"]);
    let list = vec![message("b", "b"), message("a", "other"), message("c", "c")];
    let ids = |digests: &Option<sluice_contract::record::MessageDigests<'_>>| {
        digests.iter().flat_map(|digests| &digests.0).map(|digest| digest.message_id.to_string()).collect::<Vec<_>>()
    };
    let change = store.compare(&list);
    assert_eq!(
        (ids(&change.added), ids(&change.withdrawn)),
        (vec!["a".to_owned(), "c".to_owned()], vec!["a".to_owned()])
    );
    store.replace(list.clone());
    assert_eq!(store.compare(&list), ListChange::default());
    // The order of the list is that of the messages.
    let (sent, _) = send(&mut store, ApiFormat::Messages, &first(ApiFormat::Messages));
    let texts: Vec<_> =
        sent["messages"][0]["content"].as_array().expect("blocks").iter().map(|block| block["text"].clone()).collect();
    assert_eq!(texts, ["do it", "b", "other", "c"]);
}

#[test]
fn the_record_of_a_call_lists_the_last_messages() {
    let injection =
        CallInjection { ids: (0..70).map(|n| format!("m{n}").into()).collect(), ..CallInjection::default() };
    let listed = injection.listed().expect("some");
    assert_eq!((listed.len(), &*listed[0], &*listed[63], &*listed[64]), (65, "m6", "m69", "+6"));
    assert_eq!(CallInjection::default().listed(), None);
}
