//! Activity of runs, which is recorded in batches and does not count as a change of a run.

use rusqlite::{TransactionBehavior, params};
use sluice_contract::RunKey;

use super::SandboxError;
use crate::store::Store;

/// Activity of a live attempt since the last record. Times are in microseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxActivity {
    /// The attempt.
    pub key: RunKey,
    /// Time of the last work of any kind.
    pub work_us: Option<i64>,
    /// Time of the last work that the controller saw itself.
    pub observed_work_us: Option<i64>,
    /// Time and status of the last heartbeat.
    pub heartbeat: Option<(i64, Option<String>)>,
}

impl Store {
    /// Records the activity of runs in one transaction. A time never goes back, and an attempt that is over is not
    /// changed.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn record_activity(&self, seen: Vec<SandboxActivity>) -> Result<(), SandboxError> {
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for SandboxActivity { key, work_us, observed_work_us, heartbeat } in seen {
                let (beat_us, status) = heartbeat.unzip();
                transaction
                    .prepare_cached(
                        "UPDATE sandboxes SET last_work_us = nullif(max(coalesce(last_work_us, 0), coalesce(?3, 0)), 0),
                             last_observed_work_us = nullif(max(coalesce(last_observed_work_us, 0), coalesce(?4, 0)), 0),
                             heartbeat_status = iif(?5 >= coalesce(last_heartbeat_us, 0), ?6, heartbeat_status),
                             last_heartbeat_us = nullif(max(coalesce(last_heartbeat_us, 0), coalesce(?5, 0)), 0)
                         WHERE run_id = ?1 AND attempt = ?2 AND ended_us IS NULL",
                    )?
                    .execute(params![
                        key.run_id.as_str(),
                        key.attempt,
                        work_us,
                        observed_work_us,
                        beat_us,
                        status.flatten(),
                    ])?;
            }
            Ok(transaction.commit()?)
        })
        .await
    }
}
