//! Traces that the daemon sends itself, decoded by another implementation of OTLP.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use sluice_testkit::otlp::decode;
use sluice_testkit::{PATIENCE, ReceivedRequest, Script, poll};

use super::*;

pub(super) const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
pub(super) const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// Creates a run with the span of its caller, and returns its id.
pub(super) async fn create_in_trace(daemon: &Daemon<'_>, request: &Value) -> String {
    let headers = [("content-type", "application/json"), ("traceparent", PARENT), ("x-request-id", "req-1")];
    let created = daemon.connect().await.request("POST", "/api/v1/sandboxes", &headers, request.to_string()).await;
    created.expect(201).json()["run_id"].as_str().expect("an id").to_owned()
}

/// Waits until the requests after the first `seen` ones hold `count` spans that fit, and returns all their spans.
pub(super) async fn spans_after(
    seen: usize,
    receiver: &Upstream,
    count: usize,
    fits: fn(&Value) -> bool,
) -> Vec<Value> {
    let mut spans = Vec::new();
    let all_there = poll(PATIENCE, async || {
        let new = receiver.requests().into_iter().skip(seen);
        let traces: Vec<ReceivedRequest> = new.filter(|request| request.target.ends_with("/v1/traces")).collect();
        spans = decode(&traces)["spans"].as_array().cloned().unwrap_or_default();
        spans.iter().filter(|span| fits(span)).count() >= count
    });
    assert!(all_there.await, "{spans:#?}");
    spans
}

/// Configures both kinds of targets.
fn configure(sluice: &Sluice, collector: &Upstream, langfuse: &Upstream) {
    let secret = sluice.file("langfuse.keys", "pk-lf-1:sk-lf-2\n");
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).expect("it is ours");
    let settings = format!(
        "[[otel]]\nname = 'collector'\nendpoint = '{}'\n[[otel]]\nname = 'langfuse'\nkind = 'langfuse'\n\
         endpoint = '{}'\nsecret_file = '{secret}'\n",
        collector.url(),
        langfuse.url()
    );
    sluice.file("sluice.toml", &settings);
}

fn named<'a>(spans: &'a [Value], start: &str) -> Vec<&'a Value> {
    spans.iter().filter(|span| span["name"].as_str().is_some_and(|name| name.starts_with(start))).collect()
}

#[tokio::test]
async fn a_collector_decodes_runs_and_calls() {
    let upstream = Upstream::provider("hello").start().await;
    let ok = || Upstream::json(200, json!({})).start();
    let (collector, langfuse) = tokio::join!(ok(), ok());
    let sluice = Sluice::to(&upstream);
    configure(&sluice, &collector, &langfuse);
    let daemon = sluice.serve().await;
    let mut request = shell(&format!("{CALL}; {CALL}; exit 3"));
    request["name"] = json!("nightly");
    request["metadata"] = json!({ "user_id": "ada", "session_id": "s-1", "tags": ["a"] });

    let id = create_in_trace(&daemon, &request).await;
    daemon.reaches(&id, "FAILED").await;
    // The daemon sends waiting spans at its end.
    daemon.stop().await;

    let mut spans = spans_after(0, &collector, 3, |_| true).await;
    // They are delivered at least once: the end of the daemon can come right after they were sent.
    spans.sort_by_key(|span| span["span"].to_string());
    spans.dedup_by_key(|span| span["span"].clone());
    let [run] = named(&spans, "invoke_agent nightly")[..] else { panic!("{spans:#?}") };
    assert_eq!((&run["trace"], &run["parent"]), (&json!(TRACE), &json!("00f067aa0ba902b7")));
    assert_eq!((&run["status"], &run["attributes"]["error.type"]), (&json!(2), &json!("container_failed")));
    let calls = named(&spans, "chat m");
    assert_eq!(calls.len(), 2, "{spans:#?}");
    for call in &calls {
        assert_eq!((&call["trace"], &call["parent"], &call["kind"]), (&run["trace"], &run["span"], &json!(3)));
        assert!(run["start"].as_u64() <= call["start"].as_u64() && call["end"].as_u64() <= run["end"].as_u64());
        let all = &call["attributes"];
        assert_eq!((&all["gen_ai.operation.name"], &all["sluice.run_id"]), (&json!("chat"), &json!(id)));
        assert_eq!((&all["gen_ai.conversation.id"], &all["user.id"]), (&json!("s-1"), &json!("ada")));
        assert!(all["gen_ai.usage.output_tokens"].as_u64().is_some_and(|tokens| tokens > 0), "{all}");
        assert!(all["gen_ai.response.id"].is_string(), "{all}");
    }
    let sent = collector.requests();
    assert!(sent.iter().all(|request| !request.text().contains("hello")), "no answer is exported");
    let metrics: Vec<_> = sent.into_iter().filter(|request| request.target == "/v1/metrics").collect();
    let points = decode(&metrics)["metrics"].as_array().cloned().unwrap_or_default();
    let duration =
        points.iter().rfind(|point| point["name"] == "gen_ai.client.inference.duration").expect("it is sent");
    assert_eq!((&duration["count"], &duration["attributes"]["gen_ai.request.model"]), (&json!(2), &json!("m")));
    assert!(points.iter().any(|point| point["name"] == "gen_ai.client.inference.usage.output_tokens"));

    let spans = spans_after(0, &langfuse, 3, |_| true).await;
    for span in &spans {
        let all = &span["attributes"];
        assert_eq!((&all["langfuse.trace.name"], &all["langfuse.user.id"]), (&json!("nightly"), &json!("ada")));
        assert_eq!((&all["langfuse.session.id"], &all["langfuse.trace.tags"]), (&json!("s-1"), &json!(["a"])));
        assert_eq!(all["langfuse.trace.metadata.run_id"], json!(id));
    }
    let request = langfuse.requests().remove(0);
    assert_eq!(request.target, "/api/public/otel/v1/traces");
    assert_eq!(request.header("authorization"), Some("Basic cGstbGYtMTpzay1sZi0y"));
    assert_eq!(request.header("x-langfuse-ingestion-version"), Some("4"));
}

#[tokio::test]
async fn a_failing_target_delays_nothing_and_is_tried_again() {
    let upstream = Upstream::provider("hello").start().await;
    let answers = [503, 429, 200].map(|status| Script::json(status, json!({})));
    let collector =
        Upstream::queue(answers.into_iter().chain((0..20).map(|_| Script::json(200, json!({}))))).start().await;
    let langfuse = Upstream::json(400, json!({})).start().await;
    let sluice = Sluice::to(&upstream);
    configure(&sluice, &collector, &langfuse);
    let daemon = sluice.serve().await;

    let id = daemon.create(shell(CALL)).await;
    let run = daemon.reaches(&id, "COMPLETED").await;

    assert_eq!(run["outcome"], "success", "{run}");
    let mut text = String::new();
    let counted = poll(PATIENCE, async || {
        text = daemon.get("/metrics").await.expect(200).text();
        text.contains("sluice_otel_spans_total{target=\"langfuse\",result=\"refused\"} 2")
            && text.contains("sluice_otel_spans_total{target=\"collector\",result=\"sent\"} 2")
    });
    assert!(counted.await, "{text}");
}
