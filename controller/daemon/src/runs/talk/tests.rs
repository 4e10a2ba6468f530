use serde_json::{Value, json};
use sluice_runs::observer::{NoObserver, Observation};
use sluice_state::layout::RunPaths;
use sluice_state::run::RunStep;
use tokio::task::JoinHandle;

use super::*;
use crate::runs::after_attempt::forget;
use crate::runs::last_look::with_last_look;
use crate::test_daemon::TestDaemon;
use crate::test_sidecar::{FakeSidecar, until};

struct Talking {
    daemon: TestDaemon,
    id: String,
    paths: RunPaths,
    sidecar: FakeSidecar,
    task: JoinHandle<Infallible>,
}

impl Talking {
    async fn begin() -> Self {
        let daemon = TestDaemon::with_runs().await;
        let (id, paths) = daemon.working_run().await;
        let sidecar = FakeSidecar::listen(&paths.control);
        let task = spawn(&daemon, &id).await;
        Self { daemon, id, paths, sidecar, task }
    }

    async fn send(&self, body: Value) -> String {
        let path = format!("/api/v1/sandboxes/{}/messages", self.id);
        let answer = self.daemon.request("slu_alice", "POST", &path, Some(&body)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["message_id"].as_str().expect("an id").to_owned()
    }

    async fn status(&self, message_id: &str) -> String {
        let path = format!("/api/v1/sandboxes/{}/messages", self.id);
        let listed = self.daemon.get("slu_alice", &path).await.json();
        let messages = listed["messages"].as_array().expect("a list").clone();
        let found = messages.iter().find(|message| message["message_id"] == message_id).expect("it is listed");
        found["status"].as_str().expect("a word").to_owned()
    }

    async fn reaches(&self, message_id: &str, status: &str) {
        until(status, async || self.status(message_id).await == status).await;
    }

    async fn has(&self, contents: &[&str]) {
        until(&format!("{contents:?}"), async || self.sidecar.contents() == contents).await;
    }

    fn key(&self) -> RunKey {
        format!("{}.0", self.id).parse().expect("a key")
    }
}

async fn spawn(daemon: &TestDaemon, id: &str) -> JoinHandle<Infallible> {
    let context = Arc::clone(&daemon.running.context);
    let run_id = id.parse().expect("an id");
    let run = daemon.store().find_sandbox(None, &run_id).await.expect("it is readable").expect("it is there");
    tokio::spawn(async move { talk(&context, &run).await })
}

#[tokio::test]
async fn a_message_goes_to_the_sidecar_and_is_followed() {
    let talking = Talking::begin().await;
    let first = talking.send(json!({ "content": "one" })).await;
    talking.has(&["one"]).await;
    assert_eq!(talking.status(&first).await, "offered");
    let second = talking.send(json!({ "content": "two", "urgent": true })).await;
    talking.has(&["two", "one"]).await;

    talking.sidecar.report(&second, "sent");
    talking.reaches(&second, "sent").await;
    talking.sidecar.report(&second, "acknowledged");
    talking.reaches(&second, "delivered").await;
    talking.has(&["one"]).await;
    // Its position can still be lost; an event of the run lets the daemon read it again.
    talking.sidecar.report(&second, "lost");
    talking.send(json!({ "content": "three" })).await;
    talking.reaches(&second, "lost").await;
    let path = format!("/api/v1/sandboxes/{}/events?event_type=message.*", talking.id);
    let events = talking.daemon.get("slu_alice", &path).await.json();
    let types: Vec<_> = events["events"].as_array().expect("a list").iter().map(|event| &event["event_type"]).collect();
    assert!(types.contains(&&json!("message.delivered")) && types.contains(&&json!("message.lost")), "{events}");
}

#[tokio::test]
async fn messages_are_given_again_after_a_restart() {
    let mut talking = Talking::begin().await;
    talking.send(json!({ "content": "kept" })).await;
    talking.has(&["kept"]).await;
    talking.task.abort();
    assert_eq!(talking.daemon.running.context.conversations.forget(&talking.key()), []);
    // A sidecar that has lost its list; the daemon that starts next does not know its messages.
    talking.sidecar = FakeSidecar::listen(&talking.paths.control);
    talking.task = spawn(&talking.daemon, &talking.id).await;
    talking.has(&["kept"]).await;
}

#[tokio::test]
async fn a_worker_gets_the_messages_that_can_wait() {
    let talking = Talking::begin().await;
    let waits = talking.send(json!({ "content": "waits" })).await;
    talking.send(json!({ "content": "now", "inject_mode": "immediate" })).await;
    talking.has(&["waits", "now"]).await;
    let store = talking.daemon.store();
    store.note_worker(&talking.key(), 1).await.expect("it is writable");
    // The next event of any run lets the daemon read.
    talking.send(json!({ "content": "more" })).await;
    talking.has(&["now"]).await;
    talking.reaches(&waits, "queued").await;
    let mode = sluice_state::messages::TakeMode::Consume;
    let taken = store.take_messages(&talking.key(), mode, 9, 1).await.expect("it works");
    assert_eq!(taken.iter().map(|message| message.content.as_str()).collect::<Vec<_>>(), ["waits", "more"]);
}

#[tokio::test]
async fn a_message_that_was_offered_is_taken_back() {
    let talking = Talking::begin().await;
    let [one, two] = [talking.send(json!({ "content": "1" })).await, talking.send(json!({ "content": "2" })).await];
    talking.has(&["1", "2"]).await;
    let delete = async |message: &str| {
        let path = format!("/api/v1/sandboxes/{}/messages/{message}", talking.id);
        talking.daemon.request("slu_alice", "DELETE", &path, None).await
    };
    assert_eq!(delete(&one).await.json()["status"], "deleted");
    assert_eq!(talking.sidecar.contents(), ["2"]);
    // The sidecar has sent it, and the daemon has not read that yet.
    talking.task.abort();
    talking.sidecar.report(&two, "sent");
    assert_eq!(delete(&two).await.error(), (409, "message_delivered".to_owned()));
    assert_eq!(talking.status(&two).await, "sent");
}

#[tokio::test]
async fn what_a_sidecar_says_last_is_recorded() {
    let talking = Talking::begin().await;
    let message = talking.send(json!({ "content": "last" })).await;
    talking.has(&["last"]).await;
    talking.task.abort();
    talking.sidecar.report(&message, "sent");
    talking.sidecar.report(&message, "acknowledged");

    let context = Arc::clone(&talking.daemon.running.context);
    let observer = with_last_look(Arc::new(NoObserver), &context, &talking.key());
    let looked = tokio::task::spawn_blocking(move || observer.observe(Observation::StepBegun(RunStep::DrainSidecar)));
    looked.await.expect("it does not panic");
    forget(&context, &talking.key()).await;

    assert_eq!(talking.status(&message).await, "delivered");
}
