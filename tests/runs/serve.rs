//! Runs of the daemon: `sluice serve` and its API, on a real engine.

use std::path::PathBuf;

use serde_json::{Value, json};
use sluice_testkit::client::ClientAnswer;
use sluice_testkit::controller::Daemon;
use sluice_testkit::upstream::ClosedPort;
use sluice_testkit::{PATIENCE, Sluice, Upstream, poll};

mod approvals;
mod approved_keys;
mod canaries;
mod chat;
mod chat_clients;
mod chat_load;
mod chat_sessions;
mod chat_workers;
pub(crate) mod commands;
mod content;
mod control;
mod exec;
mod exec_commands;
mod forge;
mod full_disk;
mod git;
mod git_approvals;
mod git_kept;
mod git_trace;
mod hostile;
mod http;
mod identity;
mod implausible;
mod killed;
mod langfuse;
mod merge;
mod messages;
mod monitored;
mod pause;
mod policy;
mod relay;
mod resumed;
mod schema;
mod service_manager;
mod sessions;
mod teardown;
mod terminal;
mod traces;
mod wakeups;
mod watcher;
mod webhooks;
mod worker;

/// Types of events, in their order, without those of calls.
fn types(events: &[Value]) -> Vec<String> {
    let names = events.iter().filter_map(|event| event["event_type"].as_str());
    names.filter(|name| !name.starts_with("llm.")).map(str::to_owned).collect()
}

/// The state changes among events.
fn states(events: &[Value]) -> Vec<String> {
    let changes = events.iter().filter(|event| event["event_type"] == "run.state_changed");
    changes.filter_map(|event| event["event_data"]["to"].as_str()).map(str::to_owned).collect()
}

fn shell(script: &str) -> Value {
    json!({"argv": ["sh", "-c", script], "model": "m"})
}

const CALL: &str = r#"curl -sf --json '{"model":"m","messages":[]}' $OPENAI_BASE_URL/chat/completions > /dev/null"#;

#[tokio::test]
async fn a_run_goes_from_the_queue_to_its_receipt() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;

    let id = daemon.create(shell(&format!("{CALL}; {CALL}; echo done"))).await;
    let run = daemon.reaches(&id, "COMPLETED").await;
    let events = daemon.events(&id).await;
    let receipts = daemon.get(&format!("/api/v1/sandboxes/{id}/receipts")).await.expect(200).json();

    assert_eq!(
        (&run["outcome"], &run["failure_code"], &run["exit_code"]),
        (&json!("success"), &Value::Null, &json!(0))
    );
    assert_eq!(states(&events), ["CREATING", "RUNNING", "COMPLETING", "COMPLETED"]);
    let kinds = types(&events);
    assert_eq!(
        (kinds.first().map(String::as_str), kinds.last().map(String::as_str)),
        (Some("sandbox.created"), Some("sandbox.stopped")),
        "{kinds:?}"
    );
    let calls: Vec<_> = events
        .iter()
        .filter_map(|event| event["event_type"].as_str())
        .filter(|name| name.starts_with("llm."))
        .collect();
    assert_eq!(calls, ["llm.call_started", "llm.call", "llm.call_started", "llm.call"]);
    assert_eq!(receipts["receipts"].as_array().map(Vec::len), Some(2), "{receipts}");
    assert_eq!(sluice.audit(&id).outcomes().len(), 2);
    daemon.stop().await;
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_program_fails_and_an_unknown_image_is_refused() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;

    let failed = daemon.create(shell("exit 42")).await;
    let run = daemon.reaches(&failed, "FAILED").await;

    assert_eq!((&run["failure_code"], &run["exit_code"]), (&json!("container_failed"), &json!(42)), "{run}");
    let refused = json!({"argv": ["true"], "model": "m", "image": "no-such-image:1"});
    daemon.request("POST", "/api/v1/sandboxes", &refused).await.expect(422);
}

