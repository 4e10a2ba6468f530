//! Virtual keys that LiteLLM was asked to create, in the database.

use rusqlite::params;
use sluice_contract::RunKey;

use crate::run::RunPhase;
use crate::store::{Store, StoreError, now_us, run_key};

/// A virtual key that LiteLLM was asked to create, and that may exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// Name of the key at LiteLLM.
    pub alias: String,
    /// Run that uses the key.
    pub key: RunKey,
    /// Address of LiteLLM.
    pub upstream: String,
    /// Time of the request, in microseconds since 1970.
    pub asked_us: i64,
    /// Time at which LiteLLM stops accepting the key, in microseconds since 1970.
    pub expires_us: i64,
}

impl Store {
    /// Adds a key, before LiteLLM is asked to create it.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn add_key(&self, record: KeyRecord) -> Result<(), StoreError> {
        self.write(move |connection| {
            let KeyRecord { alias, key, upstream, asked_us, expires_us } = record;
            connection.execute(
                "INSERT INTO virtual_keys (alias, run_id, attempt, upstream, asked_us, expires_us)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![alias, key.run_id.as_str(), key.attempt, upstream, asked_us, expires_us],
            )?;
            Ok(())
        })
        .await
    }

    /// Records that LiteLLM accepts a key for longer.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn extend_key(&self, alias: &str, expires_us: i64) -> Result<(), StoreError> {
        let alias = alias.to_owned();
        self.write(move |connection| {
            connection
                .execute("UPDATE virtual_keys SET expires_us = ?2 WHERE alias = ?1", params![alias, expires_us])?;
            Ok(())
        })
        .await
    }

    /// Records the end of a key. The first record stays.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn end_key(&self, alias: &str, why: &'static str) -> Result<(), StoreError> {
        let alias = alias.to_owned();
        self.write(move |connection| {
            connection.execute(
                "INSERT OR IGNORE INTO virtual_key_ends (alias, why, ended_us) VALUES (?1, ?2, ?3)",
                params![alias, why, now_us()],
            )?;
            Ok(())
        })
        .await
    }

    /// Returns the keys that may exist at LiteLLM.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn live_keys(&self) -> Result<Vec<KeyRecord>, StoreError> {
        self.keys("1").await
    }

    /// Returns the keys that may exist at LiteLLM and whose run has ended.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn orphaned_keys(&self) -> Result<Vec<KeyRecord>, StoreError> {
        self.keys(&format!("phase = '{}'", RunPhase::Closed.as_str())).await
    }

    async fn keys(&self, clause: &str) -> Result<Vec<KeyRecord>, StoreError> {
        let query = format!(
            "SELECT alias, run_id, attempt, upstream, asked_us, expires_us
             FROM virtual_keys JOIN runs USING (run_id, attempt)
             WHERE NOT EXISTS (SELECT 1 FROM virtual_key_ends AS ends WHERE ends.alias = virtual_keys.alias) AND {clause}
             ORDER BY asked_us"
        );
        self.query(move |connection| {
            let mut query = connection.prepare(&query)?;
            let rows = query.query_map([], |row| {
                Ok(KeyRecord {
                    alias: row.get(0)?,
                    key: run_key(row, 1)?,
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
