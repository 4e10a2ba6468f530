//! Removal of records past their age, by commands and by the daemon.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use sluice_contract::RunId;
use sluice_contract::time::{duration_micros, unix_micros};

use crate::layout::Layout;
use crate::records::{RemovedRecords, is_due};
use crate::store::{Store, StoreError};

/// Minimum time for which the record of a daemon's run is kept after its end: clients read its output from there.
pub const KEEP_OF_DAEMON_RUNS_MIN: Duration = Duration::from_secs(3600);

/// Removes the records of runs that have been over for this time, unless the records were checked a short time ago.
/// Rows, receipts and audit files stay.
///
/// # Errors
/// Errors of SQLite. What cannot be listed now is removed later.
pub async fn remove_old_records(layout: &Layout, store: &Store, keep: Duration) -> Result<RemovedRecords, StoreError> {
    let (records, now) = (layout.records(), SystemTime::now());
    if !is_due(records.last_removal(), now, keep) {
        return Ok(RemovedRecords::default());
    }
    let open: HashSet<_> = store.open_runs().await?.into_iter().map(|open| open.entry.key).collect();
    let kept = store.sandboxes_with_records(now, keep).await?;
    let removal = move || records.remove_old(now, keep, |key| open.contains(key) || kept.contains(&key.run_id));
    // The removal of many records takes long.
    let removed = tokio::task::spawn_blocking(removal).await;
    Ok(removed.ok().and_then(Result::ok).unwrap_or_default())
}

impl Store {
    /// Returns the runs of the daemon whose records are needed: unfinished runs, and runs that ended lately.
    async fn sandboxes_with_records(&self, now: SystemTime, keep: Duration) -> Result<HashSet<RunId>, StoreError> {
        let keep_us = duration_micros(keep.max(KEEP_OF_DAEMON_RUNS_MIN));
        let since_us = unix_micros(now).unwrap_or_default().saturating_sub(keep_us);
        self.query(move |connection| {
            let mut query =
                connection.prepare("SELECT run_id FROM sandboxes WHERE ended_us IS NULL OR ended_us > ?1")?;
            let ids = query.query_map([since_us], |row| row.get::<_, String>(0))?;
            let ids = ids.map(|id| id.map(|id| id.parse::<RunId>().ok()));
            Ok(ids.filter_map(Result::transpose).collect::<rusqlite::Result<_>>()?)
        })
        .await
    }
}
