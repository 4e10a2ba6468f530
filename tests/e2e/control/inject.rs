//! Messages to the agent: they reach the provider at a legal place, and stay there.

use sluice_contract::Hash;
use sluice_testkit::{PATIENCE, ReceivedRequest, Script, TempDir, poll};

use super::*;

const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";
const PATHS: [&str; 3] = [CHAT, MESSAGES, RESPONSES];

/// Returns call `n` of an agent that has called a tool in each call before.
pub(super) fn turn(path: &str, n: usize, stream: bool) -> Value {
    let mut items = vec![json!({"role": "user", "content": "do it"})];
    for at in 1..n {
        let id = format!("tool_{at}");
        match path {
            MESSAGES => {
                let call = json!({"type": "tool_use", "id": id, "name": "run", "input": {"n": at}});
                items.push(json!({"role": "assistant", "content": [call]}));
                let result = json!({"type": "tool_result", "tool_use_id": id, "content": "done"});
                items.push(json!({"role": "user", "content": [result]}));
            }
            CHAT => {
                let call = json!({"id": id, "type": "function", "function": {"name": "run", "arguments": "{}"}});
                items.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
                items.push(json!({"role": "tool", "tool_call_id": id, "content": "done"}));
            }
            _ => {
                items.push(json!({"type": "function_call", "call_id": id, "name": "run", "arguments": "{}"}));
                items.push(json!({"type": "function_call_output", "call_id": id, "output": "done"}));
            }
        }
    }
    let parameters = json!({"type": "object", "properties": {}});
    match path {
        MESSAGES => json!({"model": "m", "max_tokens": 100, "system": "be good", "messages": items, "stream": stream,
            "tools": [{"name": "run", "input_schema": parameters}]}),
        CHAT => {
            items.insert(0, json!({"role": "system", "content": "be good"}));
            json!({"model": "m", "max_tokens": 100, "messages": items, "stream": stream,
                "tools": [{"type": "function", "function": {"name": "run", "parameters": parameters}}]})
        }
        _ => {
            json!({"model": "m", "max_output_tokens": 100, "instructions": "be good", "input": items, "stream": stream,
            "tools": [{"type": "function", "name": "run", "parameters": parameters}]})
        }
    }
}

pub(super) fn message(id: &str, content: &str) -> Value {
    json!({"message_id": id, "content": content, "message_type": "user_message"})
}

pub(super) async fn inject(sidecar: &Sidecar, messages: Value) -> ClientAnswer {
    let mut raw = RawClient::connect(control_path(sidecar)).await;
    let body = json!({"messages": messages, "by": "alice"});
    raw.request("PUT", "/inject", &[("content-type", "application/json")], body).await
}

/// Returns the entries about messages after an entry number.
async fn injected(sidecar: &Sidecar, after: u64) -> Vec<Value> {
    let answer = ask(sidecar, "GET", &format!("/injected?after={after}"), Value::Null).await.expect(200).json();
    answer["entries"].as_array().cloned().expect("a list")
}

fn steps(entries: &[Value]) -> Vec<(&str, &str)> {
    let text =
        |entry: &'_ Value, name: &str| entry[name].as_str().map(str::to_owned).unwrap_or_default().leak() as &str;
    entries.iter().map(|entry| (text(entry, "message_id"), text(entry, "status"))).collect()
}

/// Returns the items of a conversation as the upstream got it.
fn items(request: &ReceivedRequest) -> Vec<Value> {
    let body = request.json();
    let items = if body["input"].is_null() { &body["messages"] } else { &body["input"] };
    items.as_array().cloned().expect("a list")
}

/// Returns the numbers of the items that hold a text.
fn holders(items: &[Value], text: &str) -> Vec<usize> {
    items.iter().enumerate().filter(|(_, item)| item.to_string().contains(text)).map(|(at, _)| at).collect()
}

