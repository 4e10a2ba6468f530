//! Secrets that must not appear in any line or log.

use serde_json::json;
use sluice_testkit::upstream::Script;
use sluice_testkit::{Sidecar, Upstream};

use super::CHAT;

#[tokio::test]
async fn canaries_appear_in_no_record_and_no_log() {
    const MARK: &str = "cnry8Qz";
    let secret = |place: &str| format!("{MARK}-{place}-{MARK}");
    let echo = |status| Script::error(status, &secret("error")).header("x-echo", &secret("answer-header"));
    let event = json!({"id": "c", "model": "m", "choices": [{"delta": {"content": secret("delta")}}]}).to_string();
    let upstream = Upstream::queue([
        Script::chat(&secret("answer"))
            .header("set-cookie", &secret("cookie"))
            .header("x-litellm-key-spend", &secret("spend")),
        echo(400),
        echo(401),
        echo(403),
        echo(500),
        echo(307).header("location", &secret("location")),
        Script::chat_stream([secret("chunk")]),
        Script::sse([event.clone(), json!({"error": {"message": secret("event")}}).to_string()]),
        Script::sse([event, secret("not-json")]).cut_after(1),
        Script::raw(format!("HTTP/1.1 999 {}\r\n{}\r\n\r\n", secret("reason"), secret("junk"))),
        Script::body(200, "text/plain", secret("text")),
        Script::json(200, json!({"error": secret("error-text"), "usage": secret("usage")})),
    ]);
    let upstream = upstream.start().await;
    let sidecar = Sidecar::to(&upstream).args(["--log-level", "trace"]).start().await;
    let headers: Vec<_> = [
        "authorization", "x-api-key", "api-key", "cookie", "user-agent", "accept", "anthropic-version",
        "anthropic-beta", "referer", "x-litellm-end-user-id", "traceparent", "langfuse_trace_id", "x-anything",
        "accept-language", "proxy-authorization",
    ]
    .map(|name| (name, secret(name)))
    .to_vec();
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let body = |stream: bool| {
        json!({"model": "m", "stream": stream, "user": secret("user"), "metadata": {"k": secret("metadata")},
            "messages": [{"role": "user", "content": secret("prompt"), "name": secret("name")}],
            "unknown": secret("unknown"), "stop": [secret("stop")],
            "tools": [{"type": "function", "function": {"name": secret("tool"), "description": secret("description")}}]})
        .to_string()
    };
    let post = |path: &'static str, body: String| {
        let (sidecar, headers) = (&sidecar, &headers);
        async move { sidecar.request("POST", path, headers, body).await }
    };

    for number in 0..12 {
        post("/v1/chat/completions?key=cnry8Qz", body((6..9).contains(&number))).await;
    }
    for refused in [
        format!("{{\"model\":\"m\",\"api_base\":\"{}\"}}", secret("api_base")),
        format!("{{\"model\":\"m\",\"stream\":\"{}\"}}", secret("stream")),
        format!(
            "{{\"model\":\"m\",\"messages\":[{{\"image_url\":{{\"url\":\"http://{}/x\"}},\"type\":\"image_url\"}}]}}",
            secret("url")
        ),
        // Models and types of tools are names and may be in the log; the content of a tool may not.
        format!("{{\"model\":\"m\",\"tools\":[{{\"type\":\"mcp\",\"description\":\"{}\"}}]}}", secret("mcp")),
        format!("not json {}", secret("invalid")),
        format!("{{\"model\":\"m\",\"a\":\"{}", secret("cut-short")),
    ] {
        let answer = post(CHAT, refused.clone()).await;
        assert_eq!(answer.status, 400, "{refused}");
    }
    post("/v1/nothing-here?q=cnry8Qz", secret("lost")).await.expect(404);
    for raw in [
        format!("GET http://{MARK}.example/v1/models?x={MARK} HTTP/1.1\r\nhost: {MARK}\r\n\r\n"),
        format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\nx-bad header: {MARK}\r\n\r\n"),
        format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {MARK}\r\n\r\n"),
        format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n{MARK}\r\n"),
        format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\nupgrade: {MARK}\r\nconnection: upgrade\r\n\r\n"),
        format!("{{}} {MARK}\r\n\r\n"),
    ] {
        let mut bad = sidecar.connect().await;
        bad.send(&raw).await;
        bad.shutdown_write().await;
        while bad.read_some().await.is_some() {}
    }

    sidecar.stop().await;
    let audit = std::fs::read_to_string(sidecar.audit_path()).expect("the log");
    assert_eq!(sidecar.audit().calls().len(), 12, "all of them were carried");
    for (place, text) in [("the audit log", audit), ("stderr", sidecar.stderr()), ("stdout", sidecar.stdout())] {
        let shown: Vec<_> = text.lines().filter(|line| line.contains(MARK)).collect();
        assert!(shown.is_empty(), "in {place}: {shown:#?}");
    }
}
