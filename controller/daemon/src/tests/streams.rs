//! Streams and pages of events.

use std::time::Duration;

use serde_json::{Value, json};
use sluice_contract::RunKey;
use sluice_state::events::{EventAges, EventDiff, EventQuota, EventSource, NewLoggedEvent};
use sluice_state::sandboxes::{SandboxStep, SandboxVerdict};
use sluice_state::store::now_us;

use super::stream_client::{Client, append};
use crate::test_daemon::{TestDaemon, policy};

#[tokio::test]
async fn a_stream_of_a_run_is_snapshot_events_and_end() {
    let daemon = TestDaemon::with_runs().await;
    let id = daemon.create("slu_alice", json!({ "task": "x", "name": "n" })).await;
    let other = daemon.create("slu_alice", json!({ "task": "x" })).await;
    let mut client = Client::open(&daemon, "slu_alice", "/api/v1/sandboxes/n/stream", "").await;
    assert_eq!(client.status().await, 200);
    let first = client.frame().await.expect("a snapshot");
    assert_eq!((first.name.as_str(), &first.data["sandbox"]["sandbox_id"]), ("snapshot", &json!(id)));
    assert_eq!(first.id, first.data["seq"].as_i64());
    append(&daemon, "alice", &other, "agent.thinking", &json!({})).await;
    let seq = append(&daemon, "alice", &id, "agent.thinking", &json!({ "text": "a\n\nid: 0" })).await;
    let event = client.frame().await.expect("an event");
    assert_eq!((event.id, &event.data["event_data"]["text"]), (Some(seq), &json!("a\n\nid: 0")));
    assert_eq!((&event.data["source"], &event.data["sandbox_id"]), (&json!("agent"), &json!(id)));
    daemon.step(&id, SandboxStep::Drop(SandboxVerdict::Cancelled)).await;
    let types: Vec<_> = client.frames(3).await.into_iter().map(|frame| (frame.name, frame.data)).collect();
    assert_eq!(types[0].1["event_type"], "run.state_changed");
    assert_eq!(types[1].1["event_type"], "sandbox.stopped");
    assert_eq!(types[2].0, "end");
    assert_eq!((&types[2].1["state"], &types[2].1["failure_code"]), (&json!("COMPLETED"), &Value::Null));
    assert!(client.frame().await.is_none(), "the stream is closed");
}

#[tokio::test]
async fn a_cursor_gives_each_event_once() {
    let daemon = TestDaemon::with_runs().await;
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    let mut sent = Vec::new();
    for number in 0..50 {
        sent.push(append(&daemon, "alice", &id, "agent.progress", &json!({ "n": number })).await);
    }
    let path = format!("/api/v1/sandboxes/{id}/stream?after=0&types=agent.*");
    let mut client = Client::open(&daemon, "slu_alice", &path, "").await;
    client.status().await;
    let frames = client.frames(21).await;
    let cursor = frames[20].id.expect("a seq");
    drop(client);
    // The header overrides the query.
    let header = format!("Last-Event-ID: {cursor}\r\n");
    let mut client = Client::open(&daemon, "slu_alice", &path, &header).await;
    client.status().await;
    let more = client.frames(31).await;
    let seen: Vec<_> = frames[1..].iter().chain(&more[1..]).filter_map(|frame| frame.id).collect();
    assert_eq!(seen, sent);
}

#[tokio::test]
async fn a_chat_goes_on_if_its_cursor_is_too_new() {
    let daemon = TestDaemon::with_runs().await;
    let mut committed = daemon.store().events_committed();
    let body = json!({ "messages": [{ "role": "user", "content": "hi" }] });
    let follows = async {
        committed.changed().await.expect("the daemon lives");
        daemon.claim().await;
        let run_id = daemon.store().live_chats().await.expect("it is readable").remove(0).run_id;
        let id = run_id.to_string();
        daemon.running.context.layout.records().create(&RunKey { run_id, attempt: 0 }).expect("there is room");
        daemon.step(&id, SandboxStep::Start).await;
        let path = format!("/ai/runs/{id}/stream");
        let mut client = Client::open(&daemon, "slu_chat", &path, "Last-Event-ID: 1000000-1000000\r\n").await;
        assert_eq!(client.status().await, 200);
        append(&daemon, "chat", &id, "agent.thinking", &json!({})).await;
        daemon.end(&id).await;
        client.frame().await.expect("an event")
    };

    let (answer, thinking) = tokio::join!(daemon.request("slu_chat", "POST", "/ai/chat", Some(&body)), follows);

    assert_eq!((answer.status, thinking.name.as_str()), (200, "status"), "{answer:?}");
    assert_eq!(thinking.data["phase"], "thinking");
}

