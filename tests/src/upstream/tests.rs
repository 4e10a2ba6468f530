use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{ClosedPort, FullAcceptQueue, Script, Upstream, UpstreamPlan, answers};
use crate::RawClient;

async fn open(plan: UpstreamPlan) -> (Upstream, RawClient) {
    let upstream = plan.start_unix().await;
    let raw = RawClient::connect(upstream.socket()).await.allowing_any();
    (upstream, raw)
}

fn address(url: &str) -> String {
    url.trim_start_matches("http://").to_owned()
}

#[tokio::test]
async fn a_request_is_recorded_as_it_was_sent() {
    let (upstream, mut raw) = open(Upstream::chat("hi")).await;

    let head = "POST /v1/x?y=1 HTTP/1.1\r\nX-A: 1\r\nx-a: 2\r\ntransfer-encoding: chunked\r\n\r\n";
    raw.send_slowly(format!("{head}7\r\n{{\"model\r\n6\r\n\":\"m\"}}\r\n0\r\n\r\n")).await;
    let answer = raw.read_response().await.expect(200);

    let received = upstream.received().await;
    assert_eq!((received.method.as_str(), received.target.as_str(), received.connection), ("POST", "/v1/x?y=1", 0));
    assert_eq!(received.headers_named("x-a"), ["1", "2"]);
    assert_eq!(received.head, head.as_bytes());
    assert_eq!(received.json(), json!({"model": "m"}));
    assert_eq!(answer.json()["model"], "m");
    assert_eq!((upstream.begun(), upstream.requests().len(), upstream.connections()), (1, 1, 1));
}

#[tokio::test]
async fn litellm_answers_echo_the_call_id_and_leak() {
    let (_upstream, mut raw) = open(Upstream::chat("hi")).await;
    let answer = raw.request("POST", "/v1/chat/completions", &[("x-litellm-call-id", "c-1")], "{}").await;
    assert_eq!(answer.header("x-litellm-call-id"), Some("c-1"));
    assert_eq!(answer.header("x-litellm-response-cost"), Some(answers::COST));
    for (name, value) in answers::LEAKY {
        assert_eq!(answer.header(name), Some(value));
    }
}

#[tokio::test]
async fn a_queue_answers_in_order_and_repeats_its_last() {
    let scripts = [1, 2].map(|number| Script::json(200, json!(number)));
    let (_upstream, mut raw) = open(Upstream::queue(scripts)).await;
    for expected in [1, 2, 2] {
        assert_eq!(raw.get("/").await.json(), expected);
    }
}

#[tokio::test]
async fn a_stream_waits_at_its_gate() {
    let (upstream, mut raw) = open(Upstream::sse(["a", "b"]).hold_after(1)).await;
    raw.send_request("GET", "/", &[], ()).await;

    assert_eq!(raw.read_event().await.as_deref(), Some("data: a"));
    upstream.held(1).await;
    let sent = upstream.bytes_sent();
    upstream.release();
    assert_eq!(raw.read_event().await.as_deref(), Some("data: b"));
    assert!(upstream.bytes_sent() > sent);
}

#[tokio::test]
async fn a_gate_lets_single_writes_through() {
    let (upstream, mut raw) = open(Upstream::sse(["a", "b"]).hold_each()).await;
    raw.send_request("GET", "/", &[], ()).await;
    for expected in ["data: a", "data: b"] {
        upstream.step();
        assert_eq!(raw.read_event().await.as_deref(), Some(expected));
    }
    upstream.held(2).await;
}

#[tokio::test]
async fn a_waiting_script_notices_that_its_client_left() {
    for plan in [Upstream::never(), Upstream::sse(["a"]).hold_head(), Upstream::sse(["a"]).silent_after(1)] {
        let (upstream, mut raw) = open(plan).await;
        raw.send_request("GET", "/", &[], ()).await;
        upstream.received().await;
        drop(raw);
        upstream.closed(0).await;
        assert_eq!(upstream.open_connections(), 0);
    }
}

#[tokio::test]
async fn a_flood_stops_at_an_unread_socket() {
    let (upstream, mut raw) = open(Upstream::answering(Script::flood(&"x".repeat(1000), 100_000))).await;
    raw.send_request("GET", "/", &[], ()).await;
    upstream.sent(1).await;
    let stalled = upstream.stalled().await;
    assert!(stalled < 10_000_000, "{stalled} bytes went into the void");
    let mut read = 0;
    while read <= stalled {
        read += raw.read_some().await.expect("the flood goes on").len() as u64;
    }
    assert!(upstream.bytes_sent() > stalled);
}

#[tokio::test]
async fn a_reset_is_a_reset_also_in_the_middle() {
    let upstream = Upstream::sse(["a", "b"]).reset_after(1).hold_after(1).start().await;
    let mut stream = TcpStream::connect(address(upstream.url())).await.expect("the upstream listens");
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("the upstream reads");
    let mut read = vec![0; 1000];
    let mut seen = String::new();
    while !seen.contains("data: a") {
        let count = stream.read(&mut read).await.expect("the first event arrives");
        seen.push_str(&String::from_utf8_lossy(&read[..count]));
    }
    upstream.release();
    let end = stream.read(&mut read).await.expect_err("then comes a reset");
    assert_eq!(end.kind(), std::io::ErrorKind::ConnectionReset);
    upstream.closed(0).await;
}

