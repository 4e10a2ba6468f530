//! The relay socket of a run: its token, its routes, its limits, and what follows from events.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice_contract::RunKey;
use sluice_state::events::EventQuota;
use sluice_state::layout::RunPaths;
use sluice_state::run_tokens::RunTokenValue;
use sluice_state::sandboxes::{SandboxStep, SandboxVerdict};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use crate::event_limits::EventLimits;
use crate::relay::RelayListener;
use crate::settings::DaemonSettings;
use crate::test_daemon::{TestAnswer, TestDaemon, exchange, policy};
use crate::test_sidecar::until;

/// A daemon with a working run, and the relay socket of the run.
struct Relay {
    daemon: TestDaemon,
    id: String,
    paths: RunPaths,
    token: RunTokenValue,
    serving: JoinHandle<std::convert::Infallible>,
}

impl Relay {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut DaemonSettings)) -> Self {
        let daemon = TestDaemon::with_policy(Some(policy()), change).await;
        let run = daemon.working_run().await;
        Self::of(daemon, run).await
    }

    async fn of(daemon: TestDaemon, (id, paths): (String, RunPaths)) -> Self {
        std::fs::create_dir_all(&paths.sock).expect("there is room");
        std::fs::create_dir_all(paths.relay.parent().expect("it is in a directory")).expect("there is room");
        let key: RunKey = format!("{id}.0").parse().expect("a key");
        let token = daemon.store().create_run_token(&key).await.expect("it is writable");
        let listener = RelayListener::new(Arc::clone(&daemon.running.context), key);
        let serving = tokio::spawn(listener.serve());
        until("the socket", async || paths.relay.exists()).await;
        Self { daemon, id, paths, token, serving }
    }

    fn key(&self) -> RunKey {
        format!("{}.0", self.id).parse().expect("a key")
    }

    /// Sends a request with these headers to a path of the run.
    async fn send(&self, headers: &[&str], method: &str, path: &str, body: Option<&Value>) -> TestAnswer {
        let stream = UnixStream::connect(&self.paths.relay).await.expect("it listens");
        let headers: Vec<_> = ["Host: localhost"].iter().chain(headers).copied().collect();
        exchange(stream, method, path, &headers, body.map(Value::to_string).as_deref()).await
    }

    async fn request(&self, method: &str, rest: &str, body: Option<&Value>) -> TestAnswer {
        let bearer = format!("Authorization: Bearer {}", self.token.expose());
        self.send(&[&bearer], method, &format!("/api/v1/sandboxes/{}/{rest}", self.id), body).await
    }

    async fn report(&self, event_type: &str, data: Value) -> TestAnswer {
        self.request("POST", "events", Some(&json!({ "event_type": event_type, "event_data": data }))).await
    }

    async fn run(&self) -> Value {
        self.daemon.get("slu_alice", &format!("/api/v1/sandboxes/{}", self.id)).await.json()
    }

    async fn message(&self, body: Value) -> String {
        let path = format!("/api/v1/sandboxes/{}/messages", self.id);
        let sent = self.daemon.request("slu_alice", "POST", &path, Some(&body)).await;
        sent.json()["message_id"].as_str().unwrap_or_else(|| panic!("{sent:?}")).to_owned()
    }
}