#[tokio::test]
async fn a_wrong_type_of_events_names_its_parameter() {
    let daemon = TestDaemon::with_runs().await;
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    for (path, parameter) in [
        (format!("sandboxes/{id}/events"), "event_type"),
        (format!("sandboxes/{id}/trajectory"), "event_type"),
        (format!("sandboxes/{id}/stream"), "types"),
        ("events/stream".to_owned(), "types"),
    ] {
        let answer = daemon.get("slu_alice", &format!("/api/v1/{path}?{parameter}=a-b")).await;
        assert_eq!(answer.error(), (422, "invalid_field".to_owned()), "{path}");
        assert_eq!(answer.json()["error"]["details"]["field"], parameter, "{path}");
    }
}

#[tokio::test]
async fn owners_stream_their_own_events_alone() {
    let daemon = TestDaemon::with_runs().await;
    let mine = daemon.create("slu_alice", json!({ "task": "x" })).await;
    let theirs = daemon.create("slu_bob", json!({ "task": "x" })).await;
    let mut client = Client::open(&daemon, "slu_alice", "/api/v1/events/stream?after=0", "").await;
    client.status().await;
    let snapshot = client.frame().await.expect("a snapshot");
    assert_eq!(snapshot.data["sandboxes"].as_array().map(Vec::len), Some(1));
    append(&daemon, "bob", &theirs, "agent.progress", &json!({})).await;
    append(&daemon, "alice", &mine, "agent.progress", &json!({})).await;
    for frame in client.frames(2).await {
        assert_eq!(frame.data["sandbox_id"], json!(mine));
    }
    let mut admin = Client::open(&daemon, "slu_admin", "/api/v1/events/stream?after=0", "").await;
    admin.status().await;
    assert_eq!(admin.frames(5).await.len(), 5);
    for (path, header) in [("?after=-1", ""), ("?after=x", ""), ("?types=a-b", ""), ("", "Last-Event-ID: x\r\n")] {
        let mut client = Client::open(&daemon, "slu_alice", &format!("/api/v1/events/stream{path}"), header).await;
        assert_eq!(client.status().await, 422, "{path}");
    }
}

#[tokio::test]
async fn a_revoked_token_ends_its_stream() {
    let often = Duration::from_millis(50);
    let daemon = TestDaemon::with_policy(Some(policy()), |settings| settings.limits.stream_check = often).await;
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    let wait = format!("/api/v1/sandboxes/{id}/wait?timeout=60");
    for with_event in [false, true] {
        let name = if with_event { "slu_bob" } else { "slu_alice" };
        let mut client = Client::open(&daemon, name, "/api/v1/events/stream", "").await;
        client.status().await;
        client.frame().await.expect("a snapshot");
        let revoke = async {
            daemon.store().revoke_token(daemon.token_id(name), now_us()).await.expect("it is there");
            if with_event {
                append(&daemon, "bob", "r_x", "agent.progress", &json!({})).await;
            }
        };
        let (waited, ()) = tokio::join!(daemon.get(name, &wait), revoke);
        assert!([401, 404].contains(&waited.status), "{waited:?}");
        assert!(client.frame().await.is_none(), "nothing more is shown");
    }
}

#[tokio::test]
async fn a_quiet_stream_is_kept_alive() {
    let daemon = TestDaemon::with(|settings| settings.limits.stream_quiet = Duration::from_millis(50)).await;
    let mut client = Client::open(&daemon, "slu_alice", "/api/v1/events/stream", "").await;
    client.status().await;
    for _ in 0..3 {
        client.until(": ping\n\n").await.expect("a ping");
    }
}

#[tokio::test]
async fn what_retention_removed_is_a_gap() {
    let daemon = TestDaemon::with_runs().await;
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    let first = append(&daemon, "alice", &id, "agent.progress", &json!({})).await;
    let last = append(&daemon, "alice", &id, "agent.progress", &json!({})).await;
    let ages = EventAges { agent_before_us: i64::MAX, system_before_us: 0 };
    assert_eq!(daemon.store().remove_old_events(ages).await.expect("it is writable"), 2);
    let path = format!("/api/v1/sandboxes/{id}/stream?after=0");
    let mut client = Client::open(&daemon, "slu_alice", &path, "").await;
    client.status().await;
    let frames = client.frames(3).await;
    assert_eq!((frames[1].name.as_str(), &frames[1].data), ("gap", &json!({ "from": first, "to": last })));
    assert_eq!(frames[2].data["event_type"], "sandbox.created");
}

