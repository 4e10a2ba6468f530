//! Calls that LiteLLM refuses for a budget of its own.

use super::*;
use sluice_testkit::upstream::Script;

const MESSAGE: &str = "Budget has been exceeded! Key=alias-secret (sk-...Dw7q) Current cost: 0.3, Max budget: 0.25";

/// Returns the answer of LiteLLM 1.106 before it has asked a provider.
fn refusal(status: u16, message: &str) -> Value {
    json!({"error": {"message": message, "type": "budget_exceeded", "param": null, "code": status.to_string()}})
}

#[tokio::test]
async fn a_spent_litellm_budget_is_named_and_free() {
    // 422 by default, 429 and 400 in older versions, and a status that the operator sets.
    for status in [422, 429, 400, 403] {
        let upstream = Upstream::json(status, refusal(status, MESSAGE)).start().await;
        let launch = priced(Sidecar::to(&upstream), "0.001").args(["--max-cost-usd", "1.5"]);
        let sidecar = launch.start().await;

        for (at, path) in [CHAT, "/v1/messages", "/v1/responses", CHAT, CHAT].into_iter().enumerate() {
            let mut body = if path == "/v1/responses" { json!({"model": "m", "input": "x"}) } else { declared(1000) };
            body["stream"] = json!(at % 2 == 1);
            // Each call reserves one dollar of the cap of 1.5 dollars, so a charged call would leave no room.
            let answer = sidecar.post(path, body).await.expect_refusal(402, "budget_exceeded");
            let text = answer.text();
            assert!(text.contains("the key that the sidecar has"), "{text}");
            assert!(text.contains("$0.3 spent or reserved of $0.25"), "{text}");
            assert!(!text.contains("alias-secret") && !text.contains("Dw7q"), "{text}");
        }

        assert_eq!(upstream.requests().len(), 5, "{status}");
        assert_eq!(sidecar.stop().await, 0);
        let audit = sidecar.audit();
        for outcome in audit.outcomes() {
            let told = ["result", "status", "end", "null_reason", "budget_of", "budget_spent_usd", "budget_limit_usd"];
            assert_eq!(
                json!(told.map(|name| &outcome[name])),
                json!(["upstream_error", status, "complete", "not_billed", "key", "0.3", "0.25"])
            );
            assert!(!outcome.to_string().contains("alias-secret"), "{outcome}");
        }
        assert_eq!((&audit.close()["unknown"], &audit.close()["cost_usd"]), (&json!(0), &json!("0")));
    }
}

#[tokio::test]
async fn the_words_of_a_provider_make_no_spent_budget() {
    let cases = [
        // LiteLLM copies the type from some providers, names the call, and puts its own word before the message.
        Script::json_with(422, &[("x-litellm-call-id", "c1")], refusal(422, MESSAGE)),
        Script::json(422, refusal(422, &format!("litellm.BadRequestError: OpenAIException - {MESSAGE}"))),
        Script::json(422, json!({"error": {"message": MESSAGE, "type": "invalid_request_error", "code": "422"}})),
        Script::json(422, json!({"detail": [{"msg": MESSAGE, "type": "budget_exceeded"}]})),
    ];
    for script in cases {
        let upstream = Upstream::answering(script).start().await;
        let sidecar = priced(Sidecar::to(&upstream), "0.001").args(["--max-cost-usd", "1.5"]).start().await;

        let answer = sidecar.post(CHAT, declared(1000)).await.expect(422);

        assert!(answer.text().contains("Budget has been exceeded!"), "{}", answer.text());
        // The call may have been billed, so it is charged as reserved.
        sidecar.post(CHAT, declared(1000)).await.expect_refusal(402, "budget_exceeded");
        assert_eq!(sidecar.stop().await, 0);
        let audit = sidecar.audit();
        let outcome = &audit.only_call().outcome;
        assert_eq!((&outcome["null_reason"], outcome.get("budget_of")), (&json!("upstream_error"), None));
    }
}

#[tokio::test]
async fn another_refusal_passes_as_it_came() {
    for status in [400, 404, 422, 429] {
        let body = json!({"error": {"message": "no", "type": "x", "param": null, "code": "y"}});
        let upstream = Upstream::json(status, body.clone()).start().await;
        let sidecar = Sidecar::to(&upstream).start().await;
        let answer = sidecar.post(CHAT, declared(10)).await.expect(status);
        assert_eq!(answer.json(), body);
        assert_eq!(sidecar.audit_with("outcome", 1).await.only_call().outcome["status"], status);
    }
}