#[tokio::test]
async fn a_message_is_kept_in_all_later_calls() {
    for (path, place) in [(CHAT, 4), (MESSAGES, 2), (RESPONSES, 3)] {
        for stream in [false, true] {
            let upstream = Upstream::provider("hello").start().await;
            let sidecar = controlled(Sidecar::to(&upstream)).start().await;
            sidecar.post(path, turn(path, 1, stream)).await.expect(200);
            inject(&sidecar, json!([message("msg-1", "look at \"b.rs\" instead\n\u{1f600}")])).await.expect(200);
            for n in 2..=6 {
                sidecar.post(path, turn(path, n, stream)).await.expect(200);
            }

            let requests = upstream.requests();
            assert_eq!(holders(&items(&requests[0]), "b.rs"), Vec::<usize>::new());
            for pair in requests[1..].windows(2) {
                let (before, after) = (items(&pair[0]), items(&pair[1]));
                assert!(after.starts_with(&before), "{path}: {after:?} after {before:?}");
            }
            for request in &requests[1..] {
                let items = items(request);
                assert_eq!(holders(&items, "b.rs"), [place], "{path} {stream}: {items:?}");
                let text = "look at \"b.rs\" instead\n\u{1f600}";
                let expected = match path {
                    MESSAGES => json!({"role": "user", "content": [
                        {"type": "tool_result", "tool_use_id": "tool_1", "content": "done"}, {"type": "text", "text": text}
                    ]}),
                    CHAT => json!({"role": "user", "content": text}),
                    _ => json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}),
                };
                assert_eq!(items[place], expected);
            }
            let entries = injected(&sidecar, 0).await;
            assert_eq!(steps(&entries), [("msg-1", "sent"), ("msg-1", "acknowledged")]);
            assert_eq!(injected(&sidecar, 1).await, entries[1..]);
            let audit = sidecar.audit_with("outcome", 6).await;
            assert_eq!(audit.intents()[0].get("injected_message_ids"), None);
            assert!(audit.intents()[1..].iter().all(|intent| intent["injected_message_ids"] == json!(["msg-1"])));
            assert_eq!(entries[0]["call_id"], audit.intents()[1]["call_id"]);
        }
    }
}

#[tokio::test]
async fn a_message_is_recorded_without_its_text() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = controlled(Sidecar::to(&upstream)).start().await;
    let secret = "canary-4711";
    inject(&sidecar, json!([message("msg-1", secret), message("msg-2", secret)])).await.expect(200);
    // The same list is no change, and a shorter one withdraws a message.
    inject(&sidecar, json!([message("msg-1", secret), message("msg-2", secret)])).await.expect(200);
    inject(&sidecar, json!([message("msg-2", secret)])).await.expect(200);
    sidecar.post(CHAT, turn(CHAT, 1, false)).await.expect(200);

    assert_eq!(sidecar.stop().await, 0);
    let audit = sidecar.audit();
    assert_eq!(audit.kinds(), ["open", "control", "control", "intent", "outcome", "close"]);
    let [added, withdrawn] = audit.of_kind("control")[..] else { panic!("{:?}", audit.kinds()) };
    let ids = |values: &Value| values["messages"].as_array().map_or(0, Vec::len);
    assert_eq!((&added["what"], &added["by"]), (&json!("inject"), &json!("alice")));
    assert_eq!((ids(&added["from"]), ids(&added["to"])), (0, 2));
    assert_eq!((ids(&withdrawn["from"]), ids(&withdrawn["to"])), (1, 0));
    let digest = &withdrawn["from"]["messages"][0];
    // The record has a SHA-256 digest instead of the text.
    assert_eq!(digest["sha256"], Hash::of(secret.as_bytes()).to_hex());
    assert_eq!(digest["message_id"], "msg-1");
    assert_eq!(holders(&items(&upstream.only_request()), secret).len(), 1);
    let file = std::fs::read_to_string(sidecar.audit_path()).expect("it is there");
    assert!(!file.contains(secret));
}

#[tokio::test]
async fn side_calls_are_left_as_they_are() {
    for path in PATHS {
        let upstream = Upstream::provider("hello").start().await;
        let sidecar = controlled(Sidecar::to(&upstream)).start().await;
        sidecar.post(path, turn(path, 1, false)).await.expect(200);
        inject(&sidecar, json!([message("msg-1", "new task")])).await.expect(200);
        let mut title = turn(path, 1, false);
        title.as_object_mut().expect("a body").remove("tools");
        let other = turn(path, 2, false).to_string().replace("do it", "search").replace("be good", "find");
        let other: Value = serde_json::from_str(&other).expect("it is JSON still");
        for side in [title.clone(), other.clone()] {
            sidecar.post(path, side).await.expect(200);
        }
        sidecar.post(path, turn(path, 3, false)).await.expect(200);
        for side in [title, other] {
            sidecar.post(path, side).await.expect(200);
        }
        let held: Vec<_> = upstream.requests().iter().map(|request| request.text().contains("new task")).collect();
        assert_eq!(held, [false, false, false, true, false, false], "{path}");
        assert_eq!(steps(&injected(&sidecar, 0).await), [("msg-1", "sent"), ("msg-1", "acknowledged")], "{path}");
    }
}

