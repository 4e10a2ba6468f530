//! Actions of the gateway itself on a request, before or after its provider: each exploit is made twice, at
//! LiteLLM, to see that it works, and through the sidecar, to see that it does not.

use serde_json::{Value, json};
use sluice_testkit::Upstream;
use sluice_testkit::litellm::LiteLlm;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::before;

const CHAT: &str = "/v1/chat/completions";

/// Makes a request to LiteLLM without a sidecar, and returns the raw answer.
async fn at_litellm(litellm: &LiteLlm, path: &str, body: &Value) -> String {
    let host = litellm.url().trim_start_matches("http://");
    let (body, key) = (body.to_string(), litellm.key());
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(host).await.expect("LiteLLM listens");
    stream.write_all((head + &body).as_bytes()).await.expect("LiteLLM reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("LiteLLM answers");
    answer
}

fn chat(model: &str, text: &str, more: Value) -> Value {
    let mut body = json!({"model": model, "messages": [{"role": "user", "content": text}]});
    if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
        body.extend(more);
    }
    body
}

fn schema(schema: &Value) -> Value {
    json!({"response_format": {"type": "json_object", "enforce_validation": true, "response_schema": schema}})
}

/// LiteLLM validates the provider's answer after it has it, and sends all of it in a 500 that is never billed.
#[tokio::test]
async fn a_free_error_does_not_carry_an_answer() {
    let litellm = LiteLlm::shared().await;
    let sidecar = before(litellm).start().await;
    let body = chat("provider-gpt", "free-answer", schema(&json!({"type": "integer"})));

    let taken = at_litellm(litellm, CHAT, &body).await;
    assert!(taken.starts_with("HTTP/1.1 500") && taken.contains("Hello from the provider"), "{taken}");
    let paid = litellm.provider_requests_with("free-answer").len();

    let refused = sidecar.post(CHAT, body).await.expect_refusal(400, "param_not_allowed");
    assert_eq!(refused.error()["param"], "response_format.enforce_validation");
    assert_eq!(litellm.provider_requests_with("free-answer").len(), paid, "no provider was called for it");
}

/// The gateway fetches the references of a schema: from any host, and files.
#[tokio::test]
async fn a_schema_makes_the_gateway_fetch_nothing() {
    let litellm = LiteLlm::shared().await;
    let sidecar = before(litellm).start().await;
    let canary = Upstream::json(200, json!({"type": "object"})).start().await;
    let url = |name: &str| format!("{}/{name}", canary.url());

    let body = chat("gpt-4o-mini-json", "x", schema(&json!({"$ref": url("direct")})));
    at_litellm(litellm, CHAT, &body).await;
    assert_eq!(canary.received().await.target, "/direct", "the exploit works where nothing is in between");

    let remote = json!({"$ref": url("sidecar")});
    let named = |schema: &Value| json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema}});
    let format = |schema: &Value| json!({"type": "json_schema", "name": "n", "schema": schema});
    for (path, body) in [
        (CHAT, chat("gpt-4o-mini-json", "x", schema(&remote))),
        (CHAT, chat("gpt-4o-mini-json", "x", json!({"response_format": named(&remote)}))),
        (CHAT, chat("gpt-4o-mini-json", "x", json!({"response_format": named(&json!({"$id": url("id")}))}))),
        ("/v1/responses", json!({"model": "gpt-4o-mini-json", "input": "x", "text": {"format": format(&remote)}})),
        ("/v1/messages", chat("claude-haiku-4-5", "x", json!({"max_tokens": 9, "output_format": format(&remote)}))),
        (
            "/v1/messages",
            chat("claude-haiku-4-5", "x", json!({"max_tokens": 9, "output_config": {"format": format(&remote)}})),
        ),
    ] {
        sidecar.post(path, body).await.expect_refusal(400, "param_not_allowed");
    }
    assert_eq!(canary.begun(), 1);
}

