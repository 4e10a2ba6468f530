//! Retention of the daemon's data; a full disk.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;
use sluice_state::events::{EventDiff, EventFilter, EventQuota, EventSource, NewLoggedEvent};
use sluice_state::sandboxes::{SandboxStep, SandboxVerdict};
use sluice_state::store::now_us;

use crate::api_error::ApiError;
use crate::event_intake::EventRefusal;
use crate::event_limits::EventLimits;
use crate::test_daemon::{TestDaemon, policy};

fn reported(run_id: &str, data: &str) -> NewLoggedEvent {
    let event = NewLoggedEvent::of_run("alice", run_id, "agent.message", data.to_owned(), now_us());
    NewLoggedEvent { source: EventSource::Agent, ..event }
}

async fn report(daemon: &TestDaemon, event: NewLoggedEvent) -> Result<i64, EventRefusal> {
    let context = &daemon.running.context;
    context.events.append(&context.store, event).await.map(|appended| appended.seq)
}

#[tokio::test]
async fn a_run_reports_within_its_rate() {
    let limits = EventLimits { disk_free_min: 0, ..EventLimits::default() }.with_rate(6);
    let daemon = TestDaemon::with(|settings| settings.upkeep.events = limits).await;
    let (mut stored, begun) = (0, Instant::now());
    let refused = loop {
        match report(&daemon, reported("r1", "{}")).await {
            Ok(_) => stored += 1,
            Err(refused) => break refused,
        }
    };
    // One more is accepted every ten seconds.
    assert!((10..=10 + begun.elapsed().as_secs() / 10).contains(&stored), "{stored}");
    assert!(matches!(&refused, EventRefusal::TooMany { wait } if *wait <= Duration::from_secs(10)), "{refused:?}");
    assert_eq!(ApiError::from(refused).code(), "event_rate");
    report(&daemon, reported("r2", "{}")).await.expect("another run has its own");
    for (event, code) in [
        (NewLoggedEvent { event_type: "run.state_changed".to_owned(), ..reported("r3", "{}") }, "reserved_event_type"),
        (NewLoggedEvent { event_type: "agent message".to_owned(), ..reported("r3", "{}") }, "invalid_field"),
        (reported("r3", "\"\\u0000\""), "invalid_field"),
        (reported("r3", &format!("\"{}\"", "x".repeat(100_000))), "event_too_large"),
    ] {
        let fault = report(&daemon, event).await.expect_err(code);
        assert_eq!(ApiError::from(fault).code(), code);
    }
}

#[tokio::test]
async fn a_full_event_store_refuses_runs_alone() {
    let limits = EventLimits { store_max: 1, disk_free_min: 0, ..EventLimits::default() };
    let daemon = TestDaemon::with_policy(Some(policy()), |settings| settings.upkeep.events = limits).await;
    while !daemon.running.context.events.is_full() {
        tokio::task::yield_now().await;
    }
    let refused = report(&daemon, reported("r1", "{}")).await.expect_err("it is full");
    assert_eq!(ApiError::from(refused).code(), "event_store_full");
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    let created = daemon.get("slu_alice", &format!("/api/v1/sandboxes/{id}/events")).await.json();
    assert_eq!(created["events"][0]["event_type"], "sandbox.created", "events of the system go on");
    let ready = daemon.get("slu_admin", "/ready").await;
    assert_eq!(ready.status, 503);
    assert!(
        ready.json()["reasons"]["event store"].as_str().is_some_and(|text| text.contains("event_keep")),
        "{ready:?}"
    );
    assert_eq!(daemon.get("slu_alice", "/ready").await.body, "not_ready\n", "owners see one word");
}

#[tokio::test]
async fn a_removed_diff_is_gone() {
    let quota = EventQuota { diff_bytes: 10, ..EventQuota::default() };
    let limits = EventLimits { quota, disk_free_min: 0, ..EventLimits::default() };
    let daemon = TestDaemon::with_policy(Some(policy()), |settings| settings.upkeep.events = limits).await;
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    for _ in 0..2 {
        let diff = Some(EventDiff { text: "+12345".to_owned(), truncated: false });
        report(&daemon, NewLoggedEvent { diff, ..reported(&id, "{}") }).await.expect("there is room");
    }
    let events = daemon.get("slu_alice", &format!("/api/v1/sandboxes/{id}/events?event_type=agent.*")).await.json();
    let fetch = async |index: usize| {
        let event_id = events["events"][index]["id"].as_str().expect("an id");
        daemon.get("slu_alice", &format!("/api/v1/sandboxes/{id}/file-diffs/{event_id}")).await
    };
    assert_eq!((fetch(0).await.status, fetch(1).await.error()), (200, (410, "record_removed".to_owned())));
}

#[tokio::test]
async fn heartbeats_are_seen_before_they_are_written() {
    let begun = Instant::now();
    let daemon = TestDaemon::start().await;
    let agent = json!({ "agent_id": "a1" });
    assert_eq!(daemon.request("slu_alice", "POST", "/api/v1/agents", Some(&agent)).await.status, 201);
    let beat = daemon.request("slu_alice", "POST", "/api/v1/agents/a1/heartbeat", None).await;
    assert_eq!(beat.status, 200, "{beat:?}");
    let time = beat.json()["timestamp"].clone();
    assert_eq!(daemon.get("slu_alice", "/api/v1/agents/a1").await.json()["last_heartbeat"], time);
    assert_eq!(daemon.get("slu_alice", "/api/v1/agents").await.json()["agents"][0]["last_heartbeat"], time);
    let stored = daemon.store().find_agent("alice", "a1").await.expect("it is readable").expect("it is there");
    let is_turn = begun.elapsed() >= Duration::from_secs(5);
    assert!(stored.last_heartbeat_us.is_none() || is_turn, "it waits for the next turn");
    let store = daemon.store().clone();
    daemon.running.stop().await;
    let stored = store.find_agent("alice", "a1").await.expect("it is readable").expect("it is there");
    assert!(stored.last_heartbeat_us.is_some(), "the stop has written it");
}

