//! The `openai` and `anthropic` SDKs, through socat, as an agent runs them: they behave as if they talked to the
//! provider.

use serde_json::{Value, json};
use sluice_testkit::litellm::LiteLlm;
use sluice_testkit::sdk::Sdk;
use sluice_testkit::{ClosedPort, Launch, PATIENCE, RawClient, RecordedCall, Script, Sidecar, Upstream, poll};

const OPENAI: [&str; 26] = [
    "chat_unary", "chat_stream", "chat_stream_usage_refused", "chat_stream_usage", "chat_stream_helper",
    "chat_stream_left_early", "tools_unary", "tools_stream", "json_mode", "json_schema", "image_20mb", "embeddings",
    "completions_unary", "completions_stream", "completions_stream_usage", "responses_unary", "responses_stream",
    "responses_tools", "models_list", "async_20", "headers_screened", "error_param_refused",
    "error_stream_param_refused", "error_route_not_allowed", "error_remote_image", "error_body_too_large",
];

const ANTHROPIC: [&str; 20] = [
    "messages_unary", "messages_stream", "messages_stream_events", "messages_stream_left_early", "tools_unary",
    "tools_stream", "image_base64", "image_20mb", "count_tokens", "system_and_metadata", "thinking", "beta_header",
    "beta_not_allowed", "async_20", "headers_screened", "error_param_refused", "error_stream_param_refused",
    "error_server_tool", "error_remote_image", "error_route_not_allowed",
];

fn before(litellm: &LiteLlm) -> Launch {
    Sidecar::to_url(litellm.url()).key(litellm.key())
}

/// Stops the sidecar, and checks that every call has its outcome, and every billed call its tokens.
async fn is_complete(sidecar: &Sidecar, refused: &[&str]) {
    assert_eq!(sidecar.stop().await, 0);
    let audit = sidecar.audit();
    assert_eq!(audit.open_calls(), Vec::<String>::new(), "calls without an outcome");
    assert_eq!(audit.refused_reasons(), refused);
    let free = ["/v1/models", "/v1/messages/count_tokens"];
    let is_billed = |call: &&RecordedCall| !free.iter().any(|path| call.intent["path"] == *path);
    for call in audit.calls().iter().filter(is_billed) {
        assert!(call.tokens().is_some(), "no tokens: {} {}", call.intent, call.outcome);
    }
}

#[tokio::test]
async fn each_openai_sdk_call_works_as_if_direct() {
    let litellm = LiteLlm::shared().await;
    let sidecar = before(litellm).start().await;
    Sdk::openai(sidecar.socket()).pass(&OPENAI).await;
    let refused =
        ["param_not_allowed", "param_not_allowed", "route_not_allowed", "remote_media_not_allowed", "body_too_large"];
    is_complete(&sidecar, &refused).await;
}

#[tokio::test]
async fn each_anthropic_sdk_call_works_as_if_direct() {
    let litellm = LiteLlm::shared().await;
    let sidecar = before(litellm).start().await;
    Sdk::anthropic(sidecar.socket()).pass(&ANTHROPIC).await;
    let refused =
        ["param_not_allowed", "param_not_allowed", "tool_not_allowed", "remote_media_not_allowed", "route_not_allowed"];
    is_complete(&sidecar, &refused).await;
}

#[tokio::test]
async fn base_urls_without_v1_and_model_lists_work() {
    let litellm = LiteLlm::shared().await;
    let sidecar = before(litellm).args(["--model", "gpt-4o-mini"]).start().await;
    let cases = ["chat_unary", "chat_stream", "responses_unary", "models_filtered", "error_unknown_model"];
    Sdk::openai(sidecar.socket()).base_path("").pass(&cases).await;
    is_complete(&sidecar, &["model_not_allowed"]).await;

    let sidecar = before(litellm).args(["--model", "claude-haiku-4-5"]).start().await;
    Sdk::anthropic(sidecar.socket()).pass(&["messages_unary", "error_unknown_model"]).await;
    is_complete(&sidecar, &["model_not_allowed"]).await;
}