#[tokio::test]
async fn only_the_token_of_the_attempt_opens_its_own_routes() {
    let relay = Relay::new().await;
    let meta = relay.paths.relay.metadata().expect("it is there");
    assert_eq!((meta.permissions().mode() & 0o777, meta.uid()), (0o600, nix::unistd::Uid::effective().as_raw()));
    let task = format!("/api/v1/sandboxes/{}/task", relay.id);
    let alice = relay.daemon.bearer("slu_alice");
    let admin = relay.daemon.bearer("slu_admin");
    for headers in [&[][..], &[&*alice], &[&*admin], &["Authorization: Bearer slr_0"], &["Cookie: a=b"]] {
        assert_eq!(
            relay.send(headers, "GET", &task, None).await.error(),
            (401, "unauthorized".to_owned()),
            "{headers:?}"
        );
    }
    let shown = relay.request("GET", "task", None).await;
    assert_eq!((shown.status, &shown.json()["task"]), (200, &json!("x")), "{shown:?}");

    let bearer = format!("Authorization: Bearer {}", relay.token.expose());
    for (method, path, expected) in [
        ("GET", format!("/api/v1/sandboxes/{}x/task", relay.id), (403, "not_own_run")),
        ("GET", "/api/v1/sandboxes/r_00000000000000000000/messages".to_owned(), (403, "not_own_run")),
        ("GET", "/api/v1/sandboxes".to_owned(), (404, "not_found")),
        ("GET", "/api/v1/agents".to_owned(), (404, "not_found")),
        ("GET", "/metrics".to_owned(), (404, "not_found")),
        ("GET", "/alive".to_owned(), (404, "not_found")),
        ("GET", format!("/api/v1/sandboxes/{}", relay.id), (404, "not_found")),
        ("GET", format!("/api/v1/sandboxes/{}/files/workspace", relay.id), (404, "not_found")),
        ("GET", format!("/api/v1/sandboxes/{}/events", relay.id), (405, "method_not_allowed")),
        ("POST", format!("/api/v1/sandboxes/{}/messages", relay.id), (405, "method_not_allowed")),
        ("POST", format!("/api/v1/sandboxes/{}/interventions", relay.id), (405, "method_not_allowed")),
        ("POST", format!("/api/v1/sandboxes/{}/interrupt", relay.id), (404, "not_found")),
        ("DELETE", format!("/api/v1/sandboxes/{}/task", relay.id), (405, "method_not_allowed")),
    ] {
        let answer = relay.send(&[&bearer], method, &path, None).await;
        assert_eq!(answer.error(), (expected.0, expected.1.to_owned()), "{method} {path}");
    }
    // The token is of no use elsewhere.
    for socket in ["admin.sock", "api.sock"] {
        let answer = relay.daemon.over_socket(socket, "GET", &task, &[&bearer]).await;
        assert_eq!(answer.status, 401, "{socket}");
    }
}

#[tokio::test]
async fn a_token_ends_with_its_attempt() {
    let relay = Relay::new().await;
    assert_eq!(relay.report("agent.progress", json!({})).await.status, 200);
    relay.daemon.store().revoke_run_token(&relay.key()).await.expect("it is writable");
    assert_eq!(relay.request("GET", "task", None).await.status, 401);
    let relay = Relay::new().await;
    relay.daemon.step(&relay.id, SandboxStep::Decide(SandboxVerdict::Success)).await;
    assert_eq!(relay.report("agent.progress", json!({})).await.status, 200, "it is being taken down");
    relay.daemon.step(&relay.id, SandboxStep::Finish).await;
    assert_eq!(relay.report("agent.progress", json!({})).await.status, 401);
    relay.serving.abort();
    until("the socket is removed", async || !relay.paths.relay.exists()).await;
}

#[tokio::test]
async fn events_are_the_claims_of_an_agent() {
    let relay = Relay::new().await;
    let received = relay.report("agent.tool_use", json!({ "tool": "sh" })).await;
    assert_eq!((received.status, &received.json()["status"]), (200, &json!("received")), "{received:?}");
    for event_type in [
        "run.state_changed", "sandbox.stopped", "llm.call", "message.delivered", "approval.decided", "git.pushed",
        "agent.",
    ] {
        let refused = relay.report(event_type, json!({})).await;
        assert_eq!(refused.error(), (422, "reserved_event_type".to_owned()), "{event_type}");
    }
    for (body, code) in [
        (json!({ "event_type": "agent.progress", "source": "system" }), "unknown_field"),
        (json!({ "event_type": "agent.progress", "sandbox_id": "r_1" }), "unknown_field"),
        (json!({ "event_type": "agent progress" }), "invalid_field"),
        (json!({ "event_data": {} }), "invalid_field"),
    ] {
        assert_eq!(relay.request("POST", "events", Some(&body)).await.error(), (422, code.to_owned()), "{body}");
    }
    let large = relay.report("agent.progress", json!({ "text": "x".repeat(100_000) })).await;
    assert_eq!(large.error(), (413, "event_too_large".to_owned()));
    let edited = json!({ "file_path": "a", "diff_preview": "+x", "full_diff": format!("+{}", "x".repeat(200_000)) });
    let edited = relay.report("agent.file_edited", edited).await.json();
    let path = format!("/api/v1/sandboxes/{}", relay.id);
    let event_id = edited["event_id"].as_str().expect("an id");
    let diff = relay.daemon.get("slu_alice", &format!("{path}/file-diffs/{event_id}")).await;
    assert_eq!((diff.status, diff.body.len() > 200_000), (200, true));
    let events = relay.daemon.get("slu_alice", &format!("{path}/events?event_type=agent.*")).await.json();
    let all = events["events"].as_array().expect("a list");
    assert!(all.iter().all(|event| event["source"] == "agent" && event["attempt"] == 0), "{events}");
    assert!(!events.to_string().contains("full_diff"));
    assert_eq!(all.len(), 2, "what was refused is not there");
}

