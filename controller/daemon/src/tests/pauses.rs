//! Pauses over HTTP: the wanted state of a run.

use serde_json::{Value, json};
use sluice_state::sandboxes::{ClockStop, SandboxVerdict};
use sluice_state::store::now_us;

use crate::pause::{self, Requester};
use crate::test_daemon::TestDaemon;

async fn post(daemon: &TestDaemon, token: &str, id: &str, step: &str) -> (u16, Value) {
    let answer = daemon.request(token, "POST", &format!("/api/v1/sandboxes/{id}/{step}"), None).await;
    (answer.status, answer.json())
}

#[tokio::test]
async fn a_run_that_works_is_paused_and_resumed() {
    let daemon = TestDaemon::with_runs().await;
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    assert_eq!(post(&daemon, "slu_alice", &id, "pause").await.0, 409);
    daemon.claim().await;
    assert_eq!(post(&daemon, "slu_alice", &id, "pause").await.0, 409, "it is being created");
    daemon.step(&id, sluice_state::sandboxes::SandboxStep::Start).await;

    assert_eq!(post(&daemon, "slu_alice", &id, "resume").await.0, 409, "it is not paused");
    let (status, run) = post(&daemon, "slu_alice", &id, "pause").await;
    assert_eq!((status, &run["desired_state"]), (200, &json!("paused")), "{run}");
    let (status, refused) = post(&daemon, "slu_alice", &id, "pause").await;
    assert_eq!((status, &refused["error"]["code"]), (409, &json!("invalid_state")));
    let message = refused["error"]["message"].as_str().expect("a message");
    assert!(message.contains("is paused") && message.contains(&format!("sluice resume {id}")), "{message}");
    let shown = daemon.get("slu_alice", &format!("/api/v1/sandboxes/{id}")).await.json();
    assert_eq!(shown["waiting_for"], "resume", "{shown}");
    let (status, run) = post(&daemon, "slu_alice", &id, "resume").await;
    assert_eq!((status, &run["desired_state"]), (200, &json!("running")), "{run}");

    let operations: Vec<_> = daemon.control_log().into_iter().map(|line| (line.operation, line.result)).collect();
    let of = |name: &str| operations.iter().filter(|(operation, _)| operation == name).count();
    assert!(of("sandbox.pause") >= 1 && of("sandbox.resume") == 1, "{operations:?}");
    daemon.step(&id, sluice_state::sandboxes::SandboxStep::Decide(SandboxVerdict::Success)).await;
    assert_eq!(post(&daemon, "slu_alice", &id, "pause").await.0, 409, "it is to end");
}

#[tokio::test]
async fn a_paused_run_refuses_programs_with_advice() {
    let daemon = TestDaemon::with_runs().await;
    let (id, _) = daemon.working_run().await;
    let run_id = id.parse().expect("an id");
    let path = format!("/api/v1/sandboxes/{id}/exec");
    for (why, word) in [(ClockStop::Approval, "waits for an approval"), (ClockStop::Paused, "sluice resume")] {
        let run = daemon.store().find_sandbox(None, &run_id).await.expect("it is readable").expect("it is there");
        daemon.store().stop_clocks(&run_id, run.generation, why, now_us()).await.expect("it works");
        let refused = daemon.request("slu_alice", "POST", &path, Some(&json!({ "argv": ["true"] }))).await;
        assert_eq!(refused.error(), (409, "invalid_state".to_owned()));
        let message = refused.json()["error"]["message"].to_string();
        assert!(message.contains(word) && message.contains("exec"), "{message}");
    }
}

#[tokio::test]
async fn a_repeated_pause_is_made_once() {
    let daemon = TestDaemon::with_runs().await;
    let (id, _) = daemon.working_run().await;
    let path = format!("/api/v1/sandboxes/{id}/pause");
    let send = async || daemon.with_header("slu_alice", ("POST", &path), &Value::Null, "Idempotency-Key: one").await;
    assert_eq!((send().await.status, send().await.status), (200, 200));
    assert_eq!(post(&daemon, "slu_viewer", &id, "pause").await.0, 403);
    assert_eq!(post(&daemon, "slu_bob", &id, "pause").await.0, 404);
}

#[tokio::test]
async fn a_rule_pauses_with_its_reason() {
    let daemon = TestDaemon::with_runs().await;
    let (id, _) = daemon.working_run().await;
    let run_id = id.parse().expect("an id");
    let run = daemon.store().find_sandbox(None, &run_id).await.expect("it is readable").expect("it is there");
    let context = &daemon.running.context;
    pause::pause(context, run.clone(), Requester::Rule("it repeats itself")).await.expect("it works");
    assert!(pause::pause(context, run, Requester::Rule("it repeats itself")).await.is_err(), "it is paused");
    let log = daemon.control_log();
    let line = log.iter().find(|line| line.operation == "sandbox.pause").expect("it is recorded");
    assert_eq!((line.principal.as_str(), line.reason.as_deref()), ("daemon", Some("it repeats itself")));
}

/// Bug: the control log had a pause that a rule asked for too late as accepted.
#[tokio::test]
async fn a_pause_that_a_rule_misses_is_recorded() {
    let daemon = TestDaemon::with_runs().await;
    let (id, _) = daemon.working_run().await;
    let run_id = id.parse().expect("an id");
    let run = daemon.store().find_sandbox(None, &run_id).await.expect("it is readable").expect("it is there");
    daemon.end(&id).await;
    let missed = pause::pause(&daemon.running.context, run, Requester::Rule("it repeats itself")).await;
    assert_eq!(missed.map_err(|error| error.code()), Err("invalid_state"));
    let log = daemon.control_log();
    let [.., accepted, failed] = &log[..] else { panic!("{log:?}") };
    assert_eq!((accepted.operation.as_str(), accepted.result.as_str()), ("sandbox.pause", "accepted"));
    let said = (failed.operation.as_str(), failed.object.clone(), failed.principal.as_str(), failed.result.as_str());
    assert_eq!(said, ("sandbox.pause", Some(accepted.seq.to_string()), "daemon", "invalid_state"));
}
