//! Other things that may come over either socket: other paths, long bodies, broken heads, and many connections.

use super::*;

#[tokio::test]
async fn no_path_of_the_call_socket_leads_to_control() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = controlled(Sidecar::to(&upstream)).args(["--max-calls", "1"]).start().await;
    let body = json!({"by": "agent", "reason": "more", "max_calls": 9});
    for path in [
        "/state", "/caps", "/clock", "/inject", "/injected", "/interrupt", "/pause", "/held", "/held/hold-1",
        "/v1/caps", "/v1/inject", "/v1/held",
    ] {
        sidecar.get(path).await.expect_refusal(404, "route_not_allowed");
        sidecar.post(path, body.clone()).await.expect_refusal(404, "route_not_allowed");
    }
    // And no call passes the control socket, which has not even a health answer.
    for (method, path) in [("POST", CHAT), ("GET", "/health"), ("GET", "/v1/models"), ("GET", "/state?x=1")] {
        let members = if method == "POST" { call() } else { Value::Null };
        assert_eq!(refused(&ask(&sidecar, method, path, members).await), (404, "not_found".to_owned()), "{path}");
    }
    assert_eq!(upstream.requests().len(), 0);
    assert_eq!(state(&sidecar).await["caps"]["max_calls"], 1);
}

#[tokio::test]
async fn a_body_over_64_kib_is_refused() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = controlled(Sidecar::to(&upstream)).args(["--max-calls", "1"]).start().await;
    let long = format!(r#"{{"by":"a","reason":"{}","max_calls":2}}"#, "r".repeat(70_000));
    for headers in [format!("content-length: {}\r\n", long.len()), "transfer-encoding: chunked\r\n".to_owned()] {
        let mut raw = RawClient::connect(control_path(&sidecar)).await;
        let is_chunked = headers.starts_with("transfer");
        raw.send(format!("POST /caps HTTP/1.1\r\nhost: x\r\n{headers}\r\n")).await;
        raw.send(if is_chunked { format!("{:x}\r\n{long}\r\n0\r\n\r\n", long.len()) } else { long.clone() }).await;
        assert_eq!(refused(&raw.read_response().await), (413, "body_too_large".to_owned()), "{headers}");
    }
    assert_eq!(state(&sidecar).await["caps"]["max_calls"], 1);
}

#[tokio::test]
async fn broken_requests_leave_the_caps_and_no_record() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = controlled(Sidecar::to(&upstream)).args(["--max-calls", "1"]).start().await;
    for (sent, status) in [
        ("garbage\r\n\r\n", 400),
        ("\u{0}\u{1}\u{2}\r\n\r\n", 400),
        ("POST /caps HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\ncontent-length: 9\r\n\r\n{}", 400),
        ("POST /caps HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        ("POST /caps HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\n{", 400),
        ("POST /caps HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n", 400),
        ("POST /caps HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nnull", 422),
        ("DELETE /caps HTTP/1.1\r\nhost: x\r\n\r\n", 405),
    ] {
        let mut raw = RawClient::connect(control_path(&sidecar)).await;
        raw.send(sent).await;
        assert_eq!(raw.read_response().await.status, status, "{sent:?}");
    }
    let long_head = format!("GET /state HTTP/1.1\r\nx: {}\r\n\r\n", "h".repeat(70_000));
    let mut raw = RawClient::connect(control_path(&sidecar)).await;
    raw.send(long_head).await;
    assert_eq!(raw.read_response().await.status, 431);

    assert_eq!(state(&sidecar).await["caps"]["max_calls"], 1);
    assert_eq!(sidecar.stop().await, 0);
    assert_eq!(sidecar.audit().kinds(), ["open", "close"], "refusals are those of the sandbox");
}

#[tokio::test]
async fn a_thousand_connections_leave_calls_and_control() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = controlled(Sidecar::to(&upstream)).args(["--max-calls", "2"]).start().await;
    sidecar.post(CHAT, call()).await.expect(200);
    let (before, fds) = (sidecar.rss_kib(), sidecar.fds());
    let mut idle = Vec::new();
    for n in 0..1000 {
        // Where the backlog is full, the kernel lets a connection wait.
        let connecting = RawClient::try_connect(control_path(&sidecar));
        let Ok(Ok(mut raw)) = tokio::time::timeout(std::time::Duration::from_millis(100), connecting).await else {
            break;
        };
        if n % 2 == 0 {
            raw.send("GET /state HTTP/1.1\r\nhost:").await;
        }
        idle.push(raw);
    }
    assert!(idle.len() > 100, "only {} connections", idle.len());

    sidecar.post(CHAT, call()).await.expect(200);
    assert!(sidecar.fds() <= fds + 24, "{} descriptors, {fds} before", sidecar.fds());
    let grown = sidecar.rss_kib().saturating_sub(before);
    assert!(grown < 8 * 1024, "{grown} KiB more");

    drop(idle);
    let raised = change(&sidecar, "/caps", json!({"max_calls": 3})).await.expect(200).json();
    assert_eq!(raised["caps"]["max_calls"], 3);
    sidecar.post(CHAT, call()).await.expect(200);
}
