//! Appending to the event log.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use tokio::sync::watch;

use super::retention::{EventQuota, make_room, make_room_for_diff};
use super::{EventFault, NewLoggedEvent, call_sums};
use crate::store::{Store, StoreError};

/// An event in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendedEvent {
    /// Position in the log.
    pub seq: i64,
    /// `evt_…`.
    pub id: String,
    /// False if the log had an event of this id already.
    pub is_new: bool,
}

impl Store {
    /// Appends events in one transaction, and returns the result of each. An event with a fault is left out, and the others
    /// are on disk. An agent's event evicts the oldest ones of its run that exceed the quota.
    ///
    /// # Errors
    /// Errors of SQLite; then no event is appended.
    pub async fn append_events(
        &self,
        events: Vec<NewLoggedEvent>,
        quota: EventQuota,
    ) -> Result<Vec<Result<AppendedEvent, EventFault>>, StoreError> {
        let signal = self.event_signal();
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let mut appended = Vec::with_capacity(events.len());
            for event in &events {
                appended.push(append_checked(&transaction, event, quota)?);
            }
            transaction.commit()?;
            if let Some(last) = appended.iter().flatten().map(|event| event.seq).max() {
                announce(&signal, last);
            }
            Ok(appended)
        })
        .await
    }

    /// Returns a signal of commits: its value changes when this process has appended events. A change says only that
    /// there may be new events. Events of other processes are not signalled.
    #[must_use]
    pub fn events_committed(&self) -> watch::Receiver<u64> {
        self.event_signal().subscribe()
    }
}

/// Notifies the readers of this process that events up to this one are committed.
pub(crate) fn announce(signal: &Arc<watch::Sender<u64>>, seq: i64) {
    let seq = seq.unsigned_abs();
    signal.send_if_modified(|newest| {
        let is_newer = seq > *newest;
        *newest = seq.max(*newest);
        is_newer
    });
}

fn append_checked(
    transaction: &Transaction<'_>,
    event: &NewLoggedEvent,
    quota: EventQuota,
) -> rusqlite::Result<Result<AppendedEvent, EventFault>> {
    if let Err(fault) = event.check() {
        return Ok(Err(fault));
    }
    if let Some(known) = known(transaction, event)? {
        return Ok(Ok(known));
    }
    if event.is_evictable() {
        for room in [make_room_for_diff, make_room] {
            if let Err(fault) = room(transaction, event, quota)? {
                return Ok(Err(fault));
            }
        }
    }
    insert(transaction, event).map(Ok)
}

/// Appends an event of the system in the caller's transaction.
pub(crate) fn append(transaction: &Transaction<'_>, event: &NewLoggedEvent) -> rusqlite::Result<AppendedEvent> {
    match known(transaction, event)? {
        Some(known) => Ok(known),
        None => insert(transaction, event),
    }
}

fn known(connection: &Connection, event: &NewLoggedEvent) -> rusqlite::Result<Option<AppendedEvent>> {
    let Some(id) = &event.id else { return Ok(None) };
    let mut query = connection.prepare_cached("SELECT seq FROM events WHERE id = ?1")?;
    let seq = query.query_row([id], |row| row.get(0)).optional()?;
    Ok(seq.map(|seq| AppendedEvent { seq, id: id.clone(), is_new: false }))
}

fn insert(transaction: &Transaction<'_>, event: &NewLoggedEvent) -> rusqlite::Result<AppendedEvent> {
    let id = event.id.clone().unwrap_or_else(|| format!("evt_{}", uuid::Uuid::new_v4().simple()));
    let (sandbox_id, bytes) = (event.sandbox_id.as_deref().unwrap_or_default(), event.bytes().cast_signed());
    let seq = transaction
        .prepare_cached(
            "INSERT INTO events (id, owner, sandbox_id, attempt, agent_id, zone_id, event_type, source, event_data, evictable,
                                 bytes, created_us)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        )?
        .insert(params![
            id,
            event.owner,
            sandbox_id,
            event.attempt,
            event.agent_id,
            event.zone_id,
            event.event_type,
            event.source.as_str(),
            event.event_data,
            event.is_evictable(),
            bytes,
            event.created_us,
        ])?;
    if let Some(diff) = &event.diff {
        transaction
            .prepare_cached("INSERT INTO event_diffs (seq, diff, truncated, bytes) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![seq, diff.text, diff.truncated, event.diff_bytes().cast_signed()])?;
    }
    if event.is_evictable() {
        transaction
            .prepare_cached(
                "INSERT INTO event_totals (owner, sandbox_id, bytes, events, diff_bytes) VALUES (?1, ?2, ?3, 1, ?4)
                 ON CONFLICT DO UPDATE SET bytes = bytes + ?3, events = events + 1, diff_bytes = diff_bytes + ?4",
            )?
            .execute(params![event.owner, sandbox_id, bytes, event.diff_bytes().cast_signed()])?;
    }
    call_sums::add(transaction, event)?;
    Ok(AppendedEvent { seq, id, is_new: true })
}
