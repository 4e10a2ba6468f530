//! Upgrades of older databases.

use super::outbox::OutboxEvent;
use super::*;
use crate::store::migrations::{MIGRATIONS, SCHEMA};

/// Creates a database of an older schema.
fn older(database: &Database, schema: usize) -> Connection {
    let connection = database.connect();
    for step in &MIGRATIONS[..schema] {
        connection.execute_batch(step).expect("it is right");
    }
    connection.pragma_update(None, "user_version", schema as i64).expect("it is ours");
    connection
}

#[tokio::test]
async fn a_newer_database_is_refused() {
    let database = Database::new();
    drop(database.open());
    database.connect().pragma_update(None, "user_version", SCHEMA + 1).expect("it is ours");
    let newer = Store::open(&database.path());
    assert!(matches!(newer, Err(StoreError::Newer { found, .. }) if found == SCHEMA + 1));
}

#[tokio::test]
async fn every_older_schema_is_upgraded() {
    for schema in 1..MIGRATIONS.len() {
        let database = Database::new();
        drop(older(&database, schema));
        assert!(matches!(Store::read(&database.path()), Err(StoreError::Older { .. })), "{schema}");

        let store = database.open();

        assert_eq!(store.witnesses(&run_row("r1").key).await.expect("the table is there"), [], "{schema}");
        store.append_outbox_event("test.done", "r1.0", "{}").await.expect("the table is there");
    }
}

#[tokio::test]
async fn events_of_schema_seven_are_kept() {
    let database = Database::new();
    let connection = older(&database, 7);
    connection
        .execute_batch(
            "INSERT INTO receipts (source_system, source_reference, payload_hash, run_id, attempt, call, call_id, account,
                                   graph_id, method, path, stream, origin_us, origin_day, arrived_us, arrived_day)
             VALUES ('sluice-audit', 'r1/0/a', hex(zeroblob(32)), 'r1', 0, 1, 'a', 'acct', 'g', 'POST', '/', 0, 1,
                     '2026-11-20', 1, '2026-11-20');
             INSERT INTO entries (receipt, source_system, source_reference, payload_hash, status, cost_usd, nano_usd,
                                  price_source, origin_us, origin_day, arrived_us, arrived_day)
             VALUES (1, 'sluice-audit', 'r1/0/a#outcome', hex(zeroblob(32)), 'posted', '1', 1000000000, 'header', 1,
                     '2026-11-20', 1, '2026-11-20');
             INSERT INTO outbox (kind, receipt, entry, made_us)
             VALUES ('receipt.pending', 1, NULL, 5), ('receipt.posted', 1, 1, 6);",
        )
        .expect("it is right");
    drop(connection);

    let store = database.open();
    let added = store.append_outbox_event("run.closed", "r1.0", r#"{"exit":0}"#).await.expect("it is writable");

    let event = |id, kind: &str, subject: &str, made_us| OutboxEvent {
        id,
        kind: kind.to_owned(),
        subject: subject.to_owned(),
        payload: None,
        receipt: Some(1),
        entry: None,
        made_us,
    };
    let mut events = store.outbox_events_after(0, 9).await.expect("it is readable");
    let last = events.pop().expect("it was added");
    let posted = OutboxEvent { entry: Some(1), ..event(2, "receipt.posted", "r1/0/a", 6) };
    assert_eq!(events, [event(1, "receipt.pending", "r1/0/a", 5), posted]);
    assert_eq!((last.id, added, last.payload.as_deref()), (3, 3, Some(r#"{"exit":0}"#)));
    for statement in [
        "UPDATE outbox SET kind = 'x'",
        "DELETE FROM outbox",
        "INSERT OR REPLACE INTO outbox SELECT * FROM outbox",
        "INSERT INTO outbox (kind, made_us) VALUES ('x', 1)",
    ] {
        assert!(database.connect().execute_batch(statement).is_err(), "{statement}");
    }
}

#[tokio::test]
async fn runs_of_schema_nine_are_driven_once() {
    let database = Database::new();
    let connection = older(&database, 9);
    connection
        .execute_batch(
            "INSERT INTO runs (run_id, attempt, phase, account, agent, image, owner_pid, owner_start, owner_boot, created_us,
                               updated_us)
             VALUES ('r1', 0, 'running', 'acct', 'sandbox:agent', 'image', 1, 1, 'b', 1, 1)",
        )
        .expect("it is right");
    drop(connection);

    let store = database.open();

    let open = store.open_runs_of(RunDriver::Once).await.expect("it is readable");
    assert_eq!(open.iter().map(|open| open.entry.key.to_string()).collect::<Vec<_>>(), ["r1.0"]);
    assert_eq!(store.open_runs_of(RunDriver::Daemon).await.expect("it is readable"), []);
}

#[tokio::test]
async fn sums_of_older_runs_come_from_their_events() {
    let database = Database::new();
    let connection = older(&database, 17);
    let call = |id: &str, source: &str, cost: &str| {
        format!(
            "INSERT INTO events (id, owner, sandbox_id, event_type, source, event_data, evictable, bytes, created_us)
             VALUES ('evt_{id}', 'o', 'r1', 'llm.call', '{source}', '{{\"cost\":{cost}}}', 0, 9, 1);"
        )
    };
    let calls = [
        call("a", "system", r#"{"known":{"usd":"0.1"}}"#),
        call("b", "system", r#"{"unknown":{}}"#),
        call("c", "worker", r#"{"known":{"usd":"9"}}"#),
    ];
    let run = |id: &str| {
        format!(
            "INSERT INTO sandboxes (run_id, owner, agent_id, agent_ephemeral, account, state, desired_state, max_retries, retry_on,
                 request, priority, labels, hold_nano, created_us, run_time_us)
             VALUES ('{id}', 'o', 'a-{id}', 1, 'acct', 'PENDING', 'running', 0, '[]', '{{}}', 0, '{{}}', 0, 1, 1);"
        )
    };
    connection.execute_batch(&[run("r1"), run("r2"), calls.concat()].concat()).expect("it is right");
    drop(connection);

    let store = database.open();
    for (id, expected) in [("r1", (2, 1, Some(100_000_000))), ("r2", (0, 0, None))] {
        let run = store.find_sandbox(None, &id.parse().expect("an id")).await.expect("it is readable");
        let sums = run.expect("it is kept").sums;
        assert_eq!((sums.calls, sums.unknown_costs, sums.nano_usd), expected, "{id}");
    }
}
