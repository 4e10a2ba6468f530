//! The three headers of a client that may pass: accepted types, version, betas.

use serde_json::{Value, json};
use sluice_testkit::{Sidecar, Upstream};

use super::CHAT;

#[tokio::test]
async fn two_plain_client_headers_pass() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let long = "x".repeat(300);
    for (sent, accept, version) in [
        (vec![("accept", "text/event-stream")], vec!["text/event-stream"], vec![]),
        (vec![("Anthropic-Version", "2023-06-01")], vec![], vec!["2023-06-01"]),
        (
            vec![("accept", "a/b"), ("accept", "c/d"), ("anthropic-version", "1"), ("anthropic-version", "2")],
            vec!["a/b"],
            vec!["1"],
        ),
        (vec![("accept", "é"), ("anthropic-version", &long)], vec![], vec![]),
        (vec![("accept_", "a/b"), ("anthropic_version", "1"), ("x-accept", "a/b")], vec![], vec![]),
    ] {
        let answer = sidecar.request("POST", "/v1/messages", &sent, CHAT).await;
        answer.expect(200);
        let request = upstream.received().await;
        let seen = (request.headers_named("accept"), request.headers_named("anthropic-version"));
        assert_eq!(seen, (accept, version), "{sent:?}");
        let mut names = request.header_names();
        names.retain(|name| name != "accept" && name != "anthropic-version");
        assert_eq!(names.len(), 14, "{names:?}");
    }
}

#[tokio::test]
async fn only_allowed_betas_pass() {
    let upstream = Upstream::provider("hi").start().await;
    let usual = Sidecar::to(&upstream).start().await;
    let wider = Sidecar::to(&upstream).args(["--allow-beta", "files-api-2025-04-14"]).start().await;
    let (one, two) = ("interleaved-thinking-2025-05-14", "claude-code-20250219");
    let both = format!("{one},{two}");
    for (sidecar, sent, arrives) in [
        (&usual, vec![one], Some(one.to_owned())),
        (&usual, vec![one, two], Some(both.clone())),
        (&usual, vec![&*format!("{one} , mcp-client-2025-04-04,{two}")], Some(both.clone())),
        (&usual, vec!["mcp-client-2025-04-04", "code-execution-2025-05-22", "files-api-2025-04-14", "", ",,"], None),
        (&usual, vec![&*one.to_uppercase(), &*format!("{one};x"), &*format!("{one} x")], None),
        (&wider, vec!["files-api-2025-04-14,mcp-client-2025-04-04", one], Some(format!("files-api-2025-04-14,{one}"))),
    ] {
        let headers: Vec<_> = sent.iter().map(|value| ("anthropic-beta", *value)).collect();
        sidecar.request("POST", "/v1/messages", &headers, CHAT).await.expect(200);
        let request = upstream.received().await;
        let arrived = request.headers_named("anthropic-beta");
        assert_eq!(arrived, arrives.iter().collect::<Vec<_>>(), "{sent:?}");
    }
    // The log names the removed ones, except texts without the form of a beta.
    let named: Vec<Value> = usual.audit().intents().into_iter().map(|line| line["stripped"].clone()).collect();
    let expected = [
        json!([]),
        json!([]),
        json!(["anthropic-beta:mcp-client-2025-04-04"]),
        json!([
            "anthropic-beta:mcp-client-2025-04-04",
            "anthropic-beta:code-execution-2025-05-22",
            "anthropic-beta:files-api-2025-04-14"
        ]),
        json!(["anthropic-beta"]),
    ];
    assert_eq!(named, expected);
}

#[tokio::test]
async fn the_betas_of_claude_code_pass() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let sent = "claude-code-20250219,interleaved-thinking-2025-05-14,thinking-token-count-2026-05-13,\
        context-management-2025-06-27,prompt-caching-scope-2026-01-05,mid-conversation-system-2026-04-07,\
        structured-outputs-2025-12-15,effort-2025-11-24,task-budgets-2026-03-13";
    sidecar.request("POST", "/v1/messages", &[("anthropic-beta", sent)], CHAT).await.expect(200);
    assert_eq!(upstream.received().await.header("anthropic-beta"), Some(sent));
    assert_eq!(sidecar.audit().only_call().intent["stripped"], json!([]));
}