#[tokio::test]
async fn heartbeats_and_work_are_recorded_together() {
    let relay = Relay::new().await;
    let mut accepted = 0;
    let refused = loop {
        let answer = relay.report("agent.heartbeat", json!({ "status": "running" })).await;
        if answer.status != 200 {
            break answer;
        }
        accepted += 1;
    };
    assert!(accepted >= 10, "{accepted}");
    assert_eq!(refused.error(), (429, "rate_limited".to_owned()));
    assert_eq!(relay.report("agent.tool_use", json!({})).await.status, 200, "other events have their own rate");
    let context = &relay.daemon.running.context;
    let seen = context.conversations.take();
    let [only] = &seen[..] else { panic!("{seen:?}") };
    let (beat, status) = only.heartbeat.clone().expect("a heartbeat");
    assert_eq!((&only.key, status.as_deref()), (&relay.key(), Some("running")));
    assert!(only.work_us.is_some_and(|work| work >= beat) && only.observed_work_us.is_none(), "{only:?}");
}

#[tokio::test]
async fn an_agent_that_is_done_can_work_on() {
    let relay = Relay::new().await;
    let state = async || relay.run().await["state"].as_str().expect("a word").to_owned();
    let done = json!({ "success": true, "turns": 2, "secret": "x" });
    assert_eq!(relay.report("agent.completed", done).await.status, 200);
    assert_eq!(state().await, "COMPLETING");
    assert_eq!(relay.run().await["result"], json!({ "success": true, "turns": 2 }));
    assert_eq!(relay.report("agent.heartbeat", json!({})).await.status, 200);
    assert_eq!(state().await, "COMPLETING", "a heartbeat is no work");
    assert_eq!(relay.report("agent.tool_use", json!({})).await.status, 200);
    assert_eq!(state().await, "RUNNING");
    assert_eq!(relay.report("agent.error", json!({ "message": "x" })).await.status, 200);
    assert_eq!(state().await, "RUNNING");
    assert_eq!(relay.report("agent.error", json!({ "message": "secret", "fatal": true })).await.status, 200);
    let run = relay.run().await;
    assert_eq!((&run["state"], &run["failure_code"]), (&json!("COMPLETING"), &json!("agent_failed")), "{run}");
    assert!(!run["error_message"].to_string().contains("secret"), "what the agent says stays in its events");
    assert_eq!(relay.report("agent.completed", json!({})).await.status, 200);
    assert_eq!(relay.run().await["failure_code"], "agent_failed", "the first verdict stays");
}

/// Bug: a run continued to its timeout if its agent was done before the start was recorded.
#[tokio::test]
async fn an_agent_can_be_done_at_once() {
    let daemon = TestDaemon::with_runs().await;
    let run = daemon.claimed_run().await;
    let relay = Relay::of(daemon, run).await;
    assert_eq!(relay.report("agent.completed", json!({ "success": true })).await.status, 200);
    assert_eq!(relay.run().await["state"], "COMPLETING");
}

