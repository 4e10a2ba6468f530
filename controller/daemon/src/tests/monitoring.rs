//! Metrics, and the state of the daemon in figures.

use serde_json::json;
use sluice_runs::call_event::RefusedRequest;
use sluice_state::events::{EventQuota, EventSource, NewLoggedEvent};
use sluice_state::sandboxes::{SandboxStep, SandboxVerdict};
use sluice_state::store::now_us;

use crate::monitor::MetricsReaders;
use crate::test_daemon::{TestAnswer, TestDaemon};

const STATUS: &str = "/api/v1/monitoring/status";

/// Reads the metrics until a line occurs. An answer is at most a second old, so this waits for the next one.
async fn reaches(daemon: &TestDaemon, line: &str) -> TestAnswer {
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let answer = daemon.get("slu_metrics", "/metrics").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        if answer.body.lines().any(|found| found == line) {
            return answer;
        }
        assert!(tokio::time::Instant::now() < deadline, "no {line} in\n{}", answer.body);
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn only_roles_that_monitor_read_the_figures() {
    let daemon = TestDaemon::with_runs().await;
    for path in ["/metrics", STATUS] {
        for (token, expected) in
            [("slu_admin", 200), ("slu_metrics", 200), ("slu_alice", 403), ("slu_viewer", 403), ("slu_x", 401)]
        {
            assert_eq!(daemon.get(token, path).await.status, expected, "{token} {path}");
        }
        let host = format!("Host: {}", daemon.address());
        assert_eq!(daemon.bare("GET", path, &[&host]).await.status, 401, "{path}");
        assert_eq!(daemon.get("slu_metrics", &format!("{path}?x=1")).await.status, 422, "{path}");
    }
    for path in ["/api/v1/sandboxes", "/api/v1/receipts", "/api/v1/agents", "/api/v1/events/stream"] {
        assert_eq!(daemon.get("slu_metrics", path).await.status, 403, "{path}");
    }
    assert_eq!(daemon.get("slu_metrics", "/ready").await.body, "ready\n", "reasons are for admins");
}

#[tokio::test]
async fn public_metrics_need_no_token() {
    let daemon = TestDaemon::with(|settings| settings.metrics = MetricsReaders::Everyone).await;
    let host = &*format!("Host: {}", daemon.address());
    let answer = daemon.bare("GET", "/metrics", &[host]).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{}", answer.head);
    assert_eq!(daemon.get("slu_x", "/metrics").await.status, 401, "a credential is judged alone");
    for path in [STATUS, "/metrics/", "/metrics/x"] {
        assert_eq!(daemon.bare("GET", path, &[host]).await.status, 401, "{path}");
    }
}

#[tokio::test]
async fn runs_and_calls_are_counted_from_their_events() {
    let daemon = TestDaemon::with_runs().await;
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    daemon.create("slu_bob", json!({ "task": "x" })).await;
    daemon.claim().await;
    daemon.step(&id, SandboxStep::Start).await;
    let call = json!({ "call_id": "c", "model": "m\"\n1", "result": "ok", "usage": { "input": 7 },
                       "cost": { "known": { "usd": "0.5", "source": "header" } }, "timing_us": { "ttfb": 1000 } });
    let event = |source, event_type: &str| NewLoggedEvent {
        source,
        ..NewLoggedEvent::of_run("alice", &id, event_type, call.to_string(), now_us())
    };
    let events = vec![event(EventSource::System, "llm.call"), event(EventSource::Worker, "llm.call")];
    daemon.store().append_events(events, EventQuota::default()).await.expect("it is writable");
    let failed = SandboxVerdict::Failed { code: "timeout".to_owned(), message: None };
    daemon.step(&id, SandboxStep::Decide(failed)).await;
    daemon.step(&id, SandboxStep::Finish).await;

    let text = reaches(&daemon, r#"sluice_run_ends_total{outcome="failed",failure_code="timeout"} 1"#).await.body;
    for expected in [
        r#"sluice_llm_calls_total{model="m\" 1",result="ok"} 1"#,
        r#"sluice_llm_tokens_total{model="m\" 1",kind="input"} 7"#,
        r#"sluice_llm_cost_nanousd_total{model="m\" 1"} 500000000"#,
        "sluice_llm_first_byte_seconds_count 1",
        "sluice_queue_wait_seconds_count 1",
        "sluice_run_duration_seconds_count 1",
        r#"sluice_runs{state="PENDING"} 1"#,
        r#"sluice_runs{state="FAILED"} 1"#,
        r#"sluice_runs{state="RUNNING"} 0"#,
        "sluice_sse_clients 0",
        "sluice_audit_errors_total 0",
    ] {
        assert!(text.lines().any(|line| line == expected), "no {expected} in\n{text}");
    }
    for secret in [&id, "alice", "acct-1"] {
        assert!(!text.contains(secret), "{secret} in\n{text}");
    }
}

#[tokio::test]
async fn what_was_committed_before_the_start_is_not_counted() {
    let daemon = TestDaemon::with_runs().await;
    daemon.create("slu_alice", json!({ "task": "x" })).await;
    daemon.claim().await;
    reaches(&daemon, "sluice_queue_wait_seconds_count 1").await;
    let status = daemon.get("slu_admin", STATUS).await.json();
    let TestDaemon { running, settings, .. } = daemon;
    running.stop().await;
    let again = crate::daemon::Daemon::start(&settings).await.expect("it starts");
    let text = again.context.monitor.text(&again.context.store, 0).await.expect("it is readable");
    let text = String::from_utf8(text.to_vec()).expect("it is text");
    assert!(text.contains("sluice_queue_wait_seconds_count 0\n"), "{text}");
    assert!(text.contains("sluice_runs{state=\"CREATING\"} 1\n"), "{text}");
    assert_eq!(again.context.monitor.read.get(), status["events"]["newest"].as_i64().expect("a number"));
    again.stop().await;
}

#[tokio::test]
async fn the_status_has_queue_limits_and_loops() {
    let daemon = TestDaemon::with_runs().await;
    daemon.create("slu_alice", json!({ "task": "x" })).await;
    daemon.create("slu_alice", json!({ "task": "x" })).await;
    daemon.claim().await;
    reaches(&daemon, "sluice_queue_wait_seconds_count 1").await;
    let status = daemon.get("slu_admin", STATUS).await.json();
    assert_eq!((&status["status"], &status["not_ready"]), (&json!("ready"), &json!([])));
    assert_eq!((&status["runs"]["PENDING"], &status["runs"]["CREATING"]), (&json!(1), &json!(1)));
    assert_eq!((&status["queue"]["length"], &status["limits"]["active"]), (&json!(1), &json!(1)));
    assert_eq!((&status["limits"]["host"], &status["engine"]), (&json!(10), &json!(null)));
    assert!(status["events"]["newest"].as_i64() > Some(0) && status["events"]["lag_s"] == json!(0.0), "{status}");
    assert!(status["disk"]["free_bytes"].as_u64() < status["disk"]["total_bytes"].as_u64(), "{status}");
    assert_eq!(status["loops"]["metrics"]["is_failing"], json!(false), "{status}");
    assert_eq!(status["checks"][1], json!({ "name": "image", "status": "warn" }), "{status}");
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    daemon.running.context.readiness.fail("runs", "secret reason");
    let status = daemon.get("slu_metrics", STATUS).await;
    assert_eq!(status.json()["not_ready"], json!(["runs"]));
    let state = daemon.settings.state.display().to_string();
    assert!(!status.body.contains("secret") && !status.body.contains(&state), "{}", status.body);
}

#[tokio::test]
async fn scrapes_at_once_read_the_database_once() {
    let daemon = TestDaemon::with_runs().await;
    let context = &daemon.running.context;
    let texts = futures_util::future::join_all((0..100).map(|_| context.monitor.text(&context.store, 0))).await;
    let texts: Vec<_> = texts.into_iter().map(|text| text.expect("it is readable")).collect();
    // The same bytes, not equal ones.
    assert!(texts.iter().all(|text| text.as_ptr() == texts[0].as_ptr()));
}

#[tokio::test]
async fn refusals_before_the_start_are_not_counted_again() {
    let daemon = TestDaemon::start().await;
    for ts in ["2020-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z"] {
        let refused = RefusedRequest { reason: "route_not_allowed".to_owned(), ts: ts.to_owned() };
        daemon.running.context.monitor.count_refusal(&refused);
    }
    reaches(&daemon, r#"sluice_refusals_total{reason="route_not_allowed"} 1"#).await;
}

#[tokio::test]
async fn a_control_log_that_cannot_be_written_is_counted() {
    let daemon = TestDaemon::start().await;
    std::fs::write(daemon.settings.state.join("audit/control.jsonl"), "").expect("it is there");
    let budget = json!({ "kind": "set", "usd": "1" });
    let refused = daemon.request("slu_admin", "PUT", "/api/v1/budgets/acct-1", Some(&budget)).await;
    assert_eq!(refused.error(), (503, "audit_unavailable".to_owned()));
    reaches(&daemon, "sluice_audit_errors_total 1").await;
}
