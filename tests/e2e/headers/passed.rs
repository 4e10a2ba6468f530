//! The three headers of a client that may pass: what it accepts, which version, which betas.

use serde_json::{Value, json};
use sluice_testkit::{Sidecar, Upstream};

use super::CHAT;

#[tokio::test]
async fn two_headers_of_the_client_pass_if_they_are_plain() {
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
async fn of_the_betas_only_those_that_are_allowed_pass() {
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
    // Which ones were taken out is in the log; all of them, or a part.
    let stripped = |line: &Value| line["stripped"] == json!(["anthropic-beta"]);
    let named: Vec<bool> = usual.audit().intents().into_iter().map(stripped).collect();
    assert_eq!(named, [false, false, true, true, true]);
}
