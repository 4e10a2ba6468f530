//! Clients that leave: their calls are read to the end or closed immediately, and recorded in both cases.

use serde_json::{Value, json};
use sluice_testkit::sdk::PortToSocket;
use sluice_testkit::{CheckedAuditFile, FullAcceptQueue, RecordedCall, Script, Sidecar, Upstream};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

const CHAT: &str = "/v1/chat/completions";

fn unary() -> Value {
    json!({"model": "m", "messages": []})
}

fn stream() -> Value {
    json!({"model": "m", "messages": [], "stream": true})
}

/// Moments at which a client leaves: the name, the upstream, the request, and the number of reads before.
fn moments() -> Vec<(&'static str, sluice_testkit::upstream::UpstreamPlan, Value, usize)> {
    vec![
        ("before the head of a stream", Upstream::provider("hi").hold_head(), stream(), 0),
        ("before the head of an answer", Upstream::provider("hi").hold_head(), unary(), 0),
        ("in the middle of a stream", Upstream::chat_stream(["a", "b"]).hold_after(1), stream(), 1),
        ("in the middle of an answer", Upstream::answering(Script::chat("hi").in_pieces(40)).hold_after(1), unary(), 1),
        ("at the end of a stream", Upstream::chat_stream(["a"]).hold_after(3), stream(), 2),
    ]
}

/// Starts a call, reads `reads` times, closes the connection, and waits until the sidecar has noticed.
async fn leave(sidecar: &Sidecar, upstream: &Upstream, body: &Value, reads: usize) {
    let mut client = sidecar.stream(CHAT, body).await;
    upstream.held(1).await;
    if body["stream"] == true {
        for _ in 0..reads {
            client.read_event().await.expect("an event");
        }
    } else if reads > 0 {
        client.read_some().await.expect("some of the answer");
    }
    let before = sidecar.fds();
    drop(client);
    sidecar.fds_below(before).await;
}

fn drained(call: &RecordedCall) -> Option<bool> {
    call.outcome["drained"].as_bool()
}

#[tokio::test]
async fn an_answer_is_drained_after_its_client_left() {
    for (moment, plan, body, reads) in moments() {
        let upstream = plan.start().await;
        let sidecar = Sidecar::to(&upstream).start().await;

        leave(&sidecar, &upstream, &body, reads).await;
        assert_eq!(sidecar.audit().kinds(), ["open", "intent"], "{moment}: the upstream is not yet done");
        upstream.release();

        let call = sidecar.audit_with("outcome", 1).await.only_call();
        assert_eq!(
            (call.result(), call.end(), drained(&call)),
            ("client_abort", "cut_by_client", Some(true)),
            "{moment}"
        );
        assert_eq!((call.tokens(), call.cost()), (Some((Some(10), Some(5), Some(15))), Some("0.0000054")), "{moment}");
        assert_eq!(call.status(), Some(200), "{moment}");
        assert_eq!(sidecar.stop().await, 0);
        assert_eq!(sidecar.audit().kinds(), ["open", "intent", "outcome", "close"], "{moment}");
    }
}

#[tokio::test]
async fn with_cancel_the_upstream_is_closed_at_once() {
    for (moment, plan, body, reads) in moments() {
        let upstream = plan.start().await;
        let sidecar = Sidecar::to(&upstream).args(["--abort", "cancel"]).start().await;

        leave(&sidecar, &upstream, &body, reads).await;
        // The gate is still closed: nothing but the sidecar can end this connection.
        upstream.closed(0).await;

        let call = sidecar.audit_with("outcome", 1).await.only_call();
        assert_eq!(
            (call.result(), call.end(), drained(&call)),
            ("client_abort", "cut_by_client", Some(false)),
            "{moment}"
        );
        // Only at the end of a stream can the sidecar have seen the usage.
        assert!(call.tokens().is_none() || moment == "at the end of a stream", "{moment}");
        assert_eq!(sidecar.stop().await, 0);
        assert_eq!(sidecar.audit().kinds(), ["open", "intent", "outcome", "close"], "{moment}");
    }
}