/// Seven definitions of which each refers to the next four times: LiteLLM writes them all out for its Claude models.
#[tokio::test]
async fn a_small_schema_does_not_become_a_large_request() {
    let litellm = LiteLlm::shared().await;
    let sidecar = before(litellm).start().await;
    let mut defs = serde_json::Map::new();
    for level in 0..7 {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        defs.insert(
            format!("d{level}"),
            json!({"type": "object", "properties": {"a": next, "b": next, "c": next, "d": next}}),
        );
    }
    defs.insert("d7".to_owned(), json!({"type": "string"}));
    let bomb = json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": defs});
    let format = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": bomb}});
    let body = chat("provider-claude", "schema-bomb", json!({"response_format": format, "max_tokens": 9}));

    at_litellm(litellm, CHAT, &body).await;
    let sent = litellm.provider_requests_with("schema-bomb");
    let grown = sent.first().map(|request| request["body"].to_string().len()).expect("it reached the provider");
    assert!(grown > 50 * body.to_string().len(), "{grown} bytes of {}", body.to_string().len());

    sidecar.post(CHAT, body).await.expect_refusal(400, "param_not_allowed");
    let tools =
        json!({"tools": [{"type": "function", "function": {"name": "f", "parameters": bomb}}], "max_tokens": 9});
    sidecar.post(CHAT, chat("provider-claude", "x", tools)).await.expect_refusal(400, "param_not_allowed");
}

/// A retry is another call that may be billed, without a line in the audit log.
#[tokio::test]
async fn one_call_is_one_call_of_the_provider() {
    let litellm = LiteLlm::shared().await;
    let sidecar = before(litellm).start().await;
    let body = |mark: &str| chat("provider-retried", &format!("{mark} FAIL"), json!({}));

    at_litellm(litellm, CHAT, &body("retried-direct")).await;
    assert_eq!(litellm.provider_requests_with("retried-direct").len(), 3, "the deployment retries");

    let answer = sidecar.post(CHAT, body("retried-sidecar")).await;
    assert_eq!(answer.status, 500, "{}", answer.text());
    assert_eq!(litellm.provider_requests_with("retried-sidecar").len(), 1);
}

/// On its way to OpenAI's Responses API a tool of this name becomes a search that the provider makes.
#[tokio::test]
async fn no_agent_tool_becomes_a_provider_search() {
    let litellm = LiteLlm::shared().await;
    let sidecar = before(litellm).start().await;
    let tools = |name: &str| json!({"max_tokens": 9, "tools": [{"name": name, "input_schema": {"type": "object"}}]});

    let body = chat("provider-gpt", "searching-tool", tools("web_search"));
    at_litellm(litellm, "/v1/messages", &body).await;
    let sent = litellm.provider_requests_with("searching-tool");
    assert_eq!(sent[0]["body"]["tools"][0]["type"], "web_search_preview", "{}", sent[0]);

    sidecar.post("/v1/messages", body).await.expect_refusal(400, "tool_not_allowed");
    // Claude Code's own tool, of another name.
    sidecar.post("/v1/messages", chat("provider-gpt", "own-tool", tools("WebSearch"))).await.expect(200);
    assert_eq!(litellm.provider_requests_with("own-tool")[0]["body"]["tools"][0]["type"], "function");
}

/// LiteLLM decodes the ids of its stored files, and they can contain a URL.
#[tokio::test]
async fn no_id_of_a_file_carries_a_url() {
    let litellm = LiteLlm::shared().await;
    let sidecar = before(litellm).start().await;
    // litellm_proxy:application/pdf;unified_id,x;target_model_names,y;llm_output_file_id,https://evil/x;llm_output_file_model_id,z
    let id = "bGl0ZWxsbV9wcm94eTphcHBsaWNhdGlvbi9wZGY7dW5pZmllZF9pZCx4O3RhcmdldF9tb2RlbF9uYW1lcyx5O2xsbV9vdXRwdXRfZmlsZV9pZCxodHRwczovL2V2aWwveDtsbG1fb3V0cHV0X2ZpbGVfbW9kZWxfaWQseg";
    let part = |part: Value| json!({"model": "provider-gpt", "messages": [{"role": "user", "content": [part]}]});
    for body in [
        part(json!({"type": "file", "file": {"file_id": id}})),
        part(json!({"type": "file", "file": {"file_id": format!("file-{id}")}})),
    ] {
        sidecar.post(CHAT, body).await.expect_refusal(400, "remote_media_not_allowed");
    }
    let input = json!([{"role": "user", "content": [{"type": "input_file", "file_id": id}]}]);
    let body = json!({"model": "provider-gpt", "input": input});
    sidecar.post("/v1/responses", body).await.expect_refusal(400, "remote_media_not_allowed");
}