#[tokio::test]
async fn messages_are_taken_and_acknowledged() {
    let relay = Relay::new().await;
    let one = relay.message(json!({ "content": "one" })).await;
    relay.message(json!({ "content": "two", "urgent": true })).await;
    let leased = relay.request("GET", "messages?ack=manual", None).await.json();
    assert_eq!((&leased[0]["content"], &leased[1]["content"]), (&json!("two"), &json!("one")), "{leased}");
    assert_eq!((&leased[1]["id"], &leased[1]["message_type"]), (&json!(one), &json!("user_message")));
    assert_eq!(leased[1].as_object().expect("an object").len(), 4, "{leased}");
    assert_eq!(relay.request("GET", "messages?ack=manual", None).await.json(), json!([]), "they are on lease");
    let body = json!({ "message_ids": [one, "msg-000000000000"] });
    for _ in 0..2 {
        let acknowledged = relay.request("POST", "messages/ack", Some(&body)).await;
        assert_eq!((acknowledged.status, acknowledged.json()), (200, json!({ "acknowledged": [one] })));
    }
    for query in ["wait=26", "ack=never", "limit=0", "limit=101", "after=1", "wait=-1"] {
        assert_eq!(relay.request("GET", &format!("messages?{query}"), None).await.status, 422, "{query}");
    }
    let (waited, _) = tokio::join!(relay.request("GET", "messages?wait=25", None), async {
        relay.message(json!({ "content": "three" })).await
    });
    assert_eq!(waited.json()[0]["content"], "three");
    let steering = json!({ "message": "enough", "source": "rule" });
    let path = format!("/api/v1/sandboxes/{}/interventions", relay.id);
    assert_eq!(relay.daemon.request("slu_admin", "POST", &path, Some(&steering)).await.status, 200);
    let listed = relay.request("GET", "interventions", None).await.json();
    assert_eq!((&listed[0]["message"], &listed[0]["status"]), (&json!("enough"), &json!("queued")), "{listed}");
    let taken = relay.request("GET", "messages", None).await.json();
    assert_eq!(taken[0]["content"], "[GUARDIAN INTERVENTION - guidance] enough", "{taken}");
    assert_eq!(taken[0]["message_type"], "guardian_nudge");
}

#[tokio::test]
async fn floods_end_at_their_limits() {
    let relay = Relay::with(|settings| {
        settings.limits.polls = 5;
        settings.upkeep.events =
            EventLimits { disk_free_min: 0, quota: EventQuota::default(), ..EventLimits::default() }.with_rate(6);
    })
    .await;
    for _ in 0..5 {
        assert_eq!(relay.request("GET", "messages", None).await.status, 200);
    }
    // One more is accepted every twelve seconds.
    let refused = loop {
        let answer = relay.request("GET", "messages", None).await;
        if answer.status != 200 {
            break answer;
        }
    };
    assert_eq!(refused.error(), (429, "rate_limited".to_owned()));
    assert!(refused.head.contains("retry-after: "), "{refused:?}");
    let (mut stored, begun) = (0, Instant::now());
    let refused = loop {
        let answer = relay.report("agent.progress", json!({})).await;
        if answer.status != 200 {
            break answer;
        }
        stored += 1;
    };
    // One more is accepted every ten seconds.
    assert!((10..=10 + begun.elapsed().as_secs() / 10).contains(&stored), "{stored}");
    assert_eq!(refused.error(), (429, "event_rate".to_owned()));
    assert_eq!(relay.request("GET", "task", None).await.status, 200);
}

#[tokio::test]
async fn the_data_of_an_event_are_an_object() {
    let relay = Relay::new().await;
    for data in [Value::Null, json!([1]), json!("x"), json!(1)] {
        let refused = relay.report("agent.x", data.clone()).await;
        assert_eq!(refused.error().0, 422, "{data}: {refused:?}");
    }
    assert_eq!(relay.report("agent.x", json!({})).await.status, 200);
}

#[tokio::test]
async fn a_full_event_store_asks_to_come_again() {
    let limits = EventLimits { store_max: 1, disk_free_min: 0, ..EventLimits::default() };
    let relay = Relay::with(|settings| settings.upkeep.events = limits).await;
    until("it is full", async || relay.daemon.running.context.events.is_full()).await;
    let refused = relay.report("agent.completed", json!({})).await;
    assert_eq!(refused.error(), (503, "event_store_full".to_owned()));
    assert_eq!(relay.run().await["state"], "RUNNING", "what is not stored has no effect");
}

#[tokio::test]
async fn a_waiting_request_ends_when_the_daemon_stops() {
    let relay = Relay::new().await;
    let key = relay.key();
    let Relay { daemon, id, paths, token, serving: _serving } = relay;
    let waiting = tokio::spawn(async move {
        let stream = UnixStream::connect(&paths.relay).await.expect("it listens");
        let (bearer, path) = (token.expose(), format!("/api/v1/sandboxes/{id}/messages?wait=25"));
        exchange(stream, "GET", &path, &["Host: localhost", &format!("Authorization: Bearer {bearer}")], None).await
    });
    until("it polls", async || {
        let conversation = daemon.store().conversation(&key).await;
        conversation.expect("it is readable").worker_us.is_some()
    })
    .await;
    daemon.running.stop().await;
    let answer = tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("it does not wait for 25 s");
    let answer = answer.expect("it does not panic");
    assert_eq!((answer.status, answer.json()), (200, json!([])), "{answer:?}");
}
