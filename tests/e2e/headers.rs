//! Which headers cross, in either direction.

use serde_json::{Value, json};
use sluice_testkit::sidecar::CANARY;
use sluice_testkit::{ReceivedRequest, Script, Sidecar, Upstream};

mod answers;
mod metadata;
mod passed;

const CHAT: &str = r#"{"model":"m","messages":[]}"#;

/// Hostile headers of a sandbox: every header that some version of LiteLLM reads, and headers that proxies and
/// providers in between trust.
const HOSTILE: [(&str, &str); 72] = [
    ("authorization", "Bearer sk-attacker"),
    ("x-litellm-api-key", "sk-attacker"),
    ("api-key", "sk-attacker"),
    ("x-api-key", "sk-attacker"),
    ("x-goog-api-key", "sk-attacker"),
    ("ocp-apim-subscription-key", "sk-attacker"),
    ("proxy-authorization", "Basic VklDVElN"),
    ("cookie", "session=VICTIM"),
    ("x-litellm-customer-id", "VICTIM"),
    ("x-litellm-end-user-id", "VICTIM"),
    ("x-litellm-user-id", "VICTIM"),
    ("x-user-id", "VICTIM"),
    ("x-openwebui-user-id", "VICTIM"),
    ("x-litellm-spend-logs-metadata", r#"{"run_id":"VICTIM"}"#),
    ("x-litellm-metadata", r#"{"run_id":"VICTIM"}"#),
    ("x-litellm-call-id", "VICTIM"),
    ("x-litellm-trace-id", "VICTIM"),
    ("x-litellm-session-id", "VICTIM"),
    ("x-session-id", "VICTIM"),
    ("x-claude-code-session-id", "VICTIM"),
    ("session-id", "VICTIM"),
    ("session_id", "VICTIM"),
    ("thread-id", "VICTIM"),
    ("conversation_id", "VICTIM"),
    ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ("tracestate", "VICTIM=1"),
    ("baggage", "session.id=VICTIM"),
    ("b3", "VICTIM"),
    ("langfuse_existing_trace_id", "VICTIM"),
    ("langfuse_trace_id", "VICTIM"),
    ("langfuse_session_id", "VICTIM"),
    ("langfuse_trace_user_id", "VICTIM"),
    ("langfuse_trace_metadata", "VICTIM"),
    ("langfuse-trace-id", "VICTIM"),
    ("x_litellm_end_user_id", "VICTIM"),
    ("x_litellm_api_key", "sk-attacker"),
    ("x-litellm-tags", "VICTIM"),
    ("x-litellm-agent-id", "VICTIM"),
    ("x-litellm-disable-callbacks", "langfuse,prometheus"),
    ("x-litellm-enable-message-redaction", "true"),
    ("litellm-enable-message-redaction", "true"),
    ("litellm-disable-message-redaction", "true"),
    ("x-litellm-timeout", "0.001"),
    ("x-litellm-stream-timeout", "0.001"),
    ("x-litellm-num-retries", "9"),
    ("x-litellm-keepalive-seconds", "9"),
    ("x-litellm-model", "expensive"),
    ("x-litellm-priority", "0"),
    ("x-mcp-auth", "sk-attacker"),
    ("x-mcp-servers", "evil"),
    ("x-pass-authorization", "Bearer sk-attacker"),
    ("openai-organization", "org-VICTIM"),
    ("openai-project", "proj-VICTIM"),
    ("openai-beta", "assistants=v2"),
    ("user-agent", "claude-cli/2.0 VICTIM"),
    ("x-forwarded-for", "10.0.0.1"),
    ("x-forwarded-host", "evil.example"),
    ("x-forwarded-proto", "https"),
    ("x-real-ip", "10.0.0.1"),
    ("forwarded", "for=10.0.0.1;host=evil.example"),
    ("via", "1.1 VICTIM"),
    ("cache-control", "ttl=99999"),
    ("accept-encoding", "gzip, br"),
    ("content-type", "application/x-www-form-urlencoded"),
    ("content-encoding", "identity"),
    ("keep-alive", "timeout=9999"),
    ("proxy-connection", "keep-alive"),
    ("te", "trailers"),
    ("origin", "http://evil.example"),
    ("referer", "http://evil.example"),
    ("x-http-method-override", "DELETE"),
    ("x-anything-at-all", "VICTIM"),
];

/// Returns the whole head that a call may have, sorted: each header once, and no other.
fn expected(upstream: &Upstream, call_id: &str, body: &str) -> Vec<(String, String)> {
    let metadata = json!({"run_id": "r1", "attempt": 0, "graph_id": "sandbox:agent", "sluice_call_id": call_id});
    let mut headers = vec![
        ("accept-encoding", "identity".to_owned()),
        ("authorization", format!("Bearer {CANARY}")),
        ("content-length", body.len().to_string()),
        ("content-type", "application/json".to_owned()),
        ("host", upstream.url().trim_start_matches("http://").to_owned()),
        ("user-agent", format!("sluice-proxy/{}", env!("CARGO_PKG_VERSION"))),
        ("x-litellm-call-id", call_id.to_owned()),
        ("x-litellm-customer-id", "acct-1".to_owned()),
        ("x-litellm-end-user-id", "acct-1".to_owned()),
        ("x-litellm-metadata", metadata.to_string()),
        ("x-litellm-num-retries", "0".to_owned()),
        ("x-litellm-session-id", "r1".to_owned()),
        ("x-litellm-spend-logs-metadata", metadata.to_string()),
        ("x-litellm-trace-id", "r1".to_owned()),
    ];
    headers.sort();
    headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The received head, sorted, with names in lower case and JSON in one form, so that heads can be compared.
fn received(request: &ReceivedRequest) -> Vec<(String, String)> {
    let form = |name: &str, value: &str| match name {
        "x-litellm-metadata" | "x-litellm-spend-logs-metadata" => {
            let value: Value = serde_json::from_str(value).expect("metadata is JSON");
            value.to_string()
        }
        _ => value.to_owned(),
    };
    let mut headers: Vec<_> = request
        .headers
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), form(&name.to_ascii_lowercase(), value)))
        .collect();
    headers.sort();
    headers
}

