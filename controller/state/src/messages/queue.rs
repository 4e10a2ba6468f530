//! Operations of senders: they send, read, remove and prioritise messages.

use rusqlite::{Transaction, params};
use serde_json::json;
use sluice_contract::RunId;
use sluice_contract::control::MessageType;

use super::content::{clean_content, intervention_prefix};
use super::row::{COLUMNS, find, message, report, run, set_state};
use super::{MessageError, MessageState, MessageToSend, PENDING_MAX, StoredMessage, type_word};
use crate::idempotency;
use crate::store::{Parameters, Store};

/// Selection of messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageFilter {
    /// Only messages in one of these states; an empty list selects all.
    pub states: Vec<MessageState>,
    /// Only interventions.
    pub interventions: bool,
    /// Only messages that were sent before this one, by its number.
    pub before: Option<i64>,
}

/// A page of messages, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessagePage {
    /// The messages.
    pub messages: Vec<StoredMessage>,
    /// Number of the last one, if more follow.
    pub next: Option<i64>,
}

impl Store {
    /// Sends a message to a run. It is on disk when this returns.
    ///
    /// # Errors
    /// [`MessageError`]; then nothing is sent.
    pub async fn add_message(
        &self,
        run_id: &RunId,
        new: MessageToSend,
        now_us: i64,
    ) -> Result<StoredMessage, MessageError> {
        let run_id = run_id.clone();
        self.change_messages(move |transaction| add(transaction, &run_id, new, now_us)).await
    }

    /// Returns a message of a run.
    ///
    /// # Errors
    /// [`MessageError::NotFound`]
    pub async fn find_message(&self, run_id: &RunId, id: &str) -> Result<StoredMessage, MessageError> {
        let (run_id, id) = (run_id.clone(), id.to_owned());
        self.query(move |connection| find(connection, &run_id, &id)?.ok_or(MessageError::NotFound(id))).await
    }

    /// Lists the messages of a run, newest first.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn list_messages(
        &self,
        run_id: &RunId,
        filter: MessageFilter,
        limit: u32,
    ) -> Result<MessagePage, MessageError> {
        let run_id = run_id.to_string();
        self.query(move |connection| {
            let mut parameters = Parameters::default();
            let mut conditions = vec![format!("run_id = {}", parameters.bind(run_id))];
            if !filter.states.is_empty() {
                let states: Vec<_> = filter.states.iter().map(|state| format!("'{}'", state.as_str())).collect();
                conditions.push(format!("state IN ({})", states.join(", ")));
            }
            if filter.interventions {
                conditions.push("id GLOB 'int-*'".to_owned());
            }
            if let Some(before) = filter.before {
                conditions.push(format!("number < {}", parameters.bind(before)));
            }
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            let (conditions, rows) = (conditions.join(" AND "), limit.saturating_add(1));
            let query = format!("SELECT {COLUMNS} FROM messages WHERE {conditions} ORDER BY number DESC LIMIT {rows}");
            let mut messages = parameters.rows(connection, &query, message)?;
            let has_more = messages.len() > limit;
            messages.truncate(limit);
            let next = messages.last().filter(|_| has_more).map(|last| last.number);
            Ok(MessagePage { messages, next })
        })
        .await
    }

    /// Removes a message that is not being delivered yet. It stays in the list. Returns it with its earlier state.
    ///
    /// # Errors
    /// [`MessageError::NotFound`], [`MessageError::NotChangeable`].
    pub async fn delete_message(
        &self,
        run_id: &RunId,
        id: &str,
        now_us: i64,
    ) -> Result<(StoredMessage, MessageState), MessageError> {
        let (run_id, id) = (run_id.clone(), id.to_owned());
        self.change_messages(move |transaction| {
            let (sandbox, found) = changeable(transaction, &run_id, &id, MessageState::Deleted)?;
            let before = found.state;
            if before == MessageState::Deleted {
                return Ok(((found, before), None));
            }
            set_state(transaction, &id, MessageState::Deleted, None, None)?;
            let seq = report(transaction, &sandbox, "message.deleted", &found, json!({}), now_us)?;
            Ok(((StoredMessage { state: MessageState::Deleted, ..found }, before), Some(seq)))
        })
        .await
    }

    /// Prioritises a message that is not being delivered yet.
    ///
    /// # Errors
    /// [`MessageError::NotFound`], [`MessageError::NotChangeable`].
    pub async fn promote_message(&self, run_id: &RunId, id: &str, now_us: i64) -> Result<StoredMessage, MessageError> {
        let (run_id, id) = (run_id.clone(), id.to_owned());
        self.change_messages(move |transaction| {
            let (sandbox, found) = changeable(transaction, &run_id, &id, MessageState::Queued)?;
            if found.urgent {
                return Ok((found, None));
            }
            transaction.prepare_cached("UPDATE messages SET urgent = 1 WHERE id = ?1")?.execute([&id])?;
            let promoted = StoredMessage { urgent: true, ..found };
            let seq = report(transaction, &sandbox, "message.promoted", &promoted, json!({}), now_us)?;
            Ok((promoted, Some(seq)))
        })
        .await
    }
}

/// Adds a message in the caller's transaction. Also returns the position of its event.
pub(crate) fn add(
    transaction: &Transaction<'_>,
    run_id: &RunId,
    new: MessageToSend,
    now_us: i64,
) -> Result<(StoredMessage, Option<i64>), MessageError> {
    let sandbox = run(transaction, run_id)?;
    if sandbox.state.is_ended() || sandbox.verdict.is_some() {
        return Err(MessageError::RunFinished);
    }
    let mut content = clean_content(&new.content)?;
    if let Some(kind) = &new.steering_type {
        content.insert_str(0, &intervention_prefix(kind));
    }
    let pending: u32 = transaction
        .prepare_cached(
            "SELECT count(*) FROM messages
             WHERE run_id = ?1 AND state IN ('queued', 'leased', 'offered', 'sent')",
        )?
        .query_row([run_id.as_str()], |row| row.get(0))?;
    if pending >= PENDING_MAX {
        return Err(MessageError::QueueFull);
    }
    if let Some(key) = &new.idempotency {
        idempotency::complete(transaction, key, &new.id)?;
    }
    let urgent = new.urgent || new.message_type == MessageType::Interrupt;
    transaction
        .prepare_cached(
            "INSERT INTO messages (id, run_id, content, message_type, urgent, inject_mode, steering_type, source, sender,
                                   state, created_us)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 'queued', ?10)",
        )?
        .execute(params![
            new.id,
            run_id.as_str(),
            content,
            type_word(new.message_type),
            urgent,
            new.inject_mode.as_str(),
            new.steering_type,
            new.source,
            new.sender,
            now_us,
        ])?;
    let added = find(transaction, run_id, &new.id)?.ok_or(MessageError::NotFound(new.id))?;
    let seq = report(transaction, &sandbox, "message.queued", &added, json!({}), now_us)?;
    Ok((added, Some(seq)))
}

/// Returns a message that can be changed, or that is in the state that a change leads to.
fn changeable(
    transaction: &Transaction<'_>,
    run_id: &RunId,
    id: &str,
    target: MessageState,
) -> Result<(crate::sandboxes::Sandbox, StoredMessage), MessageError> {
    let sandbox = run(transaction, run_id)?;
    let found = find(transaction, run_id, id)?.ok_or_else(|| MessageError::NotFound(id.to_owned()))?;
    if found.state.is_changeable() || found.state == target {
        Ok((sandbox, found))
    } else {
        Err(MessageError::NotChangeable(found.state.as_str()))
    }
}
