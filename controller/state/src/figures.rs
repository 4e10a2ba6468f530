//! Figures of the database, for monitoring.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension};

use crate::events::newest;
use crate::sandboxes::{RETRY_WAIT_MAX_US, SandboxState};
use crate::store::{Store, StoreError};

/// Figures of one moment. Times are in microseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DatabaseFigures {
    /// Number of runs in each state, including states without runs.
    pub runs: BTreeMap<SandboxState, u64>,
    /// Time since which the longest waiting run has waited, among the runs that could begin now.
    pub waiting_since_us: Option<i64>,
    /// Number of sidecars of runs that are not closed.
    pub sidecars: u64,
    /// Number of receipts whose cost is still unknown.
    pub open_receipts: u64,
    /// Time of the first call among them.
    pub open_receipt_since_us: Option<i64>,
    /// Position of the newest event.
    pub newest_event: i64,
    /// Time of the first event after the requested position.
    pub unread_since_us: Option<i64>,
}

impl Store {
    /// Returns the figures of this moment. `read` is the position up to which the caller has read the event log.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn figures(&self, read: i64, now_us: i64) -> Result<DatabaseFigures, StoreError> {
        self.query(move |connection| {
            // One snapshot for all queries.
            let snapshot = connection.transaction()?;
            let (open_receipts, open_receipt_since_us) = open_receipts(&snapshot)?;
            let unread_since_us = snapshot
                .prepare_cached("SELECT created_us FROM events WHERE seq > ?1 ORDER BY seq LIMIT 1")?
                .query_row([read], |row| row.get(0))
                .optional()?;
            Ok(DatabaseFigures {
                runs: runs(&snapshot)?,
                waiting_since_us: waiting_since_us(&snapshot, now_us)?,
                sidecars: sidecars(&snapshot)?,
                open_receipts,
                open_receipt_since_us,
                newest_event: newest(&snapshot)?,
                unread_since_us,
            })
        })
        .await
    }
}

fn runs(connection: &Connection) -> rusqlite::Result<BTreeMap<SandboxState, u64>> {
    let mut runs: BTreeMap<_, _> = SandboxState::ALL.map(|state| (state, 0)).into();
    let mut query = connection.prepare_cached("SELECT state, count(*) FROM sandboxes GROUP BY state")?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let (state, count): (String, i64) = (row.get(0)?, row.get(1)?);
        runs.extend(SandboxState::of(&state).map(|state| (state, count.unsigned_abs())));
    }
    Ok(runs)
}

fn waiting_since_us(connection: &Connection, now_us: i64) -> rusqlite::Result<Option<i64>> {
    let mut query = connection.prepare_cached(
        // A `next_try_us` later than any wait allows was written before the clock jumped back.
        "SELECT min(max(created_us, CASE WHEN next_try_us > ?2 THEN 0 ELSE next_try_us END)) FROM sandboxes
         WHERE state = 'PENDING' AND (next_try_us <= ?1 OR next_try_us > ?2) AND NOT EXISTS (
             SELECT 1 FROM sandbox_dependencies AS dependency JOIN sandboxes AS other ON other.run_id = depends_on
             WHERE dependency.run_id = sandboxes.run_id AND other.ended_us IS NULL)",
    )?;
    query.query_row([now_us, now_us.saturating_add(RETRY_WAIT_MAX_US)], |row| row.get(0))
}

fn sidecars(connection: &Connection) -> rusqlite::Result<u64> {
    let query = "SELECT count(*) FROM runs WHERE phase <> 'closed' AND sidecar_pid IS NOT NULL";
    connection.prepare_cached(query)?.query_row([], |row| row.get(0)).map(i64::unsigned_abs)
}

fn open_receipts(connection: &Connection) -> rusqlite::Result<(u64, Option<i64>)> {
    let query = "SELECT count(*), min(origin_us) FROM open_receipts JOIN receipts ON receipts.id = receipt";
    connection.prepare_cached(query)?.query_row([], |row| Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get(1)?)))
}

#[cfg(test)]
mod tests;
