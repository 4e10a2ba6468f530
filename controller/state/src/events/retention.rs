//! Removal of events: by the quota of their run, and by their age.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension, Row, Transaction, TransactionBehavior, params};

use super::{EventFault, NewLoggedEvent};
use crate::store::{Store, StoreError};

/// What is kept of the events that the agent of one run reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventQuota {
    /// Size in bytes.
    pub bytes: u64,
    /// Number of events.
    pub events: u64,
}

/// Times before which events are removed, in microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventAges {
    /// For events that agents report.
    pub agent_before_us: i64,
    /// For all others.
    pub system_before_us: i64,
}

/// An event to remove.
struct Removal {
    seq: i64,
    owner: String,
    sandbox_id: String,
    bytes: i64,
    is_evictable: bool,
}

/// Events that are removed in one transaction.
const BATCH: u32 = 2_000;

impl Default for EventQuota {
    fn default() -> Self {
        Self { bytes: 64 << 20, events: 100_000 }
    }
}

impl Store {
    /// Removes the events that are too old, and returns their number.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn remove_old_events(&self, ages: EventAges) -> Result<u64, StoreError> {
        let mut removed = 0;
        for (is_evictable, before_us) in [(true, ages.agent_before_us), (false, ages.system_before_us)] {
            loop {
                // One transaction for each part, so that other writes need not wait for all of them.
                let count = self.write(move |connection| remove_before(connection, is_evictable, before_us)).await?;
                removed += count;
                if count < u64::from(BATCH) {
                    break;
                }
            }
        }
        Ok(removed)
    }
}

fn remove_before(connection: &mut rusqlite::Connection, is_evictable: bool, before_us: i64) -> Result<u64, StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let rows: Vec<Removal> = transaction
        .prepare_cached(
            "SELECT seq, owner, sandbox_id, bytes, evictable FROM events
             WHERE created_us < ?1 AND evictable = ?2 ORDER BY created_us, seq LIMIT ?3",
        )?
        .query_map(params![before_us, is_evictable, BATCH], removal)?
        .collect::<Result<_, _>>()?;
    remove(&transaction, &rows)?;
    transaction.commit()?;
    Ok(rows.len() as u64)
}

/// Removes the oldest events of the run's agent until this one fits into the quota.
pub(super) fn make_room(
    transaction: &Transaction<'_>,
    event: &NewLoggedEvent,
    quota: EventQuota,
) -> rusqlite::Result<Result<(), EventFault>> {
    let need = event.bytes();
    if need > quota.bytes || quota.events == 0 {
        return Ok(Err(EventFault::OverQuota { bytes: need, quota: quota.bytes }));
    }
    let sandbox_id = event.sandbox_id.as_deref().unwrap_or_default();
    let kept: Option<(i64, i64)> = transaction
        .prepare_cached("SELECT bytes, events FROM event_totals WHERE owner = ?1 AND sandbox_id = ?2")?
        .query_row(params![event.owner, sandbox_id], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let (bytes, events) = kept.unwrap_or_default();
    let (mut bytes, mut events) = (bytes.unsigned_abs(), events.unsigned_abs());
    let is_over = |bytes, events| bytes + need > quota.bytes || events + 1 > quota.events;
    if !is_over(bytes, events) {
        return Ok(Ok(()));
    }
    let mut oldest = transaction.prepare_cached(
        "SELECT seq, owner, sandbox_id, bytes, evictable FROM events
         WHERE owner = ?1 AND sandbox_id = ?2 AND evictable = 1 ORDER BY seq",
    )?;
    let mut rows = oldest.query(params![event.owner, sandbox_id])?;
    let mut removals = Vec::new();
    while is_over(bytes, events)
        && let Some(row) = rows.next()?
    {
        let next = removal(row)?;
        bytes = bytes.saturating_sub(next.bytes.unsigned_abs());
        events = events.saturating_sub(1);
        removals.push(next);
    }
    drop(rows);
    remove(transaction, &removals)?;
    Ok(Ok(()))
}

/// Removes events, and records for their readers that they are gone.
fn remove(transaction: &Transaction<'_>, removals: &[Removal]) -> rusqlite::Result<()> {
    let mut runs: BTreeMap<(&str, &str), (i64, i64, i64, i64)> = BTreeMap::new();
    let mut delete = transaction.prepare_cached("DELETE FROM events WHERE seq = ?1")?;
    for Removal { seq, owner, sandbox_id, bytes, is_evictable } in removals {
        delete.execute([seq])?;
        let run = runs.entry((owner, sandbox_id)).or_insert((*seq, *seq, 0, 0));
        let (bytes, events) = if *is_evictable { (*bytes, 1) } else { (0, 0) };
        *run = (run.0.min(*seq), run.1.max(*seq), run.2 + bytes, run.3 + events);
    }
    let mut record = transaction.prepare_cached(
        "INSERT INTO event_totals (owner, sandbox_id, removed_from, removed_to) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT DO UPDATE SET bytes = bytes - ?5, events = events - ?6,
             removed_from = min(coalesce(removed_from, ?3), ?3), removed_to = max(coalesce(removed_to, ?4), ?4)",
    )?;
    for ((owner, sandbox_id), (from, to, bytes, events)) in runs {
        record.execute(params![owner, sandbox_id, from, to, bytes, events])?;
    }
    Ok(())
}

fn removal(row: &Row<'_>) -> rusqlite::Result<Removal> {
    Ok(Removal {
        seq: row.get(0)?,
        owner: row.get(1)?,
        sandbox_id: row.get(2)?,
        bytes: row.get(3)?,
        is_evictable: row.get(4)?,
    })
}
