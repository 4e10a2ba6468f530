//! Chats: runs that a chat client began, and the caps of its token.
//!
//! A chat is an ordinary run with an additional row, which names its principal and its end user. Caps are checked in
//! the transaction that creates the run, so chats that begin at once cannot exceed them together.

use rusqlite::{OptionalExtension, Row, Transaction, params};
use sluice_contract::billing::NEVER_BILLED;
use sluice_contract::{RunId, Usd};

pub use self::sessions::{ChatSession, SessionBusy, SessionLimits, SessionState, SessionTurn};
pub use self::workers::{AbandonedTurn, ChatTurn, ChatTurnError, ChatWorker, NewChatTurn, QueuePressure, TurnEnd};
use crate::store::{Store, StoreError};

mod sessions;
mod workers;

const DAY_US: i64 = 24 * 3600 * 1_000_000;
/// Beginning of the id of a principal that has a token.
const TOKEN: &str = "token:";

/// A run as a turn of a chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewChat {
    /// Principal of the request: `token:ID`, `session:ID` or `uid:N`.
    pub principal: String,
    /// The client's word for its own user.
    pub end_user: Option<String>,
    /// The client's name for the conversation.
    pub session_id: Option<String>,
    /// True if a client that was cut off may reconnect.
    pub is_resumable: bool,
    /// Position of the turn in its session, if turns of a session continue from each other.
    pub turn: Option<SessionTurn>,
}

/// A chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chat {
    /// Run that answers.
    pub run_id: RunId,
    /// Owner of the run.
    pub owner: String,
    /// Request of the chat.
    pub new: NewChat,
}

/// Caps of a chat token for one day (UTC).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChatCaps {
    /// Number of chats that may begin.
    pub runs_per_day: u32,
    /// Nano-USD that they may cost; none for no cap.
    pub cost_per_day: Option<i64>,
}

impl Default for ChatCaps {
    fn default() -> Self {
        Self { runs_per_day: 500, cost_per_day: None }
    }
}

/// A cap of a chat token that a new chat would exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChatCapError {
    /// The token has begun too many chats.
    #[error("this token has begun {max} chats today, which is its limit; it may begin more after midnight UTC")]
    Runs {
        /// The cap.
        max: u32,
        /// Time until the next day, in microseconds.
        wait_us: i64,
    },
    /// The chats of the token may cost too much.
    #[error(
        "the chats of this token may cost no more today: what they have cost, and what live ones may cost, reaches its \
         limit; try again after midnight UTC, or ask an admin for a token with a higher --cost-per-day"
    )]
    Cost,
    /// The new chat alone may cost more than all chats of a day.
    #[error(
        "a chat may cost up to ${}, which is more than the ${} that the chats of this token may cost in a day; ask an \
         admin for a token with a higher --cost-per-day, or for a lower max_cost_usd (if none is set: hold_usd)",
        Usd::from_nanos(*.cap),
        Usd::from_nanos(*.max)
    )]
    OneChat {
        /// Cap of the chat, in nano-USD.
        cap: i64,
        /// Nano-USD that the chats of a day may cost.
        max: i64,
    },
}

impl Store {
    /// Returns the chat of a run.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn find_chat(&self, run_id: &RunId) -> Result<Option<Chat>, StoreError> {
        let run_id = run_id.clone();
        self.query(move |connection| {
            let query = format!("{CHAT} WHERE chats.run_id = ?1");
            Ok(connection.prepare_cached(&query)?.query_row([run_id.as_str()], chat).optional()?)
        })
        .await
    }

    /// Returns the chats whose run has not ended. A run that a person has started again is left out: no client waits for it.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn live_chats(&self) -> Result<Vec<Chat>, StoreError> {
        self.query(|connection| {
            let mut query = connection
                .prepare_cached(&format!("{CHAT} WHERE sandboxes.ended_us IS NULL AND sandboxes.attempt = 0"))?;
            let rows = query.query_map([], chat)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }
}

const CHAT: &str = "SELECT chats.run_id, owner, principal, end_user, session_id, resumable,
                           session_agent, previous, worker
                    FROM sandboxes JOIN chats ON chats.run_id = sandboxes.run_id";

fn chat(row: &Row<'_>) -> rusqlite::Result<Chat> {
    let run_id: String = row.get(0)?;
    let turn = |agent| {
        let previous: Option<String> = row.get(7)?;
        let previous = previous.as_deref().map(sessions::run_id);
        Ok::<_, rusqlite::Error>(SessionTurn { agent, previous, has_worker: row.get(8)? })
    };
    Ok(Chat {
        run_id: sessions::run_id(&run_id),
        owner: row.get(1)?,
        new: NewChat {
            principal: row.get(2)?,
            end_user: row.get(3)?,
            session_id: row.get(4)?,
            is_resumable: row.get(5)?,
            turn: row.get::<_, Option<String>>(6)?.map(turn).transpose()?,
        },
    })
}

/// Returns the cap of a new run: if the chats of a token have a cost limit, each chat needs a cap.
pub(crate) fn run_cap(
    transaction: &Transaction<'_>,
    new: Option<&NewChat>,
    asked: Option<i64>,
    hold_nano: i64,
) -> rusqlite::Result<Option<i64>> {
    let Some(new) = new.filter(|_| asked.is_none()) else { return Ok(asked) };
    let has_cap = caps(transaction, &new.principal)?.is_some_and(|caps| caps.cost_per_day.is_some());
    Ok(has_cap.then_some(hold_nano))
}

