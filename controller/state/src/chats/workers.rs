//! Workers of chat sessions: live runs that get the later turns of their session as messages.
//!
//! A worker has one turn at a time. A turn is over when the worker has reported that it waits, when its message was withdrawn,
//! or when the run is over. That is read from the event log, so a restart loses nothing.

use rusqlite::{OptionalExtension, Row, Transaction, params};
use sluice_contract::{RunId, RunKey};

use super::ChatBeginError;
use super::sessions::{SessionBusy, run_id};
use crate::messages::{MessageError, MessageState, MessageToSend};
use crate::sandboxes::SandboxState;
use crate::store::{Store, StoreError};

mod turns;

pub(super) use turns::add_first;

/// A live run that answers the turns of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatWorker {
    /// Attempt.
    pub key: RunKey,
    /// Owner of the run.
    pub owner: String,
    /// Principal of the session.
    pub principal: String,
    /// State of the run.
    pub state: SandboxState,
    /// True if it is paused, waits for an approval, or is being ended: no clock of its session ends it.
    pub is_held: bool,
    /// True if the agent asks for messages.
    pub takes_messages: bool,
    /// Newest turn.
    pub turn: ChatTurn,
    /// Time at which the worker was requested to end.
    pub told_to_end_us: Option<i64>,
    /// Time of the last observed work of the run.
    pub worked_us: Option<i64>,
}

/// A turn of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatTurn {
    /// Number in the run, from 1.
    pub number: u32,
    /// Id and state of the message of the turn; none for the first turn.
    pub message: Option<(String, MessageState)>,
    /// True if a client that was cut off may reconnect to it.
    pub is_resumable: bool,
    /// Position of the newest event before the turn.
    pub begin_seq: i64,
    /// Number of interrupts since its client has left.
    pub interrupts: u32,
    /// End of the turn, while the run lives.
    pub end: Option<TurnEnd>,
}

/// End of a turn, with its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnEnd {
    /// The worker waits for the next message.
    Waiting(i64),
    /// The message was withdrawn before the worker had it.
    Withdrawn(i64),
}

impl TurnEnd {
    /// Returns its time, in microseconds since 1970.
    #[must_use]
    pub fn time_us(self) -> i64 {
        match self {
            Self::Waiting(time_us) | Self::Withdrawn(time_us) => time_us,
        }
    }
}

/// A turn for a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewChatTurn {
    /// The run.
    pub run_id: RunId,
    /// The turn after which it comes.
    pub after: u32,
    /// True if a client that was cut off may reconnect to it.
    pub is_resumable: bool,
    /// Its message.
    pub message: MessageToSend,
}

/// Result for a turn without a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbandonedTurn {
    /// The turn is over.
    Over,
    /// The message was withdrawn.
    Withdrawn,
    /// The message is being delivered to the worker, which cannot be interrupted yet.
    OnItsWay,
    /// The worker is interrupted.
    Interrupted,
}

/// Reason that a worker does not get a turn.
#[derive(Debug, thiserror::Error)]
pub enum ChatTurnError {
    /// The worker has another turn, or is ending.
    #[error(transparent)]
    Busy(#[from] SessionBusy),
    /// The turn would exceed a cap of the token.
    #[error(transparent)]
    Cap(#[from] super::ChatCapError),
    /// The message cannot be sent.
    #[error(transparent)]
    Message(#[from] MessageError),
}

impl From<rusqlite::Error> for ChatTurnError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Message(error.into())
    }
}

impl From<StoreError> for ChatTurnError {
    fn from(error: StoreError) -> Self {
        Self::Message(error.into())
    }
}

impl From<ChatBeginError> for ChatTurnError {
    fn from(error: ChatBeginError) -> Self {
        match error {
            ChatBeginError::Cap(cap) => cap.into(),
            ChatBeginError::Busy(busy) => busy.into(),
            ChatBeginError::Sql(error) => error.into(),
        }
    }
}

impl Store {
    /// Returns the live workers of all sessions, in the order in which their runs were created.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn chat_workers(&self) -> Result<Vec<ChatWorker>, StoreError> {
        self.query(|connection| {
            let query = format!("{WORKER} WHERE ended_us IS NULL AND chats.worker = 1 ORDER BY chats.created_us");
            let mut query = connection.prepare_cached(&query)?;
            Ok(query.query_map([], worker)?.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Returns the newest turn of a run among those that begin before a position of the event log. `None` for a
    /// run that is not a worker's.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn chat_turn(&self, run_id: &RunId, before_seq: i64) -> Result<Option<ChatTurn>, StoreError> {
        let run_id = run_id.clone();
        self.query(move |connection| {
            let query = format!("{TURN} WHERE run_id = ?1 AND (begin_seq < ?2 OR turn = 1) ORDER BY turn DESC LIMIT 1");
            let mut query = connection.prepare_cached(&query)?;
            Ok(query.query_row(params![run_id.as_str(), before_seq], |row| turn(row, 0)).optional()?)
        })
        .await
    }

    /// Returns run and position of the turn with a message.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn chat_turn_of_message(&self, message_id: &str) -> Result<Option<(RunId, i64)>, StoreError> {
        let message_id = message_id.to_owned();
        self.query(move |connection| {
            let query = "SELECT run_id, begin_seq FROM chat_turns WHERE message_id = ?1";
            let found = |row: &Row<'_>| Ok((run_id(&row.get::<_, String>(0)?), row.get(1)?));
            Ok(connection.prepare_cached(query)?.query_row([message_id], found).optional()?)
        })
        .await
    }

    /// Returns the number of runs of each owner that have begun and not ended, and the owners of runs that have been in
    /// the queue since a time and wait only for a slot: all runs on which they depend had succeeded by then.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn queue_pressure(&self, since_us: i64) -> Result<QueuePressure, StoreError> {
        self.query(move |connection| {
            let mut query = connection.prepare_cached(
                "SELECT owner, count(*) FROM sandboxes WHERE ended_us IS NULL AND state <> 'PENDING' GROUP BY owner",
            )?;
            let active = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
            let mut query = connection.prepare_cached(
                "SELECT DISTINCT owner FROM sandboxes INDEXED BY sandboxes_queue
                 WHERE state = 'PENDING' AND created_us <= ?1 AND next_try_us <= ?1 AND NOT EXISTS (
                     SELECT 1 FROM sandbox_dependencies AS dependency
                     JOIN sandboxes AS other ON other.run_id = depends_on
                     WHERE dependency.run_id = sandboxes.run_id
                       AND (other.ended_us IS NULL OR other.ended_us > ?1 OR other.outcome IS NOT 'success'))",
            )?;
            let waiting = query.query_map([since_us], |row| row.get(0))?.collect::<Result<_, _>>()?;
            Ok(QueuePressure { active, waiting })
        })
        .await
    }
}

/// Working runs, and owners whose runs wait for a slot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueuePressure {
    /// Owners, and the number of their runs that have begun and not ended.
    pub active: Vec<(String, u32)>,
    /// Owners with a run that only waits for a slot.
    pub waiting: Vec<String>,
}

