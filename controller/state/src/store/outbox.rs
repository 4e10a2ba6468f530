//! The outbox: events for other systems, in the order in which they were committed.
//!
//! An event is written in the transaction of the change that it reports, so neither exists without the other. Each
//! consumer has a position of its own, and sees an event again until it has acknowledged it.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{Store, StoreError, now_us};

/// An event to append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NewEvent<'a> {
    /// Words joined by dots, at most 100 of `[A-Za-z0-9_.]`.
    pub kind: &'a str,
    /// The content.
    pub content: EventContent<'a>,
}

/// Content of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventContent<'a> {
    /// Rows of the ledger: the content follows from the receipt and its entries up to this one.
    Receipt {
        /// Row of the receipt.
        receipt: i64,
        /// Row of the newest entry; none for a receipt without entries.
        entry: Option<i64>,
    },
    /// JSON.
    Payload {
        /// The object that the event is about, such as `RUN.ATTEMPT`.
        subject: &'a str,
        /// One JSON value.
        payload: &'a str,
    },
}

/// An event of the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxEvent {
    /// Position. Ids grow in the order of commits; some may be missing.
    pub id: i64,
    /// Words joined by dots.
    pub kind: String,
    /// The object that the event is about: for an event of the ledger, the name of the receipt.
    pub subject: String,
    /// JSON; none for an event of the ledger.
    pub payload: Option<String>,
    /// Row of the receipt, for an event of the ledger.
    pub receipt: Option<i64>,
    /// Row of the newest entry, for an event of the ledger.
    pub entry: Option<i64>,
    /// Time of the event, in microseconds since 1970.
    pub made_us: i64,
}

/// Progress of one consumer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConsumerPosition {
    /// Id of the last event that is delivered; 0 before the first.
    pub acknowledged: i64,
    /// Failed deliveries since then.
    pub attempts: u32,
    /// Time before which no delivery is tried again, in microseconds since 1970.
    pub next_try_us: i64,
    /// Reason of the last failure.
    pub fault: Option<String>,
}

impl Store {
    /// Appends an event that reports no change of the database, and returns its id.
    ///
    /// # Errors
    /// Errors of SQLite, also for a kind or a payload that is not valid.
    pub async fn append_outbox_event(&self, kind: &str, subject: &str, payload: &str) -> Result<i64, StoreError> {
        let (kind, subject, payload) = (kind.to_owned(), subject.to_owned(), payload.to_owned());
        self.write(move |connection| {
            let content = EventContent::Payload { subject: &subject, payload: &payload };
            Ok(append(connection, NewEvent { kind: &kind, content }, now_us())?)
        })
        .await
    }

    /// Returns the next events after an id, oldest first, at most `limit`.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn outbox_events_after(&self, id: i64, limit: u32) -> Result<Vec<OutboxEvent>, StoreError> {
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

    /// Returns the progress of a consumer; the beginning for an unknown one.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn consumer_position(&self, consumer: &str) -> Result<ConsumerPosition, StoreError> {
        let consumer = consumer.to_owned();
        self.query(move |connection| {
            let mut query = connection.prepare_cached(
                "SELECT acknowledged, attempts, next_try_us, fault FROM outbox_consumers WHERE consumer = ?1",
            )?;
            let row = query.query_row([consumer], position).optional()?;
            Ok(row.unwrap_or_default())
        })
        .await
    }

    /// Acknowledges all events up to an id for one consumer, and clears its failures. A lower id than before changes
    /// nothing.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn acknowledge_events(&self, consumer: &str, id: i64) -> Result<(), StoreError> {
        let consumer = consumer.to_owned();
        self.write(move |connection| {
            connection.execute(
                "INSERT INTO outbox_consumers (consumer, acknowledged, updated_us) VALUES (?1, ?2, ?3)
                 ON CONFLICT DO UPDATE SET acknowledged = ?2, attempts = 0, next_try_us = 0, fault = NULL, updated_us = ?3
                 WHERE acknowledged < ?2",
                params![consumer, id, now_us()],
            )?;
            Ok(())
        })
        .await
    }

    /// Records a failed delivery of the next event, and the time before which it is not tried again.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn record_failed_delivery(
        &self,
        consumer: &str,
        fault: &str,
        next_try_us: i64,
    ) -> Result<(), StoreError> {
        let (consumer, fault) = (consumer.to_owned(), fault.to_owned());
        self.write(move |connection| {
            connection.execute(
                "INSERT INTO outbox_consumers (consumer, attempts, next_try_us, fault, updated_us) VALUES (?1, 1, ?2, ?3, ?4)
                 ON CONFLICT DO UPDATE SET attempts = attempts + 1, next_try_us = ?2, fault = ?3, updated_us = ?4",
                params![consumer, next_try_us, fault, now_us()],
            )?;
            Ok(())
        })
        .await
    }
}

/// Appends an event in the caller's transaction, and returns its id.
pub(crate) fn append(transaction: &Connection, event: NewEvent<'_>, made_us: i64) -> rusqlite::Result<i64> {
    let (receipt, entry, subject, payload) = match event.content {
        EventContent::Receipt { receipt, entry } => (Some(receipt), entry, None, None),
        EventContent::Payload { subject, payload } => (None, None, Some(subject), Some(payload)),
    };
    transaction
        .prepare_cached(
            "INSERT INTO outbox (kind, receipt, entry, subject, payload, made_us) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .insert(params![event.kind, receipt, entry, subject, payload, made_us])
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

fn position(row: &Row<'_>) -> rusqlite::Result<ConsumerPosition> {
    Ok(ConsumerPosition {
        acknowledged: row.get(0)?,
        attempts: row.get(1)?,
        next_try_us: row.get(2)?,
        fault: row.get(3)?,
    })
}
