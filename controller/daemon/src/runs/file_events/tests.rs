use std::fs;
use std::time::Instant;

use serde_json::{Value, json};
use sluice_state::events::{EventSource, LoggedEvent};

use super::*;
use crate::event_limits::EventLimits;
use crate::test_daemon::{TestDaemon, policy};

/// A run that works, and the reporter of its files.
async fn reporter(daemon: &TestDaemon) -> (Sandbox, FileReporter) {
    let (id, paths) = daemon.working_run().await;
    fs::create_dir_all(&paths.conf).expect("there is room");
    let run = daemon.store().find_sandbox(None, &id.parse().expect("an id")).await.expect("readable").expect("there");
    let share = WatchShare::new(1 << 20, 100);
    (run.clone(), FileReporter::new(Arc::clone(&daemon.running.context), run, &share))
}

async fn events(daemon: &TestDaemon, run: &Sandbox) -> Vec<LoggedEvent> {
    let filter = sluice_state::events::EventFilter {
        sandbox_id: Some(run.key.run_id.to_string()),
        types: vec!["agent.*".to_owned(), "workspace.*".to_owned()],
        ..Default::default()
    };
    daemon.store().events_after(0, filter, 500).await.expect("it is readable").events
}

fn data(event: &LoggedEvent) -> Value {
    serde_json::from_str(&event.event_data).expect("it is JSON")
}

#[tokio::test]
async fn changes_are_events_of_the_system_and_work() {
    let daemon = TestDaemon::with_runs().await;
    let (run, mut files) = reporter(&daemon).await;
    files.begin(SystemTime::UNIX_EPOCH);
    // It comes with its content: a file that is written there may be seen twice, empty and full.
    fs::write(files.paths.conf.join("a"), "one\n").expect("there is room");
    fs::rename(files.paths.conf.join("a"), files.paths.work.join("a")).expect("it is the same file system");
    files.finish().await;

    let events = events(&daemon, &run).await;
    let [event] = &events[..] else { panic!("{events:?}") };
    assert_eq!(
        (event.event_type.as_str(), event.source, event.attempt),
        ("agent.file_edited", EventSource::System, Some(0))
    );
    assert_eq!((&data(event)["file_path"], &data(event)["lines_added"]), (&json!("/workspace/a"), &json!(1)));
    let diff = daemon.get("slu_alice", &format!("/api/v1/sandboxes/{}/file-diffs/{}", run.key.run_id, event.id)).await;
    assert!(diff.status == 200 && diff.body.contains("+one\n"), "{diff:?}");
    let run = daemon.store().find_sandbox(None, &run.key.run_id).await.expect("readable").expect("there");
    assert!(run.last_observed_work_us.is_some() && run.last_work_us == run.last_observed_work_us);
}

#[tokio::test]
async fn an_adopted_workspace_goes_on_from_its_mark() {
    let daemon = TestDaemon::with_runs().await;
    let (run, mut files) = reporter(&daemon).await;
    let context = Arc::clone(&daemon.running.context);
    fs::write(files.paths.work.join("before"), "x\n").expect("there is room");
    let marked = fs::metadata(files.paths.work.join("before")).and_then(|meta| meta.modified()).expect("it has a time");
    files.begin(marked);
    let marker = files.marker();
    drop(files);
    assert_eq!(fs::metadata(&marker).and_then(|meta| meta.modified()).expect("it is there"), marked);
    while SystemTime::now() < marked + Duration::from_millis(30) {
        std::hint::spin_loop();
    }
    let mut files = FileReporter::new(context, run.clone(), &WatchShare::new(1 << 20, 100));
    fs::write(files.paths.work.join("meanwhile"), "x\n").expect("there is room");
    files.adopt();
    files.finish().await;

    let events = events(&daemon, &run).await;
    let seen: Vec<_> =
        events.iter().map(|event| (event.event_type.as_str(), data(event)["file_path"].clone())).collect();
    let expected = [("workspace.watch", Value::Null), ("agent.file_edited", json!("/workspace/meanwhile"))];
    assert_eq!(seen, expected);
    assert_eq!(data(&events[0])["reason"], "adopted");
}

#[tokio::test]
async fn a_flood_of_files_is_counted() {
    let daemon = TestDaemon::with_runs().await;
    let (run, mut files) = reporter(&daemon).await;
    for n in 0..1500 {
        fs::write(files.paths.work.join(n.to_string()), "").expect("there is room");
    }
    let begun = Instant::now();
    files.begin(SystemTime::UNIX_EPOCH);
    files.finish().await;
    let most = 1001 + begun.elapsed().as_secs() * 20 + 20;
    let filter = sluice_state::events::EventFilter { types: vec!["workspace.*".to_owned()], ..Default::default() };
    let left = daemon.store().events_after(0, filter, 500).await.expect("it is readable").events;
    let created: u64 = left.iter().filter_map(|event| data(event)["created"].as_u64()).sum();
    let filter =
        sluice_state::events::EventFilter { types: vec!["agent.file_edited".to_owned()], ..Default::default() };
    let mut seen = 0;
    let mut after = 0;
    loop {
        let batch = daemon.store().events_after(after, filter.clone(), 500).await.expect("it is readable");
        (seen, after) = (seen + batch.events.len() as u64, batch.next);
        if batch.is_newest {
            break;
        }
    }
    assert_eq!((seen + created, left.iter().all(|event| event.source == EventSource::System)), (1500, true));
    assert!(seen <= most, "{seen} of {}", run.key);
}

#[tokio::test]
async fn a_full_event_log_takes_no_changes() {
    let limits = EventLimits { store_max: 1, disk_free_min: 0, ..EventLimits::default() };
    let daemon = TestDaemon::with_policy(Some(policy()), |settings| settings.upkeep.events = limits).await;
    while !daemon.running.context.events.is_full() {
        tokio::task::yield_now().await;
    }
    let (run, mut files) = reporter(&daemon).await;
    fs::write(files.paths.work.join("a"), "x\n").expect("there is room");
    files.begin(SystemTime::UNIX_EPOCH);
    files.finish().await;
    let events = events(&daemon, &run).await;
    let [event] = &events[..] else { panic!("{events:?}") };
    assert_eq!((event.event_type.as_str(), &data(event)["created"]), ("workspace.changes_left_out", &json!(1)));
}
