use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use tempfile::TempDir;

use super::*;
use crate::store::Store;

mod histories;
mod pages;
mod quotas;
mod removal;

struct Log {
    directory: TempDir,
    store: Store,
}

impl Log {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("there is room");
        Self { store: Store::open(&directory.path().join("sluice.db")).expect("it is new"), directory }
    }

    async fn append(&self, event: NewLoggedEvent) -> i64 {
        self.append_within(event, EventQuota::default()).await
    }

    async fn append_within(&self, event: NewLoggedEvent, quota: EventQuota) -> i64 {
        let appended = self.store.append_events(vec![event], quota).await.expect("it is writable").remove(0);
        appended.expect("the event is valid").seq
    }

    async fn after(&self, seq: i64, filter: EventFilter) -> EventBatch {
        self.store.events_after(seq, filter, 100).await.expect("it is readable")
    }

    /// Returns whether a condition holds for all selected rows of a table.
    fn holds(&self, condition: &str, rows: &str) -> bool {
        let connection = rusqlite::Connection::open(self.directory.path().join("sluice.db")).expect("it is there");
        let query = format!("SELECT count(*) > 0 AND min({condition}) FROM {rows}");
        connection.query_row(&query, [], |row| row.get(0)).expect("it is right")
    }

    fn sql(&self, statement: &str) -> rusqlite::Result<()> {
        let connection = rusqlite::Connection::open(self.directory.path().join("sluice.db")).expect("it is there");
        connection.execute_batch(statement)
    }
}

fn system(run: &str, event_type: &str) -> NewLoggedEvent {
    NewLoggedEvent::of_run("o", run, event_type, "{}".to_owned(), 1)
}

fn agent(run: &str, event_type: &str) -> NewLoggedEvent {
    NewLoggedEvent { source: EventSource::Agent, ..system(run, event_type) }
}

fn of_run(run: &str) -> EventFilter {
    EventFilter { sandbox_id: Some(run.to_owned()), ..EventFilter::default() }
}

fn seqs(events: &[LoggedEvent]) -> Vec<i64> {
    events.iter().map(|event| event.seq).collect()
}

#[tokio::test]
async fn an_event_is_read_as_it_was_appended() {
    let log = Log::new();
    let diff = EventDiff { text: "+a".into(), truncated: true };
    let event = NewLoggedEvent {
        attempt: Some(2),
        agent_id: Some("a1".into()),
        zone_id: Some("z".into()),
        diff: Some(diff.clone()),
        event_data: r#"{"path":"é"}"#.into(),
        ..agent("r1", "agent.file_edited")
    };
    let seq = log.append(event.clone()).await;
    let found = log.after(0, EventFilter::default()).await.events.remove(0);
    assert!(found.id.starts_with("evt_") && found.id.len() == 36, "{}", found.id);
    let expected = LoggedEvent {
        seq,
        id: found.id.clone(),
        owner: event.owner,
        sandbox_id: event.sandbox_id,
        attempt: event.attempt,
        agent_id: event.agent_id,
        zone_id: event.zone_id,
        event_type: event.event_type,
        source: EventSource::Agent,
        event_data: event.event_data,
        created_us: 1,
    };
    assert_eq!(found, expected);
    assert_eq!(log.store.find_event("r1", &found.id).await.expect("it is readable"), Some(expected));
    assert_eq!(log.store.find_event("r2", &found.id).await.expect("it is readable"), None);
    assert_eq!(log.store.event_diff(seq).await.expect("it is readable"), Some(StoredDiff::Kept(diff)));
}

#[tokio::test]
async fn invalid_events_do_not_stop_others() {
    let log = Log::new();
    let poison = NewLoggedEvent { event_data: r#""\ud800""#.into(), ..agent("r1", "agent.message") };
    let events =
        vec![agent("r1", "agent.started"), poison, agent("r1", "approval.decided"), system("r1", "approval.decided")];
    let results = log.store.append_events(events, EventQuota::default()).await.expect("it is writable");
    assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, false, true]);
    assert!(matches!(results[1], Err(EventFault::Json(_))));
    assert_eq!(results[2], Err(EventFault::ReservedType));
    assert_eq!(log.after(0, EventFilter::default()).await.events.len(), 2);
}

#[tokio::test]
async fn a_known_id_is_appended_once() {
    let log = Log::new();
    let event = NewLoggedEvent { id: Some("evt_r1.0.4".into()), ..system("r1", "llm.call") };
    let events = vec![event.clone(), event.clone()];
    let first = log.store.append_events(events, EventQuota::default()).await.expect("it is writable");
    let again = log.store.append_events(vec![event], EventQuota::default()).await.expect("it is writable");
    let news: Vec<_> = first.iter().chain(&again).flatten().map(|event| event.is_new).collect();
    assert_eq!(news, [true, false, false]);
    assert_eq!(log.after(0, EventFilter::default()).await.events.len(), 1);
}

#[tokio::test]
async fn readers_wake_after_the_commit() {
    let log = Log::new();
    let mut committed = log.store.clone().events_committed();
    let seq = log.append(system("r1", "sandbox.created")).await;
    committed.changed().await.expect("the store is open");
    assert_eq!(*committed.borrow_and_update(), seq.unsigned_abs());
    assert!(!committed.has_changed().expect("the store is open"));
}

#[tokio::test]
async fn a_dropped_caller_still_wakes_readers() {
    let log = Log::new();
    let mut committed = log.store.events_committed();
    {
        let mut append = pin!(log.store.append_events(vec![system("r1", "a")], EventQuota::default()));
        // The writer may be done already.
        poll_fn(|context| Poll::Ready(append.as_mut().poll(context).is_ready())).await;
    }
    committed.changed().await.expect("the store is open");
    assert_eq!(log.after(0, EventFilter::default()).await.events.len(), 1);
}

#[tokio::test]
async fn each_reader_sees_its_own_events() {
    let log = Log::new();
    let other = NewLoggedEvent { owner: "p".into(), ..system("r2", "llm.call") };
    log.append(system("r1", "llm.call_started")).await;
    log.append(other).await;
    log.append(NewLoggedEvent { agent_id: Some("a".into()), ..agent("r1", "agent.message") }).await;
    let found = async |filter| seqs(&log.after(0, filter).await.events);
    assert_eq!(found(EventFilter::default()).await, [1, 2, 3]);
    assert_eq!(found(EventFilter { owner: Some("o".into()), ..EventFilter::default() }).await, [1, 3]);
    assert_eq!(found(EventFilter { owner: Some("o".into()), ..of_run("r2") }).await, [0; 0]);
    assert_eq!(found(EventFilter { agent_id: Some("a".into()), ..EventFilter::default() }).await, [3]);
    assert_eq!(found(EventFilter { types: vec!["llm.call".into()], ..EventFilter::default() }).await, [2]);
    let types = vec!["llm.*".into(), "agent.message".into()];
    assert_eq!(found(EventFilter { types, ..of_run("r1") }).await, [1, 3]);
    let batch = log.after(0, of_run("r2")).await;
    assert_eq!((batch.next, batch.is_newest, batch.gap), (3, true, None));
}

#[tokio::test]
async fn events_are_never_changed_in_place() {
    let log = Log::new();
    log.append(system("r1", "a")).await;
    for statement in ["UPDATE events SET owner = 'x'", "INSERT OR REPLACE INTO events SELECT * FROM events"] {
        assert!(log.sql(statement).is_err(), "{statement}");
    }
}
