//! Requests outside the routes: they do not reach the upstream, and the log records them.

use sluice_testkit::{ClientAnswer, Sidecar, Upstream};

const CHAT: &str = r#"{"model":"m","messages":[]}"#;

/// Paths of LiteLLM that a proxy for all of `/v1` would pass, and other paths that must never pass.
const ADMIN: [&str; 37] = [
    "/v1/model/info", "/v1/mcp/server", "/v1/mcp/tools", "/v1/agents", "/v1/access_group", "/v1/unified_access_group",
    "/v1/memory", "/v1/tool/policy", "/v1/tool/list", "/v1/workflows/runs", "/v1/indexes", "/v1/files", "/v1/batches",
    "/v1/vector_store", "/v1/vector_stores", "/v1/search/tools", "/v1/realtime", "/v1/realtime/client_secrets",
    "/v1/responses/resp_123", "/v1/audio/speech", "/v1/images/generations", "/v1/moderations", "/v1/rerank",
    "/v1/messages/batches", "/key/generate", "/key/list", "/user/new", "/spend/logs", "/global/spend", "/model/new",
    "/config/update", "/health/readiness", "/metrics", "/openai/deployments/m/chat/completions",
    "/anthropic/v1/messages", "/engines/m/chat/completions", "/api/v1/sandboxes/r1/events",
];

/// Other spellings of paths that are routes, or of paths that are not.
const TRICKS: [&str; 30] = [
    "/v1", "/v1/", "/v1/..%2fkey/list", "/v1/..%2Fkey/list", "/v1/%2e%2e/key/list", "/v1/%2E%2E%2Fkey/list",
    "/v1/../key/list", "/v1/models/../../key/list", "/v1/chat/../chat/completions", "/v1/./chat/completions",
    "/v1/chat/completions/", "/v1/chat/completions/.", "/v1/chat/completions/..", "//v1/chat/completions",
    "/v1//chat/completions", "/v1/chat//completions", "/v1/chat/completions//", "/v1/chat%2fcompletions",
    "/v1%2Fchat/completions", "/v1/chat/%63ompletions", "/v1/chat/completions%00", "/v1/chat/completions%20",
    "/v1/chat/completions%3Fx", "/v1/chat/completions%23", "/v1/chat/completions;x=1", "/V1/chat/completions",
    "/v1/Chat/Completions", "/v1/v1/chat/completions", "/v1/chat/completions/v1/models", "/%76%31/models",
];

/// Sends a head unchanged, followed by a chat.
async fn send(sidecar: &Sidecar, method: &str, target: &str, headers: &str) -> ClientAnswer {
    let mut raw = sidecar.connect().await;
    let body = if method == "POST" { CHAT } else { "" };
    let length = body.len();
    let head = format!("{method} {target} HTTP/1.1\r\nhost: x\r\n{headers}content-length: {length}\r\n\r\n");
    raw.send(format!("{head}{body}")).await;
    raw.read_response().await
}

#[tokio::test]
async fn unlisted_routes_do_not_exist() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let mut expected = Vec::new();
    for path in ADMIN.iter().chain(&TRICKS) {
        for method in ["GET", "POST"] {
            let answer = send(&sidecar, method, path, "").await;
            assert_eq!(
                (answer.status, answer.reason()),
                (404, "route_not_allowed"),
                "{method} {path}: {}",
                answer.text()
            );
            expected.push((method.to_owned(), (*path).to_owned()));
        }
    }

    sidecar.stop().await;
    let audit = sidecar.audit();
    let text = |line: &serde_json::Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let refused = audit.refusals().into_iter().map(|line| {
        assert_eq!((&line["reason"], &line["status"]), (&"route_not_allowed".into(), &404.into()));
        (text(line, "method"), text(line, "path"))
    });
    assert_eq!(refused.collect::<Vec<_>>(), expected);
    assert_eq!((upstream.begun(), audit.close()["refused"].as_u64()), (0, Some(expected.len() as u64)));
}

#[tokio::test]
async fn targets_with_another_host_or_no_path_are_refused() {
    let elsewhere = Upstream::chat("stolen").start().await;
    let sidecar = Sidecar::to(&elsewhere).start().await;
    let host = elsewhere.url().trim_start_matches("http://").to_owned();
    for (method, target) in [
        ("POST", format!("http://{host}/v1/chat/completions")),
        ("POST", "http://evil.example/v1/chat/completions".to_owned()),
        ("POST", "https://evil.example/v1/chat/completions".to_owned()),
        ("GET", "http://evil.example/health".to_owned()),
        ("GET", "http://x@evil.example/v1/models".to_owned()),
        ("OPTIONS", "*".to_owned()),
        ("CONNECT", "evil.example:443".to_owned()),
        ("GET", "evil.example:443".to_owned()),
    ] {
        let answer = send(&sidecar, method, &target, "").await;
        let refused = (answer.status, answer.reason());
        assert!(matches!(refused, (404, "route_not_allowed") | (400, "bad_request")), "{method} {target}: {refused:?}");
    }
    assert_eq!(sidecar.audit_with("refused", 8).await.refusals().len(), 8);
    assert_eq!(elsewhere.begun(), 0);
}

#[tokio::test]
async fn an_invalid_target_is_refused_and_recorded() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let targets =
        ["/v1\\models", "\\v1\\models", "/v1/models\\..\\..\\key", "v1/models", "/v1/mod els", "/v1/<models>"];
    for target in targets {
        let answer = send(&sidecar, "GET", target, "").await;
        let refused = (answer.status, answer.reason());
        assert!(matches!(refused, (404, "route_not_allowed") | (400, "bad_request")), "{target}: {refused:?}");
        assert!(answer.error()["message"].is_string(), "{target}: {}", answer.text());
    }
    let audit = sidecar.audit_with("refused", targets.len()).await;
    assert!(audit.refused_reasons().iter().all(|reason| reason == "bad_request" || reason == "route_not_allowed"));
    assert_eq!(upstream.begun(), 0);
}

