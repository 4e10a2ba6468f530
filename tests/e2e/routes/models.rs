//! One model, asked for by its id.

use serde_json::json;
use sluice_testkit::{Script, Sidecar, Upstream};

#[tokio::test]
async fn an_allowed_model_is_answered_from_the_list() {
    let upstream = Upstream::answering(Script::models(["gpt-a", "gpt-b", "org/gpt-c"])).start().await;
    let sidecar = Sidecar::to(&upstream).args(["--model", "gpt-b", "--model", "org/gpt-c"]).start().await;
    for (path, id) in [
        ("/v1/models/gpt-b", "gpt-b"),
        ("/models/gpt-b?x=1", "gpt-b"),
        ("/v1/models/org/gpt-c", "org/gpt-c"),
        ("/v1/models/org%2Fgpt-c", "org/gpt-c"),
    ] {
        let answer = sidecar.get(path).await.expect(200);
        assert_eq!(answer.json()["id"], id, "{path}");
        let received = upstream.received().await;
        assert_eq!((received.method.as_str(), received.target.as_str()), ("GET", "/v1/models"), "{path}");
    }
    assert_eq!(sidecar.audit().calls().len(), 4);

    let open = Sidecar::to(&upstream).start().await;
    assert_eq!(open.get("/v1/models/gpt-a").await.expect(200).json()["id"], "gpt-a");
    open.get("/v1/models/gpt-x").await.expect_refusal(404, "model_not_found");
    // The upstream was called both times, and the log records that.
    assert_eq!(open.audit().kinds(), ["open", "intent", "outcome", "intent", "outcome"]);
}

#[tokio::test]
async fn another_model_is_a_404_without_upstream_call() {
    let upstream = Upstream::answering(Script::models(["gpt-a", "gpt-b"])).start().await;
    let sidecar = Sidecar::to(&upstream).args(["--model", "gpt-b"]).start().await;
    for id in ["gpt-a", "gpt-b/x", "x/gpt-b", "GPT-B", "gpt-b.."] {
        let path = format!("/v1/models/{id}");
        let of_openai = sidecar.get(&path).await.expect_refusal(404, "model_not_found").json();
        assert_eq!((&of_openai["error"]["code"], of_openai.get("type")), (&json!("model_not_found"), None), "{id}");
        let version = [("anthropic-version", "2023-06-01")];
        let of_anthropic = sidecar.request("GET", &path, &version, ()).await.expect_refusal(404, "model_not_found");
        assert_eq!(of_anthropic.json()["error"]["type"], "not_found_error", "{id}");
    }
    for path in ["/v1/models/gpt%2Db", "/v1/models/gpt-b%2F", "/v1/models/gpt-b/", "/v1/models/../models/gpt-b"] {
        sidecar.get(path).await.expect_refusal(404, "route_not_allowed");
    }
    sidecar.post("/v1/models/gpt-b", "{}").await.expect_refusal(405, "method_not_allowed");
    let audit = sidecar.audit();
    assert_eq!((audit.refusals()[0]["model"].as_str(), upstream.begun()), (Some("gpt-a"), 0));
}

#[tokio::test]
async fn a_list_that_cannot_be_read_gives_no_model() {
    let upstream = Upstream::answering(Script::body(200, "text/html", "gpt-secret")).start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let answer = sidecar.get("/v1/models/m").await.expect_refusal(502, "upstream_unreadable");
    assert!(!answer.text().contains("gpt-secret"));
    assert_eq!(sidecar.audit().only_call().result(), "upstream_error");
}