#[tokio::test]
async fn streams_of_a_token_are_counted() {
    let daemon = TestDaemon::with(|settings| settings.limits.streams_per_token = 1).await;
    let mut first = Client::open(&daemon, "slu_alice", "/api/v1/events/stream", "").await;
    assert_eq!(first.status().await, 200);
    let second = daemon.get("slu_alice", "/api/v1/events/stream").await;
    assert_eq!(second.error(), (429, "too_many_streams".to_owned()));
    let mut other = Client::open(&daemon, "slu_bob", "/api/v1/events/stream", "").await;
    assert_eq!(other.status().await, 200);
}

#[tokio::test]
async fn waits_of_a_token_are_counted() {
    let daemon = TestDaemon::with_policy(Some(policy()), |settings| settings.limits.waits_per_token = 1).await;
    let alices = daemon.create("slu_alice", json!({ "task": "x" })).await;
    let bobs = daemon.create("slu_bob", json!({ "task": "x" })).await;
    let wait = |id: &str, time: &str| format!("/api/v1/sandboxes/{id}/wait?timeout={time}");
    let _first = Client::open(&daemon, "slu_alice", &wait(&alices, "60s"), "").await;
    while daemon.running.context.waits.open() == 0 {
        tokio::task::yield_now().await;
    }
    let second = daemon.get("slu_alice", &wait(&alices, "50ms")).await;
    assert_eq!(second.error(), (429, "too_many_waits".to_owned()));
    assert_eq!(daemon.get("slu_bob", &wait(&bobs, "10ms")).await.status, 204, "each token has its own");
}

#[tokio::test]
async fn streams_end_when_the_daemon_stops() {
    let daemon = TestDaemon::with_runs().await;
    let mut client = Client::open(&daemon, "slu_alice", "/api/v1/events/stream", "").await;
    client.status().await;
    client.frame().await.expect("a snapshot");
    let TestDaemon { running, .. } = daemon;
    let (ended, ()) = tokio::join!(client.frame(), running.stop());
    assert!(ended.is_none());
}

#[tokio::test]
async fn events_are_paged_newest_first() {
    let daemon = TestDaemon::with_runs().await;
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    for number in 0..5 {
        append(&daemon, "alice", &id, "agent.progress", &json!({ "n": number })).await;
        append(&daemon, "alice", &id, "agent.heartbeat", &json!({})).await;
    }
    let get = async |path: &str| daemon.get("slu_alice", &format!("/api/v1/sandboxes/{id}/{path}")).await;
    let first = get("events?limit=2&event_type=agent.progress").await.json();
    assert_eq!((&first["total_count"], &first["events"][0]["event_data"]["n"]), (&json!(5), &json!(4)));
    let cursor = &first["next_cursor"];
    let second = get(&format!("events?limit=10&event_type=agent.progress&cursor={cursor}")).await.json();
    assert_eq!((&second["has_more"], second["events"].as_array().map(Vec::len)), (&json!(false), Some(3)));
    let newer = get(&format!("events?limit=1&direction=newer&cursor={cursor}")).await.json();
    assert!(newer["events"][0]["seq"].as_i64() > cursor.as_i64());
    let offset = get("events?offset=2").await;
    assert_eq!(offset.status, 422);
    assert!(offset.json()["error"]["message"].as_str().is_some_and(|message| message.contains("cursor")));
    assert_eq!(get(&format!("events?q={}", "x".repeat(10_000))).await.status, 422);
    let part = get("trajectory?limit=1000").await.json();
    assert_eq!((&part["total_events"], &part["trajectory_events"]), (&json!(11), &json!(6)));
    assert_eq!((&part["heartbeat_summary"]["count"], part["events"].as_array().map(Vec::len)), (&json!(5), Some(6)));
    assert_eq!(get("trajectory?limit=1001").await.status, 422);
}

#[tokio::test]
async fn a_diff_is_bytes_to_store() {
    let daemon = TestDaemon::with_runs().await;
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    let event = NewLoggedEvent {
        source: EventSource::Agent,
        diff: Some(EventDiff { text: "<script>".to_owned(), truncated: true }),
        ..NewLoggedEvent::of_run("alice", &id, "agent.file_edited", "{}".to_owned(), now_us())
    };
    let appended = daemon.store().append_events(vec![event], EventQuota::default()).await.expect("it is writable");
    let event_id = &appended[0].as_ref().expect("it is right").id;
    let answer = daemon.get("slu_alice", &format!("/api/v1/sandboxes/{id}/file-diffs/{event_id}")).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "<script>"));
    for header in [
        "content-type: application/octet-stream",
        "content-disposition: attachment",
        "x-content-type-options: nosniff",
        "x-truncated: true",
        "content-security-policy: default-src 'none'",
        "cross-origin-resource-policy: same-origin",
    ] {
        assert!(answer.head.contains(header), "{header}: {}", answer.head);
    }
}