#[tokio::test]
async fn runs_are_cancelled_in_the_queue_and_at_work() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;

    let working = daemon.create(shell("sleep 600")).await;
    daemon.reaches(&working, "RUNNING").await;
    let waiting = json!({"argv": ["true"], "model": "m", "depends_on": [working]});
    let waiting = daemon.create(waiting).await;
    for id in [&waiting, &working] {
        let ended = daemon.request("DELETE", &format!("/api/v1/sandboxes/{id}"), &Value::Null).await;
        assert!([200, 202].contains(&ended.status), "{}", ended.text());
        let run = daemon.reaches(id, "COMPLETED").await;
        assert_eq!((&run["outcome"], &run["failure_code"]), (&json!("cancelled"), &Value::Null), "{run}");
    }
    assert_eq!(sluice.containers().await, [""; 0]);
    assert!(sluice.processes().is_empty(), "no sidecar is left");
}

#[tokio::test]
async fn a_run_that_a_person_fails_is_stopped() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = daemon.create(shell("sleep 600")).await;
    daemon.reaches(&id, "RUNNING").await;

    let path = format!("/api/v1/sandboxes/{id}/fail");
    daemon.request("POST", &path, &json!({"reason": "it loops"})).await.expect(202);

    let run = daemon.reaches(&id, "FAILED").await;
    assert_eq!(run["failure_code"], "agent_failed", "{run}");
    assert_eq!(sluice.containers().await, [""; 0]);
}

/// Workspace of the first attempt of a run, as the host sees it.
fn work(sluice: &Sluice, id: &str) -> PathBuf {
    sluice.state().join("runs").join(format!("{id}.0")).join("work")
}

/// Lets a run go on that waits for the file `go`.
fn go(sluice: &Sluice, id: &str) {
    touch(sluice, id, "go");
}

/// Makes an empty file in the workspace of a run.
fn touch(sluice: &Sluice, id: &str, name: &str) {
    std::fs::write(work(sluice, id).join(name), "").expect("the run has its workspace");
}

/// Sends a message to a run, and returns its id.
async fn send(daemon: &Daemon<'_>, id: &str, body: Value) -> String {
    let sent = daemon.request("POST", &format!("/api/v1/sandboxes/{id}/messages"), &body).await.expect(200).json();
    sent["message_id"].as_str().expect("an id").to_owned()
}

/// Everything that a run wrote to stdout.
async fn stdout(daemon: &Daemon<'_>, id: &str) -> String {
    let text = daemon.get(&format!("/api/v1/sandboxes/{id}/logs?stream=stdout")).await.expect(200);
    lines(&text).iter().filter_map(|line| line["text"].as_str()).collect()
}

/// Returns the lines of an answer of `…/logs`.
fn lines(answer: &ClientAnswer) -> Vec<Value> {
    answer.text().lines().map(|line| serde_json::from_str(line).expect("one object in a line")).collect()
}

#[tokio::test]
async fn output_is_served_live_and_after_the_end() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let script = "echo one; printf '\\377\\000\\n' >&2; while [ ! -e go ]; do sleep 0.05; done; echo two";
    let id = daemon.create(shell(script)).await;
    daemon.reaches(&id, "RUNNING").await;
    let path = format!("/api/v1/sandboxes/{id}/logs");
    let first = daemon.logged(&id, 2).await;
    let mut client = daemon.connect().await;
    client.send_request("GET", &format!("{path}?follow=true&after=2"), &[], ()).await;
    assert_eq!(client.read_head().await.status, 200);

    let work = sluice.state().join("runs").join(format!("{id}.0")).join("work");
    std::fs::write(work.join("go"), "").expect("the run has its workspace");
    let followed = client.read_response().await.expect(200);
    daemon.reaches(&id, "COMPLETED").await;
    let all = daemon.get(&path).await.expect(200);
    let stderr = daemon.get(&format!("{path}?stream=stderr")).await.expect(200);

    let texts =
        |lines: &[Value]| lines.iter().filter_map(|line| line["text"].as_str().map(str::to_owned)).collect::<String>();
    assert_eq!(texts(&first), "one\n", "{first:?}");
    assert_eq!((texts(&lines(&followed)), texts(&lines(&all))), ("two\n".to_owned(), "one\ntwo\n".to_owned()));
    let [only] = &lines(&stderr)[..] else { panic!("{}", stderr.text()) };
    assert_eq!((&only["stream"], &only["offset"], &only["base64"]), (&json!("stderr"), &json!(0), &json!("/wAK")));
    assert_eq!(all.header("content-type"), Some("application/octet-stream"));
    daemon.get(&format!("{path}?attempt=1")).await.expect(404);
    daemon.get(&format!("{path}?tail=1")).await.expect(422);
    let mut plain = daemon.connect().await;
    plain.send_request("GET", &format!("{path}?stream=stdout"), &[("accept", "text/plain")], ()).await;
    let plain = plain.read_response().await.expect(200);
    assert_eq!((plain.text().as_str(), plain.header("content-type")), ("one\ntwo\n", Some("application/octet-stream")));
    let printed = sluice.command(["logs", &id]).finish().await.expect(0);
    assert_eq!(printed.stdout, "one\ntwo\n");
}

