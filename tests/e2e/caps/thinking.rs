//! Calls with thinking and a lowered output bound: the provider must accept them.

use serde_json::{Value, json};
use sluice_testkit::upstream::{ReceivedRequest, Script, UpstreamPlan};
use sluice_testkit::{Sidecar, Upstream};

use super::priced;

const MESSAGES: &str = "/v1/messages";

/// An upstream that refuses invalid combinations of thinking and bound as Anthropic does.
fn anthropic() -> UpstreamPlan {
    Upstream::with(|request: &ReceivedRequest| {
        let body = request.json();
        let thinking = &body["thinking"];
        let budget = thinking["budget_tokens"].as_u64();
        let max_tokens = body["max_tokens"].as_u64().unwrap_or_default();
        let clears = body["context_management"]["edits"][0]["type"] == "clear_thinking_20251015";
        let has_blocks = body["messages"].to_string().contains(r#""type":"thinking""#);
        let wrong = match thinking["type"].as_str() {
            Some("enabled") if budget.is_none_or(|budget| budget < 1024) => {
                Some("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
            }
            Some("enabled") if budget >= Some(max_tokens) => {
                Some("`max_tokens` must be greater than `thinking.budget_tokens`")
            }
            None | Some("disabled") if has_blocks || clears => Some(
                "When thinking is disabled, an `assistant` message in the final position cannot contain `thinking`",
            ),
            _ => None,
        };
        match wrong {
            Some(message) => Script::json(
                400,
                json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}}),
            ),
            None => Script::messages("done"),
        }
    })
}

/// The values of Claude Code: its model's maximum, and a budget directly below it.
fn claude_code(more: &Value) -> Value {
    let mut body = json!({"model": "m", "max_tokens": 32_000, "thinking": {"type": "enabled", "budget_tokens": 31_999},
        "messages": [{"role": "user", "content": "hi"}]});
    body.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
    body
}

#[tokio::test]
async fn a_small_budget_carries_a_call_that_thinks() {
    let upstream = anthropic().start().await;
    // 15 dollars a million: $0.25 are 16,666 tokens.
    let sidecar = priced(Sidecar::to(&upstream), "0.000015").args(["--max-cost-usd", "0.25"]).start().await;

    for _ in 0..3 {
        let answer = sidecar.post(MESSAGES, claude_code(&json!({}))).await.expect(200);
        let sent = upstream.received().await.json();
        let (bound, budget) = (sent["max_tokens"].as_u64(), sent["thinking"]["budget_tokens"].as_u64());
        assert!(bound > Some(2048) && budget == bound.map(|bound| bound / 2), "{sent}");
        assert_eq!(answer.header("x-sluice-max-tokens"), bound.map(|bound| bound.to_string()).as_deref());
        assert_eq!(answer.header("x-sluice-dropped"), Some("thinking.budget_tokens"));
    }
    let audit = sidecar.audit();
    assert!(audit.intents().iter().all(|line| line["stripped"] == json!(["thinking.budget_tokens"])));
}

#[tokio::test]
async fn thinking_without_room_is_off_or_refused() {
    let upstream = anthropic().start().await;
    let blocks = json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]}]);
    let clearing = json!({"edits": [{"type": "clear_thinking_20251015"}]});
    for (tokens, more, expected) in [
        ("1800", json!({}), Ok(json!({"type": "disabled"}))),
        ("1800", json!({"messages": blocks.clone()}), Err(())),
        ("1800", json!({"context_management": clearing.clone()}), Err(())),
        ("1800", json!({"thinking": {"type": "adaptive"}}), Ok(json!({"type": "adaptive"}))),
        ("3500", json!({"messages": blocks}), Ok(json!({"type": "enabled", "budget_tokens": 1024}))),
        ("3500", json!({"context_management": clearing}), Ok(json!({"type": "enabled", "budget_tokens": 1024}))),
    ] {
        let sidecar = Sidecar::to(&upstream).args(["--max-tokens", tokens]).start().await;
        let answer = sidecar.post(MESSAGES, claude_code(&more)).await;
        match expected {
            Ok(thinking) => {
                answer.expect(200);
                assert_eq!(upstream.received().await.json()["thinking"], thinking, "{tokens} {more}");
            }
            Err(()) => drop(answer.expect_refusal(402, "budget_exceeded")),
        }
    }
}

#[tokio::test]
async fn a_bound_that_is_not_lowered_changes_nothing() {
    let upstream = anthropic().start().await;
    let sidecar = Sidecar::to(&upstream).args(["--max-tokens", "1000000"]).start().await;
    let answer = sidecar.post(MESSAGES, claude_code(&json!({}))).await.expect(200);
    assert_eq!(upstream.received().await.json()["thinking"]["budget_tokens"], 31_999);
    assert_eq!(answer.header("x-sluice-dropped"), None);
}
