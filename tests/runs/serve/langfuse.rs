//! Traces of runs in Langfuse: LiteLLM's callbacks and the daemon itself send the same as the callbacks send for calls
//! in process.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use sluice_testkit::litellm::LiteLlm;

use super::traces::{TRACE, create_in_trace, spans_after};
use super::*;

/// The calls of a run: kind, path, text, members of the body. Each text is in no other call.
const CALLS: [(&str, &str, &str, &str); 5] = [
    (
        "chat",
        "chat/completions",
        "say one",
        r#""model":"gpt-4o-mini","messages":[{"role":"user","content":"say one"}]"#,
    ),
    (
        "stream",
        "chat/completions",
        "say two",
        r#""model":"gpt-4o-mini","messages":[{"role":"user","content":"say two"}],"stream":true,"stream_options":{"include_usage":true}"#,
    ),
    (
        "failed",
        "chat/completions",
        "FAIL three",
        r#""model":"gpt-4o-mini","messages":[{"role":"user","content":"FAIL three"}]"#,
    ),
    ("responses", "responses", "say four PROMPTCACHE", r#""model":"gpt-4o-mini","input":"say four PROMPTCACHE""#),
    (
        "messages",
        "messages",
        "say five PROMPTCACHE",
        r#""model":"claude-haiku-4-5","max_tokens":64,"messages":[{"role":"user","content":"say five PROMPTCACHE"}]"#,
    ),
];

/// Attributes that may differ between a call in process and one through the proxy of LiteLLM, by the beginning of their
/// names, and why. All others are the same.
const OF_PROXY: &[(&str, &str)] = &[
    ("error.stack_trace", "other programs"),
    ("langfuse.observation.completion_start_time", "time of the call"),
    ("langfuse.observation.metadata.litellm_call_id", "id of the call"),
    ("langfuse.observation.metadata.response_id", "id of the answer"),
    ("llm.response.id", "id of the answer"),
    ("langfuse.observation.metadata.hidden_params", "the proxy adds its deployment"),
    ("langfuse.observation.metadata.requester_", "the proxy adds the request: its headers and its address"),
    ("langfuse.observation.metadata.spend_logs_metadata", "the proxy adds the metadata of spend rows"),
    ("langfuse.observation.metadata.used_client_oauth_token", "the proxy adds how it knows the client"),
    ("langfuse.observation.metadata.user_agent", "the proxy adds the client"),
    ("langfuse.observation.metadata.user_api_key_", "the proxy adds the key and the end user"),
    ("langfuse.observation.model.name", "the proxy names the provider too: openai/gpt-4o-mini"),
    ("langfuse.observation.model.parameters", "the proxy adds stream and max_retries"),
    ("metadata", "the proxy adds the key, the end user and the request"),
    ("llm.invocation_parameters", "the proxy adds max_retries"),
    ("langfuse.generation.mask_", "a header has texts: \"true\""),
];

/// Attributes that may differ in what the daemon sends itself, and why.
const OF_DAEMON: &[(&str, &str)] = &[
    ("langfuse.observation.completion_start_time", "time of the call"),
    ("langfuse.observation.input", "no prompt leaves the daemon"),
    ("langfuse.observation.output", "no answer leaves the daemon"),
    ("langfuse.observation.metadata.", "facts of LiteLLM itself"),
    ("langfuse.observation.model.parameters", "members of the body, which the daemon does not keep"),
    ("langfuse.observation.status_message", "the daemon knows the status, and not the text of an error"),
];

/// Attributes that the callback `langfuse_otel` sends for a trace that others have begun, and `langfuse` does not.
const OF_OTEL: [&str; 4] = ["user.id", "session.id", "langfuse.trace.tags", "langfuse.generation.name"];

fn is_generation(span: &Value) -> bool {
    span["attributes"]["langfuse.observation.type"] == "generation"
}

/// Returns the span that a callback has sent for a call. A masked call has no text.
fn generation<'a>(spans: &'a [Value], scope: &str, text: Option<&str>) -> &'a Value {
    let is_one = |span: &&Value| {
        let attributes = span["attributes"].to_string();
        let fits = text.is_none_or(|text| attributes.contains(text));
        span["scope"] == scope && is_generation(span) && fits
    };
    spans.iter().find(is_one).unwrap_or_else(|| panic!("no span of {scope} with {text:?}: {spans:#?}"))
}

/// Spans that a run and a process have sent to their endpoints.
struct Sent {
    /// By the callbacks of the proxy.
    by_proxy: Vec<Value>,
    /// By the daemon, in the order of the calls.
    by_daemon: Vec<Value>,
    /// By the callbacks in process.
    in_process: Vec<Value>,
}

