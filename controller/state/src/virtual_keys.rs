//! Which keys LiteLLM was asked for, in the database.

use rusqlite::params;
use sluice_contract::RunKey;

use crate::ledger;
use crate::run::Phase;
use crate::store::{Store, StoreError, now_us};

/// A key that LiteLLM was asked for, and that may be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// Its name at LiteLLM.
    pub alias: String,
    /// Whose it is.
    pub key: RunKey,
    /// Which LiteLLM.
    pub upstream: String,
    /// When, in microseconds since 1970.
    pub asked_us: i64,
    /// When it ends by itself.
    pub expires_us: i64,
}

impl Store {
    /// Writes down that LiteLLM is about to be asked for a key.
    ///
    /// # Errors
    /// Those of SQLite.
    pub async fn key_asked(&self, asked: KeyRecord) -> Result<(), StoreError> {
        self.call(move |connection| {
            let KeyRecord { alias, key, upstream, asked_us, expires_us } = asked;
            connection.execute(
                "INSERT INTO virtual_keys (alias, run_id, attempt, upstream, asked_us, expires_us)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![alias, key.run_id.as_str(), key.attempt, upstream, asked_us, expires_us],
            )?;
            Ok(())
        })
        .await
    }

    /// Writes down what became of it. Of several who say so, the first one stands.
    ///
    /// # Errors
    /// Those of SQLite.
    pub async fn key_ended(&self, alias: &str, why: &'static str) -> Result<(), StoreError> {
        let alias = alias.to_owned();
        self.call(move |connection| {
            connection.execute(
                "INSERT OR IGNORE INTO virtual_key_ends (alias, why, ended_us) VALUES (?1, ?2, ?3)",
                params![alias, why, now_us()],
            )?;
            Ok(())
        })
        .await
    }

    /// The keys that may be there.
    ///
    /// # Errors
    /// Those of SQLite.
    pub async fn keys_left(&self) -> Result<Vec<KeyRecord>, StoreError> {
        self.keys("1").await
    }

    /// Those of them whose run is over: nobody needs them.
    ///
    /// # Errors
    /// Those of SQLite.
    pub async fn keys_orphaned(&self) -> Result<Vec<KeyRecord>, StoreError> {
        self.keys(&format!("phase = '{}'", Phase::Closed.as_str())).await
    }

    async fn keys(&self, clause: &str) -> Result<Vec<KeyRecord>, StoreError> {
        let query = format!(
            "SELECT alias, run_id, attempt, upstream, asked_us, expires_us
             FROM virtual_keys JOIN runs USING (run_id, attempt)
             WHERE NOT EXISTS (SELECT 1 FROM virtual_key_ends AS ends WHERE ends.alias = virtual_keys.alias) AND {clause}
             ORDER BY asked_us"
        );
        self.call(move |connection| {
            let mut query = connection.prepare(&query)?;
            let rows = query.query_map([], |row| {
                Ok(KeyRecord {
                    alias: row.get(0)?,
                    key: ledger::key(row, 1)?,
                    upstream: row.get(3)?,
                    asked_us: row.get(4)?,
                    expires_us: row.get(5)?,
                })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }
}