#[tokio::test]
async fn hooks_run_at_accept_and_at_the_first_byte() {
    let (accepts, requests) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (on_accept, on_request) = (accepts.clone(), requests.clone());
    let plan = Upstream::never()
        .on_accept(move |_| _ = on_accept.fetch_add(1, Ordering::SeqCst))
        .on_request(move |_| _ = on_request.fetch_add(1, Ordering::SeqCst));
    let (upstream, mut raw) = open(plan).await;

    upstream.accepted(1).await;
    assert_eq!((accepts.load(Ordering::SeqCst), requests.load(Ordering::SeqCst)), (1, 0));
    raw.send("G").await;
    upstream.until("a first byte", |state| (state.begun == 1).then_some(())).await;
    assert_eq!(requests.load(Ordering::SeqCst), 1);
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn panicking_hooks_and_malformed_requests_fail_the_test() {
    for (plan, bytes, named) in [
        (Upstream::never().on_request(|_| panic!("no intent yet")), "G", "no intent yet"),
        (Upstream::with(|_| panic!("what now")), "GET / HTTP/1.1\r\n\r\n", "what now"),
        (Upstream::never(), "GET / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", "ambiguous"),
        (Upstream::never(), "GET /a b HTTP/1.1\r\n\r\n", "request line"),
    ] {
        let (upstream, mut raw) = open(plan).await;
        raw.send(bytes).await;
        raw.expect_closed().await;
        let asked = tokio::spawn(async move {
            upstream.received().await;
            upstream.until("the fault", |_| None::<()>).await;
        });
        let panic = asked.await.expect_err("the fault is loud").into_panic();
        let text = panic.downcast::<String>().expect("a formatted panic");
        assert!(text.contains(named), "{text}");
    }
}

#[tokio::test]
async fn a_provider_answers_each_route_in_its_format() {
    let (_upstream, mut raw) = open(Upstream::provider("hi")).await;
    for (path, body, parts) in [
        ("/v1/chat/completions", json!({"model": "m"}), &["chat.completion", "\"completion_tokens\":5", "hi"][..]),
        ("/completions", json!({}), &["text_completion", "\"total_tokens\":15", "hi"]),
        ("/v1/embeddings", json!({}), &["embedding", "\"prompt_tokens\":10"]),
        ("/v1/responses", json!({}), &["\"object\":\"response\"", "\"output_tokens\":5", "hi"]),
        ("/v1/messages", json!({}), &["\"type\":\"message\"", "\"output_tokens\":5", "hi"]),
        ("/v1/messages/count_tokens", json!({}), &["{\"input_tokens\":10}"]),
        ("/v1/chat/completions", json!({"stream": true}), &["chat.completion.chunk", "hi", "data: [DONE]\n\n"]),
        ("/v1/completions", json!({"stream": true}), &["\"text\":\"hi\"", "data: [DONE]\n\n"]),
        ("/v1/responses", json!({"stream": true}), &["event: response.created", "event: response.completed", "hi"]),
        ("/v1/messages", json!({"stream": true}), &["event: message_start", "event: message_stop", "hi"]),
    ] {
        let answer = raw.post_json(path, &body).await.expect(200);
        for part in parts {
            assert!(answer.text().contains(part), "{path} {body}: no {part} in {}", answer.text());
        }
        let stream = body["stream"] == true;
        assert_eq!(answer.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream")), stream);
    }
}

#[tokio::test]
async fn a_chat_stream_has_usage_only_on_request() {
    for (options, chunks) in [(json!({}), 3), (json!({"include_usage": true}), 4)] {
        let (_upstream, mut raw) = open(Upstream::chat_stream(["hi"])).await;
        let data = raw.post_json("/", json!({"stream": true, "stream_options": options})).await.data();
        assert_eq!((data.len(), data.last().map(String::as_str)), (chunks, Some("[DONE]")));
        let usage: serde_json::Value = serde_json::from_str(&data[chunks - 2]).expect("a chunk is JSON");
        assert_eq!(usage["usage"]["total_tokens"] == 15, chunks == 4, "{usage}");
    }
}

#[tokio::test]
async fn a_failing_stream_errs_after_its_texts() {
    for include in [true, false] {
        let (_upstream, mut raw) = open(Upstream::answering(Script::chat_stream_failing(["a", "b"]))).await;
        let data = raw.post_json("/", json!({"stream_options": {"include_usage": include}})).await.data();
        assert_eq!(data.len(), 4, "{data:?}");
        assert!(data[1].contains("\"b\"") && data[2].contains("\"error\""), "{data:?}");
    }
}

#[tokio::test]
async fn a_closed_port_refuses_until_it_listens() {
    let nowhere = ClosedPort::new();
    let address = address(&nowhere.url());
    let refused = TcpStream::connect(&address).await.expect_err("the port has no listener");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);

    let upstream = Upstream::never().start_at(nowhere).await;
    TcpStream::connect(&address).await.expect("now it has one");
    upstream.accepted(1).await;
}

#[tokio::test]
async fn a_full_accept_queue_neither_accepts_nor_refuses() {
    let full = FullAcceptQueue::new().await;
    let connecting = tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address(&full.url())));
    assert!(connecting.await.is_err());
}