/// Makes calls in a run with this metadata, and the same in process.
async fn send_both(litellm: &LiteLlm, endpoints: &[Upstream; 3], given: &Value, kinds: &[&str]) -> Sent {
    let [of_proxy, of_daemon, of_process] = endpoints;
    let sluice = Sluice::with(litellm.url(), litellm.key());
    let secret = sluice.file("langfuse.keys", "pk-lf-1:sk-lf-2\n");
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).expect("it is ours");
    let target = format!("name = 'langfuse'\nkind = 'langfuse'\nendpoint = '{}'\n", of_daemon.url());
    sluice.file("sluice.toml", &format!("[[otel]]\n{target}secret_file = '{secret}'\n"));
    let daemon = sluice.serve().await;
    let seen = [of_proxy.requests().len(), of_daemon.requests().len(), of_process.requests().len()];
    let calls: Vec<_> = CALLS.iter().filter(|(kind, ..)| kinds.contains(kind)).collect();
    let curl = |(_, path, _, body): &(&str, &str, &str, &str)| {
        format!("curl -s -H content-type:application/json -d '{{{body}}}' $OPENAI_BASE_URL/{path} > /dev/null\n")
    };
    let program: String = calls.iter().map(|call| curl(call)).collect();

    let request = json!({
        "argv": ["sh", "-c", program], "model": "gpt-4o-mini", "models": ["gpt-4o-mini", "claude-haiku-4-5"],
        "name": "nightly", "metadata": given,
    });
    let id = create_in_trace(&daemon, &request).await;
    let run = daemon.reaches(&id, "COMPLETED").await;
    assert_eq!(run["outcome"], "success", "{run}");
    let account = run["billing_account_id"].as_str().expect("it has one");
    let metadata = integrated(given, &id, account);
    let calls: Vec<_> =
        calls.iter().map(|(kind, _, text, _)| json!({ "kind": kind, "text": text, "metadata": metadata })).collect();
    let called = litellm.call_in_process(of_process.url(), account, &json!(calls)).await;
    assert!(called.status.success(), "{}", String::from_utf8_lossy(&called.stderr));

    let by_proxy = spans_after(seen[0], of_proxy, 2 * calls.len(), is_generation).await;
    let in_process = spans_after(seen[2], of_process, 2 * calls.len(), is_generation).await;
    let mut by_daemon = spans_after(seen[1], of_daemon, calls.len(), is_generation).await;
    by_daemon.retain(is_generation);
    by_daemon.sort_by_key(|span| span["start"].as_u64());
    daemon.stop().await;
    Sent { by_proxy, by_daemon, in_process }
}

#[tokio::test]
async fn runs_are_traced_like_calls_in_process() {
    let endpoint = || Upstream::json(200, json!({})).start();
    let endpoints: [Upstream; 3] = tokio::join!(endpoint(), endpoint(), endpoint()).into();
    let litellm = LiteLlm::with_langfuse(endpoints[0].url()).await;
    let own = json!({ "user_id": "ada", "session_id": "s-1", "tags": ["a", "team:x"] });
    let kinds = CALLS.map(|(kind, ..)| kind);

    let sent = send_both(&litellm, &endpoints, &own, &kinds).await;

    let mut found = Vec::new();
    for ((kind, _, text, _), direct) in CALLS.iter().zip(&sent.by_daemon) {
        found.extend(compare(kind, &sent, Some(text), direct, |_| true));
        let ours = generation(&sent.by_proxy, "langfuse-sdk", Some(text));
        assert_eq!([&ours["trace"], &direct["trace"]], [TRACE; 2], "{kind}");
    }
    assert!(found.is_empty(), "{found:#?}");
    assert_eq!(sent.by_daemon.len(), CALLS.len());

    let existing = json!({
        "user_id": "ada", "trace_user_id": "ada@chat", "session_id": "s-2", "existing_trace_id": "chat-17", "tags": ["a"],
        "mask_input": true, "mask_output": true, "request_id": "req-own"
    });

    let sent = send_both(&litellm, &endpoints, &existing, &["chat"]).await;

    // The proxy takes the session for a trace as well; the span is in the trace that the caller has named.
    let found = compare("chat", &sent, None, &sent.by_daemon[0], |name| name != "langfuse.trace.id");
    assert!(found.is_empty(), "{found:#?}");
    let masked = generation(&sent.by_proxy, "langfuse-sdk", None);
    assert!(!masked["attributes"].to_string().contains("say one"), "{masked}");
    assert_ne!(masked["trace"], TRACE);
}

/// A difference of a call: its kind and the sender, the attribute, and both values.
type Difference = (String, String, Option<Value>, Option<Value>);