#[tokio::test]
async fn a_refused_body_decides_nothing_about_messages() {
    for path in PATHS {
        let upstream = Upstream::provider("hello").start().await;
        let sidecar = controlled(Sidecar::to(&upstream)).start().await;
        inject(&sidecar, json!([message("msg-1", "new task")])).await.expect(200);
        let other = turn(path, 2, false).to_string().replace("do it", "search").replace("be good", "find");
        let other: Value = serde_json::from_str(&other).expect("it is JSON still");
        let mut refused = other.clone();
        refused["api_base"] = json!("http://evil.example");
        sidecar.post(path, refused).await.expect(400);
        sidecar.post(path, turn(path, 2, false)).await.expect(200);
        sidecar.post(path, other).await.expect(200);
        let held: Vec<_> = upstream.requests().iter().map(|request| request.text().contains("new task")).collect();
        assert_eq!(held, [true, false], "{path}");
    }
}

#[tokio::test]
async fn a_retry_has_the_message_at_its_place() {
    for path in PATHS {
        let busy = Script::json(503, json!({"error": {"message": "overloaded"}}));
        let upstream = Upstream::queue([busy.clone(), busy, Script::provider("hello")]).start().await;
        let sidecar = controlled(Sidecar::to(&upstream)).start().await;
        inject(&sidecar, json!([message("msg-1", "new task")])).await.expect(200);
        for status in [503, 503, 200] {
            sidecar.post(path, turn(path, 2, false)).await.expect(status);
        }
        let bodies: Vec<_> = upstream.requests().iter().map(items).collect();
        assert_eq!(bodies[0], bodies[1]);
        assert_eq!(bodies[0], bodies[2]);
        assert_eq!(holders(&bodies[0], "new task").len(), 1, "{path}");
        assert_eq!(steps(&injected(&sidecar, 0).await), [("msg-1", "sent"), ("msg-1", "acknowledged")], "{path}");
    }
}

#[tokio::test]
async fn a_restarted_sidecar_is_given_its_anchors() {
    let dir = TempDir::new();
    let audit = dir.join("a.jsonl");
    let upstream = Upstream::provider("hello").start().await;
    let first = controlled(Sidecar::to(&upstream)).audit_path(&audit).start().await;
    inject(&first, json!([message("msg-1", "new task")])).await.expect(200);
    first.post(MESSAGES, turn(MESSAGES, 2, false)).await.expect(200);
    let anchor = injected(&first, 0).await[0]["anchor"].clone();
    assert_eq!(anchor["tool"], "tool_1");
    first.kill().await;

    let second = controlled(Sidecar::to(&upstream)).audit_path(&audit).start().await;
    let mut kept = message("msg-1", "new task");
    kept["anchor"] = anchor;
    inject(&second, json!([kept])).await.expect(200);
    second.post(MESSAGES, turn(MESSAGES, 3, false)).await.expect(200);

    let places: Vec<_> = upstream.requests().iter().map(|request| holders(&items(request), "new task")).collect();
    assert_eq!(places, [[2], [2]]);
    assert_eq!(steps(&injected(&second, 0).await), [("msg-1", "acknowledged")]);
}

#[tokio::test]
async fn a_conversation_without_its_anchor_has_lost_it() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = controlled(Sidecar::to(&upstream)).start().await;
    inject(&sidecar, json!([message("msg-1", "new task")])).await.expect(200);
    sidecar.post(CHAT, turn(CHAT, 2, false)).await.expect(200);
    // The agent has made its history shorter.
    let mut compacted = turn(CHAT, 1, false);
    compacted["messages"][1]["content"] = json!("a summary");
    sidecar.post(CHAT, compacted).await.expect(200);

    let entries = injected(&sidecar, 0).await;
    assert_eq!(steps(&entries), [("msg-1", "sent"), ("msg-1", "acknowledged"), ("msg-1", "lost")]);
    assert_eq!(entries[2]["call_id"], sidecar.audit().intents()[1]["call_id"]);
}

#[tokio::test]
async fn a_reservation_is_that_of_the_sent_body() {
    for path in PATHS {
        let upstream = Upstream::provider("hello").start().await;
        let flags = ["--max-tokens", "1000000"];
        let sidecar = controlled(Sidecar::to(&upstream)).args(flags).start().await;
        inject(&sidecar, json!([message("msg-1", &"words ".repeat(500))])).await.expect(200);
        sidecar.post(path, turn(path, 2, false)).await.expect(200);
        let sent = upstream.only_request().json();
        let mut as_agent = sent.as_object().expect("a body").clone();
        as_agent.remove("user");
        let plain = Sidecar::to(&upstream).args(flags).start().await;
        plain.post(path, Value::Object(as_agent)).await.expect(200);

        let reserved = |sidecar: &Sidecar| sidecar.audit().intents()[0]["reserved_tokens"].as_u64().expect("a number");
        let (injected, by_agent) = (reserved(&sidecar), reserved(&plain));
        assert!(injected.abs_diff(by_agent) <= 40, "{path}: {injected} and {by_agent}");
        assert!(injected > 3000, "{path}: {injected} holds the message");
    }
}

