//! The row of a message.

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};
use serde_json::{Value, json};
use sluice_contract::RunId;
use sluice_contract::control::MessageType;

use super::{Afterwards, InjectMode, MessageError, MessageState, StoredMessage, type_word};
use crate::events::announce;
use crate::sandboxes::{self, Sandbox};
use crate::store::Store;

pub(super) const COLUMNS: &str = "number, id, content, message_type, urgent, inject_mode, steering_type, source, sender, \
    state, anchor, created_us, delivered_us, afterwards";
/// The order of delivery.
pub(super) const ORDER: &str = "urgent DESC, number";

pub(super) fn message(row: &Row<'_>) -> rusqlite::Result<StoredMessage> {
    let (kind, mode, state): (String, String, String) = (row.get(3)?, row.get(5)?, row.get(9)?);
    let anchor: Option<String> = row.get(10)?;
    let unreadable =
        |error: serde_json::Error| rusqlite::Error::FromSqlConversionFailure(10, Type::Text, Box::new(error));
    Ok(StoredMessage {
        number: row.get(0)?,
        id: row.get(1)?,
        content: row.get(2)?,
        message_type: message_type(&kind),
        urgent: row.get(4)?,
        inject_mode: InjectMode::of(&mode).expect("the column has no other word"),
        steering_type: row.get(6)?,
        source: row.get(7)?,
        sender: row.get(8)?,
        state: MessageState::of(&state).expect("the column has no other word"),
        anchor: anchor.map(|text| serde_json::from_str(&text).map_err(unreadable)).transpose()?,
        created_us: row.get(11)?,
        delivered_us: row.get(12)?,
        afterwards: row.get::<_, Option<String>>(13)?.as_deref().and_then(Afterwards::of),
    })
}

fn message_type(word: &str) -> MessageType {
    let all = [MessageType::UserMessage, MessageType::Interrupt, MessageType::GuardianNudge, MessageType::System];
    all.into_iter().find(|kind| type_word(*kind) == word).expect("the column has no other word")
}

pub(crate) fn find(connection: &Connection, run_id: &RunId, id: &str) -> rusqlite::Result<Option<StoredMessage>> {
    let query = format!("SELECT {COLUMNS} FROM messages WHERE run_id = ?1 AND id = ?2");
    connection.prepare_cached(&query)?.query_row(params![run_id.as_str(), id], message).optional()
}

/// Returns the messages of a run that meet a condition on the columns, in the order of their delivery. `?2` in the
/// condition is `now_us`.
pub(super) fn select(
    connection: &Connection,
    run_id: &RunId,
    condition: &str,
    now_us: i64,
    limit: u32,
) -> rusqlite::Result<Vec<StoredMessage>> {
    let query = format!(
        "SELECT {COLUMNS} FROM messages WHERE run_id = ?1 AND {condition} AND ?2 IS NOT NULL ORDER BY {ORDER} LIMIT ?3"
    );
    connection.prepare_cached(&query)?.query_map(params![run_id.as_str(), now_us, limit], message)?.collect()
}

/// Sets the state of a message. `until_us` is the end of a lease.
pub(crate) fn set_state(
    transaction: &Transaction<'_>,
    id: &str,
    state: MessageState,
    until_us: Option<i64>,
    delivered_us: Option<i64>,
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "UPDATE messages SET state = ?2, leased_until_us = ?3, delivered_us = coalesce(delivered_us, ?4) WHERE id = ?1",
        )?
        .execute(params![id, state.as_str(), until_us, delivered_us])?;
    Ok(())
}

/// Appends an event about a message, and returns its position.
pub(crate) fn report(
    transaction: &Transaction<'_>,
    sandbox: &Sandbox,
    event_type: &str,
    message: &StoredMessage,
    more: Value,
    now_us: i64,
) -> rusqlite::Result<i64> {
    let mut data = json!({
        "message_id": message.id,
        "message_type": type_word(message.message_type),
        "urgent": message.urgent,
        "inject_mode": message.inject_mode.as_str(),
    });
    if let (Some(data), Value::Object(more)) = (data.as_object_mut(), more) {
        data.extend(more);
    }
    sandboxes::report(transaction, sandbox, event_type, &data, now_us)
}

/// Returns the run that has the messages.
pub(super) fn run(transaction: &Transaction<'_>, run_id: &RunId) -> Result<Sandbox, MessageError> {
    sandboxes::find(transaction, run_id)?.ok_or_else(|| MessageError::NoRun(run_id.clone()))
}

impl Store {
    /// Changes messages in one transaction. The change returns the position of its last event, if it appends one.
    pub(super) async fn change_messages<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Transaction<'_>) -> Result<(T, Option<i64>), MessageError> + Send + 'static,
    ) -> Result<T, MessageError> {
        let signal = self.event_signal();
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let (changed, seq) = change(&transaction)?;
            transaction.commit()?;
            if let Some(seq) = seq {
                announce(&signal, seq);
            }
            Ok(changed)
        })
        .await
    }
}
