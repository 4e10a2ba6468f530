//! Messages to agents over HTTP: permissions, limits, order, interrupts.

use std::time::Instant;

use serde_json::{Value, json};
use sluice_state::sandboxes::{SandboxStep, SandboxVerdict};

use crate::test_daemon::{TestAnswer, TestDaemon};
use crate::test_sidecar::FakeSidecar;

async fn post(daemon: &TestDaemon, token: &str, path: &str, body: &Value) -> TestAnswer {
    daemon.request(token, "POST", &format!("/api/v1/sandboxes/{path}"), Some(body)).await
}

#[tokio::test]
async fn a_message_is_queued_and_recorded_without_its_text() {
    let daemon = TestDaemon::with_runs().await;
    let id = daemon.create("slu_alice", json!({ "task": "x", "name": "n" })).await;
    let body = json!({ "content": "look at\tthe\u{7} tests", "urgent": true });
    let sent = post(&daemon, "slu_alice", "n/messages", &body).await;
    assert_eq!((sent.status, &sent.json()["status"]), (200, &json!("queued")), "{sent:?}");
    let message_id = sent.json()["message_id"].as_str().expect("an id").to_owned();
    assert!(message_id.starts_with("msg-") && message_id.len() == 16, "{message_id}");
    assert_eq!(sent.json()["sandbox_id"], json!(id));
    for _ in 0..2 {
        let listed = daemon.get("slu_viewer", &format!("/api/v1/sandboxes/{id}/messages")).await;
        assert_eq!(listed.status, 404, "viewer is another owner");
        let listed =
            daemon.get("slu_alice", &format!("/api/v1/sandboxes/{id}/messages?status=queued,leased")).await.json();
        let only = &listed["messages"][0];
        assert_eq!((&only["content"], &only["urgent"]), (&json!("look at\tthe tests"), &json!(true)), "{listed}");
        assert_eq!((&only["status"], &only["message_type"]), (&json!("queued"), &json!("user_message")));
    }
    let line = daemon.control_log().into_iter().find(|line| line.operation == "message.send").expect("a line");
    let after = line.after.expect("what was sent");
    assert_eq!((&after["characters"], &after["message_id"]), (&json!(17), &json!(message_id)));
    assert_eq!(after["sha256"].as_str().map(str::len), Some(64));
    assert!(!after.to_string().contains("tests"));
}

#[tokio::test]
async fn types_follow_from_the_role() {
    let daemon = TestDaemon::with_runs().await;
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    let path = format!("{id}/messages");
    for (token, kind, status) in [
        ("slu_alice", "user_message", 200),
        ("slu_alice", "interrupt", 200),
        ("slu_alice", "system", 403),
        ("slu_alice", "guardian_nudge", 403),
        ("slu_admin", "system", 200),
        ("slu_admin", "guardian_nudge", 200),
        ("slu_viewer", "user_message", 403),
        ("slu_chat", "user_message", 403),
        ("slu_bob", "user_message", 404),
        ("slu_alice", "assistant", 422),
    ] {
        let sent = post(&daemon, token, &path, &json!({ "content": "x", "message_type": kind })).await;
        assert_eq!(sent.status, status, "{token} {kind} {sent:?}");
    }
    let steering = json!({ "message": "stop", "source": "me", "steering_type": "stop", "priority": "urgent" });
    let refused = post(&daemon, "slu_alice", &format!("{id}/interventions"), &steering).await;
    assert_eq!(refused.error(), (403, "admin_only".to_owned()));
    let made = post(&daemon, "slu_admin", &format!("{id}/interventions"), &steering).await.json();
    assert_eq!((&made["status"], &made["inject_mode"]), (&json!("queued"), &json!("next_turn")), "{made}");
    assert!(made["id"].as_str().is_some_and(|id| id.starts_with("int-") && id.len() == 16), "{made}");
    let listed = daemon.get("slu_alice", &format!("/api/v1/sandboxes/{id}/interventions")).await.json();
    let only = &listed["interventions"][0];
    assert_eq!((&only["message"], &only["source"]), (&json!("stop"), &json!("me")), "{listed}");
    let listed = daemon.get("slu_alice", &format!("/api/v1/sandboxes/{path}")).await.json();
    assert_eq!(listed["messages"][0]["content"], "[GUARDIAN INTERVENTION - stop] stop");
    for (field, value) in [("sender", json!("system")), ("source", json!("x")), ("id", json!("msg-1"))] {
        let mut body = json!({ "content": "x" });
        body[field] = value;
        assert_eq!(
            post(&daemon, "slu_alice", &path, &body).await.error(),
            (422, "unknown_field".to_owned()),
            "{field}"
        );
    }
}

