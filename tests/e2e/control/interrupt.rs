//! Interruptions: the calls under way end, their clients do not repeat them, and repeats cost nothing.

use std::time::{Duration, Instant};

use sluice_testkit::{Gate, Script};

use super::*;

const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";

fn asked(path: &str, text: &str, stream: bool) -> Value {
    match path {
        RESPONSES => json!({"model": "m", "input": text, "stream": stream}),
        _ => json!({"model": "m", "max_tokens": 9, "stream": stream, "messages": [{"role": "user", "content": text}]}),
    }
}

async fn interrupt(sidecar: &Sidecar) {
    change(sidecar, "/interrupt", json!({"reason": "wrong file"})).await.expect(200);
}

#[tokio::test]
async fn a_call_without_a_head_is_refused_for_good() {
    for path in [CHAT, MESSAGES, RESPONSES] {
        for stream in [false, true] {
            let upstream = Upstream::never().start().await;
            let sidecar = controlled(Sidecar::to(&upstream)).args(["--audit-sync", "off"]).start().await;
            let mut open = sidecar.stream(path, asked(path, "do it", stream)).await;
            upstream.received().await;

            let began = Instant::now();
            interrupt(&sidecar).await;
            let answer = open.read_response().await.expect_refusal(400, "interrupted");

            assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
            assert_eq!(answer.header("x-should-retry"), Some("false"));
            upstream.closed(0).await;
            let audit = sidecar.audit_with("outcome", 1).await;
            let outcome = audit.outcomes()[0];
            assert_eq!((&outcome["result"], &outcome["end"]), (&json!("interrupted"), &json!("cut_by_limit")));
            let [control] = audit.of_kind("control")[..] else { panic!("{:?}", audit.kinds()) };
            assert_eq!((&control["what"], &control["by"]), (&json!("interrupt"), &json!("alice")));
            assert_eq!((&control["from"], &control["to"]), (&json!({"open_calls": 1}), &json!({"open_calls": 0})));
            assert_eq!(state(&sidecar).await["open_calls"], 0);
            assert_eq!(sidecar.stop().await, 0);
        }
    }
}

