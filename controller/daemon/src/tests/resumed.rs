//! Runs that continue from an earlier one: the conditions at their creation.

use std::fs;

use serde_json::{Value, json};

use crate::test_daemon::TestDaemon;

/// Requests a run that continues from another one.
async fn resume(daemon: &TestDaemon, token: &str, from: &str) -> (u16, Value) {
    let request = json!({ "task": "go on", "resume_from": from });
    let answer = daemon.request(token, "POST", "/api/v1/sandboxes", Some(&request)).await;
    (answer.status, answer.json())
}

#[tokio::test]
async fn a_run_goes_on_from_a_kept_workspace() {
    let daemon = TestDaemon::with_runs().await;
    let id = daemon.create("slu_alice", json!({ "task": "x", "keep_workspace": true })).await;
    let kept = daemon.settings.state.join("kept").join(format!("{id}.0"));
    daemon.claim().await;
    daemon.step(&id, sluice_state::sandboxes::SandboxStep::Start).await;

    let (status, answer) = resume(&daemon, "slu_alice", &id).await;
    assert_eq!((status, &answer["error"]["details"]["field"]), (422, &json!("resume_from")), "{answer}");
    assert!(answer["error"]["message"].as_str().is_some_and(|text| text.contains("no kept workspace")), "{answer}");

    daemon.end(&id).await;
    fs::create_dir_all(kept.join("src")).expect("there is room");
    let (status, answer) = resume(&daemon, "slu_alice", &id).await;
    assert_eq!(status, 201, "{answer}");
    let next = answer["run_id"].as_str().expect("an id").parse().expect("a run");
    let stored = daemon.running.context.stored_request(&next).await.expect("it is there");
    assert_eq!((stored.resume_from, stored.resumes_workspace), (Some(format!("{id}.0")), true));
    assert_eq!(resume(&daemon, "slu_bob", &id).await.0, 404);

    let sparse = fs::File::create(kept.join("sparse")).expect("there is room");
    sparse.set_len(3 << 30).expect("it needs no room");
    let (status, answer) = resume(&daemon, "slu_alice", &id).await;
    let text = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(status == 422 && text.starts_with(&format!("the kept workspace of {id}.0 has more than")), "{answer}");
    assert!(!text.contains(&daemon.settings.state.display().to_string()), "{text}");
}

#[tokio::test]
async fn a_run_that_kept_nothing_is_refused() {
    let daemon = TestDaemon::with_runs().await;
    let (id, _) = daemon.working_run().await;
    daemon.end(&id).await;
    let (status, answer) = resume(&daemon, "slu_alice", &id).await;
    assert_eq!((status, &answer["error"]["code"]), (422, &json!("invalid_field")), "{answer}");
    assert!(answer["error"]["message"].as_str().is_some_and(|text| text.contains("keep_workspace")), "{answer}");
}
