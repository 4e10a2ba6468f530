use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_state::events::{EventSource, LoggedEvent};

use super::attributes::{call_span, run_span};
use super::meters::Meters;
use super::otlp::{Span, SpanKind, metrics, traces};
use super::queue::{BATCH, SPANS_MAX, SpanQueue};
use super::run_facts::RunFacts;
use super::spans::{EndedCall, EndedRun, OpenCalls};
use super::*;
use crate::identity::RunMetadata;

fn target(kind: OtelKind) -> OtelTarget {
    let secret = (kind == OtelKind::Langfuse).then_some("pk:sk");
    OtelTarget::new("t", "http://127.0.0.1:4318/", kind, secret).expect("it is right")
}

fn facts(metadata: Value) -> RunFacts {
    RunFacts {
        run_id: "r_1".to_owned(),
        account: "acct".to_owned(),
        graph_id: "sandbox:agent".to_owned(),
        agent_name: "reviewer".to_owned(),
        trace_id: "4bf92f3577b34da6a3ce929d0e0e4736".to_owned(),
        parent_id: Some("00f067aa0ba902b7".to_owned()),
        created_us: 1_000_000,
        metadata: serde_json::from_value::<RunMetadata>(metadata).expect("its members are known"),
        trace_metadata: json!({ "run_id": "r_1" }),
    }
}

fn event(event_type: &str, data: &Value) -> LoggedEvent {
    LoggedEvent {
        seq: 1,
        id: "evt_1".to_owned(),
        sandbox_id: Some("r_1".to_owned()),
        attempt: Some(0),
        agent_id: None,
        zone_id: None,
        owner: "alice".to_owned(),
        event_type: event_type.to_owned(),
        event_data: data.to_string(),
        source: EventSource::System,
        created_us: 9_000_000,
    }
}

fn call() -> EndedCall {
    let mut open = OpenCalls::default();
    let started = json!({ "call": 1, "call_id": "c-1", "method": "POST", "path": "/v1/chat/completions", "model": "gpt-4o",
        "stream": true, "ts": "1970-01-01T00:00:02Z" });
    assert_eq!(open.take(&event("llm.call_started", &started)), None);
    let ended = json!({
        "call": 1, "call_id": "c-1", "model": "gpt-4o", "model_served": "gpt-4o-2026", "response_id": "chatcmpl-1",
        "result": "ok", "status": 200, "cache_hit": false, "ts": "1970-01-01T00:00:05.000000Z",
        "usage": { "input": 100, "output": 7, "cached_input": 40, "cache_write": 3, "reasoning": null, "total": 107 },
        "cost": { "known": { "usd": "0.00125", "source": "header" } },
        "timing_us": { "connect": 1, "first_token": 250_000, "longest_gap": 0, "own": 0, "queue": 0, "total": 2_000_000 }
    });
    open.take(&event("llm.call", &ended)).expect("it ends a call")
}

#[test]
fn calls_of_a_run_that_is_over_are_forgotten() {
    let started = json!({ "call_id": "c-1", "path": "/v1/embeddings" });
    let ended = json!({ "call_id": "c-1", "result": "ok", "ts": "1970-01-01T00:00:05Z" });
    for (over, operation) in [("r_other", "embeddings"), ("r_mine", "chat")] {
        let mut open = OpenCalls::default();
        let of_run = |event: LoggedEvent| LoggedEvent { sandbox_id: Some("r_mine".to_owned()), ..event };
        assert_eq!(open.take(&of_run(event("llm.call_started", &started))), None);
        open.forget(Some(&over.to_owned()));
        let call = open.take(&of_run(event("llm.call", &ended))).expect("it ends a call");
        assert_eq!(call.operation, operation, "{over}");
    }
}

/// Returns the attributes of a span, each once.
fn attributes_of(span: &Span) -> BTreeMap<&str, &Value> {
    let all: BTreeMap<_, _> = span.attributes.iter().map(|(name, value)| (name.as_str(), value)).collect();
    assert_eq!(all.len(), span.attributes.len(), "no attribute is there twice");
    all
}