#[tokio::test]
async fn a_stream_ends_with_the_error_of_its_protocol() {
    for (path, event) in
        [(CHAT, r#""code":"interrupted""#), (MESSAGES, "event: error"), (RESPONSES, r#""code":"interrupted""#)]
    {
        let gate = Gate::new();
        let upstream = Upstream::answering(Script::provider("hello").hold_after(1, &gate)).start().await;
        let sidecar = controlled(Sidecar::to(&upstream)).start().await;
        let mut open = sidecar.stream(path, asked(path, "do it", true)).await;
        assert_eq!(open.read_head().await.status, 200);
        gate.reached(1).await;

        interrupt(&sidecar).await;

        let answer = open.read_response().await;
        let last = answer.events().last().cloned().unwrap_or_default();
        assert!(last.contains(event) && last.contains("interrupted"), "{path}: {last}");
        assert!(!answer.complete && !answer.text().contains("[DONE]"), "no false end");
        let audit = sidecar.audit_with("outcome", 1).await;
        assert_eq!((audit.only_call().result(), audit.only_call().status()), ("interrupted", Some(200)));
    }
}

#[tokio::test]
async fn repeats_are_answered_from_memory() {
    let gate = Gate::new();
    let upstream = Upstream::answering(Script::provider("hello").hold_head(&gate)).start().await;
    let sidecar = controlled(Sidecar::to(&upstream)).args(["--max-calls", "3"]).start().await;
    let mut open = sidecar.stream(MESSAGES, asked(MESSAGES, "do it", true)).await;
    gate.reached(1).await;
    interrupt(&sidecar).await;
    open.read_response().await.expect_refusal(400, "interrupted");

    for _ in 0..5 {
        let repeat = sidecar.post(MESSAGES, asked(MESSAGES, "do it", true)).await;
        assert_eq!(repeat.expect_refusal(400, "interrupted").header("x-should-retry"), Some("false"));
    }
    gate.open();
    // Another text of the same length is another request.
    sidecar.post(MESSAGES, asked(MESSAGES, "do so", true)).await.expect(200);

    assert_eq!(sidecar.stop().await, 0);
    assert_eq!(sidecar.audit().kinds(), ["open", "intent", "control", "outcome", "intent", "outcome", "close"]);
    assert_eq!(sidecar.audit().close()["refused"], 0);
}

#[tokio::test]
async fn the_text_of_an_interrupt_is_the_last_turn() {
    let gate = Gate::new();
    let upstream = Upstream::answering(Script::provider("hello").hold_head(&gate)).start().await;
    let sidecar = controlled(Sidecar::to(&upstream)).start().await;
    let call = |items: Value| json!({"model": "m", "messages": items, "tools": [{"type": "function", "function": {"name": "f"}}]});
    let first = call(json!([{"role": "user", "content": "do it"}]));
    let mut open = sidecar.stream(CHAT, first.clone()).await;
    gate.reached(1).await;
    let text = json!({"message_id": "msg-1", "content": "stop, and fix b.rs", "message_type": "interrupt"});
    let mut raw = RawClient::connect(control_path(&sidecar)).await;
    raw.request("PUT", "/inject", &[], json!({"messages": [text]})).await.expect(200);
    interrupt(&sidecar).await;
    open.read_response().await.expect_refusal(400, "interrupted");
    sidecar.post(CHAT, first).await.expect_refusal(400, "interrupted");

    gate.open();
    let next = json!([{"role": "user", "content": "do it"}, {"role": "assistant", "content": "(interrupted)"}, {"role": "user", "content": "go on"}]);
    sidecar.post(CHAT, call(next)).await.expect(200);

    let sent = upstream.requests()[1].json();
    assert_eq!(sent["messages"][3], json!({"role": "user", "content": "stop, and fix b.rs"}));
    assert_eq!(sent["messages"].as_array().map(Vec::len), Some(4));
}

#[tokio::test]
async fn calls_that_wait_for_a_cap_are_interrupted_too() {
    let gate = Gate::new();
    let upstream = Upstream::answering(Script::provider("hello").hold_head(&gate)).start().await;
    let sidecar = controlled(Sidecar::to(&upstream)).args(["--max-tokens", "1500"]).start().await;
    let body = |text: &str| json!({"model": "m", "max_tokens": 1000, "messages": [{"role": "user", "content": text}]});
    let mut first = sidecar.stream(CHAT, body("one")).await;
    gate.reached(1).await;
    let mut second = sidecar.stream(CHAT, body("two")).await;
    let waiting = tokio::spawn(async move { second.read_response().await });
    // The first interruption can come before the second call.
    while !waiting.is_finished() {
        interrupt(&sidecar).await;
    }
    first.read_response().await.expect_refusal(400, "interrupted");
    waiting.await.expect("no call panics").expect_refusal(400, "interrupted");
    assert_eq!(upstream.requests().len(), 1, "it was never sent");
}

#[tokio::test]
async fn later_calls_go_through() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = controlled(Sidecar::to(&upstream)).start().await;
    let mut client = sidecar.connect().await;
    for n in 0..3 {
        interrupt(&sidecar).await;
        client.post_json(CHAT, asked(CHAT, &format!("{n}"), false)).await.expect(200);
    }
    for body in [json!({"reason": ""}), json!({"by": ""}), json!({"call": 1})] {
        assert_eq!(refused(&change(&sidecar, "/interrupt", body).await), (422, "invalid_member".to_owned()));
    }
    assert_eq!(refused(&ask(&sidecar, "GET", "/interrupt", Value::Null).await), (405, "method_not_allowed".to_owned()));
    assert_eq!(sidecar.audit().of_kind("control").len(), 3);
}
