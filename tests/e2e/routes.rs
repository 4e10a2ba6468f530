//! Which requests become calls, which are refused, and which answers never pass.

use serde_json::json;
use sluice_testkit::{ClientAnswer, Script, Sidecar, Upstream};

use crate::bodies::{WIRES, body};

mod models;
mod refused;
mod stored;

#[tokio::test]
async fn default_routes_work_without_v1_and_drop_queries() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;

    for (path, rest) in WIRES {
        for asked in [path.to_owned(), path[3..].to_owned(), format!("{path}?user=VICTIM&key=x&api-version=1")] {
            sidecar.post(&asked, body(rest, "")).await.expect(200);
            let received = upstream.received().await;
            assert_eq!((received.method.as_str(), received.target.as_str()), ("POST", path), "{asked}");
        }
    }
    for asked in ["/v1/models", "/models", "/v1/models?return_wildcard_routes=true"] {
        sidecar.get(asked).await.expect(200);
        let received = upstream.received().await;
        assert_eq!((received.method.as_str(), received.target.as_str()), ("GET", "/v1/models"), "{asked}");
        assert!(received.body.is_empty());
    }
}

#[tokio::test]
async fn health_is_answered_here() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).run_id("run-7").start().await;

    // Claude Code asks for `/`, or for `/api/hello`, before its first call.
    let mut raw = sidecar.connect().await;
    for path in ["/health", "/health?deep=1", "/", "/?x=1", "/api/hello"] {
        let answer = sidecar.get(path).await.expect(200);
        assert_eq!(answer.json(), json!({"status": "ok", "runId": "run-7"}), "{path}");
        let head = raw.request("HEAD", path, &[], ()).await;
        assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
        // If the answer had a body, the client would read it as the next answer.
        raw.get(path).await.expect(200);
    }
    sidecar.post("/health", "{}").await.expect_refusal(405, "method_not_allowed");
    sidecar.stop().await;
    assert_eq!((upstream.begun(), sidecar.audit().kinds()), (0, vec!["open", "refused", "close"]));
}

