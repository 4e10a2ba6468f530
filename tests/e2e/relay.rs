//! Requests to the controller: the sidecar relays seven requests of its own run and its pushes, and no others.

use serde_json::json;
use sluice_testkit::{ClosedPort, Launch, ReceivedRequest, Script, Sidecar, Upstream, write_private};

mod bounds;
mod git;

const TOKEN: &str = "rt-canary-4kW8zQ1nVb6Y";

/// A sidecar that relays to `url`. The test kit searches all output for the key; `silent` searches for the token.
fn relaying(url: &str) -> Launch {
    let launch = Sidecar::to_url("http://127.0.0.1:1").args(["--relay", url]);
    // The test kit does not search files named *.key, which hold secrets.
    let file = launch.dir().join("relay.key");
    write_private(&file, &format!("{TOKEN}\n"));
    launch.args(["--relay-token-file", &file.display().to_string()])
}

/// Ends the sidecar and searches its output for the token.
async fn silent(sidecar: Sidecar) {
    assert_eq!(sidecar.stop().await, 0);
    let log = std::fs::read_to_string(sidecar.audit_path()).expect("our own file");
    for said in [sidecar.stdout(), sidecar.stderr(), log] {
        assert!(!said.contains(TOKEN), "the relay token is in {said}");
    }
}

/// Checks that a forwarded request has only the sidecar's headers.
fn is_clean(request: &ReceivedRequest, host: &str) {
    let mut headers: Vec<(String, &str)> = request
        .headers
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value.as_str()))
        .filter(|(name, _)| name != "content-length")
        .collect();
    headers.sort();
    let bearer = format!("Bearer {TOKEN}");
    let expected = [("authorization", bearer.as_str()), ("content-type", "application/json"), ("host", host)];
    assert_eq!(headers, expected.map(|(name, value)| (name.to_owned(), value)));
}

