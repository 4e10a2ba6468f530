//! Names of a caller on the calls of its run, as the upstream receives them.

use super::traces::{PARENT, TRACE, create_in_trace};
use super::*;

/// A span that a sandbox names.
const FORGED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test]
async fn calls_carry_the_names_of_their_caller() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    sluice.file(
        "sluice.toml",
        "metadata = '{\"team\": \"core\", \"tags\": [\"ops\"], \"billing_account_id\": \"forged\"}'\n",
    );
    let daemon = sluice.serve().await;
    let mut request = shell(CALL);
    request["name"] = json!("nightly");
    request["metadata"] = json!({
        "user_id": "ada", "session_id": "s-1", "tags": ["a", "b"], "mask_input": true, "mask_output": false
    });
    let headers = [("content-type", "application/json"), ("traceparent", PARENT), ("x-request-id", "req-1")];

    let created = daemon.connect().await.request("POST", "/api/v1/sandboxes", &headers, request.to_string()).await;
    let id = created.expect(201).json()["run_id"].as_str().expect("an id").to_owned();
    daemon.reaches(&id, "COMPLETED").await;

    let received = upstream.received().await;
    let sent = received.header_json("x-litellm-metadata");
    assert_eq!(sent, received.header_json("x-litellm-spend-logs-metadata"));
    let account = daemon.run(&id).await["billing_account_id"].as_str().expect("it has one").to_owned();
    let trace = json!({
        "run_id": id, "graph_id": "sandbox:agent", "billing_account_id": account, "user_id": "ada", "request_id": "req-1"
    });
    for (name, value) in [
        ("run_id", json!(id)),
        ("billing_account_id", json!(account)),
        ("team", json!("core")),
        ("tags", json!(["ops", "a", "b"])),
        ("user_id", json!("ada")),
        ("request_id", json!("req-1")),
        ("trace_metadata", trace.clone()),
        ("mask_output", Value::Null),
    ] {
        assert_eq!(sent[name], value, "{name}");
    }
    for (name, value) in [
        ("langfuse_trace_user_id", Some("ada")),
        ("langfuse_session_id", Some("s-1")),
        ("langfuse_trace_id", Some("4bf92f3577b34da6a3ce929d0e0e4736")),
        ("langfuse_trace_name", Some("nightly")),
        ("langfuse_generation_name", Some("sandbox:agent")),
        ("langfuse_mask_input", Some("true")),
        ("langfuse_mask_output", None),
        ("x-litellm-tags", Some("ops,a,b")),
        ("x-litellm-end-user-id", Some(account.as_str())),
        ("x-litellm-customer-id", Some(account.as_str())),
    ] {
        assert_eq!(received.headers_named(name), value.into_iter().collect::<Vec<_>>(), "{name}");
    }
    assert_eq!(received.header_json("langfuse_trace_metadata"), trace);
}

#[tokio::test]
async fn calls_are_spans_of_the_trace_of_their_caller() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    sluice.file("sluice.toml", &format!("metadata = '{{\"traceparent\": \"{FORGED}\"}}'\n"));
    let daemon = sluice.serve().await;
    let call = shell(&CALL.replace("--json", &format!("-H 'traceparent: {FORGED}' --json")));

    let with_parent = create_in_trace(&daemon, &call).await;
    daemon.reaches(&with_parent, "COMPLETED").await;
    let without = daemon.create(call).await;
    daemon.reaches(&without, "COMPLETED").await;

    let received = upstream.requests();
    let sent = |id: &str| {
        let of_run = received.iter().filter(|request| request.header_json("x-litellm-metadata")["run_id"] == id);
        of_run.flat_map(|request| request.headers_named("traceparent")).map(str::to_owned).collect::<Vec<_>>()
    };
    let [parent] = &sent(&with_parent)[..] else { panic!("{received:#?}") };
    assert!(parent.starts_with(&format!("00-{TRACE}-")) && parent.ends_with("-01"), "{parent}");
    assert_ne!(parent, PARENT, "the span is the run's");
    assert_eq!(sent(&without), [""; 0]);
}