#[tokio::test]
async fn a_spent_budget_is_an_exception_of_the_sdk() {
    let litellm = LiteLlm::shared().await;
    for is_openai in [true, false] {
        let sidecar = before(litellm).args(["--max-calls", "2"]).start().await;
        let sdk = if is_openai { Sdk::openai(sidecar.socket()) } else { Sdk::anthropic(sidecar.socket()) };
        sdk.set("SDK_MAX_CALLS", "2").pass(&["over_max_calls"]).await;
        assert_eq!(sidecar.audit().calls().len(), 2);
        is_complete(&sidecar, &["budget_exceeded"]).await;
    }
}

/// Tells the first client to try again, raises the cap, and denies the call that waits next.
async fn decide(sidecar: &Sidecar) {
    let by = json!({"by": "alice", "reason": "a test"});
    let body = |mut more: Value| {
        more.as_object_mut().expect("members").extend(by.as_object().expect("members").clone());
        more
    };
    let control = || RawClient::connect(sidecar.dir().join("control.sock"));
    let waiting = async |other: &str| {
        let mut id = String::new();
        let waits = poll(PATIENCE, async || {
            let held = control().await.get("/held").await.expect(200).json();
            id = held[0]["hold_id"].as_str().unwrap_or_default().to_owned();
            !id.is_empty() && id != other
        });
        assert!(waits.await, "a call waits");
        id
    };
    let first = waiting("").await;
    control().await.post_json(&format!("/held/{first}"), body(json!({"decision": "later"}))).await.expect(200);
    control().await.post_json("/caps", body(json!({"max_calls": 1}))).await.expect(200);
    let second = waiting(&first).await;
    control().await.post_json(&format!("/held/{second}"), body(json!({"decision": "deny"}))).await.expect(200);
}

#[tokio::test]
async fn an_sdk_waits_for_the_operator_over_a_503() {
    for is_openai in [true, false] {
        let upstream = Upstream::provider("hi").start().await;
        let launch = Sidecar::to(&upstream);
        let control = launch.dir().join("control.sock").display().to_string();
        let flags =
            ["--control", &control, "--max-calls", "0", "--on-cap", "ask", "--hold", "200s", "--audit-sync", "off"];
        let sidecar = launch.args(flags).start().await;
        let sdk = if is_openai { Sdk::openai(sidecar.socket()) } else { Sdk::anthropic(sidecar.socket()) };
        tokio::join!(sdk.pass(&["held_at_a_cap"]), decide(&sidecar));
        is_complete(&sidecar, &["approval_pending", "budget_exceeded"]).await;
        let audit = sidecar.audit();
        // A retry that comes before the raise waits for it.
        let decisions = audit.of_kind("released").into_iter().map(|line| line["decision"].clone());
        let decisions: Vec<_> = decisions.filter(|decision| decision != "approve").collect();
        assert_eq!((decisions, upstream.requests().len()), (vec![json!("later"), json!("deny")], 1));
    }
}

#[tokio::test]
async fn a_dead_upstream_is_an_exception_of_the_sdk() {
    let nowhere = ClosedPort::new();
    let sidecar = Sidecar::to_url(&nowhere.url()).start().await;
    Sdk::openai(sidecar.socket()).pass(&["upstream_dead"]).await;
    Sdk::anthropic(sidecar.socket()).pass(&["upstream_dead"]).await;
    assert_eq!(sidecar.audit().calls().len(), 2);
}

#[tokio::test]
async fn sdks_do_not_retry_final_refusals() {
    let upstream = Upstream::answering(Script::error(401, "Received API Key = sk-...Lr4T")).start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    Sdk::openai(sidecar.socket()).pass(&["error_upstream_auth"]).await;
    Sdk::anthropic(sidecar.socket()).pass(&["error_upstream_auth"]).await;
    assert_eq!(upstream.requests().len(), 2, "one each");
}

#[tokio::test]
async fn a_broken_stream_raises_in_the_sdk() {
    // The upstream sends the start of the answer and two events, and closes the connection.
    let upstream = Upstream::provider("hi").cut_after(2).start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let openai = ["chat_stream_broken", "completions_stream_broken", "responses_stream_broken"];
    Sdk::openai(sidecar.socket()).pass(&openai).await;
    Sdk::anthropic(sidecar.socket()).pass(&["messages_stream_broken"]).await;
    let calls = sidecar.audit_with("outcome", 4).await.calls();
    let ends: Vec<_> = calls.iter().map(|call| (call.result(), call.end())).collect();
    assert_eq!(ends, [("upstream_error", "cut_by_upstream"); 4]);
}
