//! Removal of events: by the quota of their run, and by their age.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension, Row, Transaction, TransactionBehavior, params};

use super::{EventFault, NewLoggedEvent};
use crate::store::{Store, StoreError};

/// Limits of the events that are kept for the agent of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventQuota {
    /// Size in bytes.
    pub bytes: u64,
    /// Number of events.
    pub events: u64,
    /// Size of all diffs in bytes, which `bytes` does not include.
    pub diff_bytes: u64,
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
    diff_bytes: i64,
    is_evictable: bool,
}

/// Columns and tables of a removal.
const REMOVAL: &str = "events.seq, owner, sandbox_id, events.bytes, coalesce(event_diffs.bytes, 0), evictable
                       FROM events LEFT JOIN event_diffs ON event_diffs.seq = events.seq";

/// Maximum number of events that are removed in one transaction.
const BATCH: u32 = 2_000;

impl Default for EventQuota {
    fn default() -> Self {
        Self { bytes: 64 << 20, events: 100_000, diff_bytes: 256 << 20 }
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
                // One transaction for each part, so that other writes need not wait for the whole removal.
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
        .prepare_cached(&format!(
            "SELECT {REMOVAL} WHERE created_us < ?1 AND evictable = ?2 ORDER BY created_us, events.seq LIMIT ?3"
        ))?
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
    let mut oldest = transaction.prepare_cached(&format!(
        "SELECT {REMOVAL} WHERE owner = ?1 AND sandbox_id = ?2 AND evictable = 1 ORDER BY events.seq"
    ))?;
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

/// Removes the oldest diffs of the run until this event's diff fits into the quota. Their events stay.
///
/// A sixteenth of the quota is freed at once: the oldest diffs are found by a walk over the events of the run.
pub(super) fn make_room_for_diff(
    transaction: &Transaction<'_>,
    event: &NewLoggedEvent,
    quota: EventQuota,
) -> rusqlite::Result<Result<(), EventFault>> {
    let need = event.diff_bytes();
    if need == 0 {
        return Ok(Ok(()));
    }
    if need > quota.diff_bytes {
        return Ok(Err(EventFault::OverQuota { bytes: need, quota: quota.diff_bytes }));
    }
    let run = params![event.owner, event.sandbox_id.as_deref().unwrap_or_default()];
    let kept: Option<i64> = transaction
        .prepare_cached("SELECT diff_bytes FROM event_totals WHERE owner = ?1 AND sandbox_id = ?2")?
        .query_row(run, |row| row.get(0))
        .optional()?;
    let kept = kept.unwrap_or_default().unsigned_abs();
    if kept + need <= quota.diff_bytes {
        return Ok(Ok(()));
    }
    let (mut left, room) = (kept, (quota.diff_bytes - quota.diff_bytes / 16).saturating_sub(need));
    let mut oldest = transaction.prepare_cached(
        "SELECT event_diffs.seq, event_diffs.bytes FROM events JOIN event_diffs ON event_diffs.seq = events.seq
         WHERE owner = ?1 AND sandbox_id = ?2 AND evictable = 1 AND NOT removed ORDER BY events.seq",
    )?;
    let mut rows = oldest.query(run)?;
    let mut removals: Vec<i64> = Vec::new();
    while left > room
        && let Some(row) = rows.next()?
    {
        removals.push(row.get(0)?);
        left = left.saturating_sub(row.get::<_, i64>(1)?.unsigned_abs());
    }
    drop(rows);
    for seq in removals {
        transaction
            .prepare_cached("UPDATE event_diffs SET diff = '', bytes = 0, truncated = 0, removed = 1 WHERE seq = ?1")?
            .execute([seq])?;
    }
    transaction
        .prepare_cached("UPDATE event_totals SET diff_bytes = ?3 WHERE owner = ?1 AND sandbox_id = ?2")?
        .execute(params![run[0], run[1], left.cast_signed()])?;
    Ok(Ok(()))
}

/// Events of one run that were removed.
#[derive(Debug, Clone, Copy, Default)]
struct RemovedOfRun {
    from: i64,
    to: i64,
    bytes: i64,
    events: i64,
    diff_bytes: i64,
}

/// Removes events, and records for their readers that they are gone.
fn remove(transaction: &Transaction<'_>, removals: &[Removal]) -> rusqlite::Result<()> {
    let mut runs: BTreeMap<(&str, &str), RemovedOfRun> = BTreeMap::new();
    let mut delete = transaction.prepare_cached("DELETE FROM events WHERE seq = ?1")?;
    for Removal { seq, owner, sandbox_id, bytes, diff_bytes, is_evictable } in removals {
        delete.execute([seq])?;
        let first = RemovedOfRun { from: *seq, to: *seq, ..RemovedOfRun::default() };
        let run = runs.entry((owner, sandbox_id)).or_insert(first);
        (run.from, run.to) = (run.from.min(*seq), run.to.max(*seq));
        if *is_evictable {
            run.bytes += bytes;
            run.events += 1;
            run.diff_bytes += diff_bytes;
        }
    }
    let mut record = transaction.prepare_cached(
        "INSERT INTO event_totals (owner, sandbox_id, removed_from, removed_to) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT DO UPDATE SET bytes = bytes - ?5, events = events - ?6, diff_bytes = diff_bytes - ?7,
             removed_from = min(coalesce(removed_from, ?3), ?3), removed_to = max(coalesce(removed_to, ?4), ?4)",
    )?;
    for ((owner, sandbox_id), RemovedOfRun { from, to, bytes, events, diff_bytes }) in runs {
        record.execute(params![owner, sandbox_id, from, to, bytes, events, diff_bytes])?;
    }
    Ok(())
}

fn removal(row: &Row<'_>) -> rusqlite::Result<Removal> {
    Ok(Removal {
        seq: row.get(0)?,
        owner: row.get(1)?,
        sandbox_id: row.get(2)?,
        bytes: row.get(3)?,
        diff_bytes: row.get(4)?,
        is_evictable: row.get(5)?,
    })
}
