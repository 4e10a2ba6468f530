use std::time::{Duration, Instant};

use super::*;

fn store(rows: &str) -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().expect("there is room");
    let path = directory.path().join("sluice.db");
    let store = Store::open_with_readers(&path, 1).expect("it is new");
    Connection::open(path).expect("it is there").execute_batch(rows).expect("it is right");
    (directory, store)
}

/// Returns the SQL of runs with the numbers of this range.
fn runs(range: std::ops::Range<u32>, state: &str, created_us: i64, next_try_us: i64) -> String {
    let ended = match state {
        "COMPLETED" => ("9", "'success'"),
        _ => ("NULL", "NULL"),
    };
    format!(
        "WITH RECURSIVE number (n) AS (SELECT {} UNION ALL SELECT n + 1 FROM number WHERE n + 1 < {})
         INSERT INTO sandboxes (run_id, owner, agent_id, agent_ephemeral, account, state, desired_state, outcome, max_retries,
             retry_on, next_try_us, request, priority, labels, hold_nano, created_us, ended_us, run_time_us)
         SELECT 'r' || n, 'owner-' || (n % 10), 'a' || n, 0, 'acct', '{state}', 'running', {}, 3, '[]', {next_try_us}, '{{}}',
                0, '{{}}', 0, {created_us}, {}, 1 FROM number;",
        range.start, range.end, ended.1, ended.0
    )
}

#[tokio::test]
async fn an_empty_database_has_zeros() {
    let (_directory, store) = store("");
    let figures = store.figures(0, 100).await.expect("it is readable");
    let none = DatabaseFigures { runs: SandboxState::ALL.map(|state| (state, 0)).into(), ..DatabaseFigures::default() };
    assert_eq!(figures, none);
}

#[tokio::test]
async fn a_clock_that_jumps_back_hides_no_run() {
    let rows = runs(0..1, "PENDING", 10, 100 + 2 * RETRY_WAIT_MAX_US);
    let (_directory, store) = store(&rows);
    let waiting = async |now_us| store.figures(0, now_us).await.expect("it is readable").waiting_since_us;
    assert_eq!((waiting(100).await, waiting(100 + RETRY_WAIT_MAX_US).await), (Some(10), None));
}

#[tokio::test]
async fn only_runs_that_could_begin_wait() {
    let rows = [
        runs(0..1, "RUNNING", 1, 0),
        // A dependency, a later try, and two that could begin.
        runs(1..2, "PENDING", 10, 0),
        "INSERT INTO sandbox_dependencies VALUES ('r1', 'r0');".to_owned(),
        runs(2..3, "PENDING", 20, 101),
        runs(3..4, "PENDING", 25, 60),
        runs(4..5, "PENDING", 50, 0),
    ];
    let (_directory, store) = store(&rows.concat());
    let figures = store.figures(0, 100).await.expect("it is readable");
    assert_eq!((figures.waiting_since_us, figures.runs[&SandboxState::Pending]), (Some(50), 4));
}

#[tokio::test]
async fn events_after_the_position_are_unread() {
    let (_directory, store) = store(
        "INSERT INTO events (id, owner, sandbox_id, event_type, source, event_data, evictable, bytes, created_us)
         VALUES ('evt_1', 'o', 'r', 'x', 'system', '1', 0, 1, 10), ('evt_2', 'o', 'r', 'x', 'system', '1', 0, 1, 20);",
    );
    let figures = async |read| store.figures(read, 100).await.expect("it is readable");
    for (read, expected) in [(0, Some(10)), (1, Some(20)), (2, None), (9, None)] {
        let found = figures(read).await;
        assert_eq!((found.newest_event, found.unread_since_us), (2, expected), "{read}");
    }
}

#[tokio::test]
async fn ten_thousand_runs_are_counted_quickly() {
    let (_directory, store) = store(&(runs(0..10_000, "COMPLETED", 1, 0) + &runs(10_000..11_000, "PENDING", 1, 0)));
    let figures = store.figures(0, 100).await.expect("it is readable");
    let mut quickest = Duration::MAX;
    for _ in 0..10 {
        let start = Instant::now();
        store.figures(0, 100).await.expect("it is readable");
        quickest = quickest.min(start.elapsed());
    }
    // A few milliseconds; a busy machine delays some of them.
    assert!(quickest.as_millis() < 1000, "{quickest:?}");
    assert_eq!((figures.runs[&SandboxState::Completed], figures.runs[&SandboxState::Pending]), (10_000, 1000));
}
