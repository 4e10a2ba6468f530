//! Lists and trajectories.

use super::*;

async fn page(log: &Log, query: EventQuery) -> EventPage {
    log.store.list_events(query).await.expect("it is readable")
}

#[tokio::test]
async fn a_walk_returns_each_event_once() {
    let log = Log::new();
    for number in 0..11 {
        log.append(system(if number % 3 == 0 { "r2" } else { "r1" }, "a")).await;
    }
    let expected = [11, 9, 8, 6, 5, 3, 2];
    for limit in [1, 2, 3, 7, 8] {
        let (mut walked, mut cursor) = (Vec::new(), None);
        loop {
            let query = EventQuery { filter: of_run("r1"), cursor, limit, ..EventQuery::default() };
            let EventPage { events, total_count, next_cursor, .. } = page(&log, query).await;
            assert_eq!(total_count, 7);
            walked.extend(seqs(&events));
            cursor = next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(walked, expected, "{limit}");
    }
}

#[tokio::test]
async fn a_part_is_bounded_in_bytes() {
    let log = Log::new();
    let data = |bytes: usize| format!("\"{}\"", "x".repeat(bytes));
    for bytes in [50_000, 50_000, 20_000, 20_000, 99_000, 99_000, 10, 10] {
        log.append(NewLoggedEvent { event_data: data(bytes), ..system("r1", "a") }).await;
    }
    let (mut parts, mut after) = (Vec::new(), 0);
    loop {
        let batch = log.after(after, of_run("r1")).await;
        parts.push(seqs(&batch.events));
        after = batch.next;
        if batch.is_newest {
            break;
        }
    }
    assert_eq!(parts, [vec![1, 2, 3], vec![4, 5], vec![6, 7, 8]]);
}

#[tokio::test]
async fn a_clock_that_jumps_back_changes_no_order() {
    let log = Log::new();
    for created_us in [3600, 3601, 1, 2, 3602] {
        log.append(NewLoggedEvent { created_us, ..system("r1", "a") }).await;
    }
    let newest = EventQuery { filter: of_run("r1"), limit: 9, ..EventQuery::default() };
    assert_eq!(seqs(&page(&log, newest).await.events), [5, 4, 3, 2, 1]);
    assert_eq!(seqs(&log.after(0, of_run("r1")).await.events), [1, 2, 3, 4, 5]);
    let query = TrajectoryQuery { sandbox_id: "r1".to_owned(), types: Vec::new(), cursor: None, limit: 9 };
    let part = log.store.trajectory(query).await.expect("it is readable");
    assert_eq!(seqs(&part.events), [1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn newer_pages_are_newest_first_too() {
    let log = Log::new();
    for _ in 0..5 {
        log.append(system("r1", "a")).await;
    }
    let newer = EventQuery { cursor: Some(1), direction: Direction::Newer, limit: 2, ..EventQuery::default() };
    let found = page(&log, newer.clone()).await;
    assert_eq!((seqs(&found.events), found.next_cursor), (vec![3, 2], Some(3)));
    let found = page(&log, EventQuery { cursor: Some(3), ..newer }).await;
    assert_eq!((seqs(&found.events), found.next_cursor), (vec![5, 4], None));
}

#[tokio::test]
async fn a_search_has_no_wildcards() {
    let log = Log::new();
    for data in [r#"{"a":"100%"}"#, r#"{"a":"1000"}"#, r#"{"a":"a_c"}"#, r#"{"a":"abc"}"#, r#"{"a":"*"}"#] {
        log.append(NewLoggedEvent { event_data: data.into(), ..system("r1", "x.y") }).await;
    }
    for (text, expected) in [("100%", &[1][..]), ("a_c", &[3]), ("*", &[5]), ("x.y", &[5, 4, 3, 2, 1]), ("X", &[])] {
        let query = EventQuery { text: Some(text.into()), limit: 9, ..EventQuery::default() };
        let found = page(&log, query).await;
        assert_eq!(seqs(&found.events), expected, "{text}");
        assert_eq!((found.total_count as usize, found.is_count_capped), (expected.len(), false));
    }
}

/// Adds many rows at once.
fn fill(log: &Log, rows: u32) {
    log.sql(&format!(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
         INSERT INTO events (id, owner, sandbox_id, event_type, source, event_data, evictable, bytes, created_us)
         SELECT 'evt_' || i, 'o', 'r1', 'a', 'system', iif(i = 1, '\"needle\"', '0'), 0, 1, 1 FROM n"
    ))
    .expect("it is right");
}

#[tokio::test]
async fn counts_and_searches_are_bounded() {
    let log = Log::new();
    fill(&log, SEARCH_ROWS_MAX + 10);
    let found = page(&log, EventQuery { limit: 1, ..EventQuery::default() }).await;
    assert_eq!((found.total_count, found.is_count_capped), (TOTAL_COUNT_MAX, true));
    let search = EventQuery { text: Some("needle".into()), limit: 5, ..EventQuery::default() };
    let found = page(&log, search.clone()).await;
    assert_eq!((found.events.len(), found.next_cursor), (0, Some(11)));
    // Bug: ten events were not examined, and the count did not say so.
    assert_eq!((found.total_count, found.is_count_capped), (0, true));
    let found = page(&log, EventQuery { cursor: found.next_cursor, ..search }).await;
    assert_eq!((seqs(&found.events), found.next_cursor), (vec![1], None));

    // A stream whose filter selects nothing continues from the last position that it examined.
    let filter = EventFilter { types: vec!["none".into()], ..EventFilter::default() };
    let batch = log.after(0, filter.clone()).await;
    assert_eq!((batch.next, batch.is_newest), (i64::from(SEARCH_ROWS_MAX), false));
    assert!(log.after(batch.next, filter).await.is_newest);
}

#[tokio::test]
async fn a_trajectory_counts_heartbeats_apart() {
    let log = Log::new();
    for (event_type, time) in
        [("agent.started", 5), (HEARTBEAT, 6), ("agent.message", 7), (HEARTBEAT, 8), ("agent.message", 7)]
    {
        log.append(NewLoggedEvent { created_us: time, ..agent("r1", event_type) }).await;
    }
    log.append(agent("r2", HEARTBEAT)).await;
    let query = TrajectoryQuery { sandbox_id: "r1".into(), limit: 2, ..TrajectoryQuery::default() };
    let first = log.store.trajectory(query.clone()).await.expect("it is readable");
    assert_eq!((seqs(&first.events), first.next_cursor), (vec![1, 3], Some(3)));
    assert_eq!(first.heartbeats, HeartbeatSummary { count: 2, first_us: Some(6), last_us: Some(8) });
    assert_eq!((first.total_events, first.trajectory_events), (5, 3));
    let rest = log.store.trajectory(TrajectoryQuery { cursor: first.next_cursor, ..query.clone() }).await;
    let rest = rest.expect("it is readable");
    assert_eq!((seqs(&rest.events), rest.next_cursor), (vec![5], None));
    // The filter comes before the limit.
    let types = vec!["agent.message".into()];
    let messages = log.store.trajectory(TrajectoryQuery { types, ..query }).await.expect("it is readable");
    assert_eq!((seqs(&messages.events), messages.next_cursor), (vec![3, 5], None));
}