/// Adds the chat of a run whose row was inserted in this transaction.
pub(crate) fn begin(
    transaction: &Transaction<'_>,
    run_id: &RunId,
    new: &NewChat,
    now_us: i64,
) -> Result<(), ChatBeginError> {
    sessions::check_turn(transaction, new)?;
    let turn = new.turn.as_ref();
    transaction
        .prepare_cached(
            "INSERT INTO chats (run_id, principal, end_user, session_id, resumable, created_us, session_agent, previous,
                                worker)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?
        .execute(params![
            run_id.as_str(),
            new.principal,
            new.end_user,
            new.session_id,
            new.is_resumable,
            now_us,
            turn.map(|turn| &turn.agent),
            turn.and_then(|turn| turn.previous.as_ref()).map(RunId::as_str),
            turn.is_some_and(|turn| turn.has_worker),
        ])?;
    if turn.is_some_and(|turn| turn.has_worker) {
        workers::add_first(transaction, run_id, new.is_resumable, now_us)?;
    }
    check_caps(transaction, run_id, &new.principal, now_us)
}

/// Checks the caps of a principal after a chat, or a turn of one, was added. `run_id` is the run of the chat.
fn check_caps(
    transaction: &Transaction<'_>,
    run_id: &RunId,
    principal: &str,
    now_us: i64,
) -> Result<(), ChatBeginError> {
    let Some(caps) = caps(transaction, principal)? else { return Ok(()) };
    let day_us = now_us.div_euclid(DAY_US) * DAY_US;
    let (runs, cost): (u32, f64) = transaction
        .prepare_cached(&spent())?
        .query_row(params![principal, day_us], |row| Ok((row.get(0)?, row.get(1)?)))?;
    // The new chat is among them.
    if runs > caps.runs_per_day {
        return Err(ChatCapError::Runs { max: caps.runs_per_day, wait_us: day_us + DAY_US - now_us }.into());
    }
    #[allow(clippy::cast_precision_loss, reason = "a cap of 9 million dollars is exact to a nano-dollar")]
    let Some(max) = caps.cost_per_day.filter(|max| cost > *max as f64) else { return Ok(()) };
    let cap: i64 = transaction
        .prepare_cached("SELECT coalesce(cap_nano, hold_nano) FROM sandboxes WHERE run_id = ?1")?
        .query_row([run_id.as_str()], |row| row.get(0))?;
    // On another day, the same chat would also be refused.
    let error = if cap > max { ChatCapError::OneChat { cap, max } } else { ChatCapError::Cost };
    Err(error.into())
}

/// Number and cost of a principal's chats since a time, with the later turns of workers. A chat costs the sum of its
/// calls. A live chat, or one with a call of unknown cost that a provider could bill, counts with its whole cap. The cost is
/// a float, since stated amounts may be absurdly high.
fn spent() -> String {
    let never_billed: Vec<_> = NEVER_BILLED.iter().map(|(status, _)| status.to_string()).collect();
    format!(
        "
    SELECT count(*) FILTER (WHERE chats.created_us >= ?2) + (
            SELECT count(*) FROM chat_turns JOIN chats AS own ON own.run_id = chat_turns.run_id
            WHERE chat_turns.created_us >= ?2 AND turn > 1 AND own.principal = ?1),
        total(CASE
        WHEN ended_us IS NULL OR EXISTS (
            SELECT 1 FROM receipts JOIN open_receipts ON receipt = receipts.id
            WHERE receipts.run_id = chats.run_id AND coalesce((
                SELECT status <> 'pending_cost' OR http_status IS NULL OR http_status NOT IN ({never_billed})
                FROM entries WHERE entries.receipt = receipts.id ORDER BY entries.id DESC LIMIT 1), TRUE))
        THEN coalesce(cap_nano, hold_nano)
        ELSE (SELECT total(nano_usd_high) * 4294967296.0 + total(nano_usd_low) FROM usage_sums
              WHERE usage_sums.run_id = chats.run_id) END)
    FROM chats JOIN sandboxes ON sandboxes.run_id = chats.run_id
    WHERE principal = ?1 AND chats.run_id IN (
        SELECT run_id FROM chats WHERE principal = ?1 AND created_us >= ?2
        UNION SELECT run_id FROM chat_turns WHERE created_us >= ?2)",
        never_billed = never_billed.join(", ")
    )
}

/// Returns the caps of a principal; only chat tokens have caps.
fn caps(transaction: &Transaction<'_>, principal: &str) -> rusqlite::Result<Option<ChatCaps>> {
    let Some(id) = principal.strip_prefix(TOKEN) else { return Ok(None) };
    let mut query = transaction
        .prepare_cached("SELECT runs_per_day, cost_per_day_nano FROM tokens WHERE id = ?1 AND role = 'chat'")?;
    let caps = |row: &Row<'_>| {
        let (runs, cost): (Option<u32>, Option<i64>) = (row.get(0)?, row.get(1)?);
        let default = ChatCaps::default();
        Ok(ChatCaps { runs_per_day: runs.unwrap_or(default.runs_per_day), cost_per_day: cost.or(default.cost_per_day) })
    };
    query.query_row([id], caps).optional()
}

/// Reason that a chat does not begin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChatBeginError {
    #[error(transparent)]
    Cap(#[from] ChatCapError),
    #[error(transparent)]
    Busy(#[from] SessionBusy),
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
}

#[cfg(test)]
mod tests;
