//! Stored objects of the provider: a run can name only its own answers, by the ids that it has received.

use serde_json::{Value, json};
use sluice_testkit::upstream::{ReceivedRequest, Script, UpstreamPlan};
use sluice_testkit::{Sidecar, Upstream};

const RESPONSES: &str = "/v1/responses";
/// Id of an answer as LiteLLM writes it: base64 with its padding.
const OWN: &str = "resp_bGl0ZWxsbTpjdXN0b21fbGxtX3Byb3ZpZGVyOm9wZW5haTs=";

const ALLOW: [&str; 8] = [
    "--allow", "GET /v1/responses/{id}", "--allow", "DELETE /v1/responses/{id}", "--allow",
    "GET /v1/responses/{id}/input_items", "--allow", "POST /v1/responses/{id}/cancel",
];

fn response(id: &str) -> Value {
    json!({"id": id, "object": "response", "model": "m", "status": "completed", "output": [],
        "usage": {"input_tokens": 3000, "output_tokens": 500, "total_tokens": 3500}})
}

/// A provider that answers with [`OWN`], or with the id that the request's `instructions` name: as an error, unless
/// they begin with `ok `.
fn provider() -> UpstreamPlan {
    Upstream::with(|request: &ReceivedRequest| {
        if request.method != "POST" || request.target.ends_with("/cancel") {
            return Script::json(200, response("resp_other"));
        }
        let body = request.json();
        match body["instructions"].as_str() {
            None if body["stream"] == true => {
                let events = [("response.created", OWN), ("response.completed", OWN)];
                Script::sse(events.map(|(kind, id)| json!({"type": kind, "response": response(id)}).to_string()))
            }
            None => Script::json(200, response(OWN)),
            Some(id) => match id.strip_prefix("ok ") {
                Some(id) => Script::json(200, response(id)),
                None => Script::json(400, json!({"id": id, "error": {"message": "no"}})),
            },
        }
    })
}

fn input(more: &Value) -> Value {
    let mut body = json!({"model": "m", "input": "x"});
    body.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
    body
}

#[tokio::test]
async fn a_run_reaches_its_own_answers_and_no_others() {
    let upstream = provider().start().await;
    let sidecar = Sidecar::to(&upstream).args(ALLOW).start().await;
    let other = Sidecar::to(&upstream).args(ALLOW).start().await;
    let own = format!("/v1/responses/{OWN}");
    let ways = [
        ("GET", own.clone()),
        ("GET", format!("{own}/input_items")),
        ("POST", format!("{own}/cancel")),
        ("DELETE", own.clone()),
    ];
    for (method, path) in &ways {
        let answer = sidecar.request(method, path, &[], ()).await.expect_refusal(404, "unknown_id");
        assert_eq!(answer.error()["code"], "unknown_id");
    }

    sidecar.post(RESPONSES, input(&json!({}))).await.expect(200);
    assert_eq!(upstream.received().await.target, RESPONSES);
    for (method, path) in &ways {
        sidecar.request(method, &format!("{path}?include=x"), &[], ()).await.expect(200);
        let received = upstream.received().await;
        assert_eq!((&received.method[..], &received.target, received.body.len()), (*method, path, 0));
        other.request(method, path, &[], ()).await.expect_refusal(404, "unknown_id");
    }
    // A stored answer has the usage of the call that made it: it is not billed again.
    let calls = sidecar.audit().calls();
    assert_eq!(calls.iter().filter(|call| call.tokens().is_some()).count(), 1);
    let audit = sidecar.audit();
    let paths: Vec<_> = audit.intents().iter().skip(1).filter_map(|line| line["path"].as_str()).collect();
    assert_eq!(paths, ways.each_ref().map(|(_, path)| path.replace(OWN, "{id}")));
}

