//! Messages of webhooks: those that are due, and the results of tries.

use rusqlite::{Row, TransactionBehavior, params};

use super::{NextTry, WAIT_MAX_US};
use crate::store::{Store, StoreError};

/// A message to add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewWebhookMessage {
    /// `msg_…`, the same for each try.
    pub id: String,
    /// Position of the event.
    pub seq: i64,
    /// Type of the event.
    pub event_type: String,
    /// JSON that is sent.
    pub body: String,
}

/// A message of the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookMessage {
    /// Number of its row.
    pub number: i64,
    /// The webhook.
    pub webhook: String,
    /// `msg_…`, the same for each try.
    pub id: String,
    /// Position of the event.
    pub seq: i64,
    /// Type of the event.
    pub event_type: String,
    /// JSON that is sent.
    pub body: String,
    /// Time at which it was added, in microseconds since 1970.
    pub created_us: i64,
    /// Number of failed tries.
    pub attempts: u32,
    /// Reason of the last failure.
    pub fault: Option<String>,
    /// Time at which it was given up, in microseconds since 1970.
    pub dead_us: Option<i64>,
}

pub(super) const COLUMNS: &str = "number, webhook, id, seq, event_type, body, created_us, attempts, fault, dead_us";

impl Store {
    /// Returns the due messages of a webhook, the longest waiting first, at most `limit`. A time later than any
    /// wait was written before the clock jumped back: it counts as due.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn due_webhook_messages(
        &self,
        name: &str,
        now_us: i64,
        limit: u32,
    ) -> Result<Vec<WebhookMessage>, StoreError> {
        let name = name.to_owned();
        self.query(move |connection| {
            let query = format!(
                "SELECT {COLUMNS} FROM webhook_messages
                 WHERE webhook = ?1 AND dead_us IS NULL AND (next_try_us <= ?2 OR next_try_us > ?4)
                 ORDER BY next_try_us, number LIMIT ?3"
            );
            let mut query = connection.prepare_cached(&query)?;
            let rows = query.query_map(params![name, now_us, limit, now_us.saturating_add(WAIT_MAX_US)], message)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Removes a message that was delivered.
    ///
    /// # Errors
    /// Errors of SQLite; then it is delivered again.
    pub async fn webhook_delivered(&self, message: &WebhookMessage, now_us: i64) -> Result<(), StoreError> {
        let (number, webhook) = (message.number, message.webhook.clone());
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            transaction.prepare_cached("DELETE FROM webhook_messages WHERE number = ?1")?.execute([number])?;
            transaction
                .prepare_cached(
                    "UPDATE webhooks SET last_success_us = ?2, fault = NULL, updated_us = ?2 WHERE name = ?1",
                )?
                .execute(params![webhook, now_us])?;
            Ok(transaction.commit()?)
        })
        .await
    }

    /// Records a failed try. The webhook keeps at most `dead_max` messages that were given up, the newest ones. Returns
    /// the number of messages that it dropped for that.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn webhook_failed(
        &self,
        message: &WebhookMessage,
        fault: &str,
        next: NextTry,
        dead_max: u32,
        now_us: i64,
    ) -> Result<u64, StoreError> {
        let (number, webhook, fault) = (message.number, message.webhook.clone(), fault.to_owned());
        let (next_try_us, dead_us) = match next {
            NextTry::At(us) => (us, None),
            NextTry::Never => (now_us, Some(now_us)),
        };
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            transaction
                .prepare_cached(
                    "UPDATE webhook_messages SET attempts = attempts + 1, fault = ?2, next_try_us = ?3, dead_us = ?4
                     WHERE number = ?1",
                )?
                .execute(params![number, fault, next_try_us, dead_us])?;
            transaction
                .prepare_cached(
                    "UPDATE webhooks SET last_failure_us = ?2, fault = ?3, updated_us = ?2 WHERE name = ?1",
                )?
                .execute(params![webhook, now_us, fault])?;
            let dropped = transaction
                .prepare_cached(
                    "DELETE FROM webhook_messages WHERE number IN (
                         SELECT number FROM webhook_messages WHERE webhook = ?1 AND dead_us IS NOT NULL
                         ORDER BY dead_us DESC, number DESC LIMIT -1 OFFSET ?2)",
                )?
                .execute(params![webhook, dead_max])?;
            transaction.commit()?;
            Ok(dropped as u64)
        })
        .await
    }
}

pub(super) fn message(row: &Row<'_>) -> rusqlite::Result<WebhookMessage> {
    Ok(WebhookMessage {
        number: row.get(0)?,
        webhook: row.get(1)?,
        id: row.get(2)?,
        seq: row.get(3)?,
        event_type: row.get(4)?,
        body: row.get(5)?,
        created_us: row.get(6)?,
        attempts: row.get(7)?,
        fault: row.get(8)?,
        dead_us: row.get(9)?,
    })
}