#[tokio::test]
async fn limits_and_the_end_of_the_run_refuse_messages() {
    let daemon = TestDaemon::with_runs().await;
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    let path = format!("{id}/messages");
    for content in ["", "\u{7}\r", &"x".repeat(10_001)] {
        let refused = post(&daemon, "slu_alice", &path, &json!({ "content": content })).await;
        assert_eq!(refused.error(), (422, "invalid_field".to_owned()));
    }
    let body = json!({ "content": "x" });
    let begun = Instant::now();
    let mut sent = 0;
    let refused = loop {
        let answer = post(&daemon, "slu_alice", &path, &body).await;
        if answer.status != 200 {
            break answer;
        }
        sent += 1;
    };
    assert_eq!(refused.error(), (429, "message_rate".to_owned()));
    // Thirty at once, and one more in two seconds.
    let most = 30 + usize::try_from(begun.elapsed().as_secs() / 2).expect("a short time");
    assert!((30..=most).contains(&sent), "{sent} of at most {most}");
    assert!(refused.head.contains("retry-after: "), "{refused:?}");
    daemon.step(&id, SandboxStep::Drop(SandboxVerdict::Cancelled)).await;
    let refused = post(&daemon, "slu_alice", &path, &body).await;
    assert_eq!(refused.error(), (409, "run_finished".to_owned()));
    let listed = daemon.get("slu_alice", &format!("/api/v1/sandboxes/{path}?limit=500")).await.json();
    let lost = listed["messages"].as_array().expect("a list").iter().filter(|message| message["status"] == "lost");
    assert_eq!(lost.count(), sent);
}

#[tokio::test]
async fn a_repeated_request_sends_one_message() {
    let daemon = TestDaemon::with_runs().await;
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    let path = format!("/api/v1/sandboxes/{id}/messages");
    let send = async |content: &str| {
        let body = json!({ "content": content });
        daemon.with_header("slu_alice", ("POST", &path), &body, "Idempotency-Key: k").await
    };
    let [first, second] = [send("a").await, send("a").await];
    assert_eq!((first.status, first.json()), (200, second.json()));
    assert_eq!(send("b").await.error(), (409, "idempotency_conflict".to_owned()));
    let message = first.json()["message_id"].as_str().expect("an id").to_owned();
    let change = async |method: &str, path: String| daemon.request("slu_alice", method, &path, None).await;
    let promoted = change("POST", format!("{path}/{message}/promote")).await;
    assert_eq!((promoted.status, &promoted.json()["urgent"]), (200, &json!(true)), "{promoted:?}");
    assert_eq!(change("DELETE", format!("{path}/{message}")).await.json()["status"], "deleted");
    assert_eq!(
        change("POST", format!("{path}/{message}/promote")).await.error(),
        (409, "message_delivered".to_owned())
    );
    assert_eq!(change("DELETE", format!("{path}/msg-000000000000")).await.status, 404);
    assert_eq!(send("a").await.json()["status"], "deleted", "the present state is shown");
    let bob = daemon.request("slu_bob", "DELETE", &format!("{path}/{message}"), None).await;
    assert_eq!(bob.status, 404);
}

#[tokio::test]
async fn an_interrupt_ends_calls_and_leaves_a_message() {
    let daemon = TestDaemon::with_runs().await;
    let waiting = daemon.create("slu_alice", json!({ "task": "x" })).await;
    let path = format!("{waiting}/interrupt");
    assert_eq!(post(&daemon, "slu_alice", &path, &json!({})).await.error(), (409, "invalid_state".to_owned()));
    daemon.step(&waiting, SandboxStep::Drop(SandboxVerdict::Cancelled)).await;
    let (id, paths) = daemon.working_run().await;
    let path = format!("{id}/interrupt");
    let refused = post(&daemon, "slu_alice", &path, &json!({})).await;
    assert_eq!(refused.error(), (503, "sidecar_unavailable".to_owned()), "no sidecar listens");
    let sidecar = FakeSidecar::listen(&paths.control);
    let done = post(&daemon, "slu_alice", &path, &json!({ "message": "rather this" })).await;
    assert_eq!((done.status, &done.json()["status"]), (200, &json!("interrupted")), "{done:?}");
    assert_eq!(sidecar.contents(), ["rather this"], "it has the message before the next call");
    assert_eq!(sidecar.interrupts()[0]["by"], json!(format!("token:{}", daemon.token_id("slu_alice"))));
    let bare = daemon.request("slu_alice", "POST", &format!("/api/v1/sandboxes/{path}"), None).await;
    assert_eq!((bare.status, &bare.json()["message_id"]), (200, &Value::Null), "{bare:?}");
    assert_eq!(post(&daemon, "slu_viewer", &path, &json!({})).await.status, 403);
    let events = daemon.get("slu_alice", &format!("/api/v1/sandboxes/{id}/events?event_type=run.interrupted")).await;
    assert_eq!(events.json()["total_count"], 2);
    let operations: Vec<_> = daemon.control_log().into_iter().map(|line| line.operation).collect();
    assert_eq!(operations.iter().filter(|name| *name == "sandbox.interrupt").count(), 4, "{operations:?}");
}

