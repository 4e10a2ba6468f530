//! Streams under load: many events, clients that come and go, clients that do not read.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::json;
use sluice_state::events::{EventQuota, EventSource, NewLoggedEvent};
use sluice_state::sandboxes::{SandboxStep, SandboxVerdict};
use sluice_state::store::now_us;
use tokio::net::TcpSocket;

use super::stream_client::{Client, append};
use crate::test_daemon::{TestDaemon, policy};

/// Pseudo-random numbers, the same in each run of a test.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

async fn daemon() -> TestDaemon {
    TestDaemon::with_policy(Some(policy()), |settings| {
        settings.limits.requests_per_second = 100_000;
        settings.limits.request_burst = 100_000;
        settings.limits.connections_per_address = 1000;
        settings.limits.streams_per_token = 400;
    })
    .await
}

/// Appends events of a run in parts of random size.
async fn write(daemon: &TestDaemon, run_id: &str, count: u64, mut random: Random) {
    let mut number = 0;
    while number < count {
        let part = (1 + random.below(60)).min(count - number);
        let event = |n: u64| NewLoggedEvent {
            source: EventSource::Agent,
            ..NewLoggedEvent::of_run("alice", run_id, "agent.progress", json!({ "n": n }).to_string(), now_us())
        };
        let events = (number..number + part).map(event).collect();
        daemon.store().append_events(events, EventQuota::default()).await.expect("it is writable");
        number += part;
    }
}

/// Reads until it has all events of a run, with another connection after each random number of frames.
async fn read(daemon: &TestDaemon, path: &str, count: u64, mut random: Random) -> (Vec<u64>, u32) {
    let (mut seen, mut cursor, mut connections) = (Vec::new(), 0, 0);
    while (seen.len() as u64) < count {
        let header = format!("Last-Event-ID: {cursor}\r\n");
        let mut client = Client::open(daemon, "slu_alice", path, &header).await;
        assert_eq!(client.status().await, 200);
        assert_eq!(client.frame().await.expect("a snapshot").name, "snapshot");
        for _ in 0..random.below(400) {
            if seen.len() as u64 == count {
                break;
            }
            let frame = client.frame().await.expect("an event");
            seen.push(frame.data["event_data"]["n"].as_u64().expect("a number"));
            cursor = frame.id.expect("a position");
        }
        connections += 1;
    }
    (seen, connections)
}

#[tokio::test]
async fn reconnecting_clients_see_each_event_once() {
    const EVENTS: u64 = 10_000;
    let daemon = daemon().await;
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    let of_run = format!("/api/v1/sandboxes/{id}/stream?types=agent.*");
    let of_all = "/api/v1/events/stream?types=agent.progress";
    let (one, all, ()) = tokio::join!(
        read(&daemon, &of_run, EVENTS, Random(1)),
        read(&daemon, of_all, EVENTS, Random(2)),
        write(&daemon, &id, EVENTS, Random(3)),
    );
    let expected: Vec<_> = (0..EVENTS).collect();
    assert!(one.0 == expected && all.0 == expected, "each event once, in order");
    assert!(one.1 > 20 && all.1 > 20, "{} {}", one.1, all.1);
}