#[tokio::test]
async fn every_wire_format_is_read_to_its_usage() {
    for (path, body) in [
        ("/v1/completions", json!({"model": "m", "prompt": "a", "stream": true})),
        ("/v1/responses", json!({"model": "m", "input": "a", "stream": true})),
        ("/v1/messages", json!({"model": "m", "messages": [], "max_tokens": 9, "stream": true})),
    ] {
        let upstream = Upstream::provider("hi").hold_after(1).start().await;
        let sidecar = Sidecar::to(&upstream).start().await;
        let mut client = sidecar.stream(path, body).await;
        client.read_event().await.expect("an event");
        let before = sidecar.fds();
        drop(client);
        sidecar.fds_below(before).await;
        upstream.release();

        let call = sidecar.audit_with("outcome", 1).await.only_call();
        let usage = &call.outcome["usage"];
        assert_eq!((call.result(), drained(&call)), ("client_abort", Some(true)), "{path}");
        assert_eq!((&usage["input"], &usage["output"]), (&json!(10), &json!(5)), "{path}");
    }
}

#[tokio::test]
async fn a_client_that_only_stops_sending_has_not_left() {
    for (moment, plan, body, _) in moments() {
        let upstream = plan.start().await;
        let sidecar = Sidecar::to(&upstream).args(["--abort", "cancel"]).start().await;
        let mut client = sidecar.stream(CHAT, &body).await;
        client.shutdown_write().await;
        upstream.held(1).await;
        upstream.release();

        client.read_response().await.expect(200);
        assert_eq!(sidecar.audit().only_call().result(), "ok", "{moment}");
    }
}

#[tokio::test]
async fn a_half_closed_client_that_leaves_has_left() {
    let upstream = Upstream::chat_stream(["a", "b"]).hold_after(1).start().await;
    let sidecar = Sidecar::to(&upstream).args(["--abort", "cancel"]).start().await;
    let mut client = sidecar.stream(CHAT, stream()).await;
    client.read_event().await.expect("an event");
    client.shutdown_write().await;

    drop(client);
    upstream.closed(0).await;
    assert_eq!(sidecar.audit_with("outcome", 1).await.only_call().result(), "client_abort");
}

#[tokio::test]
async fn a_client_that_leaves_through_socat_has_left() {
    for (flag, is_drained) in [("drain", true), ("cancel", false)] {
        let upstream = Upstream::chat_stream(["a", "b"]).hold_after(1).start().await;
        let sidecar = Sidecar::to(&upstream).args(["--abort", flag]).start().await;
        let socat = PortToSocket::to(sidecar.socket()).await;
        let mut client = TcpStream::connect(("127.0.0.1", socat.port())).await.expect("socat listens");
        let body = stream().to_string();
        let head = format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
        client.write_all((head + &body).as_bytes()).await.expect("socat reads");
        upstream.held(1).await;

        let before = sidecar.fds();
        drop(client);
        sidecar.fds_below(before).await;
        upstream.release();

        let call = sidecar.audit_with("outcome", 1).await.only_call();
        assert_eq!((call.result(), drained(&call)), ("client_abort", Some(is_drained)), "{flag}");
    }
}

#[tokio::test]
async fn a_drain_reads_at_most_4_mib() {
    let event = format!("data: {}\n\n", "x".repeat(1000));
    let upstream = Upstream::answering(Script::flood(&event, 100_000)).start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let mut client = sidecar.stream(CHAT, stream()).await;
    client.read_event().await.expect("an event");
    upstream.stalled().await;

    drop(client);
    upstream.closed(0).await;

    let call = sidecar.audit_with("outcome", 1).await.only_call();
    assert_eq!((call.result(), call.end(), drained(&call)), ("client_abort", "cut_by_client", Some(false)));
    let read = call.outcome["resp_bytes"].as_u64().expect("a number");
    // The bound, and the bytes in the buffers of the client.
    assert!((4 << 20..6 << 20).contains(&read), "{read} bytes");
    // The sidecar still answers other requests.
    assert_eq!(sidecar.get("/health").await.expect(200).json()["status"], "ok");
}

