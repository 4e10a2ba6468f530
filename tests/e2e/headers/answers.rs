//! The parts of an answer that reach the sandbox: few headers, and never the key.

use serde_json::json;
use sluice_testkit::sidecar::CANARY;
use sluice_testkit::{Script, Sidecar, Upstream};

use super::CHAT;
use crate::bodies::{WIRES, body};

#[tokio::test]
async fn only_listed_answer_headers_pass() {
    let script = Script::provider("hi").header("retry-after", "3").header("X-RateLimit-Remaining", "7");
    let upstream = Upstream::answering(script).start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    for (path, rest) in WIRES {
        for stream in ["", r#","stream":true"#] {
            let answer = sidecar.post(path, body(rest, stream)).await.expect(200);
            let mut names: Vec<_> = answer.headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
            names.sort();
            let streams = answer.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
            let mut expected = vec!["content-type", "date", "retry-after", "x-request-id"];
            if path.contains("/messages") {
                expected.push("request-id");
            }
            // LiteLLM names neither call nor cost when it counts tokens, and no cost at the head of a stream.
            if !path.ends_with("count_tokens") {
                expected.push("x-litellm-call-id");
            }
            if !path.ends_with("count_tokens") && !streams {
                expected.push("x-litellm-response-cost");
            }
            expected.push(if streams { "transfer-encoding" } else { "content-length" });
            expected.sort_unstable();
            assert_eq!(names, expected, "{path} {stream}");
        }
    }
}

#[tokio::test]
async fn an_answer_names_its_call_as_the_sdks_expect() {
    for script in [
        Script::provider("hi").header("x-request-id", "THEIRS").header("request-id", "THEIRS"),
        Script::error(500, "x"),
        Script::error(401, "x"),
        Script::gzip(),
    ] {
        let upstream = Upstream::answering(script).start().await;
        let sidecar = Sidecar::to(&upstream).args(["--pass-response-header", "x-request-id"]).start().await;
        let openai = sidecar.post("/v1/chat/completions", CHAT).await;
        let anthropic = sidecar.post("/v1/messages", CHAT).await;
        let calls = sidecar.audit().calls();
        let ids = |answer: &sluice_testkit::ClientAnswer| {
            [answer.header("x-request-id"), answer.header("request-id")].map(|id| id.map(str::to_owned))
        };
        assert_eq!(ids(&openai), [Some(calls[0].id().to_owned()), None]);
        assert_eq!(ids(&anthropic), [Some(calls[1].id().to_owned()), Some(calls[1].id().to_owned())]);
    }
    // A request that was not forwarded is not a call.
    let refusing = Sidecar::to_url("http://127.0.0.1:1").start().await;
    assert_eq!(refusing.post("/v1/messages", "{}").await.expect(400).header("request-id"), None);
}

#[tokio::test]
async fn the_remaining_rate_passes_but_not_the_limit() {
    let passed = [
        ("x-ratelimit-remaining-requests", "41"),
        ("x-ratelimit-remaining-tokens", "-5"),
        ("x-ratelimit-reset-requests", "6m0s"),
        ("x-ratelimit-reset-tokens", "120ms"),
        ("anthropic-ratelimit-requests-remaining", "0"),
        ("anthropic-ratelimit-requests-reset", "2026-01-27T12:00:30Z"),
        ("anthropic-ratelimit-input-tokens-remaining", "1000"),
    ];
    // Limits and the names of LiteLLM's counters belong to the operator; only numbers and times pass.
    let kept = [
        ("x-ratelimit-limit-requests", "500"),
        ("x-ratelimit-limit-tokens", "30000"),
        ("anthropic-ratelimit-tokens-limit", "80000"),
        ("anthropic-ratelimit-unified-status", "allowed"),
        ("anthropic-ratelimit-unified-reset", "1700000000"),
        ("x-ratelimit-api_key-remaining-requests", "9"),
        ("x-ratelimit-team-remaining-tokens", "9"),
        ("x-ratelimit-model_per_key-limit-requests", "9"),
        ("x-ratelimit-remaining", "9"),
        ("llm_provider-x-ratelimit-remaining-requests", "9"),
        ("x-ratelimit-remaining-input-tokens", "key sk-1"),
        ("anthropic-ratelimit-input-tokens-reset", "1h; org=acme"),
    ];
    let script =
        passed.iter().chain(&kept).fold(Script::chat("hi"), |script, (name, value)| script.header(name, value));
    let upstream = Upstream::answering(script).start().await;
    let sidecar = Sidecar::to(&upstream).start().await;

    let answer = sidecar.post("/v1/chat/completions", CHAT).await.expect(200);

    for (name, value) in passed {
        assert_eq!(answer.header(name), Some(value), "{name}");
    }
    for (name, _) in kept {
        assert_eq!(answer.header(name), None, "{name}");
    }
}

