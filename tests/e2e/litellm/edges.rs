//! Requests that never reach LiteLLM, and its answers that are not calls or not successes.

use serde_json::Value;
use sluice_testkit::Sidecar;
use sluice_testkit::litellm::LiteLlm;

use super::{before, last_call};

#[tokio::test]
async fn hiding_or_redirecting_members_never_reach_litellm() {
    let litellm = LiteLlm::shared().await;
    let sidecar = before(litellm).run_id("run-refused").start().await;
    let mark = format!("mark-refused-{}", std::process::id());
    for (more, reason) in [
        (r#""no-log":true"#, "param_not_allowed"),
        (r#""api_base":"http://127.0.0.1:1""#, "param_not_allowed"),
        (r#""api_key":"sk-attacker""#, "param_not_allowed"),
        (r#""fallbacks":["gpt-4o"]"#, "param_not_allowed"),
        (r#""mock_response":"free""#, "param_not_allowed"),
        (r#""input_cost_per_token":0"#, "param_not_allowed"),
        (r#""num_retries":3"#, "param_not_allowed"),
        (r#""tools":[{"type":"mcp","server_url":"litellm_proxy/mcp/x"}]"#, "tool_not_allowed"),
        (r#""n":100"#, "param_not_allowed"),
        (r#""user":"a","user":"b""#, "duplicate_member"),
    ] {
        let sent = format!(r#"{{"model":"provider-gpt","messages":[{{"role":"user","content":"{mark}"}}],{more}}}"#);
        sidecar.post("/v1/chat/completions", sent).await.expect_refusal(400, reason);
    }
    let list = r#"{"model":"provider-gpt,gpt-4o","messages":[]}"#;
    sidecar.post("/v1/chat/completions", list).await.expect_refusal(400, "model_not_allowed");
    sidecar.get("/v1/model/info").await.expect_refusal(404, "route_not_allowed");

    // One good call after them: LiteLLM records in order, so it has all records of this run by now.
    let good = format!(r#"{{"model":"provider-gpt","messages":[{{"role":"user","content":"good {mark}"}}]}}"#);
    sidecar.post("/v1/chat/completions", good).await.expect(200);
    let (call, _) = last_call(litellm, &sidecar).await;
    let records = litellm.records();
    let of_run: Vec<_> =
        records.iter().filter(|record| record["spend_logs_metadata"]["run_id"] == "run-refused").collect();
    assert_eq!((of_run.len(), of_run[0]["litellm_call_id"].as_str()), (1, Some(call.id())));
    assert_eq!(litellm.provider_requests_with(&mark).len(), 1);
}

#[tokio::test]
async fn counting_tokens_and_listing_models_work_and_cost_nothing() {
    let litellm = LiteLlm::shared().await;
    let sidecar = before(litellm).args(["--model", "provider-claude", "--model", "gpt-4o"]).start().await;
    let sent = r#"{"model":"provider-claude","messages":[{"role":"user","content":"x"}],"user":"VICTIM"}"#;
    let answer = sidecar.post("/v1/messages/count_tokens", sent).await.expect(200);
    assert!(answer.json()["input_tokens"].as_u64().is_some_and(|count| count > 0), "{}", answer.text());
    let list = sidecar.get("/v1/models").await.expect(200).json();
    let mut ids: Vec<_> = list["data"].as_array().expect("a list").iter().map(|model| model["id"].clone()).collect();
    ids.sort_by_key(Value::to_string);
    assert_eq!(ids, ["gpt-4o", "provider-claude"]);
    sidecar
        .post("/v1/chat/completions", r#"{"model":"gpt-4o-mini","messages":[]}"#)
        .await
        .expect_refusal(400, "model_not_allowed");
    for call in sidecar.audit().calls() {
        assert_eq!((call.result(), call.tokens(), call.cost()), ("ok", None, None), "{}", call.outcome);
        assert!(call.outcome["litellm_call_id"].is_null(), "LiteLLM names none here: {}", call.outcome);
    }
}

#[tokio::test]
async fn a_litellm_error_passes_and_records_its_call_id() {
    let litellm = LiteLlm::shared().await;
    let sidecar = before(litellm).start().await;
    for (path, rest) in [
        ("/v1/chat/completions", r#""messages":[{"role":"user","content":"x"}]"#),
        ("/v1/responses", r#""input":"x""#),
        ("/v1/messages", r#""max_tokens":9,"messages":[{"role":"user","content":"x"}]"#),
    ] {
        let answer = sidecar.post(path, format!(r#"{{"model":"no-such-model",{rest}}}"#)).await;
        assert_eq!((answer.status, answer.reason()), (400, ""), "{path}: {}", answer.text());
        assert!(answer.error()["message"].is_string(), "{}", answer.text());
        let call = sidecar.audit().calls().pop().expect("a call");
        assert_eq!((call.result(), call.status()), ("upstream_error", Some(400)), "{path}");
        assert_eq!(call.outcome["litellm_call_id"], call.id(), "{path}");
    }
}

#[tokio::test]
async fn an_unknown_key_appears_in_no_answer() {
    let litellm = LiteLlm::shared().await;
    let key = "sk-wrong-canary-3hT8wPq2";
    let sidecar = Sidecar::to_url(litellm.url()).key(key).start().await;
    let answer = sidecar.post("/v1/chat/completions", r#"{"model":"gpt-4o-mini","messages":[]}"#).await;
    assert!(answer.status >= 400, "{}", answer.text());
    for part in [key, &key[key.len() - 4..]] {
        assert!(!answer.text().contains(part), "{part} in {}", answer.text());
    }
}
