//! The metadata of a call in every spend row: ours, in ASCII, joined by one id.

use serde_json::{Value, json};
use sluice_testkit::{Sidecar, Upstream};

use super::CHAT;

#[tokio::test]
async fn metadata_is_ascii_json_with_the_call_id() {
    let upstream = Upstream::chat("hi").start().await;
    let given = json!({"team": "Bär", "mood": "🐻 \"ok\" \\ \n", "deep": {"n": [1, null, true]}});
    let sidecar = Sidecar::to(&upstream)
        .run_id("run-7")
        .args(["--attempt", "3", "--graph-id", "graph:a/b"])
        .args(["--metadata", &given.to_string()])
        .start()
        .await;
    let forged =
        r#"{"model":"m","messages":[],"metadata":{"run_id":"VICTIM","spend_logs_metadata":{"run_id":"VICTIM"}}}"#;

    let answer = sidecar.post("/v1/chat/completions", forged).await.expect(200);

    let request = upstream.received().await;
    let call_id = request.header("x-litellm-call-id").expect("an id").to_owned();
    let mut expected = given.clone();
    for (name, value) in [
        ("run_id", json!("run-7")),
        ("attempt", json!(3)),
        ("graph_id", json!("graph:a/b")),
        ("sluice_call_id", json!(call_id)),
    ] {
        expected[name] = value;
    }
    for name in ["x-litellm-spend-logs-metadata", "x-litellm-metadata"] {
        assert_eq!(request.header_json(name), expected);
        assert!(request.header(name).is_some_and(|text| text.bytes().all(|b| (0x20..0x7f).contains(&b))), "{name}");
    }
    assert_eq!(answer.header("x-litellm-call-id"), Some(call_id.as_str()));
    let call = sidecar.audit().only_call();
    assert_eq!((call.id(), &call.outcome["litellm_call_id"]), (call_id.as_str(), &json!(call_id)));
}

#[tokio::test]
async fn traces_are_linked_by_the_operators_value() {
    let given = |metadata: Value| async move {
        let upstream = Upstream::chat("hi").start().await;
        let sidecar = Sidecar::to(&upstream).args(["--metadata", &metadata.to_string()]).start().await;
        let forged = ["langfuse_trace_id", "langfuse_session_id", "langfuse_existing_trace_id", "x-litellm-session-id"];
        let forged = forged.map(|name| (name, "VICTIM"));
        sidecar.request("POST", "/v1/chat/completions", &forged, CHAT).await.expect(200);
        let request = upstream.received().await;
        assert!(!String::from_utf8_lossy(&request.head).contains("VICTIM"));
        let mut linked: Vec<(String, String)> = request.headers;
        linked.retain(|(name, _)| {
            name.starts_with("langfuse") || name.ends_with("trace-id") || name.ends_with("session-id")
        });
        linked.sort();
        linked
    };
    let pairs = |pairs: &[(&str, &str)]| -> Vec<_> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };

    let all = json!({"existing_trace_id": "t-0", "trace_id": "t-1", "session_id": "s-1", "trace_user_id": "u-1"});
    let expected = [
        ("langfuse_existing_trace_id", "t-0"),
        ("langfuse_session_id", "s-1"),
        ("langfuse_trace_user_id", "u-1"),
        // LiteLLM uses the trace id for the session too, in preference to the session id.
        ("x-litellm-session-id", "s-1"),
        ("x-litellm-trace-id", "s-1"),
    ];
    assert_eq!(given(all).await, pairs(&expected));
    let new = [("langfuse_trace_id", "t-1"), ("x-litellm-session-id", "r1"), ("x-litellm-trace-id", "r1")];
    assert_eq!(given(json!({"trace_id": "t-1"})).await, pairs(&new));
    assert_eq!(given(json!({"team": "x"})).await, pairs(&new[1..]));
}

#[tokio::test]
async fn metadata_that_no_header_can_carry_stops_the_start() {
    for (metadata, named) in [
        (r#"{"run_id":"VICTIM"}"#, "run_id"),
        (r#"{"sluice_call_id":"VICTIM"}"#, "sluice_call_id"),
        (r#"{"attempt":1}"#, "attempt"),
        (r#"{"graph_id":"x"}"#, "graph_id"),
        (r#"{"session_id":"a\r\nx-evil: 1"}"#, "session_id"),
        (r#"{"trace_id":7}"#, "trace_id"),
        (r#"{"trace_user_id":"ä"}"#, "trace_user_id"),
        ("[1]", "--metadata"),
        ("{", "--metadata"),
    ] {
        let failed = Sidecar::to_url("http://127.0.0.1:1").args(["--metadata", metadata]).fail().await;
        assert_eq!(failed.code, 78, "{metadata}: {}", failed.stderr);
        assert!(failed.stderr.contains("--metadata") && failed.stderr.contains(named), "{metadata}: {}", failed.stderr);
    }
    let long = json!({"x": "y".repeat(9000)}).to_string();
    assert_eq!(Sidecar::to_url("http://127.0.0.1:1").args(["--metadata", &long]).fail().await.code, 78);
}

#[tokio::test]
async fn an_account_outside_visible_ascii_stops_the_start() {
    for account in ["", " ", "a b", "ä", "a\tb", "a\r\nx-evil: 1"] {
        let failed = Sidecar::to_url("http://127.0.0.1:1").account(account).fail().await;
        assert_eq!(failed.code, 64, "{account:?}: {}", failed.stderr);
        assert!(failed.stderr.contains("--account"), "{account:?}: {}", failed.stderr);
    }
}
