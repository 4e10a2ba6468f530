//! A daemon that a real Prometheus reads, and the files of `deploy/prometheus`.

use std::process::Command;

use sluice_testkit::prometheus::{Prometheus, deployed};

use super::approvals::{PATIENT_CALL, asking, decide, held};
use super::*;

const REFUSED: &str = "curl -s $OPENAI_BASE_URL/nothing > /dev/null";

fn promtool(words: &[&str]) {
    let ran = Command::new("promtool").args(words).current_dir(deployed()).output();
    let ran = ran.expect("tests/setup/packages.sh installs it");
    let said = [ran.stdout, ran.stderr].concat();
    assert!(ran.status.success(), "promtool {words:?}: {}", String::from_utf8_lossy(&said));
}

/// The queries of the dashboard of `deploy/grafana`, with values for its variables.
fn dashboard_queries() -> Vec<String> {
    let text = std::fs::read_to_string(deployed().join("../grafana/sluice.json")).expect("it is in the repository");
    let dashboard: Value = serde_json::from_str(&text).expect("it is JSON");
    let panels = dashboard["panels"].as_array().expect("it has panels").iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let queries: Vec<_> = targets.map(|target| target["expr"].as_str().expect("a query").to_owned()).collect();
    assert!(queries.len() > 20, "{queries:?}");
    queries.iter().map(|query| query.replace("$__rate_interval", "1m").replace("$instance", ".*")).collect()
}

#[test]
fn promtool_accepts_the_example_and_its_alerts() {
    promtool(&["check", "config", "--syntax-only", "prometheus.yml"]);
    promtool(&["check", "rules", "sluice.rules.yml"]);
    promtool(&["test", "rules", "sluice.rules.test.yml"]);
}

/// Starts a Prometheus that reads a daemon with a token of the role `metrics`.
async fn watched(sluice: &Sluice, daemon: &Daemon<'_>) -> Prometheus {
    let words = ["token", "create", "--owner", "prometheus", "--role", "metrics"];
    let created = sluice.command(words).finish().await;
    assert_eq!(created.code, 0, "{}", created.stderr);
    let prometheus = Prometheus::of(&daemon.address(), created.stdout.trim()).await;
    prometheus.reaches(r#"up{job="sluice"}"#, "1").await;
    prometheus
}

#[tokio::test]
async fn prometheus_counts_calls_that_wait_for_a_person() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let prometheus = watched(&sluice, &daemon).await;
    prometheus.reaches("sluice_held_calls", "0").await;

    let id = daemon.create(asking(&format!("{CALL} && {PATIENT_CALL}"), &json!({"max_calls": 1}))).await;
    let approval = held(&daemon, &id).await;
    prometheus.reaches("sluice_held_calls", "1").await;
    decide(&daemon, &id, &approval, "approve", 200).await;
    daemon.reaches(&id, "COMPLETED").await;

    prometheus.reaches("sluice_held_calls", "0").await;
    prometheus.reaches(r#"sluice_approval_wait_seconds_count{decision="approve"}"#, "1").await;
    prometheus.reaches(r#"sluice_approval_wait_seconds_sum{decision="approve"} > bool 0"#, "1").await;
}

#[tokio::test]
async fn a_real_prometheus_reads_a_live_daemon() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let prometheus = watched(&sluice, &daemon).await;

    let id = daemon.create(shell(&format!("{CALL}; {CALL}; {REFUSED}; exit 3"))).await;
    daemon.ended(&id).await;

    for (query, expected) in [
        (r#"sluice_run_ends_total{outcome="failed",failure_code="container_failed"}"#, "1"),
        (r#"sluice_runs{state="FAILED"}"#, "1"),
        (r#"sluice_llm_calls_total{model="m",result="ok"}"#, "2"),
        (r#"sluice_refusals_total{reason="route_not_allowed"}"#, "1"),
        (r#"sluice_llm_tokens_total{model="m",kind="output"} > bool 0"#, "1"),
        ("sluice_run_duration_seconds_count", "1"),
        ("sluice_queue_wait_seconds_count", "1"),
        ("sluice_sidecar_ready_seconds_count", "1"),
        ("sluice_llm_first_byte_seconds_count", "2"),
        ("sluice_audit_errors_total", "0"),
        ("sluice_sse_clients", "0"),
        ("sluice_event_lag_seconds", "0"),
        ("sluice_build_info", "1"),
    ] {
        prometheus.reaches(query, expected).await;
    }
    for query in dashboard_queries() {
        assert_eq!(prometheus.verdict(&query).await, "success", "{query}");
    }
    let alerts = prometheus.alerts().await;
    assert_eq!(alerts.len(), 10, "{alerts:?}");
    assert!(alerts.iter().all(|(_, health)| health == "ok"), "{alerts:?}");
    let status = daemon.get("/api/v1/monitoring/status").await.expect(200).json();
    assert_eq!((&status["engine"]["reachable"], &status["sidecars"]), (&json!(true), &json!(0)), "{status}");
    let loops: Vec<_> = status["loops"].as_object().expect("loops").keys().map(String::as_str).collect();
    assert_eq!(
        loops,
        [
            "agents", "approvals and questions", "chats", "engine", "event store", "failed logins", "heartbeats",
            "metrics", "queue", "retention", "runs", "sweep", "upstream"
        ],
        "{status}"
    );
}