#[tokio::test]
async fn records_of_ended_runs_are_removed_in_time() {
    let daemon = TestDaemon::with_runs().await;
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    daemon.claim().await;
    let logs = format!("/api/v1/sandboxes/{id}/logs");
    let records = daemon.running.context.layout.records();
    let key = format!("{id}.0").parse().expect("a key");
    records.create(&key).expect("there is room").write("request.json", b"{}").expect("there is room");
    let old = std::time::SystemTime::now() - Duration::from_secs(90 * 24 * 3600);
    let file = File::options().write(true).open(records.of(&key).path("request.json")).expect("it is there");
    file.set_modified(old).expect("it is ours");
    let remove = async || {
        // Long enough ago for another check.
        let _ = fs::remove_file(daemon.settings.state.join("records/.removed"));
        let (layout, day) = (&daemon.running.context.layout, Duration::from_secs(24 * 3600));
        let removed = sluice_state::record_retention::remove_old_records(layout, daemon.store(), day).await;
        removed.expect("it is readable").removed
    };
    daemon.step(&id, SandboxStep::Start).await;
    assert_eq!(remove().await, [], "the run is live");

    daemon.step(&id, SandboxStep::Decide(SandboxVerdict::Success)).await;
    daemon.step(&id, SandboxStep::Finish).await;
    assert_eq!((remove().await.len(), daemon.get("slu_alice", &logs).await.status), (0, 200), "it has just ended");
    let database = daemon.settings.state.join("sluice.db");
    age(&database, &id);

    assert_eq!(remove().await, [key]);
    assert_eq!(daemon.get("slu_alice", &logs).await.error(), (410, "record_removed".to_owned()));
    let run = daemon.get("slu_alice", &format!("/api/v1/sandboxes/{id}")).await;
    assert_eq!((run.status, run.json()["state"].as_str()), (200, Some("COMPLETED")), "its row stays");
}

/// Sets the end of a run to long ago.
fn age(database: &Path, id: &str) {
    let program = "import sqlite3, sys\nd = sqlite3.connect(sys.argv[1])\n\
                   d.execute('UPDATE sandboxes SET ended_us = 1 WHERE run_id = ?', [sys.argv[2]])\n\
                   d.execute(\"UPDATE runs SET phase = 'closed' WHERE run_id = ?\", [sys.argv[2]])\nd.commit()";
    let done = Command::new("python3").args(["-c", program]).arg(database).arg(id).status().expect("python3 is there");
    assert!(done.success());
}

/// A small disk, which is unmounted at the end.
struct Disk(PathBuf);

impl Disk {
    fn at(path: &Path) -> Self {
        fs::create_dir_all(path).expect("a fresh name");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=8m,mode=0700", "tmpfs"]).arg(path).status();
        assert!(mounted.expect("mount is there").success(), "mounting needs root");
        Self(path.to_owned())
    }

    fn fill(&self) {
        let mut ballast = File::options().create(true).append(true).open(self.0.join("ballast")).expect("it is ours");
        while ballast.write(&[0; 4096]).is_ok_and(|taken| taken > 0) {}
    }

    fn free(&self) {
        fs::remove_file(self.0.join("ballast")).expect("it was filled");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test]
async fn a_full_disk_refuses_and_loses_nothing() {
    let scratch = tempfile::tempdir().expect("there is room");
    let disk = Disk::at(&scratch.path().join("disk"));
    let state = disk.0.join("st");
    let daemon = TestDaemon::with_policy(Some(policy()), |settings| settings.state = state).await;
    let before = daemon.create("slu_alice", json!({ "task": "x" })).await;
    report(&daemon, reported(&before, "{}")).await.expect("there is room");
    disk.fill();

    let data = format!("\"{}\"", "x".repeat(90_000));
    let (mut stored, mut refused) = (0, None);
    // The log of the database has some unused space.
    while refused.is_none() && stored < 100 {
        match report(&daemon, reported(&before, &data)).await {
            Ok(_) => stored += 1,
            Err(error) => refused = Some(error),
        }
    }
    assert_eq!(ApiError::from(refused.expect("the disk is full")).code(), "storage_unavailable");
    let body = json!({ "task": "x", "name": "late" });
    let answer = daemon.request("slu_alice", "POST", "/api/v1/sandboxes", Some(&body)).await;
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(["storage_unavailable", "audit_unavailable"].contains(&answer.error().1.as_str()), "{answer:?}");
    assert_eq!(daemon.get("slu_alice", &format!("/api/v1/sandboxes/{before}")).await.status, 200, "reads go on");
    disk.free();

    report(&daemon, reported(&before, "{}")).await.expect("there is room again");
    let after = daemon.request("slu_alice", "POST", "/api/v1/sandboxes", Some(&body)).await;
    assert_eq!(after.status, 201, "{after:?}");
    let filter = EventFilter { types: vec!["agent.*".to_owned()], ..EventFilter::default() };
    let events = daemon.store().events_after(0, filter, 1000).await.expect("it is readable").events;
    assert_eq!(events.len(), stored + 2, "each event that was taken is there");
    daemon.running.stop().await;
}