#[tokio::test]
async fn a_broken_upstream_is_not_drained() {
    for script in [Script::chat_stream(["a", "b"]).cut_after(2), Script::chat_stream(["a", "b"]).reset_after(2)] {
        let upstream = Upstream::answering(script).hold_after(1).start().await;
        let sidecar = Sidecar::to(&upstream).start().await;
        leave(&sidecar, &upstream, &stream(), 1).await;
        upstream.release();

        let call = sidecar.audit_with("outcome", 1).await.only_call();
        assert_eq!((call.result(), drained(&call), call.tokens()), ("client_abort", Some(false), None));
    }
}

#[tokio::test]
async fn an_unfinished_request_is_not_a_call() {
    let upstream = Upstream::chat("hi").start().await;
    let sidecar = Sidecar::to(&upstream).args(["--max-calls", "1"]).start().await;
    for (at, bytes) in
        ["content-length: 100\r\n\r\n{\"model\":", "transfer-encoding: chunked\r\n\r\n9\r\n{\"model\":\r\n"]
            .iter()
            .enumerate()
    {
        let mut client = sidecar.connect().await;
        client.send(format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\n{bytes}")).await;
        drop(client);
        assert_eq!(sidecar.audit_with("refused", at + 1).await.refused_reasons()[at], "bad_request");
    }
    // None of these requests counts in the cap.
    sidecar.post(CHAT, unary()).await.expect(200);
    assert_eq!((upstream.requests().len(), sidecar.audit().calls().len()), (1, 1));
}

#[tokio::test]
async fn a_call_dropped_before_sending_costs_nothing() {
    let upstream = FullAcceptQueue::new().await;
    let sidecar = Sidecar::to_url(&upstream.url()).args(["--max-calls", "1", "--connect-timeout", "60s"]).start().await;
    // Some clients leave during the sync of the intent, others while the sidecar connects to the upstream.
    for number in 1..=20 {
        let mut client = sidecar.stream(CHAT, unary()).await;
        tokio::select! {
            // A call that found the cap used up would be answered.
            head = client.read_head() => panic!("client {number} got {} {}", head.status, head.reason()),
            _ = sidecar.audit_with("intent", number) => {}
        }
        drop(client);
        let call = sidecar.audit_with("outcome", number).await.calls().pop().expect("a call");
        assert_eq!((call.result(), &call.outcome["null_reason"]), ("client_abort", &json!("not_sent")));
        assert_eq!((call.status(), call.tokens(), call.cost()), (None, None, None));
    }
}

#[tokio::test]
async fn a_cancelled_call_costs_its_reservation() {
    for (flag, next) in [("drain", 200), ("cancel", 402)] {
        let upstream = Upstream::provider("hi").hold_head().start().await;
        let mut body = stream();
        body["max_tokens"] = json!(1);
        // A byte counts as one token, a call adds 16 tokens, and the output bound is 1.
        let reserved = body.to_string().len() + 16 + 1;
        let cap = (reserved + 20).to_string();
        let sidecar = Sidecar::to(&upstream).args(["--max-tokens", &cap, "--abort", flag]).start().await;
        leave(&sidecar, &upstream, &body, 0).await;
        upstream.release();
        sidecar.audit_with("outcome", 1).await;

        // After a drain, 15 tokens are used and another call fits; after a cancel, the whole reservation stays used.
        assert_eq!(sidecar.post(CHAT, body).await.status, next, "{flag}");
    }
}

#[tokio::test]
async fn clients_that_leave_at_random_have_one_outcome_each() {
    let upstream = Upstream::chat_stream(["a", "b", "c"]).start().await;
    let sidecar = Sidecar::to(&upstream).args(["--drain", "300s"]).start().await;
    for reads in (0..7).cycle().take(60) {
        let mut client = sidecar.stream(CHAT, stream()).await;
        for _ in 0..reads {
            client.read_event().await;
        }
    }
    assert_eq!(sidecar.stop().await, 0);
    let audit = CheckedAuditFile::read(sidecar.audit_path());
    assert_eq!((audit.open_calls().len(), audit.intents().len()), (0, audit.outcomes().len()));
    assert_eq!(
        audit.intents().len(),
        upstream.requests().len() + audit.outcomes().iter().filter(|o| o["null_reason"] == "not_sent").count()
    );
}
