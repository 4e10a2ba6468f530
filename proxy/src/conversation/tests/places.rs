//! The place of a message, and how it is found again.

use super::*;

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
fn a_content_of_anything_stays_a_list() {
    let of = |content: &str| {
        let body = format!(r#"{{"messages":[{{"role":"user",{content}}}],"tools":[{{}}]}}"#);
        send_raw(&mut store(&["msg-1"]), ApiFormat::Messages, &body, 7).0
    };
    let text = r#"{"type":"text","text":"msg-1"}"#;
    for (content, sent) in [
        (r#""content":[]"#, format!(r#""content":[{text}]"#)),
        (r#""content":[1,2]"#, format!(r#""content":[1,2,{text}]"#)),
        (r#""content":["a"]"#, format!(r#""content":["a",{text}]"#)),
        (r#""content":[[{}]]"#, format!(r#""content":[[{{}}],{text}]"#)),
        (r#""content":[null,{}]"#, format!(r#""content":[null,{{}},{text}]"#)),
        (r#""content":[{}],"content":[]"#, format!(r#""content":[{{}}],"content":[{text}]"#)),
        (r#""content":[],"content":[1]"#, format!(r#""content":[],"content":[1,{text}]"#)),
        (r#""content":[],"content":1"#, r#""content":[],"content":1"#.to_owned()),
    ] {
        let all = of(content);
        assert!(all.contains(&format!("{sent}}}")), "{content}: {all}");
        serde_json::from_str::<Value>(&all).unwrap_or_else(|error| panic!("{error}: {all}"));
    }
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
