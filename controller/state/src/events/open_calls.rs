//! Calls of an attempt in progress, according to its events.

use rusqlite::params;
use sluice_contract::RunKey;

use crate::store::{Store, StoreError};

impl Store {
    /// Returns the number of calls that have begun in the events before this position, and have not ended there.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn open_calls(&self, key: &RunKey, before: i64) -> Result<u64, StoreError> {
        let key = key.clone();
        self.query(move |connection| {
            let mut query = connection.prepare_cached(
                "SELECT max(0, count(*) FILTER (WHERE event_type = 'llm.call_started')
                     - count(*) FILTER (WHERE event_type = 'llm.call'))
                 FROM events
                 WHERE sandbox_id = ?1 AND event_type IN ('llm.call_started', 'llm.call') AND seq < ?2 AND attempt = ?3",
            )?;
            let open: i64 = query.query_row(params![key.run_id.as_str(), before, key.attempt], |row| row.get(0))?;
            Ok(open.unsigned_abs())
        })
        .await
    }
}
