//! Databases that are opened for queries alone.

use std::fs;

use super::*;
use crate::store::migrations::{MIGRATIONS, SCHEMA};

/// Names and contents of all files of a directory.
fn files(database: &Database) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(database.0.path()).expect("it is there").map(|entry| entry.expect("it is readable"));
    let mut files: Vec<_> = entries
        .map(|entry| {
            (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).expect("it is readable"))
        })
        .collect();
    files.sort();
    files
}

/// Waits for something that another thread does.
fn wait_until(is_done: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !is_done() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "it is not done in time");
        thread::yield_now();
    }
}

async fn run_of(store: &Store) -> Option<String> {
    store.phase(&run_row("r1").key).await.expect("it is readable")
}

#[tokio::test]
async fn queries_leave_a_closed_database_as_it_is() {
    let database = Database::new();
    database.open().begin(run_row("r1")).await.expect("it is new");
    // The thread of a store closes its connection after the store is gone.
    wait_until(|| !database.0.path().join("sluice.db-wal").exists());
    let before = files(&database);

    let store = Store::open_for_queries(&database.path()).expect("it is there");
    assert_eq!(run_of(&store).await.as_deref(), Some("pending"));
    assert!(store.begin(run_row("r2")).await.is_err(), "it does not write");
    drop(store);

    wait_until(|| files(&database) == before);
    let evidence = Store::read(&database.path()).expect("it is there");
    assert_eq!(run_of(&evidence).await.as_deref(), Some("pending"));
    assert!(files(&database) == before, "it leaves files");
}

#[tokio::test]
async fn queries_see_what_a_writer_has_committed() {
    let database = Database::new();
    let writer = database.open();
    let reader = Store::open_for_queries(&database.path()).expect("it is there");
    assert_eq!(run_of(&reader).await, None);
    writer.begin(run_row("r1")).await.expect("it is new");
    assert_eq!(run_of(&reader).await.as_deref(), Some("pending"));
}

#[tokio::test]
async fn queries_read_older_schemas_without_an_upgrade() {
    for schema in 1..MIGRATIONS.len() {
        let database = Database::new();
        let connection = database.connect();
        MIGRATIONS[..schema].iter().for_each(|step| connection.execute_batch(step).expect("it is right"));
        connection.pragma_update(None, "user_version", schema as i64).expect("it is ours");
        drop(connection);

        let store = Store::open_for_queries(&database.path()).expect("it is readable");

        assert_eq!(store.outbox_events_after(0, 9).await.expect("the table is there"), [], "{schema}");
        let found: u32 = database.connect().pragma_query_value(None, "user_version", |row| row.get(0)).expect("ours");
        assert_eq!(found as usize, schema);
    }
}

#[test]
fn queries_create_no_database() {
    let database = Database::new();
    assert!(matches!(Store::open_for_queries(&database.path()), Err(StoreError::Open(..))));
    assert_eq!(files(&database), []);
    fs::write(database.path(), "").expect("there is room");
    assert!(matches!(Store::open_for_queries(&database.path()), Err(StoreError::Older { found: 0, .. })));
    drop(database.open());
    database.connect().pragma_update(None, "user_version", SCHEMA + 1).expect("it is ours");
    assert!(matches!(Store::open_for_queries(&database.path()), Err(StoreError::Newer { .. })));
}
