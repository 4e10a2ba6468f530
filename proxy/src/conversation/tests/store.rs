//! Which calls get messages, and what becomes of them.

use super::*;

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
fn a_run_without_tools_has_its_first_dialogue() {
    let mut store = store(&["msg-1"]);
    let chat =
        |text: &str| json!({"messages": [{"role": "system", "content": text}, {"role": "user", "content": text}]});
    // A title, or a test of the account, is one question and one answer.
    assert_eq!(send(&mut store, ApiFormat::Chat, &chat("title")).0, chat("title"));
    let mut dialogue = chat("edit");
    let answer = [json!({"role": "assistant", "content": "ok"}), json!({"role": "user", "content": "go on"})];
    dialogue["messages"].as_array_mut().expect("a list").extend(answer);
    let sent = answered(&mut store, ApiFormat::Chat, &dialogue);
    assert_eq!(found(&items_of(ApiFormat::Chat, &sent), "msg-1"), [4]);
    assert_eq!(send(&mut store, ApiFormat::Chat, &chat("commit message")).0, chat("commit message"));
    // The first conversation with tools is the agent's own.
    store.replace(vec![message("msg-2", "msg-2")]);
    let sent = answered(&mut store, ApiFormat::Chat, &first(ApiFormat::Chat));
    assert_eq!(found(&items_of(ApiFormat::Chat, &sent), "msg-2"), [2]);
}

#[test]
fn a_compaction_holds_what_was_sent_before() {
    let mut store = store(&["msg-1"]);
    answered(&mut store, ApiFormat::Responses, &long(ApiFormat::Responses));
    store.replace(vec![message("msg-2", "msg-2")]);
    let (sent, injection) = send(&mut store, ApiFormat::Compact, &long(ApiFormat::Responses));
    assert_eq!(&*injection.ids, &[Box::<str>::from("msg-1")][..], "a new message waits: {sent}");
}

#[test]
fn tools_may_be_an_item() {
    let mut store = store(&["msg-1"]);
    let tools = json!({"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "f"}]});
    let user = |text: &str| json!({"role": "user", "content": text});
    assert_eq!(scan_of(&json!({"input": [tools, user("do it")]})).map(|call| call.has_tools), Some(true));
    answered(&mut store, ApiFormat::Responses, &json!({"input": [tools, user("do it")]}));
    let side = json!({"input": [user("do it"), user("a title")]});
    assert_eq!(send(&mut store, ApiFormat::Responses, &side).0, side);
}

fn scan_of(body: &Value) -> Option<Conversation> {
    scan(ApiFormat::Responses, &[body.to_string().as_bytes()], &[])
}

#[test]
fn a_body_of_endless_items_is_no_conversation() {
    let body = |items: usize| json!({"input": vec![json!({"role": "user"}); items]});
    assert!(scan_of(&body(50_000)).is_some() && scan_of(&body(50_001)).is_none());
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
fn a_withdrawn_message_that_a_call_has_is_reported() {
    let format = ApiFormat::Chat;
    let mut store = store(&["msg-1", "msg-2"]);
    // The call waits at a cap, with both.
    let (_, injection) = send(&mut store, format, &first(format));
    store.replace(vec![message("msg-2", "msg-2")]);
    store.replace(vec![message("msg-2", "msg-2")]);
    assert_eq!(status(&store), [("msg-1".to_owned(), InjectionStatus::Sent)], "once");
    store.sent(&injection, "call");
    store.acknowledged(&injection, "call");
    assert_eq!(found(&items_of(format, &answered(&mut store, format, &long(format))), "msg-1"), [2]);
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
fn a_changed_list_names_new_and_withdrawn_messages() {
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
    // The messages are in the order of the list.
    let (sent, _) = send(&mut store, ApiFormat::Messages, &first(ApiFormat::Messages));
    let texts: Vec<_> =
        sent["messages"][0]["content"].as_array().expect("blocks").iter().map(|block| block["text"].clone()).collect();
    assert_eq!(texts, ["do it", "b", "other", "c"]);
}

#[test]
fn messages_of_a_run_are_bounded() {
    let long = |n: usize| (0..n).map(|n| message(&format!("m{n}"), &"é".repeat(20_000))).collect::<Vec<_>>();
    let store = store(&["msg-1"]);
    assert!(store.has_room(&long(209)) && !store.has_room(&long(210)), "8 MiB");
    let short = |n: usize| (0..n).map(|n| message(&format!("m{n}"), "x")).collect::<Vec<_>>();
    assert!(store.has_room(&short(1000)) && !store.has_room(&short(1001)));
}

#[test]
fn the_record_of_a_call_lists_the_last_messages() {
    let injection =
        CallInjection { ids: (0..70).map(|n| format!("m{n}").into()).collect(), ..CallInjection::default() };
    let listed = injection.listed().expect("some");
    assert_eq!((listed.len(), &*listed[0], &*listed[63], &*listed[64]), (65, "m6", "m69", "+6"));
    assert_eq!(CallInjection::default().listed(), None);
}
