//! The same policy with the real LiteLLM: its bills, the billed accounts, and the requests to its provider.

use serde_json::{Value, json};
use sluice_testkit::litellm::LiteLlm;
use sluice_testkit::{ClientAnswer, Launch, RecordedCall, Sidecar};

mod edges;
mod gateway;

/// A call that LiteLLM records.
struct Billed {
    path: &'static str,
    /// Members of the body except the identity; a test may replace `MARK` by a text of its own.
    body: &'static str,
    /// Source of the outcome's cost; `none` if LiteLLM's answer has no trustworthy one.
    cost_source: &'static str,
    /// The provider's route, if the provider is called.
    provider: Option<&'static str>,
}

const fn billed(
    path: &'static str,
    body: &'static str,
    cost_source: &'static str,
    provider: Option<&'static str>,
) -> Billed {
    Billed { path, body, cost_source, provider }
}

const BILLED: [Billed; 16] = [
    billed(
        "/v1/chat/completions",
        r#""model":"gpt-4o-mini","messages":[{"role":"user","content":"MARK"}]"#,
        "header",
        None,
    ),
    billed(
        "/v1/chat/completions",
        r#""model":"gpt-4o-mini","stream":true,"messages":[{"role":"user","content":"MARK"}]"#,
        "chunk",
        None,
    ),
    billed(
        "/v1/chat/completions",
        r#""model":"provider-gpt","messages":[{"role":"user","content":"MARK"}]"#,
        "header",
        Some("/v1/chat/completions"),
    ),
    billed(
        "/chat/completions",
        r#""model":"provider-gpt","stream":true,"messages":[{"role":"user","content":"MARK"}]"#,
        "chunk",
        Some("/v1/chat/completions"),
    ),
    billed(
        "/v1/chat/completions",
        r#""model":"provider-claude","max_tokens":9,"messages":[{"role":"user","content":"MARK"}]"#,
        "header",
        Some("/v1/messages"),
    ),
    billed("/v1/completions", r#""model":"provider-completion","prompt":"MARK""#, "header", Some("/v1/completions")),
    billed(
        "/v1/completions",
        r#""model":"provider-completion","stream":true,"prompt":"MARK""#,
        "chunk",
        Some("/v1/completions"),
    ),
    billed("/v1/embeddings", r#""model":"text-embedding-3-small","input":"MARK""#, "header", None),
    billed("/v1/embeddings", r#""model":"provider-embedding","input":["MARK","x"]"#, "header", Some("/v1/embeddings")),
    billed("/v1/responses", r#""model":"gpt-4o-mini","input":"MARK""#, "header", None),
    billed("/v1/responses", r#""model":"provider-gpt","input":"MARK""#, "header", Some("/v1/responses")),
    billed("/v1/responses", r#""model":"provider-gpt","stream":true,"input":"MARK""#, "chunk", Some("/v1/responses")),
    // LiteLLM writes this mock's price into its record, but not into its answer.
    billed(
        "/v1/messages",
        r#""model":"claude-haiku-4-5","max_tokens":9,"messages":[{"role":"user","content":"MARK"}]"#,
        "none",
        None,
    ),
    billed(
        "/v1/messages",
        r#""model":"provider-claude","max_tokens":9,"messages":[{"role":"user","content":"MARK"}]"#,
        "header",
        Some("/v1/messages"),
    ),
    billed(
        "/v1/messages",
        r#""model":"provider-claude","stream":true,"max_tokens":9,"messages":[{"role":"user","content":"MARK"}]"#,
        "none",
        Some("/v1/messages"),
    ),
    billed(
        "/v1/messages",
        r#""model":"provider-gpt","stream":true,"max_tokens":9,"messages":[{"role":"user","content":"MARK"}]"#,
        "none",
        Some("/v1/responses"),
    ),
];

/// Members by which a sandbox would change its identity, and one that no API knows.
const FORGED: &str = r#","user":"VICTIM","metadata":{"user_id":"VICTIM","tags":["VICTIM"],"trace_id":"VICTIM",
    "spend_logs_metadata":{"run_id":"VICTIM"}},"litellm_metadata":null,"tags":["VICTIM"],"totally_unknown":"VICTIM""#;

const FORGED_HEADERS: [(&str, &str); 14] = [
    ("authorization", "Bearer sk-attacker"),
    ("x-litellm-api-key", "sk-attacker"),
    ("x-api-key", "sk-attacker"),
    ("x-litellm-customer-id", "VICTIM"),
    ("x-litellm-end-user-id", "VICTIM"),
    ("x-litellm-call-id", "VICTIM"),
    ("x-litellm-trace-id", "VICTIM"),
    ("x-litellm-session-id", "VICTIM"),
    ("x-litellm-spend-logs-metadata", r#"{"run_id":"VICTIM"}"#),
    ("x-litellm-tags", "VICTIM"),
    ("x-litellm-num-retries", "5"),
    ("x-litellm-enable-message-redaction", "true"),
    ("langfuse_trace_id", "VICTIM"),
    ("user-agent", "VICTIM"),
];

fn before(litellm: &LiteLlm) -> Launch {
    Sidecar::to_url(litellm.url()).key(litellm.key())
}

fn number(value: &Value) -> f64 {
    match value {
        Value::String(text) => text.parse().expect("a decimal"),
        value => value.as_f64().unwrap_or_else(|| panic!("{value} is not a number")),
    }
}

/// The last call of this sidecar, with LiteLLM's record of it.
async fn last_call(litellm: &LiteLlm, sidecar: &Sidecar) -> (RecordedCall, Value) {
    let call = sidecar.audit().calls().pop().expect("a call with its outcome");
    let record = litellm.record_for(call.id()).await;
    (call, record)
}

#[tokio::test]
async fn litellm_bills_our_account_whatever_the_sandbox_claims() {
    let litellm = LiteLlm::shared().await;
    let metadata = json!({"team": "Bär 🐻", "session_id": "s-7"});
    let args = ["--metadata".to_owned(), metadata.to_string()];
    let sidecar = before(litellm).run_id("run-litellm").account("acct-77").args(&args).start().await;
    for Billed { path, body, .. } in &BILLED {
        let sent = format!("{{{body}{}}}", FORGED.replace(r#""litellm_metadata":null,"#, ""));
        sidecar.request("POST", path, &FORGED_HEADERS, sent).await.expect(200);

        let (call, record) = last_call(litellm, &sidecar).await;
        assert_eq!(record["event"], "success", "{path} {body}: {record}");
        assert_eq!(record["end_user"], "acct-77", "{path} {body}");
        let spend = json!({"run_id": "run-litellm", "attempt": 0, "graph_id": "sandbox:agent", "sluice_call_id": call.id(),
            "team": "Bär 🐻", "session_id": "s-7"});
        assert_eq!(record["spend_logs_metadata"], spend, "{path} {body}");
        // LiteLLM uses one id for trace and session: the operator's session id, if there is one.
        assert_eq!(record["trace_id"], "s-7", "{path} {body}");
        assert!(!record.to_string().contains("VICTIM"), "{path} {body}: {record}");
        assert!(!record.to_string().contains("sk-attacker"), "{path} {body}: {record}");
        let retries = &record["num_retries"];
        assert!(retries.is_null() || *retries == 0, "{path} {body}: {retries} retries");
    }
}

#[tokio::test]
async fn the_outcome_has_litellms_tokens_and_cost() {
    let litellm = LiteLlm::shared().await;
    let sidecar = before(litellm).start().await;
    for Billed { path, body, cost_source, .. } in &BILLED {
        let what = format!("{path} {body}");
        let answer = sidecar.post(path, format!("{{{body}}}")).await.expect(200);

        let (call, record) = last_call(litellm, &sidecar).await;
        assert_eq!((call.result(), call.end(), call.status()), ("ok", "complete", Some(200)), "{what}");
        assert_eq!(call.outcome["litellm_call_id"], call.id(), "{what}");
        assert_eq!(answer.header("x-litellm-call-id"), Some(call.id()), "{what}");
        let (input, output, _) =
            call.tokens().unwrap_or_else(|| panic!("{what}: no usage in {} for {}", call.outcome, answer.text()));
        assert_eq!(input, record["prompt_tokens"].as_u64(), "{what}");
        assert_eq!(output.unwrap_or(0), record["completion_tokens"].as_u64().unwrap_or(0), "{what}");
        assert_eq!(call.cost_source(), *cost_source, "{what}: {}", call.outcome);
        match call.cost() {
            Some(cost) => {
                let (ours, theirs) = (number(&json!(cost)), number(&record["response_cost"]));
                assert!((ours - theirs).abs() < 1e-12 && ours > 0.0, "{what}: {ours} and {theirs}");
            }
            None => {
                assert!(*cost_source == "none" && call.outcome["null_reason"].is_string(), "{what}: {}", call.outcome)
            }
        }
    }
}

#[tokio::test]
async fn the_provider_receives_only_allowed_members() {
    let litellm = LiteLlm::shared().await;
    let sidecar = before(litellm).account("acct-88").start().await;
    for (at, Billed { path, body, provider, .. }) in BILLED.iter().enumerate() {
        let Some(provider) = provider else { continue };
        let mark = format!("mark-{at}-{}", std::process::id());
        let sent = format!("{{{}{}}}", body.replace("MARK", &mark), FORGED.replace(r#""litellm_metadata":null,"#, ""));
        sidecar.request("POST", path, &FORGED_HEADERS, sent).await.expect(200);

        let arrived = litellm.provider_requests_with(&mark);
        assert_eq!(arrived.len(), 1, "{path} {body}: one call is one call");
        let (request, what) = (&arrived[0], format!("{path} {body}: {}", arrived[0]));
        assert_eq!(request["path"], *provider, "{what}");
        assert!(!request.to_string().contains("VICTIM") && !request.to_string().contains("sk-attacker"), "{what}");
        assert!(!request.to_string().contains(litellm.key()), "{what}");
        let user = if *provider == "/v1/messages" {
            &request["body"]["metadata"]["user_id"]
        } else {
            &request["body"]["user"]
        };
        // LiteLLM does not forward the user of a native Anthropic call.
        let native = *provider == "/v1/messages" && path.ends_with("messages");
        assert_eq!(*user, if native { Value::Null } else { json!("acct-88") }, "{what}");
        let streams = request["body"]["stream"] == true && provider.ends_with("completions");
        assert_eq!(request["body"]["stream_options"]["include_usage"] == true, streams, "{what}");
    }
}

#[tokio::test]
async fn a_stream_without_options_has_tokens_without_extra_chunk() {
    let litellm = LiteLlm::shared().await;
    let sidecar = before(litellm).start().await;
    for (path, body) in [
        ("/v1/chat/completions", r#""model":"provider-gpt","messages":[{"role":"user","content":"x"}]"#),
        ("/v1/completions", r#""model":"provider-completion","prompt":"x""#),
    ] {
        let stream = |more: &str| format!(r#"{{{body},"stream":true{more}}}"#);
        let chunks = |answer: &ClientAnswer| -> Vec<Value> {
            let mut data = answer.data();
            assert_eq!(data.pop().as_deref(), Some("[DONE]"));
            data.iter().map(|data| serde_json::from_str(data).expect("a chunk")).collect()
        };
        let says = |chunk: &Value| {
            let choice = &chunk["choices"][0];
            let text = choice["text"].as_str().or(choice["delta"]["content"].as_str()).unwrap_or_default().to_owned();
            (text, choice["finish_reason"].as_str().map(str::to_owned))
        };
        let asked = sidecar.post(path, stream(r#","stream_options":{"include_usage":true}"#)).await.expect(200);
        let silent = sidecar.post(path, stream("")).await.expect(200);
        let refused = sidecar.post(path, stream(r#","stream_options":{"include_usage":false}"#)).await.expect(200);

        let with: Vec<_> = chunks(&asked);
        let used: Vec<_> = with.iter().filter(|chunk| chunk["usage"]["total_tokens"] == 150).collect();
        assert_eq!((used.len(), used[0]), (1, &with[with.len() - 1]), "{path}: the usage comes once, at the end");
        let expected: Vec<_> = with[..with.len() - 1].iter().map(says).collect();
        for answer in [silent, refused] {
            let chunks = chunks(&answer);
            assert!(
                chunks.iter().all(|chunk| chunk.get("usage").is_none_or(|usage| usage["total_tokens"] != 150)),
                "{path}"
            );
            assert_eq!(chunks.iter().map(says).collect::<Vec<_>>(), expected, "{path}: {}", answer.text());
        }
        for call in sidecar.audit().calls() {
            assert_eq!(call.tokens(), Some((Some(100), Some(50), Some(150))), "{path}: {}", call.outcome);
        }
    }
}
