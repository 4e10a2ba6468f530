//! Operations of operators: the state of webhooks, messages that were given up, and another series of tries for them.

use rusqlite::params;

use super::WebhookMessage;
use super::messages::{COLUMNS, message};
use crate::store::{Store, StoreError};

/// State of one webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookRow {
    /// Name.
    pub name: String,
    /// Position in the event log. All events up to it are in the outbox, or are not for this webhook.
    pub position: i64,
    /// Number of messages that wait.
    pub waiting: u32,
    /// Number of messages that were given up.
    pub dead: u32,
    /// Time of the last delivery, in microseconds since 1970.
    pub last_success_us: Option<i64>,
    /// Time of the last failed try, in microseconds since 1970.
    pub last_failure_us: Option<i64>,
    /// Reason of the last failure, if no success came after it.
    pub fault: Option<String>,
}

/// Choice of messages that were given up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MessageChoice {
    /// Only messages of this webhook.
    pub webhook: Option<String>,
    /// Only the message with this id.
    pub id: Option<String>,
}

impl Store {
    /// Returns the state of all webhooks that have begun, by name.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn webhook_rows(&self) -> Result<Vec<WebhookRow>, StoreError> {
        self.query(|connection| {
            let mut query = connection.prepare(
                "SELECT name, position,
                        (SELECT count(*) FROM webhook_messages WHERE webhook = name AND dead_us IS NULL),
                        (SELECT count(*) FROM webhook_messages WHERE webhook = name AND dead_us IS NOT NULL),
                        last_success_us, last_failure_us, fault
                 FROM webhooks ORDER BY name",
            )?;
            let rows = query.query_map([], |row| {
                Ok(WebhookRow {
                    name: row.get(0)?,
                    position: row.get(1)?,
                    waiting: row.get(2)?,
                    dead: row.get(3)?,
                    last_success_us: row.get(4)?,
                    last_failure_us: row.get(5)?,
                    fault: row.get(6)?,
                })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Returns messages that were given up, oldest first.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn dead_webhook_messages(&self, choice: MessageChoice) -> Result<Vec<WebhookMessage>, StoreError> {
        self.query(move |connection| {
            let query = format!(
                "SELECT {COLUMNS} FROM webhook_messages
                 WHERE dead_us IS NOT NULL AND webhook = coalesce(?1, webhook) AND id = coalesce(?2, id)
                 ORDER BY dead_us, number"
            );
            let mut query = connection.prepare(&query)?;
            let rows = query.query_map(params![choice.webhook, choice.id], message)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Begins a new series of tries for messages that were given up, and returns their number.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn retry_webhook_messages(&self, choice: MessageChoice, now_us: i64) -> Result<u64, StoreError> {
        self.write(move |connection| {
            let changed = connection.execute(
                "UPDATE webhook_messages SET attempts = 0, next_try_us = ?3, dead_us = NULL, fault = NULL
                 WHERE dead_us IS NOT NULL AND webhook = coalesce(?1, webhook) AND id = coalesce(?2, id)",
                params![choice.webhook, choice.id, now_us],
            )?;
            Ok(changed as u64)
        })
        .await
    }
}