#[tokio::test]
async fn an_id_matches_only_in_its_exact_spelling() {
    let upstream = provider().start().await;
    let sidecar = Sidecar::to(&upstream).args(ALLOW).start().await;
    sidecar.post(RESPONSES, input(&json!({"stream": true}))).await.expect(200);

    let begun = upstream.begun();
    for id in [&OWN[..OWN.len() - 1], &OWN[..9], &OWN.to_lowercase(), "resp_other", &format!("{OWN}="), "compact"] {
        sidecar.get(&format!("/v1/responses/{id}")).await.expect_refusal(404, "unknown_id");
        let body = input(&json!({"previous_response_id": id}));
        let answer = sidecar.post(RESPONSES, body).await.expect_refusal(400, "param_not_allowed");
        assert_eq!(answer.error()["param"], "previous_response_id");
    }
    for path in [
        OWN.replace('=', "%3D"),
        OWN.replace("resp", "%72esp"),
        format!("{OWN}/"),
        format!("./{OWN}"),
        format!("{OWN}%2f..%2fx"),
        format!("{OWN}/../x"),
        format!("{OWN};x"),
        "{id}".to_owned(),
        "x".repeat(769),
    ] {
        let answer = sidecar.get(&format!("/v1/responses/{path}")).await;
        assert_eq!(answer.status, 404, "{path}: {}", answer.text());
    }
    assert_eq!(upstream.begun(), begun);
    sidecar.get(&format!("/v1/responses/{OWN}")).await.expect(200);
    // An escape in JSON is the same id.
    let escaped = format!(r#"{{"model":"m","input":"x","previous_response_id":"{}"}}"#, OWN.replace('_', "\\u005f"));
    sidecar.post(RESPONSES, escaped).await.expect(200);
}

#[tokio::test]
async fn errors_and_invalid_ids_make_nothing_known() {
    let upstream = provider().start().await;
    let launch = Sidecar::to(&upstream).args(ALLOW).args(["--allow", "POST /v1/rerank"]);
    let sidecar = launch.start().await;
    sidecar.post(RESPONSES, input(&json!({"instructions": "resp_victim"}))).await.expect(400);
    sidecar.post("/v1/rerank", input(&json!({"instructions": "ok resp_victim"}))).await.expect(200);
    sidecar.post("/v1/chat/completions", json!({"model": "m", "messages": []})).await.expect(200);
    for id in ["resp_victim", OWN] {
        sidecar.get(&format!("/v1/responses/{id}")).await.expect_refusal(404, "unknown_id");
    }
    sidecar.post(RESPONSES, input(&json!({"instructions": "ok ../../key/list"}))).await.expect(200);
    let body = input(&json!({"previous_response_id": "../../key/list"}));
    sidecar.post(RESPONSES, body).await.expect_refusal(400, "param_not_allowed");
    // LiteLLM's ids that name provider, deployment, user and team are long; the log does not have them.
    let long = format!("resp_{}", "a".repeat(600));
    sidecar.post(RESPONSES, input(&json!({"instructions": format!("ok {long}")}))).await.expect(200);
    sidecar.get(&format!("/v1/responses/{long}")).await.expect(200);
    let audit = sidecar.audit();
    assert!(audit.outcomes().iter().all(|line| !line.to_string().contains(&long)));
}

#[tokio::test]
async fn a_conversation_goes_on_and_reserves_what_it_had() {
    let upstream = provider().start().await;
    let launch = Sidecar::to(&upstream).args(["--max-tokens", "100000", "--allow", "POST /v1/conversations"]);
    let sidecar = launch.start().await;
    let bounded = |more: Value| {
        let mut body = input(&more);
        body["max_output_tokens"] = json!(100);
        body
    };
    sidecar.post(RESPONSES, bounded(json!({"store": true}))).await.expect(200);
    let sent = bounded(json!({"previous_response_id": OWN, "store": true}));
    sidecar.post(RESPONSES, sent).await.expect(200);
    assert_eq!(upstream.requests().pop().expect("a request").json()["previous_response_id"], OWN);

    // No answer has made a conversation yet.
    let body = bounded(json!({"conversation": "conv_1"}));
    sidecar.post(RESPONSES, body.clone()).await.expect_refusal(400, "param_not_allowed");
    sidecar.post("/v1/conversations", input(&json!({"instructions": "ok conv_1"}))).await.expect(200);
    sidecar.post(RESPONSES, body).await.expect(200);
    sidecar.post(RESPONSES, bounded(json!({"conversation": {"id": "conv_1"}}))).await.expect(200);
    sidecar
        .post(RESPONSES, bounded(json!({"conversation": {"id": "conv_2"}})))
        .await
        .expect_refusal(400, "param_not_allowed");

    let audit = sidecar.audit();
    let intents = audit.intents();
    let reserved = |at: usize| intents[at]["reserved_tokens"].as_u64().expect("a reservation");
    assert!(reserved(0) < 1000 && (3500..4500).contains(&reserved(1)), "{intents:?}");
    assert_eq!((&intents[0]["reserved_strict"], &intents[1]["reserved_strict"]), (&json!(true), &json!(false)));
    assert_eq!(intents[3]["reserved_strict"], false);
}

#[tokio::test]
async fn compaction_is_a_call_and_counting_is_free() {
    let upstream = provider().start().await;
    let sidecar = Sidecar::to(&upstream).args(["--max-tokens", "100000", "--max-calls", "9"]).start().await;
    for path in ["/v1/responses/compact", "/responses/compact", "/v1/responses/input_tokens", "/responses/input_tokens"]
    {
        sidecar.post(path, input(&json!({"max_output_tokens": 7, "tools": []}))).await.expect(200);
        let received = upstream.received().await;
        assert_eq!(received.target, format!("/v1{}", path.trim_start_matches("/v1")), "{path}");
        assert_eq!(received.json()["user"], "acct-1");
        for (more, reason) in [
            (json!({"api_base": "http://evil"}), "param_not_allowed"),
            (json!({"tools": [{"type": "mcp", "server_url": "http://evil"}]}), "tool_not_allowed"),
            (
                json!({"input": [{"content": [{"type": "input_image", "image_url": "http://evil"}]}]}),
                "remote_media_not_allowed",
            ),
            (json!({"previous_response_id": "resp_foreign"}), "param_not_allowed"),
            (json!({"background": true}), "param_not_allowed"),
        ] {
            sidecar.post(path, input(&more)).await.expect_refusal(400, reason);
        }
    }
    let audit = sidecar.audit();
    let reserved: Vec<_> = audit.intents().iter().map(|line| line["reserved_tokens"].as_u64() > Some(8000)).collect();
    assert_eq!(reserved, [true, true, false, false]);
    let tokens: Vec<_> = audit.calls().iter().map(|call| call.tokens().is_some()).collect();
    assert_eq!(tokens, [true, true, false, false]);
    assert!(audit.intents()[..2].iter().all(|line| line["reserved_strict"] == false));
    // A compacted answer is stored like any other.
    sidecar.post(RESPONSES, input(&json!({"previous_response_id": OWN}))).await.expect(200);
}

#[tokio::test]
async fn a_wrong_method_names_the_right_ones() {
    let upstream = Upstream::never().start().await;
    let sidecar = Sidecar::to(&upstream).args(ALLOW).start().await;
    for (method, path, allow) in [
        ("GET", "/v1/chat/completions", "POST"),
        ("POST", "/v1/models", "GET"),
        ("DELETE", "/health", "GET, HEAD"),
        ("PUT", "/v1/responses/resp_1", "GET, DELETE"),
        ("PUT", "/v1/responses/compact", "GET, POST, DELETE"),
    ] {
        let answer = sidecar.request(method, path, &[], ()).await.expect_refusal(405, "method_not_allowed");
        assert_eq!(answer.header("allow"), Some(allow), "{method} {path}");
    }
}