fn find_worker(transaction: &Transaction<'_>, run_id: &RunId) -> rusqlite::Result<Option<ChatWorker>> {
    let query = format!("{WORKER} WHERE chats.run_id = ?1 AND chats.worker = 1 AND ended_us IS NULL");
    transaction.prepare_cached(&query)?.query_row([run_id.as_str()], worker).optional()
}

/// Time of a turn's end: the newest report, after the turn's message, that the worker waits for a message. A report can
/// come late, or twice. A report that names no message counts once the worker has the turn's message.
macro_rules! waiting_us {
    ($turn:literal) => {
        concat!(
            "(SELECT created_us FROM events
              WHERE sandbox_id = ", $turn, ".run_id AND event_type = 'agent.waiting' AND source <> 'system'
                AND seq > ", $turn, ".begin_seq AND (", $turn, ".message_id IS NULL OR (
                    SELECT CASE WHEN json_type(event_data, '$.after') IS NULL THEN events.created_us >= own.delivered_us
                           ELSE own.number <= (SELECT number FROM messages WHERE id = json_extract(event_data, '$.after')) END
                    FROM messages AS own WHERE own.id = ", $turn, ".message_id))
              ORDER BY seq DESC LIMIT 1)"
        )
    };
}

const TURN: &str = concat!(
    "SELECT turn, chat_turns.message_id, resumable, begin_seq, interrupts, withdrawn_us, ",
    waiting_us!("chat_turns"),
    ", (SELECT state FROM messages WHERE messages.id = chat_turns.message_id), created_us FROM chat_turns"
);

/// A worker, with its newest turn. A request to end that is older than the attempt was for the one before.
const WORKER: &str = concat!(
    "SELECT chats.run_id, sandboxes.attempt, owner, principal, sandboxes.state,
            CASE WHEN worker_ended_us >= claimed_us THEN worker_ended_us END, last_observed_work_us,
            EXISTS (SELECT 1 FROM conversations WHERE conversations.run_id = chats.run_id
                    AND conversations.attempt = sandboxes.attempt AND worker_us IS NOT NULL),
            paused_us IS NOT NULL OR clocks_stopped_us IS NOT NULL OR desired_state = 'stopped',
            newest.turn, newest.message_id, newest.resumable, newest.begin_seq, newest.interrupts, newest.withdrawn_us, ",
    waiting_us!("newest"),
    ", (SELECT state FROM messages WHERE messages.id = newest.message_id), newest.created_us
     FROM chats JOIN sandboxes ON sandboxes.run_id = chats.run_id
     JOIN chat_turns AS newest ON newest.run_id = chats.run_id
         AND newest.turn = (SELECT max(turn) FROM chat_turns WHERE chat_turns.run_id = chats.run_id)"
);

fn worker(row: &Row<'_>) -> rusqlite::Result<ChatWorker> {
    let (id, state): (String, String) = (row.get(0)?, row.get(4)?);
    Ok(ChatWorker {
        key: RunKey { run_id: run_id(&id), attempt: row.get(1)? },
        owner: row.get(2)?,
        principal: row.get(3)?,
        state: SandboxState::of(&state).expect("the column has no other word"),
        takes_messages: row.get(7)?,
        is_held: row.get(8)?,
        turn: turn(row, 9)?,
        told_to_end_us: row.get(5)?,
        worked_us: row.get(6)?,
    })
}

/// Reads a turn from the columns that begin with this one.
fn turn(row: &Row<'_>, first: usize) -> rusqlite::Result<ChatTurn> {
    let (id, state): (Option<String>, Option<String>) = (row.get(first + 1)?, row.get(first + 7)?);
    let state = state.map(|word| MessageState::of(&word).expect("the column has no other word"));
    // The owner of a run can also withdraw its messages.
    let deleted_us = if state == Some(MessageState::Deleted) { Some(row.get(first + 8)?) } else { None };
    let withdrawn = row.get::<_, Option<i64>>(first + 5)?.or(deleted_us).map(TurnEnd::Withdrawn);
    let waiting = row.get::<_, Option<i64>>(first + 6)?.map(TurnEnd::Waiting);
    Ok(ChatTurn {
        number: row.get(first)?,
        message: id.zip(state),
        is_resumable: row.get(first + 2)?,
        begin_seq: row.get(first + 3)?,
        interrupts: row.get(first + 4)?,
        end: withdrawn.or(waiting),
    })
}

#[cfg(test)]
mod tests;
