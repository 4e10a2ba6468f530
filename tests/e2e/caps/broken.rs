//! Streams that break off: their calls are charged as reserved, and recorded as broken off.

use sluice_testkit::{Sidecar, TempDir, Upstream};

use super::*;

/// Returns a stream of events with this data; its connection closes in order.
fn events(data: &[Value]) -> Script {
    let lines = data.iter().map(|data| match data {
        Value::String(text) => format!("data: {text}\n\n"),
        data => format!("data: {data}\n\n"),
    });
    Script::sse(lines)
}

/// Returns a chunk of a chat with text, and usage as some providers send with each chunk.
fn chunk(finish: &Value) -> Value {
    json!({"id": "c", "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": finish}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11, "cost": 0.000001}})
}

fn message_start() -> Value {
    json!({"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 10, "output_tokens": 1}}})
}

fn delta(tokens: u64) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": tokens}})
}

/// Returns a streamed call that reserves a little more than 2,000 tokens.
fn streamed(path: &str) -> Value {
    match path {
        "/v1/responses" => json!({"model": "m", "input": "a", "max_output_tokens": 2000, "stream": true}),
        _ => json!({"model": "m", "messages": [], "max_tokens": 2000, "stream": true}),
    }
}

const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";

fn broken() -> Vec<(&'static str, &'static str, &'static str, Script)> {
    let done = json!("[DONE]");
    let error = json!({"type": "error", "error": {"type": "api_error", "message": "the provider broke off"}});
    let created =
        json!({"type": "response.created", "response": {"id": "r", "usage": {"input_tokens": 9, "output_tokens": 1}}});
    vec![
        ("an error", MESSAGES, "cut_by_upstream", events(&[message_start(), error.clone()])),
        ("no end", MESSAGES, "cut_by_upstream", events(&[message_start()])),
        ("no stop", MESSAGES, "cut_by_upstream", events(&[message_start(), delta(5)])),
        ("the end of a chat", MESSAGES, "cut_by_upstream", events(&[message_start(), done.clone()])),
        (
            "an error before the end",
            MESSAGES,
            "complete",
            events(&[message_start(), error, json!({"type": "message_stop"})]),
        ),
        ("no end", RESPONSES, "cut_by_upstream", events(std::slice::from_ref(&created))),
        ("the end of a chat", RESPONSES, "cut_by_upstream", events(&[created, done.clone()])),
        ("no end", CHAT, "cut_by_upstream", events(&[chunk(&json!(null))])),
        ("another choice goes on", CHAT, "cut_by_upstream", events(&[chunk(&json!("stop")), chunk(&json!(null))])),
        ("an error", CHAT, "complete", events(&[chunk(&json!(null)), json!({"error": {"message": "no"}}), done])),
    ]
}

#[tokio::test]
async fn a_broken_stream_is_charged_as_reserved() {
    for (name, path, end, script) in broken() {
        let dir = TempDir::new();
        let upstream = Upstream::answering(script).start().await;
        let launch = || {
            let launch = priced(Sidecar::to(&upstream).audit_path(dir.join("a.jsonl")), "0.001");
            launch.args(["--max-tokens", "3000", "--max-cost-usd", "3"])
        };
        let sidecar = launch().start().await;
        sidecar.post(path, streamed(path)).await.expect(200);
        sidecar.post(path, streamed(path)).await.expect(402);

        let call = &sidecar.audit().calls()[0];
        assert_eq!((call.result(), call.end()), ("upstream_error", end), "{name} on {path}");
        sidecar.kill().await;
        let again = launch().start().await;
        again.post(path, streamed(path)).await.expect(402);
    }
}

#[tokio::test]
async fn a_broken_stream_is_not_drained() {
    for (name, path, _, script) in broken() {
        let upstream = Upstream::answering(script).hold_after(1).start().await;
        let sidecar = Sidecar::to(&upstream).args(["--max-tokens", "3000"]).start().await;
        let mut client = sidecar.stream(path, streamed(path)).await;
        client.read_event().await.expect("an event");
        let before = sidecar.fds();
        drop(client);
        sidecar.fds_below(before).await;
        upstream.release();

        let call = sidecar.audit_with("outcome", 1).await.only_call();
        let drained = call.outcome["drained"].as_bool();
        assert_eq!((call.result(), drained), ("client_abort", Some(false)), "{name} on {path}");
        sidecar.post(path, streamed(path)).await.expect(402);
    }
}

#[tokio::test]
async fn a_whole_stream_is_charged_for_its_usage() {
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}});
    let text = json!({"choices": [{"index": 0, "delta": {"content": "a"}}]});
    let stop = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let completed =
        json!({"type": "response.completed", "response": {"usage": {"input_tokens": 9, "output_tokens": 1}}});
    for (name, path, script) in [
        ("usage after the reason to finish", CHAT, events(&[text.clone(), stop.clone(), usage.clone()])),
        ("usage beside it", CHAT, events(&[text.clone(), chunk(&json!("stop"))])),
        ("usage in each chunk", CHAT, events(&[chunk(&json!(null)), chunk(&json!("length"))])),
        ("only the end", CHAT, events(&[text.clone(), usage.clone(), json!("[DONE]")])),
        ("no line after the end", CHAT, Script::sse([format!("data: {text}\n\ndata: {usage}\n\ndata: [DONE]")])),
        ("a stop", MESSAGES, events(&[message_start(), delta(5), json!({"type": "message_stop"})])),
        ("completed", RESPONSES, events(&[completed])),
    ] {
        let upstream = Upstream::answering(script).start().await;
        let sidecar = Sidecar::to(&upstream).args(["--max-tokens", "3000"]).start().await;
        for _ in 0..3 {
            sidecar.post(path, streamed(path)).await.expect(200);
        }
        for call in sidecar.audit().calls() {
            assert_eq!((call.result(), call.end()), ("ok", "complete"), "{name} on {path}");
        }
    }
}
