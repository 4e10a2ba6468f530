//! Messages to agents: taken by a worker in the sandbox, and added to a call by the sidecar.

use sluice_testkit::controller::Daemon;
use sluice_testkit::{PATIENCE, poll};

use super::commands::{GO, faults, ran};
use super::*;

/// A small worker: it prints each message, and ends at a message with `all done`.
const WORKER: &str = r#"B=http://localhost:8080/api/v1/sandboxes
ID=$(curl -s http://localhost:8080/health | sed 's/.*"runId":"\([^"]*\)".*/\1/')
while :; do
  m=$(curl -s $B/$ID/messages)
  case "$m" in "[{"*) printf 'got %s\n' "$m" ;; *) sleep 0.3 ;; esac
  case "$m" in *"all done"*) exit 0 ;; esac
done"#;

async fn reaches(daemon: &Daemon<'_>, id: &str, message: &str, status: &str) {
    let mut found = Value::Null;
    let reached = poll(PATIENCE, async || {
        let listed = daemon.get(&format!("/api/v1/sandboxes/{id}/messages")).await.expect(200).json();
        let messages = listed["messages"].as_array().cloned().unwrap_or_default();
        found = messages.into_iter().find(|one| one["message_id"] == message).unwrap_or_default();
        found["status"] == status
    });
    assert!(reached.await, "no {status} in time: {found}\n{}", daemon.process().stderr());
}

/// Types of the events of messages.
fn steps(events: &[Value]) -> Vec<&str> {
    let types = events.iter().filter_map(|event| event["event_type"].as_str());
    types.filter(|name| name.starts_with("message.")).collect()
}

#[tokio::test]
async fn a_worker_gets_its_messages_over_a_restart() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = daemon.create(shell(WORKER)).await;
    daemon.reaches(&id, "RUNNING").await;
    let first = send(&daemon, &id, json!({"content": "first\nline"})).await;
    reaches(&daemon, &id, &first, "delivered").await;
    // It is delivered before its answer is written.
    assert!(poll(PATIENCE, async || stdout(&daemon, &id).await.contains("got ")).await);
    daemon.kill().await;

    let daemon = sluice.serve().await;
    let second = send(&daemon, &id, json!({"content": "second", "urgent": true})).await;
    reaches(&daemon, &id, &second, "delivered").await;
    send(&daemon, &id, json!({"content": "all done"})).await;
    let run = daemon.reaches(&id, "COMPLETED").await;
    let text = stdout(&daemon, &id).await;
    let events = daemon.events(&id).await;

    assert_eq!((&run["outcome"], &run["attempt"]), (&json!("success"), &json!(0)), "{run}");
    let got: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Vec<Value>>(line.strip_prefix("got ")?).ok())
        .flatten()
        .collect();
    let contents: Vec<_> = got.iter().filter_map(|message| message["content"].as_str()).collect();
    assert_eq!(contents, ["first\nline", "second", "all done"], "{text}");
    assert_eq!((&got[0]["id"], &got[0]["message_type"]), (&json!(first), &json!("user_message")));
    assert_eq!(steps(&events), ["message.queued", "message.delivered"].repeat(3));
    let late = daemon.request("POST", &format!("/api/v1/sandboxes/{id}/messages"), &json!({"content": "x"})).await;
    assert_eq!(late.expect(409).error()["code"], "run_finished");
    daemon.stop().await;
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn leased_messages_are_acknowledged_from_inside() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let script = r#"B=http://localhost:8080/api/v1/sandboxes
ID=$(curl -s http://localhost:8080/health | sed 's/.*"runId":"\([^"]*\)".*/\1/')
m=$(curl -s "$B/$ID/messages?wait=25&ack=manual"); echo "got $m"
echo "again $(curl -s "$B/$ID/messages?ack=manual")"
MID=$(echo "$m" | sed 's/.*"id":"\([^"]*\)".*/\1/')
echo "ack $(curl -s --json "{\"message_ids\":[\"$MID\"]}" $B/$ID/messages/ack)""#;
    let id = daemon.create(shell(script)).await;
    daemon.reaches(&id, "RUNNING").await;
    let message = send(&daemon, &id, json!({"content": "hello"})).await;
    daemon.reaches(&id, "COMPLETED").await;

    let text = stdout(&daemon, &id).await;
    assert!(text.contains("\nagain []\n"), "{text}");
    assert!(text.contains(&format!("\nack {{\"acknowledged\":[\"{message}\"]}}\n")), "{text}");
    assert_eq!(steps(&daemon.events(&id).await), ["message.queued", "message.delivered"]);
}