#[tokio::test]
async fn a_route_takes_one_method() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let routes = crate::bodies::WIRES.map(|(path, _)| (path, "GET"));
    let mut count = 0;
    for (path, other) in routes.into_iter().chain([("/v1/models", "POST")]) {
        for method in [other, "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "post"] {
            let answer = send(&sidecar, method, path, "").await;
            assert_eq!(
                (answer.status, answer.reason()),
                (405, "method_not_allowed"),
                "{method} {path}: {}",
                answer.text()
            );
            count += 1;
        }
        let mut raw = sidecar.connect().await;
        let answer = raw.request("HEAD", path, &[], ()).await;
        assert_eq!((answer.status, answer.reason(), answer.body.len()), (405, "method_not_allowed", 0), "{path}");
        count += 1;
        // If the answer had a body, the client would read it as the next answer.
        raw.get("/health").await.expect(200);
    }
    for path in ["/health", "/", "/api/hello"] {
        for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
            send(&sidecar, method, path, "").await.expect_refusal(405, "method_not_allowed");
            count += 1;
        }
    }
    let audit = sidecar.audit();
    assert_eq!((audit.refusals().len(), upstream.begun()), (count, 0));
    assert!(audit.refusals().iter().all(|line| line["reason"] == "method_not_allowed" && line["status"] == 405));
}

#[tokio::test]
async fn a_connection_stays_plain_http() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let websocket = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
        sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for (method, target, headers, status, reason) in [
        ("GET", "/v1/models", websocket, 426, "upgrade_not_allowed"),
        ("POST", "/v1/responses", websocket, 426, "upgrade_not_allowed"),
        ("POST", "/v1/chat/completions", "upgrade: h2c, websocket\r\n", 426, "upgrade_not_allowed"),
        ("POST", "/v1/chat/completions", "Upgrade: TLS/1.0\r\n", 426, "upgrade_not_allowed"),
        ("GET", "/v1/responses", websocket, 426, "upgrade_not_allowed"),
        ("GET", "/responses", websocket, 426, "upgrade_not_allowed"),
        ("GET", "/v1/messages", websocket, 426, "upgrade_not_allowed"),
        ("GET", "/v1/realtime", websocket, 404, "route_not_allowed"),
        ("GET", "/v1/responses", "", 405, "method_not_allowed"),
        ("GET", "/v1/responses", "upgrade: h2c\r\n", 405, "method_not_allowed"),
    ] {
        let answer = send(&sidecar, method, target, headers).await;
        assert_eq!((answer.status, answer.reason()), (status, reason), "{method} {target} {headers:?}");
        let named = (answer.header("upgrade"), answer.header("connection"));
        let expected = if status == 426 { (Some("HTTP/1.1"), Some("upgrade")) } else { (None, None) };
        assert_eq!(named, expected, "{method} {target} {headers:?}");
    }
    assert_eq!((sidecar.audit().refusals().len(), upstream.begun()), (10, 0));
}

/// Bug: Java's HTTP client offers HTTP/2 with each request, and its programs got 426 for their answer.
#[tokio::test]
async fn an_offer_of_http2_is_ignored() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let mut raw = sidecar.connect().await;
    let offer = [("connection", "Upgrade, HTTP2-Settings"), ("upgrade", "h2c"), ("http2-settings", "AAMA")];
    for _ in 0..2 {
        raw.request("POST", "/v1/chat/completions", &offer, r#"{"model":"m","messages":[]}"#).await.expect(200);
        let received = upstream.received().await;
        assert_eq!((received.header("upgrade"), received.header("http2-settings")), (None, None));
    }
}

#[tokio::test]
async fn a_refused_websocket_leaves_its_connection_usable() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let mut raw = sidecar.connect().await;
    let websocket = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];

    // Codex sends this request, and goes on in plain HTTP.
    raw.request("GET", "/v1/responses", &websocket, ()).await.expect_refusal(426, "upgrade_not_allowed");
    raw.request("POST", "/v1/responses", &[], r#"{"model":"m","input":"x"}"#).await.expect(200);
    assert_eq!(sidecar.audit_with("outcome", 1).await.kinds(), ["open", "refused", "intent", "outcome"]);
}

#[tokio::test]
async fn the_log_has_truncated_paths_without_queries() {
    let sidecar = Sidecar::to_url("http://127.0.0.1:1").start().await;
    let path = format!("/{}", "é/".repeat(300).replace('é', "%C3%A9"));
    send(&sidecar, "GET", &path, "").await.expect_refusal(404, "route_not_allowed");
    send(&sidecar, "GET", "/v1/files?token=CANARY", "").await.expect_refusal(404, "route_not_allowed");

    let audit = sidecar.audit();
    let paths: Vec<_> = audit.refusals().iter().map(|line| line["path"].as_str().expect("a path")).collect();
    assert_eq!(paths, [&path[..256], "/v1/files"]);
}

#[tokio::test]
async fn asking_for_models_takes_no_body() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let answer = sidecar.request("GET", "/v1/models", &[], r#"{"api_base":"x"}"#).await;
    answer.expect_refusal(400, "bad_request");
    assert_eq!((upstream.begun(), sidecar.audit().refused_reasons()), (0, vec!["bad_request".to_owned()]));
}
