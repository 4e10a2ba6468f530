//! Events of the outbox. No program reads them yet, and only tests append events that are not of the ledger.

use rusqlite::{Row, params};

use super::*;

/// An event of the outbox.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OutboxEvent {
    /// Position. Ids grow in the order of commits; some may be missing.
    pub(super) id: i64,
    /// Words joined by dots.
    pub(super) kind: String,
    /// The object that the event is about: for an event of the ledger, the name of the receipt.
    pub(super) subject: String,
    /// JSON; none for an event of the ledger.
    pub(super) payload: Option<String>,
    /// Row of the receipt, for an event of the ledger.
    pub(super) receipt: Option<i64>,
    /// Row of the newest entry, for an event of the ledger.
    pub(super) entry: Option<i64>,
    /// Time of the event, in microseconds since 1970.
    pub(super) made_us: i64,
}

impl Store {
    /// Appends an event that is not of the ledger, and returns its id.
    pub(super) async fn append_outbox_event(
        &self,
        kind: &str,
        subject: &str,
        payload: &str,
    ) -> Result<i64, StoreError> {
        let (kind, subject, payload) = (kind.to_owned(), subject.to_owned(), payload.to_owned());
        self.write(move |connection| Ok(insert(connection, &kind, &subject, &payload)?)).await
    }

    /// Returns the next events after an id, oldest first, at most `limit`.
    pub(super) async fn outbox_events_after(&self, id: i64, limit: u32) -> Result<Vec<OutboxEvent>, StoreError> {
        self.query(move |connection| {
            let mut query = connection.prepare_cached(
                "SELECT outbox.id, kind, coalesce(subject, source_reference), payload, receipt, entry, made_us
                 FROM outbox LEFT JOIN receipts ON receipts.id = receipt
                 WHERE outbox.id > ?1 ORDER BY outbox.id LIMIT ?2",
            )?;
            let rows = query.query_map(params![id, limit], event)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }
}

fn insert(connection: &Connection, kind: &str, subject: &str, payload: &str) -> rusqlite::Result<i64> {
    connection
        .prepare_cached("INSERT INTO outbox (kind, subject, payload, made_us) VALUES (?1, ?2, ?3, ?4)")?
        .insert(params![kind, subject, payload, now_us()])
}

fn event(row: &Row<'_>) -> rusqlite::Result<OutboxEvent> {
    Ok(OutboxEvent {
        id: row.get(0)?,
        kind: row.get(1)?,
        subject: row.get(2)?,
        payload: row.get(3)?,
        receipt: row.get(4)?,
        entry: row.get(5)?,
        made_us: row.get(6)?,
    })
}

async fn append(store: &Store, subject: &str) -> i64 {
    store.append_outbox_event("run.closed", subject, "{}").await.expect("it is writable")
}

async fn subjects_after(store: &Store, id: i64, limit: u32) -> Vec<String> {
    let events = store.outbox_events_after(id, limit).await.expect("it is readable");
    events.into_iter().map(|event| event.subject).collect()
}

#[tokio::test]
async fn events_are_read_in_the_order_of_commits() {
    let database = Database::new();
    let stores = [database.open(), database.open()];
    let mut ids = Vec::new();
    for number in 0..6 {
        ids.push(append(&stores[number % 2], &format!("r{number}")).await);
    }
    assert!(ids.is_sorted());
    assert_eq!(subjects_after(&stores[0], 0, 4).await, ["r0", "r1", "r2", "r3"]);
    assert_eq!(subjects_after(&stores[0], ids[3], 4).await, ["r4", "r5"]);
    assert_eq!(subjects_after(&stores[0], ids[5], 4).await, [""; 0]);
}

#[tokio::test]
async fn an_event_exists_only_with_its_change() {
    let database = Database::new();
    let store = database.open();
    for is_committed in [false, true] {
        let done: Result<(), StoreError> = store
            .write(move |connection| {
                let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                insert_run(&transaction, &run_row("r1"))?;
                insert(&transaction, "run.pending", "r1.0", "{}")?;
                if is_committed { Ok(transaction.commit()?) } else { Ok(transaction.rollback()?) }
            })
            .await;
        done.expect("it is writable");
        let found = (subjects_after(&store, 0, 9).await.len(), store.open_runs().await.expect("it is readable").len());
        assert_eq!(found, (usize::from(is_committed), usize::from(is_committed)));
    }
}

#[tokio::test]
async fn invalid_events_are_refused() {
    let database = Database::new();
    let store = database.open();
    let long = "k".repeat(101);
    for (kind, subject, payload) in
        [("", "s", "{}"), ("a b", "s", "{}"), (long.as_str(), "s", "{}"), ("a", "", "{}"), ("a", "s", "{")]
    {
        assert!(store.append_outbox_event(kind, subject, payload).await.is_err(), "{kind} {subject} {payload}");
    }
}
