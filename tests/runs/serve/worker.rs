//! The worker of the image, and the programs of its page in the guide, in runs of a daemon.

use sluice_testkit::controller::Daemon;
use sluice_testkit::{PATIENCE, poll};

use super::*;

const PAGE: &str = include_str!("../../../docs/guide/worker.md");

/// Waits for an event of this type, and returns its data.
async fn reported(daemon: &Daemon<'_>, id: &str, event_type: &str) -> Value {
    let mut found = Value::Null;
    let reached = poll(PATIENCE, async || {
        let events = daemon.events(id).await;
        found = events.into_iter().find(|event| event["event_type"] == event_type).unwrap_or_default();
        !found.is_null()
    });
    assert!(reached.await, "no {event_type} in time\n{}", daemon.process().stderr());
    found["event_data"].take()
}

/// Waits until a message is delivered to the agent.
async fn delivered(daemon: &Daemon<'_>, id: &str, message: &str) {
    let path = format!("/api/v1/sandboxes/{id}/messages");
    let reached = poll(PATIENCE, async || {
        let listed = daemon.get(&path).await.expect(200).json();
        let messages = listed["messages"].as_array().cloned().unwrap_or_default();
        messages.iter().any(|one| one["message_id"] == message && one["status"] == "delivered")
    });
    assert!(reached.await, "{message} is not delivered in time\n{}", daemon.process().stderr());
}

#[tokio::test]
async fn the_images_worker_reports_asks_and_delivers() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let script = "trap 'exit 0' INT; echo ready; sluice-worker ask 'Which one?' --option a --option b; \
        while :; do sleep 0.1; done";
    let argv = ["sluice-worker", "run", "--inbox", "/workspace/inbox", "--", "sh", "-c", script];

    let id = daemon.create(json!({"argv": argv, "model": "m"})).await;
    let questions = format!("/api/v1/sandboxes/{id}/questions");
    let mut question = Value::Null;
    let asked = poll(PATIENCE, async || {
        question = daemon.get(&questions).await.expect(200).json()["questions"].get(0).cloned().unwrap_or_default();
        !question.is_null()
    });
    assert!(asked.await, "no question in time\n{}", daemon.process().stderr());
    let answer = format!("{questions}/{}/answer", question["question_id"].as_str().expect("an id"));
    daemon.request("POST", &answer, &json!({"answer": "b"})).await.expect(200);
    let message = send(&daemon, &id, json!({"content": "enough", "message_type": "interrupt"})).await;
    let run = daemon.reaches(&id, "COMPLETED").await;
    let events = daemon.events(&id).await;

    assert_eq!((&run["outcome"], &run["exit_code"]), (&json!("success"), &json!(0)), "{run}");
    assert_eq!((&question["question"], &question["options"]), (&json!("Which one?"), &json!(["a", "b"])));
    assert_eq!(stdout(&daemon, &id).await, "ready\nb\n");
    let claims: Vec<_> = events.iter().filter(|event| event["source"] == "agent").collect();
    let data = |name: &str| claims.iter().find(|event| event["event_type"] == name).map(|event| &event["event_data"]);
    assert_eq!(data("agent.interrupted"), Some(&json!({"message_id": message})));
    assert_eq!(data("agent.completed"), Some(&json!({"success": true, "exit_code": 0})));
    assert!(data("agent.started").is_some() && data("agent.heartbeat").is_some(), "{claims:?}");
    daemon.stop().await;
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn the_programs_of_the_workers_page_work() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let commands =
        [("bash", &["bash", "-c"][..]), ("python", &["python3", "-c"]), ("js", &["node", "--input-type=module", "-e"])];
    for (language, command) in commands {
        let (_, rest) = PAGE.split_once(&format!("```{language}\n")).expect("the page has a program");
        let (program, _) = rest.split_once("\n```").expect("it has an end");
        let argv: Vec<_> = command.iter().copied().chain([program]).collect();

        let id = daemon.create(json!({"argv": argv, "model": "m"})).await;
        reported(&daemon, &id, "agent.progress").await;
        let beat = reported(&daemon, &id, "agent.heartbeat").await;
        let message = send(&daemon, &id, json!({"content": "two\nlines"})).await;
        delivered(&daemon, &id, &message).await;
        daemon.request("DELETE", &format!("/api/v1/sandboxes/{id}"), &Value::Null).await.expect(202);
        daemon.reaches(&id, "COMPLETED").await;

        assert_eq!(
            (beat, stdout(&daemon, &id).await),
            (json!({"status": "running"}), "two\nlines\n".to_owned()),
            "{language}"
        );
    }
}
