//! Timeouts count silence only, and a call is never made twice.

use std::time::Duration;

use serde_json::{Value, json};
use sluice_testkit::{ClosedPort, FullAcceptQueue, Script, Sidecar, Upstream};

const CHAT: &str = "/v1/chat/completions";

fn unary() -> Value {
    json!({"model": "m", "messages": []})
}

fn stream() -> Value {
    json!({"model": "m", "messages": [], "stream": true})
}

#[tokio::test]
async fn a_connect_timeout_has_sent_nothing() {
    let (full, closed) = (FullAcceptQueue::new().await, ClosedPort::new());
    for url in [full.url(), closed.url()] {
        let sidecar = Sidecar::to_url(&url).args(["--connect-timeout", "200ms", "--max-calls", "1"]).start().await;
        // A call that was not sent is not charged.
        for _ in 0..2 {
            let answer = sidecar.post(CHAT, unary()).await.expect_refusal(502, "upstream_unreachable");
            assert_eq!(answer.header("retry-after"), Some("1"));
        }
        let audit = sidecar.audit();
        assert_eq!((audit.calls().len(), audit.refusals().len()), (2, 0));
        assert!(
            audit.outcomes().iter().all(|outcome| outcome["null_reason"] == "not_sent" && outcome["status"].is_null()),
            "{:?}",
            audit.outcomes()
        );
    }
}

#[tokio::test]
async fn a_silent_upstream_is_closed_after_the_timeout() {
    for (body, script) in
        [(unary(), Script::never()), (stream(), Script::never()), (unary(), Script::raw("").silent_after(0))]
    {
        let upstream = Upstream::answering(script).start().await;
        let sidecar = Sidecar::to(&upstream).args(["--first-byte-timeout", "200ms"]).start().await;

        sidecar.post(CHAT, body).await.expect_refusal(504, "upstream_timeout");
        upstream.closed(0).await;

        let call = sidecar.audit().only_call();
        assert_eq!((call.result(), call.status(), call.tokens(), call.cost()), ("timeout", None, None, None));
        assert_eq!(upstream.only_request().json()["model"], "m", "and it was not asked twice");
    }
}

#[tokio::test]
async fn an_unfinished_head_is_a_timeout() {
    let half = Script::steps([
        sluice_testkit::Step::Send("HTTP/1.1 200 OK\r\ncontent-ty".into()),
        sluice_testkit::Step::Never,
    ]);
    let upstream = Upstream::answering(half).start().await;
    let sidecar = Sidecar::to(&upstream).args(["--first-byte-timeout", "200ms"]).start().await;
    sidecar.post(CHAT, unary()).await.expect_refusal(504, "upstream_timeout");
    assert_eq!(sidecar.audit().only_call().result(), "timeout");
}

#[tokio::test]
async fn an_answer_that_falls_silent_is_cut() {
    let messages = json!({"model": "m", "messages": [], "max_tokens": 9, "stream": true});
    let responses = json!({"model": "m", "input": "a", "stream": true});
    for (path, body, script, errors) in [
        (CHAT, stream(), Script::chat_stream(["a", "b"]).silent_after(1), 0),
        (CHAT, unary(), Script::chat("a").in_pieces(20).silent_after(1), 0),
        (CHAT, unary(), Script::chat("a").silent_after(0), 0),
        ("/v1/messages", messages, Script::messages_stream(["a", "b"]).silent_after(3), 1),
        ("/v1/responses", responses, Script::responses_stream(["a", "b"]).silent_after(1), 1),
    ] {
        let upstream = Upstream::answering(script).start().await;
        let sidecar = Sidecar::to(&upstream).args(["--idle-timeout", "200ms"]).start().await;

        let answer = sidecar.post(path, body).await;
        assert_eq!((answer.status, answer.complete), (200, false), "{path}");
        assert_eq!(answer.text().matches("event: error\n").count(), errors, "{path}: {}", answer.text());
        assert!(!answer.text().contains("[DONE]"));
        upstream.closed(0).await;
        assert_eq!(sidecar.audit().only_call().result(), "timeout", "{path}");
    }
}