#[tokio::test]
async fn a_message_waits_for_a_body_with_room() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = controlled(Sidecar::to(&upstream)).args(["--max-body", "2048"]).start().await;
    inject(&sidecar, json!([message("msg-1", &"x".repeat(1500))])).await.expect(200);
    let mut long = turn(CHAT, 1, false);
    long["messages"][0]["content"] = json!("y".repeat(1000));
    sidecar.post(CHAT, long).await.expect(200);
    sidecar.post(CHAT, turn(CHAT, 1, false)).await.expect(200);
    let held: Vec<_> = upstream.requests().iter().map(|request| request.text().contains("xxx")).collect();
    assert_eq!(held, [false, true]);
    // With the message, which stays, the body is too large.
    let mut grown = turn(CHAT, 2, false);
    grown["messages"][0]["content"] = json!("y".repeat(600));
    sidecar.post(CHAT, grown).await.expect_refusal(413, "body_too_large");
}

#[tokio::test]
async fn hostile_lists_change_nothing() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = controlled(Sidecar::to(&upstream)).start().await;
    let many: Vec<_> = (0..101).map(|n| message(&format!("m{n}"), "x")).collect();
    for (messages, status, code) in [
        (json!(many), 409, "too_many_messages"),
        (json!([message("msg-1", &"x".repeat(20_001))]), 422, "invalid_member"),
        (json!([message("msg-1", "a"), message("msg-1", "b")]), 422, "invalid_member"),
        (json!([message("../msg", "a")]), 422, "invalid_member"),
        (json!([message("msg-1", &"x".repeat(5 << 20))]), 413, "body_too_large"),
        (json!("all"), 422, "invalid_member"),
    ] {
        assert_eq!(refused(&inject(&sidecar, messages).await), (status, code.to_owned()));
    }
    let mut raw = RawClient::connect(control_path(&sidecar)).await;
    raw.send("PUT /inject HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{\"messag").await;
    raw.shutdown_write().await;
    drop(raw);
    sidecar.post(CHAT, turn(CHAT, 1, false)).await.expect(200);
    assert_eq!(items(&upstream.only_request()).len(), 2);
    assert_eq!(sidecar.audit().of_kind("control").len(), 0);
    // The sidecar accepts 100 messages of the longest length, and sends a few at a time.
    let most: Vec<_> = (0..100).map(|n| message(&format!("m{n}"), &"x".repeat(20_000))).collect();
    inject(&sidecar, json!(most)).await.expect(200);
    sidecar.post(CHAT, turn(CHAT, 1, false)).await.expect(200);
    assert_eq!(steps(&injected(&sidecar, 0).await), [("m0", "sent"), ("m0", "acknowledged")]);
}

#[tokio::test]
async fn a_message_of_a_refused_call_waits() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = controlled(Sidecar::to(&upstream)).start().await;
    inject(&sidecar, json!([message("msg-1", "new task")])).await.expect(200);
    let mut refused = turn(CHAT, 1, false);
    refused["api_base"] = json!("http://evil");
    sidecar.post(CHAT, refused).await.expect_refusal(400, "param_not_allowed");
    assert_eq!(injected(&sidecar, 0).await, Vec::<Value>::new());
    sidecar.post(CHAT, turn(CHAT, 2, false)).await.expect(200);
    assert_eq!(holders(&items(&upstream.only_request()), "new task"), [4]);
}

#[tokio::test]
async fn a_message_reaches_calls_in_any_pieces() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = controlled(Sidecar::to(&upstream)).start().await;
    inject(&sidecar, json!([message("msg-1", "new task")])).await.expect(200);
    for n in [1, 2] {
        let body = turn(MESSAGES, n, true).to_string();
        let mut raw = sidecar.connect().await;
        let head = format!("POST {MESSAGES} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
        raw.send(head).await;
        raw.send_slowly(body).await;
        raw.read_response().await.expect(200);
    }
    let places: Vec<_> = upstream.requests().iter().map(|request| holders(&items(request), "new task")).collect();
    assert_eq!(places, [[0], [0]]);
    let done = poll(PATIENCE, async || injected(&sidecar, 0).await.len() == 2).await;
    assert!(done, "sent and acknowledged");
}
