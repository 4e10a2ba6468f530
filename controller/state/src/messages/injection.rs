//! Messages that the sidecar adds to calls.
//!
//! The sidecar gets the messages of an agent without a worker, and messages that must come with the next call in any case.
//! Once a worker asks for messages, those that can wait are taken back from the sidecar, unless they are being delivered.

use rusqlite::{Transaction, params};
use serde_json::json;
use sluice_contract::RunKey;
use sluice_contract::control::{InjectedMessage, InjectionStatus, PendingMessage};

use super::conversation::conversation;
use super::row::{find, report, run, select, set_state};
use super::{InjectMode, MessageError, MessageState, OFFERED_BYTES_MAX, PENDING_MAX, StoredMessage};
use crate::sandboxes::Sandbox;
use crate::store::Store;

/// Messages that the sidecar of an attempt is to have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Injection {
    /// The messages, in the order of their delivery. They count as offered.
    pub list: Vec<PendingMessage>,
    /// Ids of messages that the sidecar had, and is not to have any longer. They count as offered until it has the list.
    pub withdrawn: Vec<String>,
    /// True if the sidecar has added a message to the conversation: it can still be lost.
    pub is_watched: bool,
}

const WITH_SIDECAR: &str = "state IN ('queued', 'offered', 'sent')";

impl Store {
    /// Returns whether the sidecar of an attempt is to have messages, or had some.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn has_injection(&self, key: &RunKey) -> Result<bool, MessageError> {
        let key = key.clone();
        self.query(move |connection| {
            let mut query = connection.prepare_cached(
                "SELECT 1 FROM messages WHERE run_id = ?1 AND state IN ('queued', 'offered', 'sent')
                 UNION ALL SELECT 1 FROM messages WHERE run_id = ?1 AND anchor_attempt = ?2 LIMIT 1",
            )?;
            Ok(query.exists(params![key.run_id.as_str(), key.attempt])?)
        })
        .await
    }

    /// Decides which messages the sidecar of an attempt is to have, and counts them as offered.
    ///
    /// # Errors
    /// [`MessageError::RunFinished`]: another attempt is working, or none.
    pub async fn offer_messages(&self, key: &RunKey) -> Result<Injection, MessageError> {
        let key = key.clone();
        self.change_messages(move |transaction| Ok((offer(transaction, &key)?, None))).await
    }

    /// Puts messages that the sidecar no longer has into the queue again, unless they were sent meanwhile.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn take_back_messages(&self, ids: Vec<String>) -> Result<(), MessageError> {
        self.change_messages(move |transaction| {
            for id in ids {
                let query = "UPDATE messages SET state = 'queued' WHERE id = ?1 AND state = 'offered'";
                transaction.prepare_cached(query)?.execute([id])?;
            }
            Ok(((), None))
        })
        .await
    }

    /// Records the states of messages at the sidecar of an attempt. Entries that were read before are left out.
    ///
    /// # Errors
    /// [`MessageError::RunFinished`]: another attempt is working, or none.
    pub async fn record_injected(
        &self,
        key: &RunKey,
        entries: Vec<InjectedMessage>,
        now_us: i64,
    ) -> Result<(), MessageError> {
        let key = key.clone();
        self.change_messages(move |transaction| {
            let sandbox = run(transaction, &key.run_id)?;
            if sandbox.key != key || sandbox.state.is_ended() {
                return Err(MessageError::RunFinished);
            }
            let before = conversation(transaction, &key)?.injected;
            let mut seq = None;
            for entry in entries.iter().filter(|entry| entry.number > before) {
                seq = record(transaction, &sandbox, entry, now_us)?.or(seq);
            }
            let last = entries.iter().map(|entry| entry.number).max().unwrap_or_default().max(before);
            transaction
                .prepare_cached(
                    "INSERT INTO conversations (run_id, attempt, injected) VALUES (?1, ?2, ?3)
                     ON CONFLICT DO UPDATE SET injected = ?3",
                )?
                .execute(params![key.run_id.as_str(), key.attempt, last.cast_signed()])?;
            Ok(((), seq))
        })
        .await
    }
}

fn offer(transaction: &Transaction<'_>, key: &RunKey) -> Result<Injection, MessageError> {
    let sandbox = run(transaction, &key.run_id)?;
    if sandbox.key != *key || sandbox.state.is_ended() {
        return Err(MessageError::RunFinished);
    }
    let conversation = conversation(transaction, key)?;
    let waits_for_worker =
        |message: &StoredMessage| conversation.worker_us.is_some() && message.inject_mode == InjectMode::NextTurn;
    let mut injection = Injection::default();
    let mut bytes = 0;
    for message in select(transaction, &key.run_id, WITH_SIDECAR, 0, PENDING_MAX)? {
        let is_for_worker = waits_for_worker(&message);
        bytes += if is_for_worker { 0 } else { message.content.len() };
        let is_left_out = is_for_worker || bytes > OFFERED_BYTES_MAX && !injection.list.is_empty();
        match message.state {
            MessageState::Offered if is_left_out => injection.withdrawn.push(message.id),
            MessageState::Queued if is_left_out => {}
            state => {
                if state == MessageState::Queued {
                    set_state(transaction, &message.id, MessageState::Offered, None, None)?;
                }
                let StoredMessage { id, content, message_type, anchor, .. } = message;
                injection.list.push(PendingMessage { message_id: id, content, message_type, anchor });
            }
        }
    }
    let mut query =
        transaction.prepare_cached("SELECT 1 FROM messages WHERE run_id = ?1 AND anchor_attempt = ?2 LIMIT 1")?;
    injection.is_watched = query.exists(params![key.run_id.as_str(), key.attempt])?;
    Ok(injection)
}

/// Records one step of a message, and returns the position of its event.
fn record(
    transaction: &Transaction<'_>,
    sandbox: &Sandbox,
    entry: &InjectedMessage,
    now_us: i64,
) -> Result<Option<i64>, MessageError> {
    // A sidecar may have a message that is missing in the database, if the database was restored from a backup.
    let Some(message) = find(transaction, &sandbox.key.run_id, &entry.message_id)? else { return Ok(None) };
    if let Some(anchor) = &entry.anchor {
        let anchor = serde_json::to_string(anchor).expect("texts are JSON");
        transaction
            .prepare_cached("UPDATE messages SET anchor = ?2, anchor_attempt = ?3 WHERE id = ?1")?
            .execute(params![message.id, anchor, sandbox.key.attempt])?;
    }
    let more = json!({ "way": "call", "call_id": entry.call_id });
    match entry.status {
        InjectionStatus::Sent if message.state == MessageState::Delivered => Ok(None),
        InjectionStatus::Sent => {
            set_state(transaction, &message.id, MessageState::Sent, None, None)?;
            Ok(None)
        }
        InjectionStatus::Acknowledged if message.state == MessageState::Delivered => Ok(None),
        InjectionStatus::Acknowledged => {
            set_state(transaction, &message.id, MessageState::Delivered, None, Some(now_us))?;
            Ok(Some(report(transaction, sandbox, "message.delivered", &message, more, now_us)?))
        }
        InjectionStatus::Lost if message.state == MessageState::Lost => Ok(None),
        InjectionStatus::Lost => {
            set_state(transaction, &message.id, MessageState::Lost, None, None)?;
            let more = json!({ "reason": "place_gone", "call_id": entry.call_id });
            Ok(Some(report(transaction, sandbox, "message.lost", &message, more, now_us)?))
        }
    }
}