#[tokio::test]
async fn a_request_body_that_falls_silent_is_refused() {
    let upstream = Upstream::chat("hi").start().await;
    let sidecar = Sidecar::to(&upstream).args(["--idle-timeout", "200ms"]).start().await;
    for rest in [
        "content-length: 100\r\n\r\n{\"model\":",
        "transfer-encoding: chunked\r\n\r\n2\r\n{\"\r\n",
        "content-length: 100\r\n\r\n",
    ] {
        let mut client = sidecar.connect().await;
        client.send(format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\n{rest}")).await;
        client.read_response().await.expect_refusal(408, "request_timeout");
        client.expect_closed().await;
    }
    assert_eq!(sidecar.audit().refused_reasons(), ["request_timeout"; 3]);
    assert_eq!(upstream.begun(), 0);
}

#[tokio::test]
async fn a_client_that_does_not_read_is_no_timeout() {
    let upstream = Upstream::answering(Script::flood(&"x".repeat(1000), 20_000)).start().await;
    // The limit is longer than a busy machine delays the upstream's writes.
    let sidecar = Sidecar::to(&upstream).args(["--idle-timeout", "6s"]).start().await;
    let mut client = sidecar.stream(CHAT, stream()).await;
    client.read_event().await.expect("an event");
    // Longer than the limit: the client does not read, so the upstream cannot write.
    upstream.stalled_for(Duration::from_millis(6500)).await;

    let rest = client.read_response().await.expect(200);
    assert_eq!(rest.body.len(), 19_999 * "data: \n\n".len() + 19_999_000);
    // No event ended the stream, but no time limit did either.
    assert_eq!(sidecar.audit().only_call().result(), "upstream_error");
}

/// The limits count silence only: body and answer each last longer than any limit, with many small gaps.
#[tokio::test]
async fn a_call_with_progress_has_no_timeout() {
    let upstream = Upstream::chat_stream(["x"; 12]).hold_each().start().await;
    let limits = ["--idle-timeout", "6s", "--first-byte-timeout", "6s", "--connect-timeout", "6s"];
    let sidecar = Sidecar::to(&upstream).args(limits).start().await;
    let mut ticks = tokio::time::interval(Duration::from_millis(600));
    let mut client = sidecar.connect().await;

    let body = json!({"model": "m", "messages": [], "stream": true, "stream_options": {"include_usage": true}});
    let body = body.to_string();
    client.send(format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len())).await;
    for piece in body.as_bytes().chunks(body.len() / 12) {
        ticks.tick().await;
        client.send(piece).await;
    }
    let mut events = 0;
    upstream.step();
    while client.read_event().await.is_some() {
        events += 1;
        ticks.tick().await;
        upstream.step();
    }

    // Twelve chunks, the finish, the usage and the end.
    assert_eq!(events, 15);
    let call = sidecar.audit().only_call();
    assert_eq!((call.result(), call.end()), ("ok", "complete"));
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let upstream = Upstream::provider("hi").start().await;
    // Each write to the disk would be idle time of the connection, which is limited.
    let sidecar = Sidecar::to(&upstream).args(["--audit-sync", "off"]).start().await;
    for body in [unary(), stream(), unary(), stream()] {
        sidecar.post(CHAT, body).await.expect(200);
    }
    assert_eq!((upstream.requests().len(), upstream.connections()), (4, 1));
}

#[tokio::test]
async fn a_closed_kept_connection_costs_no_call() {
    for script in [
        Script::chat("hi").then_close(),
        Script::chat("hi").header("connection", "close").then_close(),
        Script::chat("hi").until_close(),
    ] {
        let upstream = Upstream::answering(script).start().await;
        let sidecar = Sidecar::to(&upstream).start().await;
        for _ in 0..10 {
            sidecar.post(CHAT, unary()).await.expect(200);
        }
        assert_eq!((upstream.requests().len(), upstream.connections()), (10, 10));
        assert!(sidecar.audit().calls().iter().all(|call| call.result() == "ok"));
    }
}

#[tokio::test]
async fn a_reset_kept_connection_costs_no_call() {
    let upstream = Upstream::with(|_| Script::chat("hi").then_reset()).start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    for number in 0..10 {
        sidecar.post(CHAT, unary()).await.expect(200);
        upstream.closed(number).await;
    }
    assert_eq!((upstream.requests().len(), upstream.connections()), (10, 10));
}

#[tokio::test]
async fn a_call_that_was_written_is_never_sent_twice() {
    for (name, end) in
        [("reset", Script::reset()), ("closed", Script::close()), ("cut in the head", Script::chat("hi").cut_head(20))]
    {
        let upstream = Upstream::queue([Script::chat("hi"), end, Script::chat("again")]).start().await;
        let sidecar = Sidecar::to(&upstream).args(["--audit-sync", "off"]).start().await;
        sidecar.post(CHAT, unary()).await.expect(200);

        sidecar.post(CHAT, unary()).await.expect_refusal(502, "upstream_closed");

        assert_eq!((upstream.requests().len(), upstream.connections()), (2, 1), "{name}");
        let call = sidecar.audit().calls().pop().expect("a call");
        assert_eq!((call.result(), call.end()), ("unknown", "cut_by_upstream"), "{name}");
        assert!(call.outcome["null_reason"] != "not_sent", "{name}");
        assert_eq!(sidecar.post(CHAT, unary()).await.expect(200).json()["choices"][0]["message"]["content"], "again");
    }
}

#[tokio::test]
async fn a_partly_written_call_is_never_sent_twice() {
    // The upstream drops the connection on the first byte of the second request, in the middle of its body.
    let upstream = Upstream::queue([Script::chat("hi"), Script::reset()]).start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    sidecar.post(CHAT, unary()).await.expect(200);
    let large = json!({"model": "m", "messages": [{"role": "user", "content": "x".repeat(8 << 20)}]});

    let answer = sidecar.post(CHAT, large).await;

    assert_eq!((answer.status, answer.reason()), (502, "upstream_closed"));
    assert_eq!(upstream.begun(), 2);
    assert_eq!(sidecar.audit().calls().pop().expect("a call").result(), "unknown");
}
