//! Traces of runs in Langfuse through LiteLLM: what its callbacks send is what they send for a call in process.

use std::collections::{BTreeMap, BTreeSet};

use sluice_testkit::litellm::{InProcessCall, LiteLlm};

use super::traces::{TRACE, create_in_trace, spans_after};
use super::*;

const TEXT: &str = "say hello";
const ANSWER: &str = "Hello from the mock model.";

/// Attributes that may differ between a call in process and one through the proxy of LiteLLM, by the beginning of their
/// names, and why. All others are the same.
const DIFFERENT: &[(&str, &str)] = &[
    ("langfuse.observation.completion_start_time", "time of the call"),
    ("langfuse.observation.metadata.litellm_call_id", "id of the call"),
    ("langfuse.observation.metadata.response_id", "id of the answer"),
    ("llm.response.id", "id of the answer"),
    ("langfuse.observation.metadata.hidden_params", "the proxy adds its deployment"),
    ("langfuse.observation.metadata.requester_", "the proxy adds the request: its headers and its address"),
    ("langfuse.observation.metadata.user_agent", "the proxy adds the client"),
    ("langfuse.observation.metadata.user_api_key_", "the proxy adds the key and the end user"),
    ("langfuse.observation.model.name", "the proxy names the provider too: openai/gpt-4o-mini"),
    ("langfuse.observation.model.parameters", "the proxy adds stream and max_retries"),
    ("metadata", "the proxy adds the key, the end user and the request"),
    ("llm.invocation_parameters", "the proxy adds max_retries"),
    ("langfuse.generation.mask_", "a header has texts: \"true\""),
];

/// The span of the model call that a callback has sent.
fn generation<'a>(spans: &'a [Value], scope: &str) -> &'a Value {
    let is_one =
        |span: &&Value| span["scope"] == scope && span["attributes"]["langfuse.observation.type"] == "generation";
    spans.iter().find(is_one).unwrap_or_else(|| panic!("no span of {scope}: {spans:#?}"))
}

fn is_generation(span: &Value) -> bool {
    span["attributes"]["langfuse.observation.type"] == "generation"
}

#[tokio::test]
async fn runs_are_traced_like_calls_in_process() {
    let endpoint = || Upstream::json(200, json!({})).start();
    let (of_runs, in_process) = tokio::join!(endpoint(), endpoint());
    let litellm = LiteLlm::with_langfuse(of_runs.url()).await;
    let sluice = Sluice::with(litellm.url(), litellm.key());
    let daemon = sluice.serve().await;
    let curl = "curl -sf -H content-type:application/json -d @- $OPENAI_BASE_URL/chat/completions > /dev/null";
    let body = json!({ "model": "gpt-4o-mini", "messages": [{ "role": "user", "content": TEXT }] });
    let own = json!({ "user_id": "ada", "session_id": "s-1", "tags": ["a", "team:x"] });
    let existing = json!({
        "user_id": "ada", "trace_user_id": "ada@chat", "session_id": "s-2", "existing_trace_id": "chat-17", "tags": ["a"],
        "mask_input": true, "mask_output": true, "request_id": "req-own"
    });
    for given in [own, existing] {
        let (seen_of_runs, seen_in_process) = (of_runs.requests().len(), in_process.requests().len());
        let program = format!("echo '{body}' | {curl}");
        let request =
            json!({ "argv": ["sh", "-c", program], "model": "gpt-4o-mini", "name": "nightly", "metadata": given });
        let id = create_in_trace(&daemon, &request).await;
        let run = daemon.reaches(&id, "COMPLETED").await;
        assert_eq!(run["outcome"], "success", "{run}");
        let account = run["billing_account_id"].as_str().expect("it has one");
        let metadata = integrated(&given, &id, account);
        let call =
            InProcessCall { metadata: &metadata, model: "openai/gpt-4o-mini", answer: ANSWER, account, text: TEXT };
        let called = LiteLlm::call_in_process(in_process.url(), &call).await;
        assert!(called.status.success(), "{}", String::from_utf8_lossy(&called.stderr));

        let ours = spans_after(seen_of_runs, &of_runs, 2, is_generation).await;
        let theirs = spans_after(seen_in_process, &in_process, 2, is_generation).await;
        let differences: Vec<_> = ["langfuse-sdk", "litellm"]
            .into_iter()
            .flat_map(|scope| differences(generation(&ours, scope), generation(&theirs, scope)))
            // The proxy takes the session for a trace as well; the span is in the trace that the caller has named.
            .filter(|(name, ..)| given["existing_trace_id"].is_null() || name != "langfuse.trace.id")
            .collect();
        assert!(differences.is_empty(), "{differences:#?}");
        // LiteLLM names this span by the body of a request alone; the attribute langfuse.generation.name has the name.
        assert_eq!(generation(&ours, "litellm")["name"], "litellm_request");
        let (ours, theirs) = (generation(&ours, "langfuse-sdk"), generation(&theirs, "langfuse-sdk"));
        for member in ["trace", "name", "kind", "status"] {
            assert_eq!(ours[member], theirs[member], "{member}");
        }
        let is_masked = given["mask_input"] == true;
        assert_eq!(ours["attributes"].to_string().contains(TEXT), !is_masked);
        assert_eq!(ours["trace"] == TRACE, given["existing_trace_id"].is_null());
    }
}

/// The metadata that an integration in process sends for the same run.
fn integrated(given: &Value, id: &str, account: &str) -> Value {
    let mut metadata = given.clone();
    metadata["billing_account_id"] = json!(account);
    metadata["generation_name"] = json!("sandbox:agent");
    if given["existing_trace_id"].is_null() {
        metadata["trace_user_id"] = given["user_id"].clone();
        metadata["request_id"] = json!("req-1");
        metadata["trace_id"] = json!(TRACE);
        metadata["trace_name"] = json!("nightly");
        metadata["trace_metadata"] = json!({
            "run_id": id, "graph_id": "sandbox:agent", "billing_account_id": account, "user_id": "ada",
            "request_id": "req-1"
        });
    }
    metadata
}

/// The attributes that differ, and may not.
fn differences(ours: &Value, theirs: &Value) -> Vec<(String, Option<Value>, Option<Value>)> {
    let (ours, theirs) = (members(ours), members(theirs));
    let names: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    let is_allowed = |name: &str| DIFFERENT.iter().any(|(start, _)| name.starts_with(start));
    let wrong = names.into_iter().filter(|name| !is_allowed(name) && ours.get(*name) != theirs.get(*name));
    wrong.map(|name| (name.clone(), ours.get(name).cloned(), theirs.get(name).cloned())).collect()
}

/// The attributes of a span. The metadata of the trace is one JSON text through a header, and one attribute for each member
/// in process; Langfuse reads both as one object.
fn members(span: &Value) -> BTreeMap<String, Value> {
    let mut all: BTreeMap<String, Value> =
        span["attributes"].as_object().expect("an object").clone().into_iter().collect();
    const NAME: &str = "langfuse.trace.metadata";
    if let Some(Value::String(text)) = all.remove(NAME) {
        let text: BTreeMap<String, Value> = serde_json::from_str(&text).expect("it is an object");
        all.extend(text.into_iter().map(|(name, value)| (format!("{NAME}.{name}"), value)));
    }
    all
}
