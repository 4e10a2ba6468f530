//! Bytes that are not a request, and requests that can be read in two ways.

use sluice_testkit::{Sidecar, Upstream};

use super::{BODY, CHAT, post, still_serves};

#[tokio::test]
async fn an_ambiguous_length_is_refused_and_not_forwarded() {
    let upstream = Upstream::chat("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let length = BODY.len();
    let smuggled = format!(
        "{:x}\r\n{BODY}\r\n0\r\n\r\nPOST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{{}}",
        length
    );
    let table = [
        format!("content-length: {length}\r\ntransfer-encoding: chunked"),
        format!("transfer-encoding: chunked\r\ncontent-length: {length}"),
        format!("Transfer-Encoding: chunked\r\nx: y\r\nContent-Length: {}", smuggled.len()),
        format!("content-length: {length}\r\ncontent-length: {length}"),
        format!("content-length: {length}\r\ncontent-length: {}", length + 1),
        format!("content-length: {length}, {length}"),
        format!("content-length: +{length}"),
        format!("content-length: -{length}"),
        format!("content-length: 0x{length:x}"),
        "content-length: 99999999999999999999999".to_owned(),
        "content-length:".to_owned(),
        "transfer-encoding: gzip".to_owned(),
        "transfer-encoding: gzip, chunked".to_owned(),
        "transfer-encoding: chunked, gzip".to_owned(),
        "transfer-encoding: identity".to_owned(),
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked".to_owned(),
        "transfer-encoding: xchunked".to_owned(),
    ];
    for lines in &table {
        let mut client = sidecar.connect().await;
        client.send(format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\n{lines}\r\n\r\n{smuggled}")).await;
        client.read_response().await.expect_refusal(400, "bad_request");
        client.expect_closed().await;
    }
    assert_eq!(sidecar.audit_with("refused", table.len()).await.refused_reasons(), vec!["bad_request"; table.len()]);
    still_serves(&sidecar, &upstream).await;
}

#[tokio::test]
async fn an_invalid_head_is_answered_or_closed_and_recorded() {
    let upstream = Upstream::chat("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let with = |line: &str| post("1.1", &format!("{line}\r\n")).into_bytes();
    let long = |size: usize| "h".repeat(size);
    // None: the sidecar closes the connection without an answer, because the client speaks HTTP/2.
    let table: Vec<(&str, Vec<u8>, Option<u16>)> = vec![
        ("a folded header", with("x-a: 1\r\n  x-litellm-customer-id: 2"), Some(400)),
        ("a header folded by a tab", with("x-a: 1\r\n\tb: 2"), Some(400)),
        ("a blank before the colon", with("x-a : 1"), Some(400)),
        ("no colon", with("x-a"), Some(400)),
        ("an empty name", with(": 1"), Some(400)),
        ("NUL in a value", with("x-a: 1\u{0}2"), Some(400)),
        ("NUL in a name", with("x\u{0}a: 1"), Some(400)),
        ("CR in a value", with("x-a: 1\r2"), Some(400)),
        ("one header over 64 KiB", with(&format!("x-a: {}", long(66_000))), Some(431)),
        ("many headers over 64 KiB", with(&format!("x-a: {}\r\n", long(1000)).repeat(66)), Some(431)),
        ("many small headers", with(&"a: b\r\n".repeat(2000)), Some(431)),
        ("a request line over 64 KiB", format!("GET /{} HTTP/1.1\r\n\r\n", long(66_000)).into_bytes(), Some(431)),
        ("garbage", b"\x00\xff\xfe garbage \x01\r\n\r\n".to_vec(), Some(400)),
        ("a shell", b"ls -la; exit\r\n\r\n".to_vec(), Some(400)),
        ("no version", b"GET /health\r\n\r\n".to_vec(), Some(400)),
        ("a version to come", b"GET /health HTTP/3.7\r\n\r\n".to_vec(), Some(400)),
        ("a TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello".to_vec(), Some(400)),
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), None),
    ];
    // Each row is sent as the first bytes of a connection, and after an answered request.
    let rows = [false, true].into_iter().flat_map(|used| table.iter().map(move |row| (used, row)));
    for (at, (used, (name, bytes, status))) in rows.enumerate() {
        let mut client = sidecar.connect().await;
        if used {
            client.get("/health").await.expect(200);
        }
        client.send(bytes).await;
        let answer = match status {
            Some(status) => {
                let answer = client.read_response().await;
                assert_eq!((answer.status, answer.complete), (*status, true), "{name}");
                assert_eq!(answer.error()["code"], answer.reason(), "{name}");
                Some(answer)
            }
            None => None,
        };
        client.expect_closed().await;
        let audit = sidecar.audit_with("refused", at + 1).await;
        let said = audit.refusals().pop().expect("a refusal").clone();
        assert_eq!(said["status"], status.unwrap_or(400), "{name}: the log agrees with the answer: {said}");
        if let Some(answer) = answer {
            assert_eq!(said["reason"], answer.reason(), "{name}");
        }
    }
    still_serves(&sidecar, &upstream).await;
}

#[tokio::test]
async fn a_malformed_body_is_refused_and_not_forwarded() {
    let upstream = Upstream::chat("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let chunked =
        |chunks: &str| format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n{chunks}");
    let length = BODY.len();
    let table = [
        (
            "short of its length",
            format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{BODY}", length + 1),
        ),
        ("no last chunk", chunked(&format!("{length:x}\r\n{BODY}\r\n"))),
        ("in the middle of a chunk", chunked(&format!("{:x}\r\n{BODY}", length + 5))),
        ("no number", chunked("zz\r\n{}\r\n0\r\n\r\n")),
        ("a negative number", chunked("-2\r\n{}\r\n0\r\n\r\n")),
        ("a number too large", chunked("fffffffffffffffff\r\n{}\r\n0\r\n\r\n")),
        ("a chunk too short", chunked(&format!("{:x}\r\n{BODY}\r\n0\r\n\r\n", length + 2))),
        ("a chunk too long", chunked(&format!("{:x}\r\n{BODY}\r\n0\r\n\r\n", length - 2))),
        ("no line break behind a chunk", chunked(&format!("{length:x}\r\n{BODY}0\r\n\r\n"))),
    ];
    for (at, (name, bytes)) in table.iter().enumerate() {
        let mut client = sidecar.connect().await;
        client.send(bytes).await;
        client.shutdown_write().await;
        // The client has half-closed: an answer or a close is correct.
        let mut refused = sidecar.audit_with("refused", at + 1).await.refused_reasons();
        assert_eq!((refused.len(), refused.pop().as_deref()), (at + 1, Some("bad_request")), "{name}");
    }
    still_serves(&sidecar, &upstream).await;
}

#[tokio::test]
async fn connections_that_say_nothing_are_no_requests() {
    let upstream = Upstream::chat("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    for bytes in ["", "\r\n", "\r\n\r\n"] {
        let mut client = sidecar.connect().await;
        client.send(bytes).await;
        client.shutdown_write().await;
        client.expect_closed().await;
    }
    still_serves(&sidecar, &upstream).await;
    assert_eq!(sidecar.audit().kinds(), ["open", "intent", "outcome"]);
}

#[tokio::test]
async fn a_head_that_breaks_off_is_closed_on() {
    let upstream = Upstream::chat("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let mut client = sidecar.connect().await;
    client.send("POST /v1/chat/completions HTTP/1.1\r\nhost").await;
    client.shutdown_write().await;
    client.expect_closed().await;

    still_serves(&sidecar, &upstream).await;
}