#[test]
fn a_call_is_a_span_with_current_names() {
    let span = call_span(&target(OtelKind::Otlp), &facts(json!({ "user_id": "ada", "session_id": "s" })), &call());
    assert_eq!((span.name.as_str(), span.kind), ("chat gpt-4o", SpanKind::Client));
    assert_eq!((span.start_us, span.end_us), (3_000_000, 5_000_000));
    let all = attributes_of(&span);
    for (name, value) in [
        ("gen_ai.operation.name", json!("chat")),
        ("gen_ai.provider.name", json!("openai")),
        ("gen_ai.request.model", json!("gpt-4o")),
        ("gen_ai.response.model", json!("gpt-4o-2026")),
        ("gen_ai.response.id", json!("chatcmpl-1")),
        ("gen_ai.conversation.id", json!("s")),
        ("gen_ai.usage.input_tokens", json!(100)),
        ("gen_ai.usage.output_tokens", json!(7)),
        ("gen_ai.usage.cache_read.input_tokens", json!(40)),
        ("gen_ai.usage.cache_write.input_tokens", json!(3)),
        ("gen_ai.response.time_to_first_chunk", json!(0.25)),
        ("sluice.cost.usd", json!(0.00125)),
        ("sluice.cost.source", json!("header")),
        ("user.id", json!("ada")),
    ] {
        assert_eq!(all.get(name), Some(&&value), "{name}");
    }
    assert!(!all.keys().any(|name| name.starts_with("langfuse.")));
    assert!(!all.contains_key("gen_ai.usage.reasoning.output_tokens"), "what is not known is left out");
}

