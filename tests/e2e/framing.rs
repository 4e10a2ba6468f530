//! Framing of requests: the client gets a defined answer or a close, and the sidecar never forwards the client's
//! framing.

use serde_json::{Value, json};
use sluice_testkit::{ClientAnswer, Script, Sidecar, Upstream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

mod refused;

const CHAT: &str = "/v1/chat/completions";
const BODY: &str = r#"{"model":"m","messages":[]}"#;

/// A `POST` of [`BODY`] with these header lines before its own.
fn post(version: &str, lines: &str) -> String {
    format!("POST {CHAT} HTTP/{version}\r\nhost: x\r\n{lines}content-length: {}\r\n\r\n{BODY}", BODY.len())
}

/// An upstream that names the requested model in its answers.
async fn echo() -> Upstream {
    let model =
        |text: String| serde_json::from_str::<Value>(&text).expect("the sidecar sends JSON")["model"].to_string();
    Upstream::with(move |request| Script::chat(&model(request.text()))).start().await
}

fn content(answer: &ClientAnswer) -> Value {
    answer.json()["choices"][0]["message"]["content"].clone()
}

/// Checks that the sidecar works, and that it has forwarded none of the earlier bytes.
async fn still_serves(sidecar: &Sidecar, upstream: &Upstream) {
    sidecar.post(CHAT, BODY).await.expect(200);
    assert_eq!(upstream.requests().len(), 1, "requests at the upstream, of which the last is ours");
    assert_eq!(upstream.begun(), 1);
}

/// Sends a request, and returns all bytes until the sidecar closes the connection.
async fn until_close(sidecar: &Sidecar, request: impl AsRef<[u8]>) -> String {
    let mut stream = UnixStream::connect(sidecar.socket()).await.expect("the sidecar listens");
    stream.write_all(request.as_ref()).await.expect("the sidecar reads");
    let mut all = Vec::new();
    let reading = tokio::time::timeout(sluice_testkit::PATIENCE, stream.read_to_end(&mut all)).await;
    reading.expect("the sidecar closes").expect("and does so in order");
    String::from_utf8_lossy(&all).into_owned()
}

#[tokio::test]
async fn a_client_gets_100_continue_and_then_the_answer() {
    let upstream = Upstream::chat("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let mut client = sidecar.connect().await;

    for _ in 0..2 {
        let head = format!(
            "POST {CHAT} HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
            BODY.len()
        );
        client.send(head).await;
        assert_eq!(client.read_interim().await, 100);
        client.send(BODY).await;
        assert_eq!(content(&client.read_response().await.expect(200)), "hi");
    }
    assert!(upstream.requests().iter().all(|request| request.header("expect").is_none()));
}

#[tokio::test]
async fn expect_100_continue_is_refused_before_the_body() {
    let upstream = Upstream::chat("hi").start().await;
    let sidecar = Sidecar::to(&upstream).args(["--max-body", "1000"]).start().await;
    for (line, length, lines, status, reason) in [
        ("POST /v1/nothing", 10, "", 404, "route_not_allowed"),
        ("PUT /v1/chat/completions", 10, "", 405, "method_not_allowed"),
        ("POST /v1/chat/completions", 1001, "", 413, "body_too_large"),
        ("POST /v1/chat/completions", 10, "content-encoding: gzip\r\n", 415, "content_encoding_not_allowed"),
        ("POST /v1/chat/completions", 10, "upgrade: websocket\r\nconnection: upgrade\r\n", 426, "upgrade_not_allowed"),
    ] {
        let mut client = sidecar.connect().await;
        client
            .send(format!(
                "{line} HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n{lines}content-length: {length}\r\n\r\n"
            ))
            .await;

        let answer = client.read_response().await.expect_refusal(status, reason);
        assert_eq!(answer.interim, [] as [u16; 0], "{reason}");
        // The body may still come, so nothing more can be read on this connection.
        client.expect_closed().await;
    }
    still_serves(&sidecar, &upstream).await;
}

#[tokio::test]
async fn a_chunked_request_loses_its_extensions_and_trailers() {
    let upstream = Upstream::chat("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let mut client = sidecar.connect().await;

    let (a, b) = BODY.split_at(9);
    let chunks = format!(
        "9;a=\"b\";c\r\n{a}\r\n{:X}\r\n{b}\r\n000;z\r\nx-litellm-customer-id: other\r\nx-t: 1\r\n\r\n",
        b.len()
    );
    client
        .send(format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\ntrailer: x-t\r\n\r\n{chunks}"))
        .await;

    assert_eq!(content(&client.read_response().await.expect(200)), "hi");
    let received = upstream.only_request();
    assert_eq!(received.json(), json!({"user": "acct-1", "model": "m", "messages": []}));
    assert_eq!(received.headers_named("content-length"), [received.body.len().to_string()]);
    for name in ["transfer-encoding", "trailer", "x-t", "te"] {
        assert_eq!(received.header(name), None, "{name}");
    }
    assert_eq!(received.headers_named("x-litellm-customer-id"), ["acct-1"]);
    // The sidecar has read the whole request, so the connection serves another one.
    client.get("/health").await.expect(200);
}

#[tokio::test]
async fn pipelined_answers_keep_their_order_after_a_refusal() {
    let upstream = echo().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let mut client = sidecar.connect().await;

    let chat = |model: &str| post("1.1", "").replace(r#""m""#, &format!("{model:?}"));
    let refused = chat("x").replace(CHAT, "/v1/nowhere");
    let get = "GET /health HTTP/1.1\r\nhost: x\r\n\r\n".to_owned();
    client.send([chat("1"), get.clone(), refused, chat("2"), chat("3"), get].concat()).await;

    assert_eq!(content(&client.read_response().await.expect(200)), "\"1\"");
    assert_eq!(client.read_response().await.expect(200).json()["status"], "ok");
    client.read_response().await.expect_refusal(404, "route_not_allowed");
    assert_eq!(content(&client.read_response().await.expect(200)), "\"2\"");
    assert_eq!(content(&client.read_response().await.expect(200)), "\"3\"");
    assert_eq!(client.read_response().await.expect(200).json()["status"], "ok");
    assert_eq!((sidecar.audit().calls().len(), sidecar.audit().refused_reasons().len()), (3, 1));
}

#[tokio::test]
async fn http_1_0_gets_its_answer_and_a_close() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;

    let unary = until_close(&sidecar, post("1.0", "")).await;
    assert!(unary.starts_with("HTTP/1.0 200 OK\r\n") && unary.contains(r#""content":"hi""#), "{unary}");

    let body = r#"{"model":"m","messages":[],"stream":true}"#;
    let streamed =
        until_close(&sidecar, format!("POST {CHAT} HTTP/1.0\r\ncontent-length: {}\r\n\r\n{body}", body.len())).await;
    assert!(
        streamed.starts_with("HTTP/1.0 200 OK\r\n") && !streamed.to_lowercase().contains("transfer-encoding"),
        "{streamed}"
    );
    assert!(streamed.contains("\r\n\r\ndata: {") && streamed.ends_with("data: [DONE]\n\n"), "{streamed}");
    assert_eq!(sidecar.audit().calls().iter().map(|call| call.result().to_owned()).collect::<Vec<_>>(), ["ok", "ok"]);
}

#[tokio::test]
async fn http_1_0_with_keep_alive_may_ask_again() {
    let upstream = Upstream::chat("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let mut client = sidecar.connect().await;

    for _ in 0..3 {
        client.send(post("1.0", "connection: keep-alive\r\n")).await;
        let answer = client.read_response().await.expect(200);
        assert_eq!((content(&answer), answer.header("connection")), (json!("hi"), Some("keep-alive")));
    }
    client.send(post("1.0", "")).await;
    client.read_response().await.expect(200);
    client.expect_closed().await;
}

#[tokio::test]
async fn a_request_may_come_one_byte_at_a_time() {
    let upstream = Upstream::chat("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let mut client = sidecar.connect().await;

    client.send_slowly(post("1.1", "")).await;
    client.read_response().await.expect(200);
    let chunks: String = BODY.chars().map(|char| format!("1\r\n{char}\r\n")).collect();
    client
        .send_slowly(format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"))
        .await;
    client.read_response().await.expect(200);

    assert!(
        upstream
            .requests()
            .iter()
            .all(|request| request.json() == json!({"user": "acct-1", "model": "m", "messages": []}))
    );
    assert_eq!(upstream.requests().len(), 2);
}

#[tokio::test]
async fn a_half_closed_client_still_gets_its_answer() {
    for (body, events) in [(BODY, 1), (r#"{"model":"m","messages":[],"stream":true}"#, 3)] {
        let upstream = Upstream::provider("hi").hold_head().start().await;
        let sidecar = Sidecar::to(&upstream).start().await;
        let mut client = sidecar.stream(CHAT, body).await;

        client.shutdown_write().await;
        upstream.held(1).await;
        upstream.release();

        let answer = client.read_response().await.expect(200);
        assert_eq!(answer.events().len(), events, "{}", answer.text());
        client.expect_closed().await;
        assert_eq!((sidecar.audit().only_call().result(), sidecar.audit().only_call().end()), ("ok", "complete"));
    }
}

#[tokio::test]
async fn bare_line_feeds_are_only_ever_serialised_anew() {
    let upstream = Upstream::chat("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let mut client = sidecar.connect().await;

    client.send(post("1.1", "x-a: 1\nx-litellm-customer-id: 2\r\n").replace("\r\n", "\n")).await;

    client.read_response().await.expect(200);
    let received = upstream.only_request();
    let lines = String::from_utf8_lossy(&received.head).replace("\r\n", "");
    assert!(!lines.contains(['\n', '\r']), "{lines:?}");
    assert_eq!(received.headers_named("x-litellm-customer-id"), ["acct-1"]);
}