/// Repeats a command until it prints all of these texts.
async fn prints(sluice: &Sluice, command: &[&str], texts: &[&str]) {
    let mut said = String::new();
    let has_all = poll(PATIENCE, async || {
        said = sluice.command(command).finish().await.expect(0).stdout;
        texts.iter().all(|text| said.contains(text))
    });
    assert!(has_all.await, "not all of {texts:?} in {said}");
}

#[tokio::test]
async fn an_error_of_the_host_is_the_operators() {
    let nowhere = ClosedPort::new();
    let sluice = Sluice::with(&nowhere.url(), "sk-some-key");
    let daemon = sluice.serve().await;
    let id = daemon.create(shell("true")).await;

    daemon.process().says("creation_failed: ").await;
    daemon.process().says(&format!("the upstream {} does not answer", nowhere.url())).await;
    let path = format!("/api/v1/sandboxes/{id}");
    let waiting = daemon.reaches(&id, "PENDING").await;
    let list = daemon.get("/api/v1/sandboxes").await.expect(200);
    let events = daemon.get(&format!("{path}/events?limit=500")).await.text();
    let seen = [daemon.get(&path).await.text(), events, list.text()].concat();

    assert_eq!(waiting["waiting_for"], "retry", "{waiting}");
    let for_owner = "the run could not be created; the operator's log has the reason";
    assert_eq!(waiting["error_message"], for_owner, "{waiting}");
    // Lists have the same cause.
    let rows = list.json();
    let row = &rows["sandboxes"][0];
    assert_eq!((&row["waiting_for"], &row["reason"]), (&json!("retry"), &json!("creation_failed")), "{row}");
    assert_eq!(row["error_message"], for_owner, "{row}");
    let port = nowhere.url().rsplit(':').next().expect("a port").to_owned();
    assert!(
        seen.contains("creation_failed") && !seen.contains(&format!(":{port}")) && !seen.contains("/tmp/"),
        "{seen}"
    );
    // The operator sees the error itself. Between two waits is another attempt.
    prints(&sluice, &["ps"], &["PENDING (retry)"]).await;
    let cause = format!("the upstream {} does not answer", nowhere.url());
    let rows = ["cause       ", &cause, "waits for   retry\n", "has not begun, and so has no record\n"];
    prints(&sluice, &["inspect", &id], &rows).await;
    daemon.request("DELETE", &path, &Value::Null).await.expect(202);
    daemon.reaches(&id, "COMPLETED").await;
}

#[tokio::test]
async fn a_dependency_that_fails_takes_its_dependent_with_it() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;

    let first = daemon.create(shell("sleep 1; exit 1")).await;
    let second = daemon.create(json!({"argv": ["true"], "model": "m", "depends_on": [first]})).await;

    let run = daemon.reaches(&second, "FAILED").await;
    assert_eq!(run["failure_code"], "dependency_failed", "{run}");
    assert_eq!(daemon.run(&first).await["failure_code"], "container_failed");
}