#[tokio::test]
async fn slow_readers_do_not_delay_a_quick_one() {
    const SLOW: usize = 200;
    let daemon = daemon().await;
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    let path = format!("/api/v1/sandboxes/{id}/stream?after=0&types=agent.*");
    let mut slow = Vec::new();
    for _ in 0..SLOW {
        let socket = TcpSocket::new_v4().expect("there is one");
        // A small kernel buffer for this client.
        socket.set_recv_buffer_size(2048).expect("it is ours");
        let stream = socket.connect(daemon.address()).await.expect("it listens");
        slow.push(Client::over(stream, &daemon, "slu_alice", &path, "").await);
    }
    let mut quick = Client::open(&daemon, "slu_alice", &path, "").await;
    assert_eq!((quick.status().await, quick.frame().await.expect("a snapshot").name.as_str()), (200, "snapshot"));
    let text = "x".repeat(20_000);
    let mut slowest = Duration::ZERO;
    for number in 0..40 {
        let sent = Instant::now();
        append(&daemon, "alice", &id, "agent.progress", &json!({ "n": number, "text": text })).await;
        let frame = quick.frame().await.expect("an event");
        assert_eq!(frame.data["event_data"]["n"], number);
        slowest = slowest.max(sent.elapsed());
    }
    assert!(slowest < Duration::from_secs(60), "{slowest:?}");
    // A slow client continues from its position.
    let mut late = slow.pop().expect("it is open");
    late.status().await;
    let seen: Vec<_> =
        late.frames(41).await.iter().filter_map(|frame| frame.data["event_data"]["n"].as_u64()).collect();
    assert_eq!(seen, (0..40).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_client_that_never_reads_is_cut() {
    let daemon = TestDaemon::with_policy(Some(policy()), |settings| {
        settings.limits.write_time = Duration::from_millis(300);
        settings.limits.streams_per_token = 1;
    })
    .await;
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    let path = format!("/api/v1/sandboxes/{id}/stream?after=0");
    let text = "x".repeat(90_000);
    for _ in 0..100 {
        append(&daemon, "alice", &id, "agent.progress", &json!({ "text": text })).await;
    }
    let socket = TcpSocket::new_v4().expect("there is one");
    socket.set_recv_buffer_size(2048).expect("it is ours");
    let stream = socket.connect(daemon.address()).await.expect("it listens");
    let _deaf = Client::over(stream, &daemon, "slu_alice", &path, "").await;
    // Its slot is free again.
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let mut client = Client::open(&daemon, "slu_alice", &path, "").await;
        match client.status().await {
            200 => break,
            status => assert!(status == 429 && Instant::now() < deadline, "{status}"),
        }
    }
}

#[tokio::test]
async fn a_cursor_beyond_the_end_hides_nothing() {
    let daemon = daemon().await;
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    for path in [format!("/api/v1/sandboxes/{id}/stream"), "/api/v1/events/stream".to_owned()] {
        for (query, header) in [("?after=9223372036854775807", ""), ("", "Last-Event-ID: 1000000\r\n")] {
            let mut client = Client::open(&daemon, "slu_alice", &format!("{path}{query}"), header).await;
            assert_eq!(client.status().await, 200);
            let snapshot = client.frame().await.expect("a snapshot");
            assert_eq!(snapshot.id, snapshot.data["seq"].as_i64());
            let seq = append(&daemon, "alice", &id, "agent.progress", &json!({})).await;
            assert_eq!(client.frame().await.expect("an event").id, Some(seq));
        }
    }
}

#[tokio::test]
async fn a_stream_of_an_ended_run_ends() {
    let daemon = daemon().await;
    let id = daemon.create("slu_alice", json!({ "task": "x", "name": "n" })).await;
    let last = append(&daemon, "alice", &id, "agent.progress", &json!({})).await;
    daemon.step(&id, SandboxStep::Drop(SandboxVerdict::Cancelled)).await;
    let names = async |path: String| {
        let mut client = Client::open(&daemon, "slu_alice", &path, "").await;
        client.status().await;
        let mut frames = Vec::new();
        while let Some(frame) = client.frame().await {
            frames.push(frame);
        }
        frames
    };
    let all = names(format!("/api/v1/sandboxes/{id}/stream?after=0")).await;
    let ids: BTreeSet<_> = all.iter().filter(|frame| frame.name == "message").filter_map(|frame| frame.id).collect();
    assert_eq!((all[0].name.as_str(), all[all.len() - 1].name.as_str()), ("snapshot", "end"));
    assert!(ids.contains(&last) && ids.len() + 2 == all.len(), "{all:?}");
    assert_eq!(all[all.len() - 1].data["state"], "COMPLETED");
    let new = names("/api/v1/sandboxes/n/stream".to_owned()).await;
    assert_eq!(new.iter().map(|frame| frame.name.as_str()).collect::<Vec<_>>(), ["snapshot", "end"]);
    // The stream of all events keeps its state, and continues.
    let mut client = Client::open(&daemon, "slu_alice", &format!("/api/v1/events/stream?sandbox={id}"), "").await;
    client.status().await;
    let snapshot = client.frame().await.expect("a snapshot");
    assert_eq!(snapshot.data["sandboxes"][0]["state"], "COMPLETED");
}