#[tokio::test]
async fn an_allowed_route_follows_the_same_policy() {
    let upstream = Upstream::provider("hi").start().await;
    let allow = ["--allow", "POST /v1/rerank", "--allow", "GET /v1/model/info"];
    let sidecar = Sidecar::to(&upstream).args(allow).start().await;

    let sent = r#"{"model":"m","query":"q","user":"VICTIM","metadata":{"a":1},"documents":["d"]}"#;
    sidecar.post("/v1/rerank?x=1", sent).await.expect(200);
    let received = upstream.received().await;
    assert_eq!(
        (received.target.as_str(), received.text().as_str()),
        ("/v1/rerank", r#"{"user":"acct-1","model":"m","query":"q","documents":["d"]}"#)
    );
    // Other spellings are stripped too, because the sidecar does not know the identity members of such a route.
    let spelt = r#"{"model":"m","USER":"VICTIM","Metadata":{"a":1},"safety-identifier":"VICTIM","Tags":["VICTIM"]}"#;
    sidecar.post("/v1/rerank", spelt).await.expect(200);
    assert_eq!(upstream.received().await.text(), r#"{"user":"acct-1","model":"m"}"#);
    sidecar.get("/v1/model/info").await.expect(200);
    assert_eq!(upstream.received().await.target, "/v1/model/info");

    for (method, path, sent, status, reason) in [
        ("GET", "/v1/rerank", "", 405, "method_not_allowed"),
        ("POST", "/rerank", "{}", 404, "route_not_allowed"),
        ("POST", "/v1/rerank/", "{}", 404, "route_not_allowed"),
        ("GET", "/v1/model/info/", "", 404, "route_not_allowed"),
        ("POST", "/v1/rerank", r#"{"model":"m","api_base":"x"}"#, 400, "param_not_allowed"),
        ("POST", "/v1/rerank", r#"{"model":"a,b"}"#, 400, "model_not_allowed"),
        ("POST", "/v1/rerank", r#"{"q":{"url":"http://x"}}"#, 400, "remote_media_not_allowed"),
    ] {
        let answer = sidecar.request(method, path, &[], sent).await;
        answer.expect_refusal(status, reason);
    }
    assert_eq!(upstream.begun(), 3, "a refused request reached the upstream");
}

#[tokio::test]
async fn only_plain_paths_can_be_allowed() {
    let routes = ["POST /v1/../key", "POST //x", "POST /v1%2fx", "DELETE /v1/x", "/v1/x", "POST /v1/x?y"];
    for route in routes {
        let failed = Sidecar::to_url("http://127.0.0.1:1").args(["--allow", route]).fail().await;
        assert_eq!(failed.code, 64, "{route}: {}", failed.stderr);
        assert!(failed.stderr.contains("--allow"), "{route}: {}", failed.stderr);
    }
}

#[tokio::test]
async fn the_model_list_has_only_allowed_models() {
    let upstream = Upstream::answering(Script::models(["gpt-a", "gpt-b", "gpt-b-secret"])).start().await;
    let ids = |answer: &ClientAnswer| -> Vec<String> {
        let list = answer.json();
        let models = list["data"].as_array().expect("a list of models").iter();
        models.map(|model| model["id"].as_str().expect("an id").to_owned()).collect()
    };

    let sidecar = Sidecar::to(&upstream).args(["--model", "gpt-b", "--model", "gpt-x"]).start().await;
    for path in ["/v1/models", "/models"] {
        let answer = sidecar.get(path).await.expect(200);
        assert_eq!(ids(&answer), ["gpt-b"]);
        assert_eq!((answer.json()["object"].as_str(), answer.text().contains("secret")), (Some("list"), false));
    }
    assert_eq!(sidecar.audit().calls().len(), 2);

    let sidecar = Sidecar::to(&upstream).start().await;
    let answer = sidecar.get("/v1/models").await.expect(200);
    assert_eq!(ids(&answer), ["gpt-a", "gpt-b", "gpt-b-secret"]);
}

#[tokio::test]
async fn an_unreadable_model_list_does_not_pass() {
    for script in [
        Script::body(200, "application/json", "[\"gpt-secret\"]"),
        Script::body(200, "text/html", "gpt-secret"),
        Script::json(200, json!({"data": "gpt-secret"})),
        Script::json(200, json!({"models": ["gpt-secret"]})),
    ] {
        let upstream = Upstream::answering(script).start().await;
        let sidecar = Sidecar::to(&upstream).args(["--model", "m"]).start().await;
        let answer = sidecar.get("/v1/models").await.expect_refusal(502, "upstream_unreadable");
        assert!(!answer.text().contains("gpt-secret"));
        assert_eq!(sidecar.audit().only_call().result(), "upstream_error");
    }
}

#[tokio::test]
async fn a_redirect_is_neither_followed_nor_passed() {
    let elsewhere = Upstream::chat("stolen").start().await;
    for status in [300, 301, 302, 303, 304, 307, 308] {
        let script = Script::body(status, "text/plain", "go to leaked.internal")
            .header("location", &format!("{}/v1/chat/completions", elsewhere.url()));
        let upstream = Upstream::answering(script).start().await;
        let sidecar = Sidecar::to(&upstream).start().await;

        let answer = sidecar.post("/v1/chat/completions", body("\"messages\":[]", "")).await;

        let answer = answer.expect_refusal(502, "upstream_redirect");
        assert!(!answer.text().contains("leaked"), "{status}: {}", answer.text());
        let call = sidecar.audit().only_call();
        assert_eq!((call.result(), call.status()), ("upstream_error", Some(u64::from(status))));
    }
    assert_eq!(elsewhere.begun(), 0);
}

/// LiteLLM's text about a rotated key: its last characters, and its hash.
const KEY_ERROR: &str = "Authentication Error, Invalid proxy server token passed. Received API Key = sk-...Lr4T, \
    Key Hash (Token) = 88dc28d0f030c55ed4ab77ed8faf098196cb1c05df778539800c9f1243fe6b4b";

#[tokio::test]
async fn an_answer_about_our_key_never_passes() {
    for status in [401, 403] {
        let upstream = Upstream::answering(Script::error(status, KEY_ERROR)).start().await;
        let sidecar = Sidecar::to(&upstream).args(["--model", "m"]).start().await;
        for (path, rest) in WIRES.into_iter().chain([("/v1/models", "")]) {
            let method = if path == "/v1/models" { "GET" } else { "POST" };
            let sent = if rest.is_empty() { String::new() } else { body(rest, "") };

            let answer = sidecar.request(method, path, &[], sent).await;

            let answer = answer.expect_refusal(502, "upstream_auth");
            // Nothing of that answer passes, not even its call id and cost.
            let leaked = [&answer.text(), &format!("{:?}", answer.headers)]
                .into_iter()
                .any(|text| ["Lr4T", "88dc28d0", "sk-", "x-litellm"].iter().any(|part| text.contains(part)));
            assert!(!leaked, "{status} {path}: {:?} {}", answer.headers, answer.text());
            assert_eq!(answer.header("x-should-retry"), Some("false"));
        }
        for call in sidecar.audit().calls() {
            assert_eq!((call.result(), call.status()), ("upstream_error", Some(u64::from(status))));
        }
        assert_eq!(sidecar.audit().calls().len(), 7);
    }
}

#[tokio::test]
async fn the_log_has_ten_warnings_about_refused_keys() {
    let upstream = Upstream::answering(Script::error(403, KEY_ERROR)).start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    for _ in 0..12 {
        let answer = sidecar.post("/v1/chat/completions", body("\"messages\":[]", "")).await;
        let answer = answer.expect_refusal(502, "upstream_auth");
        assert!(answer.text().contains("or this model or route for it, with status 403"), "{}", answer.text());
    }
    assert_eq!(sidecar.stop().await, 0);

    let log = sidecar.stderr();
    let warnings: Vec<_> = log.lines().filter(|line| line.contains("WARN") && line.contains("status 403")).collect();
    assert_eq!(warnings.len(), 10, "{log}");
    assert!(warnings[0].contains(sidecar.audit().calls()[0].id()), "{log}");
    assert!(warnings[9].contains("further such calls are not logged"), "{log}");
    assert!(!log.contains("Lr4T"), "{log}");
}

#[tokio::test]
async fn a_compressed_answer_is_refused() {
    for script in [
        Script::gzip(),
        Script::chat("x").header("content-encoding", "br"),
        Script::chat("x").header("content-encoding", "identity, gzip"),
    ] {
        let upstream = Upstream::answering(script).start().await;
        let sidecar = Sidecar::to(&upstream).start().await;
        let answer = sidecar.post("/v1/chat/completions", body("\"messages\":[]", "")).await;
        answer.expect_refusal(502, "upstream_unreadable");
        assert_eq!(upstream.only_request().header("accept-encoding"), Some("identity"));
    }
}

#[tokio::test]
async fn errors_of_the_provider_pass_as_they_are() {
    for status in [400, 404, 408, 409, 413, 422, 429, 500, 502, 503, 529] {
        let script = Script::error(status, "your prompt is too long").header("retry-after", "7");
        let upstream = Upstream::answering(script).start().await;
        let sidecar = Sidecar::to(&upstream).start().await;
        for (path, rest) in WIRES {
            let answer = sidecar.post(path, body(rest, "")).await.expect(status);
            assert_eq!(answer.error()["message"], "your prompt is too long", "{status} {path}");
            assert_eq!((answer.header("retry-after"), answer.reason()), (Some("7"), ""), "{status} {path}");
        }
        for call in sidecar.audit().calls() {
            let (result, end) = (call.result(), call.end());
            assert_eq!((result, end, call.status()), ("upstream_error", "complete", Some(u64::from(status))));
        }
    }
}

#[tokio::test]
async fn each_caller_is_refused_in_its_own_words() {
    let sidecar = Sidecar::to_url("http://127.0.0.1:1").start().await;
    let evil = r#"{"model":"m","api_base":"x"}"#;
    let openai = json!({"code": "param_not_allowed", "type": "invalid_request_error", "param": "api_base"});
    for (path, _) in WIRES {
        for path in [path, &path[3..]] {
            let refused = sidecar.post(path, evil).await.expect_refusal(400, "param_not_allowed").json();
            let message = refused["error"]["message"].as_str().expect("a message");
            assert!(message.contains("api_base"), "{message}");
            let mut error = refused["error"].clone();
            error.as_object_mut().expect("an object").remove("message");
            if path.contains("/messages") {
                assert_eq!((&refused["type"], &error["type"]), (&json!("error"), &json!("invalid_request_error")));
            } else {
                assert_eq!((error, refused.get("type")), (openai.clone(), None), "{path}");
            }
        }
    }
    for (method, path, status, of_openai, of_anthropic) in [
        ("GET", "/v1/chat/completions", 405, Some("invalid_request_error"), None),
        ("GET", "/v1/messages", 405, None, Some("invalid_request_error")),
        ("POST", "/v1/messages/batches", 404, None, Some("not_found_error")),
        ("POST", "/messages/batches", 404, None, Some("not_found_error")),
        ("POST", "/v1/batches", 404, Some("invalid_request_error"), None),
    ] {
        let refused = sidecar.request(method, path, &[], ()).await.expect(status).json();
        let kind = refused["error"]["type"].as_str();
        let expected = if of_openai.is_some() { (None, of_openai) } else { (Some("error"), of_anthropic) };
        assert_eq!((refused["type"].as_str(), kind), expected, "{path}");
    }
}