/// Request for the reference agent, which starts once the file `go` is there. Its call continues a dialogue: a sidecar
/// adds no message to the first question of an agent without tools, because agents test their account with one.
fn agent() -> Value {
    let script = format!("{GO}; exec node /opt/sluice/agent/run.mjs");
    let message = |role: &str, content: &str| json!({"role": role, "content": content});
    let messages = [message("user", "hello"), message("assistant", "hi"), message("user", "go on")];
    json!({"argv": ["sh", "-c", script], "messages": messages, "model": "m"})
}

#[tokio::test]
async fn a_message_reaches_the_next_llm_call() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = daemon.create(agent()).await;
    daemon.reaches(&id, "RUNNING").await;
    let message = send(&daemon, &id, json!({"content": "rather say goodbye"})).await;
    // The sidecar has the message, so the daemon may be killed.
    daemon.kill().await;
    go(&sluice, &id);
    let daemon = sluice.serve().await;
    daemon.reaches(&id, "COMPLETED").await;

    reaches(&daemon, &id, &message, "delivered").await;
    let sent = upstream.only_request().json();
    let last = sent["messages"].as_array().and_then(|messages| messages.last()).cloned().unwrap_or_default();
    assert_eq!(last["role"], "user", "{sent}");
    assert!(last["content"].to_string().contains("rather say goodbye"), "{sent}");
    let events = daemon.events(&id).await;
    assert_eq!(steps(&events), ["message.queued", "message.delivered"]);
    let delivered = events.iter().find(|event| event["event_type"] == "message.delivered").expect("it is there");
    assert_eq!(delivered["event_data"]["way"], "call", "{delivered}");
}

#[tokio::test]
async fn an_interrupt_ends_the_call_under_way() {
    let upstream = Upstream::provider("hello").hold_head().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = daemon.create(agent()).await;
    daemon.reaches(&id, "RUNNING").await;
    go(&sluice, &id);
    let called = poll(PATIENCE, async || upstream.requests().len() == 1);
    assert!(called.await, "the agent calls its model");

    let words = ["interrupt", &id, "--message", "stop", "--json"];
    let interrupted = ran(&daemon, &words, 0).await.value();
    let run = daemon.ended(&id).await;
    upstream.release();

    assert_eq!((&run["failure_code"], &run["state"]), (&json!("interrupted"), &json!("FAILED")), "{run}");
    let found = faults(&[("interrupt", interrupted)]).await;
    assert!(found.is_empty(), "{found:?}");
    ran(&daemon, &["wait", &id], 130).await;
    let events = daemon.events(&id).await;
    assert!(events.iter().any(|event| event["event_type"] == "run.interrupted"), "{events:?}");
}

#[tokio::test]
async fn messages_are_sent_and_listed_from_a_shell() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = daemon.create(json!({"argv": ["sleep", "600"], "model": "m", "name": "talk"})).await;
    daemon.reaches(&id, "RUNNING").await;

    let attached = daemon.command(["attach", "talk"]).spawn();
    let sent = ran(&daemon, &["send", "talk", "look at\u{1b}[31m this", "--urgent", "--json"], 0).await.value();
    let from_stdin = daemon.command(["send", "talk", "-"]).stdin("one\ntwo\n").finish().await.expect(0);
    let listed = ran(&daemon, &["messages", &id[..10], "--json"], 0).await.value();
    let shown = ran(&daemon, &["messages", "talk", "--limit", "1"], 0).await.stdout;
    let long = "x".repeat(10_001);
    let refused = ran(&daemon, &["send", "talk", &long], 2).await;
    ran(&daemon, &["send", "talk", "x", "--type", "system"], 0).await;
    ran(&daemon, &["cancel", "talk", "--wait"], 0).await;
    let late = ran(&daemon, &["send", "talk", "x"], 1).await;
    let attached = attached.finish().await.expect(143);

    for event in ["run.state_changed", "message.queued", "sandbox.stopped"] {
        assert!(attached.stderr.contains(event), "{event} {}", attached.stderr);
    }
    assert!(from_stdin.stdout.starts_with("message msg-"), "{}", from_stdin.stdout);
    let messages = listed["messages"].as_array().expect("a list");
    let contents: Vec<_> = messages.iter().filter_map(|message| message["content"].as_str()).collect();
    assert_eq!(contents, ["one\ntwo", "look at[31m this"]);
    assert_eq!(messages[1]["message_id"], sent["message_id"]);
    assert!(shown.contains("user_message") && shown.lines().count() == 1, "{shown}");
    assert!(refused.stderr.contains("10000") || refused.stderr.contains("10,000"), "{}", refused.stderr);
    assert!(late.stderr.contains("finished"), "{}", late.stderr);
    let found = faults(&[("send", sent), ("messages", listed)]).await;
    assert!(found.is_empty(), "{found:?}");
}