/// LiteLLM drops a bound of another route, so the sidecar must not reserve by it.
#[tokio::test]
async fn the_provider_gets_the_bound_that_was_reserved() {
    let litellm = LiteLlm::shared().await;
    let sidecar = before(litellm).args(["--max-tokens", "100000"]).start().await;
    for (at, (path, model, more, bound)) in [
        ("/v1/responses", "provider-gpt", json!({"max_tokens": 1}), "max_output_tokens"),
        ("/v1/responses", "provider-gpt", json!({"max_completion_tokens": 1}), "max_output_tokens"),
        ("/v1/messages", "provider-gpt", json!({"max_tokens": 0}), "max_output_tokens"),
        ("/v1/messages", "provider-claude", json!({"max_tokens": 200_000}), "max_tokens"),
        (CHAT, "provider-claude", json!({"max_output_tokens": 1}), "max_tokens"),
        (CHAT, "provider-gpt", json!({}), "max_tokens"),
        ("/v1/completions", "provider-completion", json!({"max_completion_tokens": 1}), "max_tokens"),
    ]
    .into_iter()
    .enumerate()
    {
        let mark = format!("bounded-{at}");
        let mut body = chat(model, &mark, more);
        if path == "/v1/responses" || path == "/v1/completions" {
            let name = if path == "/v1/responses" { "input" } else { "prompt" };
            body[name] = json!(mark);
            body.as_object_mut().expect("an object").remove("messages");
        }
        sidecar.post(path, body).await.expect(200);

        let sent = litellm.provider_requests_with(&mark);
        let audit = sidecar.audit();
        let intent = *audit.intents().last().expect("an intent");
        assert!(intent["bound"].is_u64() && intent["reserved_strict"] == true, "{path} {mark}: {intent}");
        assert_eq!(sent[0]["body"][bound], intent["bound"], "{path} {mark}: {}", sent[0]);
    }
}

/// LiteLLM makes its own ids, and any call with the master key may name any of them.
#[tokio::test]
async fn an_answer_of_the_gateway_belongs_to_its_run() {
    let litellm = LiteLlm::shared().await;
    let sidecar = before(litellm).start().await;
    let other = before(litellm).start().await;
    for stream in [false, true] {
        let body = json!({"model": "provider-gpt", "input": "kept-answer", "store": true, "stream": stream});
        let answer = sidecar.post("/v1/responses", body).await.expect(200);
        let id = if stream {
            let events: Vec<Value> = answer.data().iter().filter_map(|data| serde_json::from_str(data).ok()).collect();
            events.last().expect("an event")["response"]["id"].clone()
        } else {
            answer.json()["id"].clone()
        };
        let mark = format!("goes-on-{stream}");
        let next = json!({"model": "provider-gpt", "input": mark, "previous_response_id": id});

        let refused = other.post("/v1/responses", next.clone()).await.expect_refusal(400, "param_not_allowed");
        assert_eq!(refused.error()["param"], "previous_response_id");
        sidecar.post("/v1/responses", next).await.expect(200);

        let asked = litellm.provider_requests_with(&mark);
        assert_eq!(asked.len(), 1);
        assert!(asked[0]["body"]["previous_response_id"].is_string(), "{}", asked[0]);
    }
    let count = json!({"model": "provider-gpt", "input": "count these words"});
    let answer = sidecar.post("/v1/responses/input_tokens", count).await.expect(200).json();
    assert!(answer["input_tokens"].as_u64() > Some(0), "{answer}");
}