#[test]
fn older_conventions_have_their_names() {
    let target = OtelTarget { semconv: Semconv::V1_41, ..target(OtelKind::Otlp) };
    let span = call_span(&target, &facts(json!({})), &call());
    let all = attributes_of(&span);
    assert_eq!(all["gen_ai.usage.cache_creation.input_tokens"], &json!(3));
    assert!(!all.contains_key("gen_ai.usage.cache_write.input_tokens"));
    assert_eq!(all["gen_ai.conversation.id"], &json!("r_1"));
    let names = |semconv| {
        let mut meters = Meters::new(semconv, 0);
        meters.count(&call());
        let metrics = meters.to_json(1);
        metrics.iter().map(|metric| metric["name"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let old = names(Semconv::V1_41);
    assert_eq!(old[..2], ["gen_ai.client.operation.duration", "gen_ai.client.operation.time_to_first_chunk"]);
    assert!(old.iter().any(|name| name == "gen_ai.client.token.usage"));
    let current = names(Semconv::Current);
    assert_eq!(current[..2], ["gen_ai.client.inference.duration", "gen_ai.client.inference.time_to_first_chunk"]);
    assert!(current.iter().any(|name| name == "gen_ai.client.inference.usage.cache_write.input_tokens"));
}

#[test]
fn langfuse_has_its_trace_on_each_span() {
    let run = facts(json!({ "user_id": "ada", "session_id": "s", "tags": ["a"] }));
    let target = target(OtelKind::Langfuse);
    let ended = EndedRun { outcome: Some("failed".to_owned()), failure_code: Some("timeout".to_owned()) };
    let (of_call, of_run) = (call_span(&target, &run, &call()), run_span(&target, &run, &ended, 9_000_000));
    for span in [&of_call, &of_run] {
        let all = attributes_of(span);
        assert_eq!(all["langfuse.trace.name"], &json!("reviewer"));
        assert_eq!(all["langfuse.user.id"], &json!("ada"));
        assert_eq!(all["langfuse.session.id"], &json!("s"));
        assert_eq!(all["langfuse.trace.tags"], &json!(["a"]));
        assert_eq!(all["langfuse.trace.metadata.run_id"], &json!("r_1"));
        assert_eq!(span.trace_id, run.trace_id);
    }
    let all = attributes_of(&of_call);
    let usage: Value =
        serde_json::from_str(all["langfuse.observation.usage_details"].as_str().expect("text")).expect("JSON");
    assert_eq!((&usage["input"], &usage["cache_read_input_tokens"]), (&json!(60), &json!(40)));
    assert_eq!(of_call.parent_id.as_deref(), Some(of_run.span_id.as_str()));
    assert_eq!((of_run.parent_id.as_deref(), of_run.error.as_deref()), (Some("00f067aa0ba902b7"), Some("timeout")));
    assert_eq!((of_call.name.as_str(), all["langfuse.generation.name"]), ("sandbox:agent", &json!("sandbox:agent")));
    let existing = facts(json!({ "existing_trace_id": "abc", "user_id": "ada", "session_id": "s", "tags": ["a"] }));
    let span = run_span(&target, &existing, &ended, 9_000_000);
    assert_eq!((span.trace_id.as_str(), span.parent_id.as_deref()), ("ba7816bf8f01cfea414140de5dae2223", None));
    let all = attributes_of(&span);
    assert_eq!((all["langfuse.user.id"], all["langfuse.session.id"]), (&json!("ada"), &json!("s")));
    let of_trace: Vec<_> = all.keys().filter(|name| name.starts_with("langfuse.trace.")).collect();
    assert_eq!(of_trace, [&"langfuse.trace.tags"], "its name and its metadata are those of others");
}

#[test]
fn cached_tokens_of_messages_are_input() {
    let ended = json!({
        "call_id": "c-1", "result": "ok", "status": 200, "ts": "1970-01-01T00:00:05Z",
        "usage": { "input": 1000, "output": 100, "cached_input": 400, "cache_write": 50, "reasoning": null, "total": null },
    });
    let call = OpenCalls::default().take(&event("llm.call", &ended)).expect("it ends a call");
    let span = call_span(&target(OtelKind::Langfuse), &facts(json!({})), &call);
    let all = attributes_of(&span);
    assert_eq!(all["gen_ai.usage.input_tokens"], &json!(1450));
    let usage: Value =
        serde_json::from_str(all["langfuse.observation.usage_details"].as_str().expect("text")).expect("JSON");
    let expected = json!({
        "input": 1050, "output": 100, "total": 1550, "cache_read_input_tokens": 400, "cache_creation_input_tokens": 50
    });
    assert_eq!(usage, expected, "what is read from a cache is counted apart");
}

#[test]
fn failures_and_lost_calls_are_errors() {
    let ended = |data: &Value| OpenCalls::default().take(&event("llm.call", data)).expect("it ends a call").error;
    let row = |result: Value, status: Value| {
        ended(&json!({ "call_id": "c", "result": result, "status": status, "ts": "1970-01-01T00:00:05Z" }))
    };
    assert_eq!(row(json!("ok"), json!(200)), None);
    assert_eq!(row(json!("ok"), json!(429)).as_deref(), Some("429"));
    assert_eq!(row(json!("client_abort"), json!(200)).as_deref(), Some("client_abort"));
    assert_eq!(row(Value::Null, Value::Null).as_deref(), Some("lost"));
}

#[test]
fn bodies_have_the_json_encoding_of_otlp() {
    let span = call_span(&target(OtelKind::Otlp), &facts(json!({ "tags": ["a"] })), &call());
    let body: Value = serde_json::from_str(&traces([&span])).expect("it is JSON");
    let sent = &body["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
    assert_eq!((&sent["kind"], &sent["startTimeUnixNano"]), (&json!(3), &json!("3000000000")));
    assert_eq!((&sent["traceId"], &sent["status"]), (&json!(span.trace_id), &json!({})));
    let value = |name: &str| {
        let all = sent["attributes"].as_array().expect("a list");
        all.iter().find(|attribute| attribute["key"] == name).map(|attribute| attribute["value"].clone())
    };
    assert_eq!(value("gen_ai.usage.input_tokens"), Some(json!({ "intValue": "100" })));
    assert_eq!(value("sluice.cost.usd"), Some(json!({ "doubleValue": 0.00125 })));
    assert_eq!(value("sluice.tags"), Some(json!({ "arrayValue": { "values": [{ "stringValue": "a" }] } })));
    let mut meters = Meters::new(Semconv::Current, 0);
    meters.count(&call());
    let body: Value = serde_json::from_str(&metrics(&meters.to_json(1))).expect("it is JSON");
    let duration = &body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0]["histogram"]["dataPoints"][0];
    assert_eq!((&duration["count"], &duration["sum"]), (&json!("1"), &json!(2.0)));
}

#[test]
fn a_full_queue_drops_the_oldest() {
    let (mut queue, target, run) = (SpanQueue::default(), target(OtelKind::Otlp), facts(json!({})));
    let dropped: u64 = (0..SPANS_MAX + 3)
        .map(|number| {
            let call = EndedCall { call_id: number.to_string(), ..call() };
            queue.add(call_span(&target, &run, &call))
        })
        .sum();
    assert_eq!((dropped, queue.len()), (3, SPANS_MAX));
    assert_eq!(queue.done(), BATCH as u64);
    let waits: Vec<_> = (0..8).map(|_| queue.failed().as_secs()).collect();
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
}

#[test]
fn secrets_do_not_go_in_the_clear() {
    let new = |endpoint: &str, kind, secret| OtelTarget::new("t", endpoint, kind, secret).err();
    assert_eq!(new("http://collector:4318", OtelKind::Otlp, None), None);
    assert_eq!(new("http://collector:4318", OtelKind::Otlp, Some("Bearer x")), Some(TargetFault::InTheClear));
    assert_eq!(new("https://collector:4318", OtelKind::Otlp, Some("Bearer x\n")), None);
    assert_eq!(new("https://h", OtelKind::Langfuse, None), Some(TargetFault::NoKeys));
    assert_eq!(new("https://h", OtelKind::Langfuse, Some("pk")), Some(TargetFault::Secret));
    assert_eq!(new("https://u:p@h", OtelKind::Otlp, None), Some(TargetFault::Endpoint));
    assert_eq!(new("unix:/run/x", OtelKind::Otlp, None), Some(TargetFault::Endpoint));
    let langfuse = target(OtelKind::Langfuse);
    let authorization = langfuse.authorization.as_ref().expect("it has keys");
    assert_eq!(authorization.to_str().ok(), Some("Basic cGs6c2s="));
    assert!(authorization.is_sensitive() && !format!("{langfuse:?}").contains("cGs6"));
}
