//! The names in `refused` lines and in outcomes: costs by account and model need no other line.

use serde_json::{Value, json};
use sluice_testkit::{Sidecar, Upstream};

use super::keys;

/// Sends a body that is refused, and returns the names in refused line number `count`; null where the line has none.
async fn names(sidecar: &Sidecar, path: &str, body: String, count: usize) -> Vec<Value> {
    let answer = sidecar.post(path, body.clone()).await;
    assert!(answer.status >= 400, "{body}: {}", answer.text());
    let audit = sidecar.audit_with("refused", count).await;
    let line = audit.refusals()[count - 1].clone();
    for name in ["model", "param", "tool"] {
        assert!(keys(&line).contains(&name) != line[name].is_null(), "{name} is null in {line}");
    }
    assert_eq!(line["account"], "acct-1", "{line}");
    ["reason", "model", "param", "tool"].map(|name| line[name].clone()).to_vec()
}

#[tokio::test]
async fn a_refused_line_names_model_member_and_tool() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).args(["--model", "m", "--max-body", "4000"]).start().await;
    let long = "x".repeat(100);
    let cases = [
        (r#"{"model":"m","api_base":"x"}"#.to_owned(), json!(["param_not_allowed", "m", "api_base", null])),
        // A refusal before the model was read does not name it.
        (r#"{"api_base":"x","model":"m"}"#.to_owned(), json!(["param_not_allowed", null, "api_base", null])),
        (r#"{"model":"other","input":"x"}"#.to_owned(), json!(["model_not_allowed", "other", "model", null])),
        (r#"{"input":"x"}"#.to_owned(), json!(["model_not_allowed", null, "model", null])),
        (
            r#"{"model":"m","tools":[{"type":"web_search"}]}"#.to_owned(),
            json!(["tool_not_allowed", "m", "tools", "web_search"]),
        ),
        (
            r#"{"model":"m","tools":[{"type":"function","name":"litellm_x"}]}"#.to_owned(),
            json!(["tool_not_allowed", "m", "tools", "litellm_x"]),
        ),
        (
            r#"{"model":"m","tools":[{"type":"a\u001b[31mb\u0000c\nd"}]}"#.to_owned(),
            json!(["tool_not_allowed", "m", "tools", "a[31mbcd"]),
        ),
        (
            format!(r#"{{"model":"m","tools":[{{"type":"{long}"}}]}}"#),
            json!(["tool_not_allowed", "m", "tools", long[..64]]),
        ),
        (format!(r#"{{"model":"{long}"}}"#), json!(["model_not_allowed", long[..64], "model", null])),
        (r#"{"model":"m","input":"x""#.to_owned(), json!(["invalid_json", "m", null, null])),
        (format!(r#"{{"model":"m","input":"{}"}}"#, "x".repeat(5000)), json!(["body_too_large", null, null, null])),
    ];
    for (at, (body, expected)) in cases.into_iter().enumerate() {
        assert_eq!(json!(names(&sidecar, "/v1/responses", body.clone(), at + 1).await), expected, "{body}");
    }
    assert_eq!(upstream.begun(), 0);
}

#[tokio::test]
async fn a_refusal_over_a_cap_names_the_model() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).args(["--max-calls", "1"]).start().await;
    let body = r#"{"model":"m","messages":[]}"#;
    sidecar.post("/v1/chat/completions", body).await.expect(200);

    let named = names(&sidecar, "/v1/chat/completions", body.to_owned(), 1).await;

    assert_eq!(json!(named), json!(["budget_exceeded", "m", null, null]));
}

#[tokio::test]
async fn an_outcome_names_account_and_model() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).account("team \"a\"".replace(' ', "-").as_str()).start().await;
    let hostile = "m/".to_owned() + &"x".repeat(254);
    for model in ["m", &hostile] {
        for streaming in [false, true] {
            let body = json!({"model": model, "messages": [], "stream": streaming});
            sidecar.post("/v1/chat/completions", body).await.expect(200);
        }
    }
    sidecar.get("/v1/models").await.expect(200);
    assert_eq!(sidecar.stop().await, 0);

    let audit = sidecar.audit();
    for (intent, outcome) in audit.intents().iter().zip(audit.outcomes()) {
        assert_eq!(outcome["account"], "team-\"a\"", "{outcome}");
        // The member is absent, not null, if the request names no model.
        assert_eq!(keys(outcome).contains(&"model"), !intent["model"].is_null(), "{outcome}");
        assert_eq!(outcome["model"], intent["model"], "{outcome}");
    }
    assert_eq!(audit.outcomes().len(), 5);
}

#[tokio::test]
async fn a_call_that_was_never_sent_names_them_too() {
    let nowhere = sluice_testkit::upstream::ClosedPort::new();
    let sidecar = Sidecar::to_url(&nowhere.url()).start().await;

    let body = json!({"model": "m", "messages": []});
    sidecar.post("/v1/chat/completions", body).await.expect_refusal(502, "upstream_unreachable");

    let outcome = sidecar.audit_with("outcome", 1).await.outcomes()[0].clone();
    assert_eq!(["account", "model", "connect_error"].map(|name| outcome[name].clone()), ["acct-1", "m", "refused"]);
}