#[tokio::test]
async fn a_repeated_interrupt_has_its_first_answer() {
    let daemon = TestDaemon::with_runs().await;
    let (id, paths) = daemon.claimed_run().await;
    let sidecar = FakeSidecar::listen(&paths.control);
    let path = format!("/api/v1/sandboxes/{id}/interrupt");
    let interrupt = async || {
        let body = json!({ "message": "rather this" });
        daemon.with_header("slu_alice", ("POST", &path), &body, "Idempotency-Key: k").await
    };
    assert_eq!(interrupt().await.error(), (409, "invalid_state".to_owned()), "it has not begun");
    daemon.step(&id, SandboxStep::Start).await;
    let first = interrupt().await;
    assert_eq!(first.status, 200, "the refused request released its key: {first:?}");
    daemon.end(&id).await;

    let second = interrupt().await;

    assert_eq!((second.status, second.json()), (200, first.json()));
    assert_eq!(sidecar.interrupts().len(), 1);
}

#[tokio::test]
async fn a_failed_interrupt_leaves_no_message() {
    let daemon = TestDaemon::with_runs().await;
    let (id, paths) = daemon.working_run().await;
    let sidecar = FakeSidecar::listen(&paths.control);
    let (path, body) = (format!("{id}/interrupt"), json!({ "message": "rather this" }));
    sidecar.silence(Some("POST /interrupt"));
    let failed = post(&daemon, "slu_alice", &path, &body).await;
    assert_eq!(failed.error(), (503, "sidecar_unavailable".to_owned()));
    assert!(sidecar.contents().is_empty(), "it is taken back");
    sidecar.silence(None);
    assert_eq!(post(&daemon, "slu_alice", &path, &body).await.status, 200);
    assert_eq!(sidecar.contents(), ["rather this"], "once");
}

#[tokio::test]
async fn a_silent_sidecar_may_still_send_a_message() {
    let daemon = TestDaemon::with_runs().await;
    let (id, paths) = daemon.working_run().await;
    let sidecar = FakeSidecar::listen(&paths.control);
    let sent = post(&daemon, "slu_alice", &format!("{id}/messages"), &json!({ "content": "x" })).await.json();
    let path = format!("/api/v1/sandboxes/{id}/messages/{}", sent["message_id"].as_str().expect("an id"));
    sidecar.silence(Some("PUT /inject"));
    let removed = daemon.request("slu_alice", "DELETE", &path, None).await;
    assert_eq!(removed.error(), (503, "sidecar_unavailable".to_owned()));
    drop(sidecar);
    std::fs::remove_file(&paths.control).expect("it is there");
    let sent = post(&daemon, "slu_alice", &format!("{id}/messages"), &json!({ "content": "y" })).await.json();
    let path = format!("/api/v1/sandboxes/{id}/messages/{}", sent["message_id"].as_str().expect("an id"));
    let removed = daemon.request("slu_alice", "DELETE", &path, None).await;
    assert_eq!((removed.status, &removed.json()["status"]), (200, &json!("deleted")), "nobody has it");
}

#[tokio::test]
async fn a_sidecar_that_refuses_traps_no_message() {
    let daemon = TestDaemon::with_runs().await;
    let (id, paths) = daemon.working_run().await;
    let sidecar = FakeSidecar::listen(&paths.control);
    let messages = format!("{id}/messages");
    post(&daemon, "slu_alice", &messages, &json!({ "content": "w" })).await;
    sidecar.refuse(Some("PUT /inject"));
    for content in ["x", "y"] {
        post(&daemon, "slu_alice", &messages, &json!({ "content": content })).await;
        let listed = daemon.get("slu_alice", &format!("/api/v1/sandboxes/{messages}")).await.json();
        assert_eq!(listed["messages"][0]["status"], "queued", "{listed}");
    }
    sidecar.refuse(None);
    post(&daemon, "slu_alice", &messages, &json!({ "content": "z" })).await;
    assert_eq!(sidecar.contents(), ["w", "x", "y", "z"]);
}