#[tokio::test]
async fn members_dropped_from_a_body_are_named() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let many: String = (0..100).map(|n| format!(r#","member_with_a_rather_long_name_{n:03}":1"#)).collect();
    for (more, told) in [
        ("", None),
        (r#","user":"SECRET","metadata":{"a":"SECRET"},"tags":["SECRET"],"seed":1"#, None),
        (r#","min_p":0.1,"chat_template_kwargs":{"a":"SECRET"},"user":"u""#, Some("min_p, chat_template_kwargs")),
        (r#","a\r\nx-evil: 1":1"#, Some("+1")),
    ] {
        let answer = sidecar.post("/v1/chat/completions", body(r#""messages":[]"#, more)).await.expect(200);
        assert_eq!(answer.header("x-sluice-dropped"), told, "{more}");
        assert!(!String::from_utf8_lossy(&answer.raw).contains("SECRET"));
    }
    let answer = sidecar.post("/v1/chat/completions", body(r#""messages":[]"#, &many)).await.expect(200);
    let told = answer.header("x-sluice-dropped").expect("names");
    assert!(told.len() <= 1024 && told.contains(", +"), "{told}");
}

#[tokio::test]
async fn a_header_that_the_operator_names_passes_too() {
    let script = Script::chat("hi").header("x-ratelimit-remaining-requests", "41").header("x-other", "1");
    let upstream = Upstream::answering(script).start().await;
    let pass =
        ["--pass-response-header", "X-RateLimit-Remaining-Requests", "--pass-response-header", "x-litellm-version"];
    let sidecar = Sidecar::to(&upstream).args(pass).start().await;
    let answer = sidecar.post("/v1/chat/completions", CHAT).await.expect(200);
    assert_eq!(answer.header("x-ratelimit-remaining-requests"), Some("41"));
    assert_eq!((answer.header("x-litellm-version"), answer.header("x-other")), (Some("1.106.2"), None));
}

#[tokio::test]
async fn steering_or_leaking_headers_cannot_be_allowed() {
    for name in
        ["set-cookie", "Location", "connection", "transfer-encoding", "upgrade", "content-encoding", "www-authenticate"]
    {
        let failed = Sidecar::to_url("http://127.0.0.1:1").args(["--pass-response-header", name]).fail().await;
        assert_eq!(failed.code, 78, "{name}: {}", failed.stderr);
        assert!(failed.stderr.contains("--pass-response-header"), "{}", failed.stderr);
    }
}

fn blotted(text: &str) -> String {
    text.replace(CANARY, &"*".repeat(CANARY.len()))
}

#[tokio::test]
async fn the_key_is_masked_in_bodies_at_any_split() {
    let echo = json!({"choices": [], "debug": format!("a {CANARY} b {CANARY}{CANARY} c sk-sluice-can"), "id": CANARY})
        .to_string();
    for status in [200, 400, 500] {
        for size in [1, 7, 29, 64, 1000] {
            let script = Script::body(status, "application/json", echo.clone()).in_pieces(size);
            for script in [script.clone(), script.clone().chunked(), script.until_close()] {
                let upstream = Upstream::answering(script).start().await;
                let sidecar = Sidecar::to(&upstream).start().await;
                let answer = sidecar.post("/v1/chat/completions", CHAT).await.expect(status);
                assert_eq!(answer.text(), blotted(&echo), "{status}, pieces of {size}");
            }
        }
    }
}

#[tokio::test]
async fn the_key_is_masked_in_streams_at_any_split() {
    let chunk = |text: &str| json!({"choices": [{"index": 0, "delta": {"content": text}}]}).to_string();
    let (half, rest) = CANARY.split_at(11);
    let events = [chunk(CANARY), chunk(half), format!("{}{CANARY}", chunk(rest)), "[DONE]".to_owned()];
    let stream: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    for usage in ["", r#","stream_options":{"include_usage":true}"#] {
        for size in [1, 5, 28, 500] {
            let upstream = Upstream::answering(Script::sse(&events).in_pieces(size)).start().await;
            let sidecar = Sidecar::to(&upstream).start().await;
            let more = format!(r#","stream":true{usage}"#);
            let answer = sidecar.post("/v1/chat/completions", body(r#""messages":[]"#, &more)).await.expect(200);
            assert_eq!(answer.text(), blotted(&stream), "{usage} pieces of {size}");
        }
    }
}

#[tokio::test]
async fn a_header_that_holds_the_key_is_dropped() {
    let bearer = format!("Bearer {CANARY}");
    let script = Script::json(200, json!({}))
        .header("x-echo", &bearer)
        .header("retry-after", CANARY)
        .header("x-litellm-call-id", &bearer)
        .header("x-litellm-response-cost", CANARY);
    let upstream = Upstream::answering(script).start().await;
    let sidecar = Sidecar::to(&upstream).args(["--pass-response-header", "x-echo"]).start().await;
    let answer = sidecar.post("/v1/chat/completions", CHAT).await.expect(200);
    assert!(!String::from_utf8_lossy(&answer.raw).contains(CANARY), "{:?}", answer.headers);
    sidecar.stop().await;
    // The test kit searches the logs of every sidecar that it drops for the key.
    assert_eq!(sidecar.audit().only_call().result(), "ok");
}

#[tokio::test]
async fn the_key_is_masked_in_a_model_list() {
    let upstream = Upstream::answering(Script::models(["m", CANARY])).start().await;
    let whole = Sidecar::to(&upstream).start().await;
    let list = whole.get("/v1/models").await.expect(200).text();
    assert!(list.contains("\"m\"") && !list.contains(CANARY), "{list}");

    let script = Script::json(200, json!({"data": [{"id": "m", "owned_by": CANARY}], "debug": CANARY}));
    let upstream = Upstream::answering(script.in_pieces(3)).start().await;
    let filtered = Sidecar::to(&upstream).args(["--model", "m"]).start().await;
    let list = filtered.get("/v1/models").await.expect(200).text();
    assert_eq!(list, blotted(&json!({"data": [{"id": "m", "owned_by": CANARY}], "debug": CANARY}).to_string()));
}