#[tokio::test]
async fn a_relayed_request_has_our_token_and_head() {
    let controller = Upstream::with(|request| Script::json(200, json!({"saw": request.target}))).start().await;
    let host = controller.url().trim_start_matches("http://").to_owned();
    let sidecar = relaying(controller.url()).start().await;
    let hostile = [
        ("authorization", "Bearer stolen"),
        ("cookie", "admin=1"),
        ("x-forwarded-for", "10.0.0.1"),
        ("x-sandbox-id", "r2"),
        ("content-type", "text/plain"),
        ("connection", "authorization"),
    ];
    for (method, resource, body) in [
        ("POST", "events", r#"{"type":"progress","data":{"n":1}}"#),
        ("GET", "messages", ""),
        ("POST", "messages/ack", r#"{"ids":["msg-0"]}"#),
        ("GET", "interventions", ""),
        ("POST", "questions", r#"{"question":"?"}"#),
        ("GET", "questions/q-0123456789ab", ""),
        ("GET", "task", ""),
    ] {
        let path = format!("/api/v1/sandboxes/r1/{resource}");
        let answer = sidecar.request(method, &path, &hostile, body).await.expect(200);
        let request = controller.received().await;
        assert_eq!(
            (request.method.as_str(), request.target.as_str(), request.text()),
            (method, path.as_str(), body.to_owned())
        );
        is_clean(&request, &host);
        assert_eq!(answer.json(), json!({"saw": path}));
    }
    // These are not calls: no intent, and no refusal.
    assert_eq!(sidecar.audit().kinds(), ["open"]);
    silent(sidecar).await;
}

#[tokio::test]
async fn another_run_and_another_path_are_refused() {
    let controller = Upstream::never().start().await;
    let sidecar = relaying(controller.url()).start().await;
    for (method, path, status, reason) in [
        ("GET", "/api/v1/sandboxes/r2/events", 403, "not_own_run"),
        ("POST", "/api/v1/sandboxes/r2/events", 403, "not_own_run"),
        ("GET", "/api/v1/sandboxes/r10/task", 403, "not_own_run"),
        ("GET", "/api/v1/sandboxes/R1/task", 403, "not_own_run"),
        ("GET", "/api/v1/sandboxes/r1%2fx/task", 403, "not_own_run"),
        ("GET", "/api/v1/sandboxes/../sandboxes/r1/task", 403, "not_own_run"),
        ("GET", "/api/v1/sandboxes/", 403, "not_own_run"),
        ("GET", "/api/v1/sandboxes/r1", 403, "not_own_run"),
        ("GET", "/api/v1/sandboxes", 404, "route_not_allowed"),
        ("GET", "/api/v1/sandboxes/r1/", 404, "route_not_allowed"),
        ("GET", "/api/v1/sandboxes/r1/receipts", 404, "route_not_allowed"),
        ("GET", "/api/v1/sandboxes/r1/stream", 404, "route_not_allowed"),
        ("GET", "/api/v1/sandboxes/r1/approvals", 404, "route_not_allowed"),
        ("POST", "/api/v1/sandboxes/r1/approvals/a/decision", 404, "route_not_allowed"),
        ("POST", "/api/v1/sandboxes/r1/questions/q/answer", 404, "route_not_allowed"),
        ("GET", "/api/v1/sandboxes/r1/questions/", 404, "route_not_allowed"),
        ("GET", "/api/v1/sandboxes/r1/questions/..", 404, "route_not_allowed"),
        ("GET", "/api/v1/sandboxes/r1/questions/a%2Fb", 404, "route_not_allowed"),
        ("POST", "/api/v1/sandboxes/r1/interrupt", 404, "route_not_allowed"),
        ("POST", "/api/v1/sandboxes/r1/fail", 404, "route_not_allowed"),
        ("GET", "/api/v1/sandboxes/r1/files/etc/passwd", 404, "route_not_allowed"),
        ("GET", "/api/v1/sandboxes/r1/git", 404, "route_not_allowed"),
        ("GET", "/api/v1/sandboxes/r1/events/7", 404, "route_not_allowed"),
        ("GET", "/api/v1/sandboxes/r1/events/", 404, "route_not_allowed"),
        ("GET", "/api/v1/sandboxes/r1//events", 404, "route_not_allowed"),
        ("GET", "/api/v1/sandboxes/r1/../r2/events", 404, "route_not_allowed"),
        ("GET", "/api/v1/sandboxes/r1/%65vents", 404, "route_not_allowed"),
        ("GET", "/api/v1/sandboxes/r1/Events", 404, "route_not_allowed"),
        ("GET", "/api/v1/agents", 404, "route_not_allowed"),
        ("POST", "/api/v1/ai/chat", 404, "route_not_allowed"),
        ("GET", "/api", 404, "route_not_allowed"),
        ("GET", "/api/", 404, "route_not_allowed"),
        ("GET", "/git", 404, "route_not_allowed"),
        ("POST", "/git/r2.git/git-receive-pack", 403, "not_own_run"),
        ("GET", "/sandboxes/r1/events", 404, "route_not_allowed"),
        ("GET", "/api/v1/sandboxes/r1/events", 405, "method_not_allowed"),
        ("POST", "/api/v1/sandboxes/r1/messages", 405, "method_not_allowed"),
        ("POST", "/api/v1/sandboxes/r1/interventions", 405, "method_not_allowed"),
        ("GET", "/api/v1/sandboxes/r1/messages/ack", 405, "method_not_allowed"),
        ("GET", "/api/v1/sandboxes/r1/questions", 405, "method_not_allowed"),
        ("POST", "/api/v1/sandboxes/r1/questions/q", 405, "method_not_allowed"),
        ("POST", "/api/v1/sandboxes/r1/task", 405, "method_not_allowed"),
        ("DELETE", "/api/v1/sandboxes/r1/events", 405, "method_not_allowed"),
        ("PUT", "/api/v1/sandboxes/r1/messages", 405, "method_not_allowed"),
    ] {
        let answer = sidecar.request(method, path, &[], ()).await;
        assert_eq!((answer.status, answer.reason()), (status, reason), "{method} {path}: {}", answer.text());
        let audit = sidecar.audit();
        let line = audit.refusals().pop().expect("a refusal").clone();
        let plain = path.split('?').next();
        assert_eq!((&line["reason"], &line["status"], &line["path"]), (&json!(reason), &json!(status), &json!(plain)));
    }
    assert_eq!(controller.connections(), 0);
    silent(sidecar).await;
}

#[tokio::test]
async fn without_a_relay_the_path_does_not_exist() {
    let sidecar = Sidecar::to_url("http://127.0.0.1:1").start().await;
    for path in ["/api/v1/sandboxes/r1/events", "/api/v1/sandboxes/r2/events"] {
        sidecar.get(path).await.expect_refusal(404, "route_not_allowed");
    }
}

#[tokio::test]
async fn the_controllers_answer_passes_screened() {
    let body = json!({"error": {"message": "no such message", "token": TOKEN}});
    let script = Script::json(409, body)
        .header("set-cookie", "admin=1")
        .header("location", "http://controller.internal/")
        .header("server", "controller/1")
        .header("x-request-id", "leaked")
        .header("retry-after", "3");
    let controller = Upstream::answering(script.in_pieces(3)).start().await;
    let sidecar = relaying(controller.url()).start().await;
    let answer = sidecar.get("/api/v1/sandboxes/r1/messages?wait=0").await.expect(409);
    assert_eq!((answer.header("retry-after"), answer.header("content-type")), (Some("3"), Some("application/json")));
    assert!(!answer.text().contains(TOKEN), "the controller's echo of the token: {}", answer.text());
    assert_eq!(answer.error()["message"], "no such message");
    silent(sidecar).await;
}

#[tokio::test]
async fn bodies_of_the_relay_are_bounded_both_ways() {
    let controller = Upstream::with(|request| match request.method.as_str() {
        "GET" => Script::body(200, "application/json", vec![b'x'; 1024 * 1024 + 1]),
        _ => Script::json(202, json!({"bytes": request.body.len()})),
    });
    let controller = controller.start().await;
    let sidecar = relaying(controller.url()).start().await;
    let path = "/api/v1/sandboxes/r1/events";

    let large = "x".repeat(1024 * 1024);
    assert_eq!(sidecar.post(path, &large).await.expect(202).json()["bytes"], large.len());
    sidecar.post(path, format!("{large}x")).await.expect_refusal(413, "body_too_large");
    let mut raw = sidecar.connect().await;
    raw.send(format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n")).await;
    raw.read_response().await.expect_refusal(413, "body_too_large");

    let answer = sidecar.get("/api/v1/sandboxes/r1/messages").await;
    answer.expect_refusal(502, "upstream_unreadable");
    assert_eq!(controller.requests().len(), 2);

    let gzip = sidecar.request("POST", path, &[("content-encoding", "gzip")], "x").await;
    gzip.expect_refusal(415, "content_encoding_not_allowed");
    silent(sidecar).await;
}

#[tokio::test]
async fn a_controller_that_is_down_is_a_503() {
    let path = "/api/v1/sandboxes/r1/events";
    let nowhere = ClosedPort::new();
    let sidecar = relaying(&nowhere.url()).start().await;
    for _ in 0..2 {
        let answer = sidecar.post(path, "{}").await.expect_refusal(503, "controller_unavailable");
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    let controller = Upstream::json(200, json!({"ok": true})).start_at(nowhere).await;
    sidecar.post(path, "{}").await.expect(200);
    assert_eq!(controller.requests().len(), 1);
    silent(sidecar).await;
}

#[tokio::test]
async fn a_controller_that_breaks_off_is_a_503() {
    for script in
        [Script::close(), Script::reset(), Script::json(200, json!({})).cut_head(20), Script::chat("x").cut_after(0)]
    {
        let controller = Upstream::answering(script).start().await;
        let sidecar = relaying(controller.url()).start().await;
        let answer = sidecar.get("/api/v1/sandboxes/r1/task").await;
        let answer = answer.expect_refusal(503, "controller_unavailable");
        assert_eq!((answer.header("retry-after"), answer.complete), (Some("1"), true));
        silent(sidecar).await;
    }
}

#[tokio::test]
async fn a_relay_over_a_unix_socket_works_too() {
    let controller = Upstream::json(200, json!({"task": "say hello"})).start_unix().await;
    let sidecar = relaying(controller.url()).start().await;
    let answer = sidecar.get("/api/v1/sandboxes/r1/task").await.expect(200);
    assert_eq!(answer.json()["task"], "say hello");
    assert_eq!(controller.only_request().headers_named("authorization"), [format!("Bearer {TOKEN}")]);
}

#[tokio::test]
async fn calls_carry_the_key_and_events_the_token() {
    let (upstream, controller) = (Upstream::chat("hi").start().await, Upstream::json(200, json!({})).start().await);
    let sidecar = relaying(controller.url()).upstream(upstream.url()).start().await;
    sidecar.post("/v1/chat/completions", json!({"model": "m", "messages": []})).await.expect(200);
    sidecar.post("/api/v1/sandboxes/r1/events", "{}").await.expect(200);
    let text = |request: ReceivedRequest| String::from_utf8_lossy(&request.head).into_owned();
    assert!(!text(upstream.only_request()).contains(TOKEN));
    let head = text(controller.only_request());
    assert!(!head.contains("canary-7Qm") && !head.contains("litellm"), "{head}");
    silent(sidecar).await;
}

#[tokio::test]
async fn a_relay_needs_its_token() {
    let url = ["--relay", "http://127.0.0.1:1"];
    let failed = Sidecar::to_url("http://127.0.0.1:1").args(url).fail().await;
    assert_eq!((failed.code, failed.stderr.contains("--relay-token-file")), (64, true), "{}", failed.stderr);
    let alone = ["--relay-token-file", "/nonexistent"];
    let failed = Sidecar::to_url("http://127.0.0.1:1").args(alone).fail().await;
    assert_eq!((failed.code, failed.stderr.contains("--relay")), (64, true), "{}", failed.stderr);
    let failed = Sidecar::to_url("http://127.0.0.1:1").args(url).args(alone).fail().await;
    assert_eq!((failed.code, failed.stderr.contains("/nonexistent")), (66, true), "{}", failed.stderr);
}