/// Makes a call with these headers, checks its whole head at the upstream, and returns its id.
async fn arrives_clean(upstream: &Upstream, sidecar: &Sidecar, headers: &[(&str, &str)], what: &str) -> String {
    let answer = sidecar.request("POST", "/v1/chat/completions", headers, CHAT).await;
    assert_eq!(answer.status, 200, "{what}: {}", answer.text());
    let request = upstream.received().await;
    let call_id = request.header("x-litellm-call-id").unwrap_or_default().to_owned();
    assert_eq!(received(&request), expected(upstream, &call_id, &request.text()), "{what}");
    call_id
}

#[tokio::test]
async fn each_hostile_header_is_dropped_alone() {
    let upstream = Upstream::chat("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    for (name, value) in HOSTILE {
        arrives_clean(&upstream, &sidecar, &[(name, value)], name).await;
        let (upper, twice) = (name.to_ascii_uppercase(), [(name, value), (name, "second")]);
        arrives_clean(&upstream, &sidecar, &[(&upper, value)], &upper).await;
        if name != "content-encoding" {
            arrives_clean(&upstream, &sidecar, &twice, &format!("{name} twice")).await;
        }
    }
}

#[tokio::test]
async fn hostile_headers_are_dropped_and_named_without_values() {
    let upstream = Upstream::chat("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;

    let call_id = arrives_clean(&upstream, &sidecar, &HOSTILE, "all").await;

    sidecar.stop().await;
    let audit = sidecar.audit();
    let intent = audit.only_call().intent;
    assert_eq!(intent["call_id"], call_id.as_str());
    let stripped: Vec<&str> = intent["stripped"].as_array().expect("names").iter().filter_map(Value::as_str).collect();
    for name in ["authorization", "x-litellm-customer-id", "x-litellm-call-id", "langfuse_trace_id", "x-litellm-tags"] {
        assert!(stripped.contains(&name), "{name} among {stripped:?}");
    }
    let log = std::fs::read_to_string(sidecar.audit_path()).expect("our own file");
    for value in ["VICTIM", "sk-attacker", "evil.example", "0af7651916cd43dd"] {
        assert!(!log.contains(value), "{value} is in the log");
    }
}

#[tokio::test]
async fn headers_named_by_connection_do_not_affect_ours() {
    let upstream = Upstream::chat("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    for connection in [
        "authorization, x-litellm-end-user-id, x-litellm-customer-id, x-litellm-call-id",
        "keep-alive, x-litellm-spend-logs-metadata, x-litellm-metadata, host, content-length, content-type",
        "close, user-agent, accept-encoding, x-secret",
        "X-LITELLM-END-USER-ID",
    ] {
        let headers = [("connection", connection), ("x-secret", "VICTIM"), ("x-litellm-end-user-id", "VICTIM")];
        arrives_clean(&upstream, &sidecar, &headers, connection).await;
    }
}

#[tokio::test]
async fn a_call_id_is_ours_and_new_each_time() {
    let upstream = Upstream::chat("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(arrives_clean(&upstream, &sidecar, &[("x-litellm-call-id", "fixed")], "fixed id").await);
    }
    sidecar.stop().await;
    let logged: Vec<_> = sidecar.audit().calls().iter().map(|call| call.id().to_owned()).collect();
    assert_eq!(logged, ids);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 3);
    for id in &ids {
        let shape = id.split('-').map(str::len).collect::<Vec<_>>();
        assert_eq!((shape, id.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit())), (vec![8, 4, 4, 4, 12], true));
    }
}

#[tokio::test]
async fn a_get_has_the_same_head_without_body() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    sidecar.request("GET", "/v1/models", &HOSTILE[..60], ()).await.expect(200);
    let request = upstream.received().await;
    let call_id = request.header("x-litellm-call-id").unwrap_or_default().to_owned();
    let mut expected = expected(&upstream, &call_id, "");
    expected.retain(|(name, _)| !name.starts_with("content-"));
    assert_eq!(received(&request), expected);
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let long = "x".repeat(70_000);
    let many: Vec<_> = (0..101).map(|number| (format!("x-{number}"), "1".to_owned())).collect();
    let wide: Vec<_> = (0..70).map(|number| (format!("x-{number}"), "y".repeat(1000))).collect();
    for (what, headers) in [("long", vec![("x-long".to_owned(), long)]), ("many", many), ("wide", wide)] {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let answer = sidecar.request("POST", "/v1/chat/completions", &headers, CHAT).await;
        assert_eq!(answer.status, 431, "{what}: {}", answer.text());
        assert_ne!(answer.reason(), "", "{what}: a refusal has a reason word");
        sidecar.get("/health").await.expect(200);
    }
    let audit = sidecar.audit_with("refused", 3).await;
    let statuses: Vec<_> = audit.refusals().iter().map(|line| line["status"].as_u64()).collect();
    assert_eq!((statuses, upstream.begun()), (vec![Some(431); 3], 0));
}

#[tokio::test]
async fn a_head_just_below_the_limits_is_carried() {
    let upstream = Upstream::answering(Script::chat("hi")).start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let many: Vec<_> = (0..90).map(|number| (format!("x-{number}"), "y".repeat(600))).collect();
    let headers: Vec<_> = many.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    arrives_clean(&upstream, &sidecar, &headers, "90 headers of 600 bytes").await;
}
