//! Conversation of one attempt, in the daemon's database.

use rusqlite::{Connection, OptionalExtension, params};
use sluice_contract::{RunId, RunKey};

use crate::store::{Store, StoreError};

/// The conversation of one attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoredConversation {
    /// Time of the first request of a worker, in microseconds since 1970.
    pub worker_us: Option<i64>,
    /// Number of the last entry that was read from the sidecar.
    pub injected: u64,
}

impl Store {
    /// Returns the conversation of an attempt.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn conversation(&self, key: &RunKey) -> Result<StoredConversation, StoreError> {
        let key = key.clone();
        self.query(move |connection| Ok(conversation(connection, &key)?)).await
    }

    /// Records that an attempt has a worker. The first time stays.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn note_worker(&self, key: &RunKey, now_us: i64) -> Result<(), StoreError> {
        let key = key.clone();
        self.write(move |connection| {
            connection
                .prepare_cached(
                    "INSERT INTO conversations (run_id, attempt, worker_us) VALUES (?1, ?2, ?3)
                     ON CONFLICT DO UPDATE SET worker_us = coalesce(worker_us, ?3)",
                )?
                .execute(params![key.run_id.as_str(), key.attempt, now_us])?;
            Ok(())
        })
        .await
    }

    /// Records the result that the agent of an attempt reported when it was done: one JSON value.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn record_agent_result(&self, key: &RunKey, result: String) -> Result<(), StoreError> {
        let key = key.clone();
        self.write(move |connection| {
            connection.execute(
                "INSERT INTO conversations (run_id, attempt, result) VALUES (?1, ?2, ?3)
                 ON CONFLICT DO UPDATE SET result = ?3",
                params![key.run_id.as_str(), key.attempt, result],
            )?;
            Ok(())
        })
        .await
    }

    /// Returns the result that the agent of the newest attempt reported when it was done, as JSON.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn agent_result(&self, run_id: &RunId) -> Result<Option<String>, StoreError> {
        let run_id = run_id.clone();
        self.query(move |connection| {
            let found = connection
                .prepare_cached(
                    "SELECT result FROM conversations JOIN sandboxes USING (run_id, attempt) WHERE run_id = ?1",
                )?
                .query_row([run_id.as_str()], |row| row.get(0))
                .optional()?;
            Ok(found.flatten())
        })
        .await
    }
}

pub(super) fn conversation(connection: &Connection, key: &RunKey) -> rusqlite::Result<StoredConversation> {
    let found = connection
        .prepare_cached("SELECT worker_us, injected FROM conversations WHERE run_id = ?1 AND attempt = ?2")?
        .query_row(params![key.run_id.as_str(), key.attempt], |row| {
            Ok(StoredConversation { worker_us: row.get(0)?, injected: row.get::<_, i64>(1)?.unsigned_abs() })
        })
        .optional()?;
    Ok(found.unwrap_or_default())
}
