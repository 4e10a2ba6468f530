//! The turns of a worker: begun, withdrawn or interrupted; and the end of the worker.

use rusqlite::{Transaction, TransactionBehavior, params};
use sluice_contract::RunId;
use sluice_contract::control::MessageType;

use super::{AbandonedTurn, ChatTurn, ChatTurnError, ChatWorker, NewChatTurn, find_worker};
use crate::chats::{SessionBusy, check_caps};
use crate::events::announce;
use crate::messages::{self, Afterwards, InjectMode, MessageError, MessageState, MessageToSend, message_id};
use crate::sandboxes;
use crate::store::Store;

/// Text of an interrupt, for a worker that treats an interrupt as a message.
const LEFT: &str = "The person has left. Stop here, and wait for the next message.";
/// Text of the interrupt at the end of the session.
const OVER: &str = "The conversation is over. Stop here, and end.";
/// Sender of the interrupts.
const SENDER: &str = "daemon";

impl Store {
    /// Gives a waiting worker a turn: its message is queued. Returns the position of the event log before it.
    ///
    /// # Errors
    /// [`ChatTurnError`]; then nothing is changed.
    pub async fn begin_chat_turn(&self, new: NewChatTurn, now_us: i64) -> Result<i64, ChatTurnError> {
        let signal = self.event_signal();
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let worker = find_worker(&transaction, &new.run_id)?.ok_or(SessionBusy)?;
            let is_free = worker.told_to_end_us.is_none() && worker.turn.end.is_some();
            if !is_free || worker.turn.number != new.after {
                return Err(SessionBusy.into());
            }
            let begin_seq = newest_event(&transaction)?;
            let message_id = new.message.id.clone();
            let (_, seq) = messages::add(&transaction, &new.run_id, new.message, now_us)?;
            transaction
                .prepare_cached(
                    "INSERT INTO chat_turns (run_id, turn, message_id, resumable, begin_seq, created_us)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                )?
                .execute(params![
                    new.run_id.as_str(),
                    new.after + 1,
                    message_id,
                    new.is_resumable,
                    begin_seq,
                    now_us,
                ])?;
            check_caps(&transaction, &new.run_id, &worker.principal, now_us)?;
            transaction.commit()?;
            if let Some(seq) = seq {
                announce(&signal, seq);
            }
            Ok(begin_seq)
        })
        .await
    }

    /// Ends a turn without a client: its message is withdrawn, or its worker is interrupted.
    ///
    /// # Errors
    /// Errors of SQLite, and of the messages of the run.
    pub async fn abandon_chat_turn(
        &self,
        run_id: &RunId,
        number: u32,
        now_us: i64,
    ) -> Result<AbandonedTurn, MessageError> {
        let (run_id, signal) = (run_id.clone(), self.event_signal());
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let Some(worker) = find_worker(&transaction, &run_id)?.filter(|worker| worker.turn.number == number) else {
                return Ok(AbandonedTurn::Over);
            };
            let (done, seq) = match &worker.turn {
                ChatTurn { end: Some(_), .. } => return Ok(AbandonedTurn::Over),
                ChatTurn { message: Some((_, MessageState::Leased | MessageState::Sent)), .. } => {
                    return Ok(AbandonedTurn::OnItsWay);
                }
                ChatTurn { message: Some((id, state)), .. } if state.is_changeable() => {
                    (AbandonedTurn::Withdrawn, Some(withdraw(&transaction, &worker, id, now_us)?))
                }
                _ => {
                    transaction
                        .prepare_cached(
                            "UPDATE chat_turns SET interrupts = interrupts + 1, interrupted_us = ?3
                             WHERE run_id = ?1 AND turn = ?2",
                        )?
                        .execute(params![run_id.as_str(), number, now_us])?;
                    (AbandonedTurn::Interrupted, tell(&transaction, &run_id, LEFT, Afterwards::Wait, now_us)?)
                }
            };
            transaction.commit()?;
            if let Some(seq) = seq {
                announce(&signal, seq);
            }
            Ok(done)
        })
        .await
    }

    /// Requests the end of a waiting worker. Returns false if it has a turn, or was requested to end before.
    ///
    /// # Errors
    /// Errors of SQLite, and of the messages of the run.
    pub async fn end_chat_worker(&self, run_id: &RunId, now_us: i64) -> Result<bool, MessageError> {
        let (run_id, signal) = (run_id.clone(), self.event_signal());
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let is_free = find_worker(&transaction, &run_id)?
                .is_some_and(|worker| worker.told_to_end_us.is_none() && worker.turn.end.is_some());
            if !is_free {
                return Ok(false);
            }
            transaction
                .prepare_cached("UPDATE chats SET worker_ended_us = ?2 WHERE run_id = ?1")?
                .execute(params![run_id.as_str(), now_us])?;
            let seq = tell(&transaction, &run_id, OVER, Afterwards::End, now_us)?;
            transaction.commit()?;
            if let Some(seq) = seq {
                announce(&signal, seq);
            }
            Ok(true)
        })
        .await
    }
}

/// Adds the first turn of a worker.
pub(in crate::chats) fn add_first(
    transaction: &Transaction<'_>,
    run_id: &RunId,
    is_resumable: bool,
    now_us: i64,
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "INSERT INTO chat_turns (run_id, turn, resumable, begin_seq, created_us) VALUES (?1, 1, ?2, 0, ?3)",
        )?
        .execute(params![run_id.as_str(), is_resumable, now_us])
        .map(drop)
}

/// Sends an interrupt that starts no turn.
fn tell(
    transaction: &Transaction<'_>,
    run_id: &RunId,
    content: &str,
    afterwards: Afterwards,
    now_us: i64,
) -> Result<Option<i64>, MessageError> {
    let id = message_id();
    let new = MessageToSend {
        id: id.clone(),
        content: content.to_owned(),
        message_type: MessageType::Interrupt,
        urgent: true,
        inject_mode: InjectMode::NextTurn,
        steering_type: None,
        source: None,
        sender: SENDER.to_owned(),
        idempotency: None,
    };
    let (_, seq) = messages::add(transaction, run_id, new, now_us)?;
    transaction
        .prepare_cached("UPDATE messages SET afterwards = ?2 WHERE id = ?1")?
        .execute(params![id, afterwards.as_str()])?;
    Ok(seq)
}

/// Takes back the message of a turn. Returns the position of its event.
fn withdraw(transaction: &Transaction<'_>, worker: &ChatWorker, id: &str, now_us: i64) -> Result<i64, MessageError> {
    let run_id = &worker.key.run_id;
    let sandbox = sandboxes::find(transaction, run_id)?.ok_or_else(|| MessageError::NoRun(run_id.clone()))?;
    let found = messages::find(transaction, run_id, id)?.ok_or_else(|| MessageError::NotFound(id.to_owned()))?;
    messages::set_state(transaction, id, MessageState::Deleted, None, None)?;
    transaction
        .prepare_cached("UPDATE chat_turns SET withdrawn_us = ?3 WHERE run_id = ?1 AND turn = ?2")?
        .execute(params![run_id.as_str(), worker.turn.number, now_us])?;
    Ok(messages::report(transaction, &sandbox, "message.deleted", &found, serde_json::json!({}), now_us)?)
}

fn newest_event(transaction: &Transaction<'_>) -> rusqlite::Result<i64> {
    let query = "SELECT coalesce(max(seq), 0) FROM events";
    transaction.prepare_cached(query)?.query_row([], |row| row.get(0))
}
