//! Progress of webhooks in the event log.

use rusqlite::{OptionalExtension, TransactionBehavior, params};

use super::NewWebhookMessage;
use crate::store::{Store, StoreError};

impl Store {
    /// Returns the position of a webhook. A new one begins after the newest event.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn begin_webhook(&self, name: &str, now_us: i64) -> Result<i64, StoreError> {
        let name = name.to_owned();
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            transaction.execute(
                "INSERT INTO webhooks (name, position, updated_us)
                 VALUES (?1, coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0), ?2)
                 ON CONFLICT DO NOTHING",
                params![name, now_us],
            )?;
            let position =
                transaction.query_row("SELECT position FROM webhooks WHERE name = ?1", [name], |row| row.get(0))?;
            transaction.commit()?;
            Ok(position)
        })
        .await
    }

    /// Returns the time at which a webhook last took or sent anything, in microseconds since 1970; none for a new one.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn webhook_used_us(&self, name: &str) -> Result<Option<i64>, StoreError> {
        let name = name.to_owned();
        self.query(move |connection| {
            let mut query = connection.prepare_cached("SELECT updated_us FROM webhooks WHERE name = ?1")?;
            Ok(query.query_row([name], |row| row.get(0)).optional()?)
        })
        .await
    }

    /// Adds messages about events up to a position, and moves the webhook there. An existing message is left out.
    /// Returns false, and adds nothing, if the webhook is not at the position that the caller has read from.
    ///
    /// # Errors
    /// Errors of SQLite; then nothing is added.
    pub async fn take_webhook_events(
        &self,
        name: &str,
        (from, to): (i64, i64),
        messages: Vec<NewWebhookMessage>,
        now_us: i64,
    ) -> Result<bool, StoreError> {
        let name = name.to_owned();
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let moved = transaction.execute(
                "UPDATE webhooks SET position = ?3, updated_us = ?4 WHERE name = ?1 AND position = ?2 AND ?3 >= ?2",
                params![name, from, to, now_us],
            )?;
            if moved == 0 {
                return Ok(false);
            }
            for NewWebhookMessage { id, seq, event_type, body } in messages {
                transaction
                    .prepare_cached(
                        "INSERT INTO webhook_messages (webhook, id, seq, event_type, body, created_us, next_try_us)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6) ON CONFLICT (webhook, seq) DO NOTHING",
                    )?
                    .execute(params![name, id, seq, event_type, body, now_us])?;
            }
            transaction.commit()?;
            Ok(true)
        })
        .await
    }

    /// Returns the number of messages of a webhook that wait.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn waiting_webhook_messages(&self, name: &str) -> Result<u32, StoreError> {
        let name = name.to_owned();
        self.query(move |connection| {
            let mut query = connection
                .prepare_cached("SELECT count(*) FROM webhook_messages WHERE webhook = ?1 AND dead_us IS NULL")?;
            Ok(query.query_row([name], |row| row.get(0))?)
        })
        .await
    }

    /// Removes messages that were given up before a time, and all data of webhooks that are not configured and have not
    /// been used since then. Returns the number of messages and webhooks.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn remove_old_webhook_messages(
        &self,
        configured: Vec<String>,
        before_us: i64,
    ) -> Result<u64, StoreError> {
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let mut removed =
                transaction.execute("DELETE FROM webhook_messages WHERE dead_us < ?1", [before_us])? as u64;
            let unused: Vec<String> = transaction
                .prepare("SELECT name FROM webhooks WHERE updated_us < ?1")?
                .query_map([before_us], |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            for name in unused.iter().filter(|name| !configured.contains(name)) {
                removed += transaction.execute("DELETE FROM webhooks WHERE name = ?1", [name])? as u64;
            }
            transaction.commit()?;
            Ok(removed)
        })
        .await
    }

    /// Returns the time of the next try of a webhook, in microseconds since 1970; none if nothing waits.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn next_webhook_try(&self, name: &str) -> Result<Option<i64>, StoreError> {
        let name = name.to_owned();
        self.query(move |connection| {
            let mut query = connection.prepare_cached(
                "SELECT next_try_us FROM webhook_messages WHERE webhook = ?1 AND dead_us IS NULL
                 ORDER BY next_try_us, number LIMIT 1",
            )?;
            Ok(query.query_row([name], |row| row.get(0)).optional()?)
        })
        .await
    }
}
