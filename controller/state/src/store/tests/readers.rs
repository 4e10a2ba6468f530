//! Reads beside writes.

use std::sync::mpsc;

use super::*;

/// A transaction of the writer that is open until the test ends it.
struct HeldWriter {
    release: mpsc::Sender<()>,
    done: oneshot::Receiver<()>,
}

impl HeldWriter {
    async fn hold(store: &Store) -> Self {
        let (release, released) = mpsc::channel();
        let (began, begun) = oneshot::channel();
        let done = store.submit(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).expect("it is free");
            insert_run(&transaction, &run_row("held")).expect("it is new");
            began.send(()).expect("the test waits");
            released.recv().expect("the test ends it");
            transaction.commit().expect("there is room");
        });
        begun.await.expect("the writer runs it");
        Self { release, done }
    }

    async fn end(self) {
        self.release.send(()).expect("the writer waits");
        self.done.await.expect("the writer commits");
    }
}

/// Opens the database as a daemon does.
fn open_shared(database: &Database) -> Store {
    Store::open_with_readers(&database.path(), 2).expect("it can be opened")
}

fn threads(store: &Store) -> usize {
    store.readers.as_ref().expect("it has readers").threads()
}

async fn open_runs(store: &Store) -> Vec<String> {
    let open = store.open_runs().await.expect("it is readable");
    open.into_iter().map(|open| open.entry.key.to_string()).collect()
}

#[tokio::test]
async fn a_read_is_answered_during_a_long_transaction() {
    for open in [open_shared, Database::open] {
        let database = Database::new();
        let store = open(&database);
        store.begin(run_row("r1")).await.expect("it is new");

        let held = HeldWriter::hold(&store).await;
        assert_eq!(open_runs(&store).await, ["r1.0"]);
        held.end().await;

        assert_eq!(open_runs(&store).await, ["r1.0", "held.0"]);
        assert_eq!(threads(&store), 1);
    }
}

#[tokio::test]
async fn a_command_without_concurrent_writes_opens_no_reader() {
    let database = Database::new();
    let store = database.open();
    for number in 0..20 {
        store.begin(run_row(&format!("r{number}"))).await.expect("it is new");
        assert_eq!(open_runs(&store).await.len(), number + 1);
    }
    assert_eq!(threads(&store), 0);
}

#[tokio::test]
async fn a_read_sees_each_awaited_write() {
    let database = Database::new();
    let (store, other) = (open_shared(&database), database.open());
    let mut expected = Vec::new();
    for number in 0..50 {
        let row = run_row(&format!("r{number:02}"));
        expected.push(row.key.to_string());
        let writer = if number % 2 == 0 { &store } else { &other };
        writer.begin(row).await.expect("it is new");
        for reader in [&store, &other] {
            let mut found = open_runs(reader).await;
            found.sort();
            assert_eq!(found, expected);
        }
    }
}

#[tokio::test]
async fn readers_start_when_others_are_busy() {
    let database = Database::new();
    let store = open_shared(&database);
    assert_eq!(threads(&store), 0);
    for _ in 0..3 {
        open_runs(&store).await;
    }
    assert_eq!(threads(&store), 1, "a waiting reader takes the next job");

    let mut held = Vec::new();
    for _ in 0..2 {
        let (release, released) = mpsc::channel::<()>();
        let (began, begun) = oneshot::channel();
        let busy = store.clone();
        let done = tokio::spawn(async move {
            let read = busy.query::<_, StoreError>(move |_| {
                began.send(()).expect("the test waits");
                Ok(released.recv().is_ok())
            });
            read.await
        });
        begun.await.expect("a reader runs it");
        held.push((release, done));
    }
    assert_eq!(threads(&store), 2);
    let clone = store.clone();
    let waits = tokio::spawn(async move { open_runs(&clone).await });
    tokio::task::yield_now().await;
    assert_eq!(threads(&store), 2, "the limit holds");

    for (release, done) in held {
        release.send(()).expect("the reader waits");
        assert!(done.await.expect("it does not panic").expect("it is readable"));
    }
    assert_eq!(waits.await.expect("it does not panic"), [""; 0]);
}

#[tokio::test]
async fn a_reader_cannot_write() {
    let database = Database::new();
    let store = open_shared(&database);
    store.begin(run_row("r1")).await.expect("it is new");
    let written: Result<usize, StoreError> =
        store.query(|connection| Ok(connection.execute("DELETE FROM runs", [])?)).await;
    assert!(written.is_err());
    assert_eq!(open_runs(&store).await, ["r1.0"]);
}

#[tokio::test]
async fn a_panic_in_a_read_ends_that_read_only() {
    let database = Database::new();
    let store = open_shared(&database);
    let failed: Result<(), StoreError> = store.query(|_| panic!("a bug")).await;
    assert!(matches!(failed, Err(StoreError::Closed)));
    assert_eq!(open_runs(&store).await, [""; 0]);
}

#[tokio::test]
async fn a_reader_that_cannot_open_says_so() {
    let database = Database::new();
    let store = open_shared(&database);
    let aside = database.path().with_extension("aside");
    std::fs::rename(database.path(), &aside).expect("it is ours");
    assert!(matches!(store.open_runs().await, Err(StoreError::Open(..))));
    std::fs::rename(&aside, database.path()).expect("it is ours");
    assert_eq!(open_runs(&store).await, [""; 0]);
}

#[tokio::test]
async fn a_database_opened_for_reads_is_not_changed() {
    let database = Database::new();
    let store = database.open();
    store.begin(run_row("r1")).await.expect("it is new");

    let evidence = Store::read(&database.path()).expect("it is there");

    assert_eq!(open_runs(&evidence).await, ["r1.0"]);
    assert!(evidence.begin(run_row("r2")).await.is_err());
    store.begin(run_row("r3")).await.expect("it is new");
    assert_eq!(open_runs(&evidence).await, ["r1.0", "r3.0"]);
}

#[tokio::test]
async fn the_last_handle_closes_the_database() {
    let database = Database::new();
    let store = open_shared(&database);
    store.begin(run_row("r1")).await.expect("it is new");
    assert_eq!(open_runs(&store).await, ["r1.0"]);
    drop(store);
    let wal = database.path().with_extension("db-wal");
    // The threads end by themselves: the readers first, then the writer, which moves the WAL into the database.
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while wal.exists() && std::time::Instant::now() < end {
        thread::yield_now();
    }
    assert!(!wal.exists());
}