/// Returns the forbidden differences of a call: it compares what LiteLLM's callbacks and the daemon have sent with what
/// the callbacks have sent in process.
fn compare(
    kind: &str,
    sent: &Sent,
    text: Option<&str>,
    direct: &Value,
    counts: impl Fn(&str) -> bool,
) -> Vec<Difference> {
    let mut all = Vec::new();
    for scope in ["langfuse-sdk", "litellm"] {
        let (ours, theirs) = (generation(&sent.by_proxy, scope, text), generation(&sent.in_process, scope, text));
        let found = differences(&format!("{kind} by {scope}"), &members(ours), &members(theirs), OF_PROXY);
        all.extend(found.into_iter().filter(|(_, name, ..)| counts(name)));
    }
    let sdk = generation(&sent.in_process, "langfuse-sdk", text);
    let ours = generation(&sent.by_proxy, "langfuse-sdk", text);
    for member in ["trace", "name", "kind", "status"] {
        assert_eq!(ours[member], sdk[member], "{kind}: {member}");
    }
    // LiteLLM names this span by the body of a request alone; the attribute langfuse.generation.name has the name.
    assert_eq!(generation(&sent.by_proxy, "litellm", text)["name"], "litellm_request", "{kind}");

    let (mut ours, mut theirs) = (members(direct), members(sdk));
    let of_otel = members(generation(&sent.in_process, "litellm", text)).into_iter();
    theirs.extend(of_otel.filter(|(name, _)| OF_OTEL.contains(&name.as_str())));
    assert_eq!(ours.remove("langfuse.user.id"), ours.get("user.id").cloned(), "{kind}");
    assert_eq!(ours.remove("langfuse.session.id"), ours.get("session.id").cloned(), "{kind}");
    ours.retain(|name, _| !name.starts_with("gen_ai.") && !name.starts_with("sluice.") && name != "error.type");
    all.extend(differences(&format!("{kind} by the daemon"), &ours, &theirs, OF_DAEMON));
    assert_eq!([&direct["trace"], &direct["name"]], [&sdk["trace"], &sdk["name"]], "{kind}");
    all
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

/// Returns the attributes that differ although they must not.
fn differences(
    what: &str,
    ours: &BTreeMap<String, Value>,
    theirs: &BTreeMap<String, Value>,
    allowed: &[(&str, &str)],
) -> Vec<Difference> {
    let names: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    let is_allowed = |name: &str| allowed.iter().any(|(start, _)| name.starts_with(start));
    let is_same = |name: &str| match (ours.get(name), theirs.get(name)) {
        // The proxy says after an error of a provider which of its models it has tried.
        (Some(Value::String(ours)), Some(Value::String(theirs))) if theirs.starts_with("litellm.") => {
            ours.starts_with(theirs.as_str())
        }
        (ours, theirs) => ours == theirs,
    };
    let wrong = names.into_iter().filter(|name| !is_allowed(name) && !is_same(name));
    wrong.map(|name| (what.to_owned(), name.clone(), ours.get(name).cloned(), theirs.get(name).cloned())).collect()
}

/// The attributes of a span. The metadata of the trace is one JSON text through a header, and one attribute for each
/// member in process; Langfuse reads both as one object.
fn members(span: &Value) -> BTreeMap<String, Value> {
    let mut all: BTreeMap<String, Value> =
        span["attributes"].as_object().expect("an object").clone().into_iter().collect();
    const NAME: &str = "langfuse.trace.metadata";
    if let Some(Value::String(text)) = all.remove(NAME) {
        let text: BTreeMap<String, Value> = serde_json::from_str(&text).expect("it is an object");
        all.extend(text.into_iter().map(|(name, value)| (format!("{NAME}.{name}"), value)));
    }
    all.into_iter().map(|(name, value)| (name, plain(value))).collect()
}

/// A value without its encoding: JSON in a text is read, dollars have nine decimals, and ids of parts of an answer are
/// removed.
fn plain(value: Value) -> Value {
    match value {
        Value::String(text) => match serde_json::from_str(&text) {
            Ok(inner @ (Value::Object(_) | Value::Array(_))) => plain(inner),
            _ => Value::String(text),
        },
        Value::Number(number) if number.is_f64() => json!((number.as_f64().unwrap_or_default() * 1e9).round() / 1e9),
        Value::Array(items) => items.into_iter().map(plain).collect(),
        Value::Object(members) => {
            let kept = members.into_iter().filter(|(name, value)| name != "id" || !value.is_string());
            kept.map(|(name, value)| (name, plain(value))).collect()
        }
        other => other,
    }
}
