//! Sessions of chats: the turns of one end user's conversation with one agent, and their kept workspaces.
//!
//! A session has at most one kept workspace: the workspace of its newest successful turn. The rows name it; the sweep
//! removes directories without a row.

use rusqlite::{OptionalExtension, Row, Transaction, TransactionBehavior, params};
use sluice_contract::{RunId, RunKey};

use super::NewChat;
use crate::store::{Store, StoreError};

/// A session of chats. All its turns have these values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatSession {
    /// Principal of the turns.
    pub principal: String,
    /// The client's word for its own user.
    pub end_user: Option<String>,
    /// The client's name for the conversation.
    pub session_id: String,
    /// The agent.
    pub agent: String,
}

/// Position of a turn in its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionTurn {
    /// The agent of the session.
    pub agent: String,
    /// Run of the turn before; none for the first one.
    pub previous: Option<RunId>,
    /// True if the run gets the later turns of the session as messages, as long as its worker lives.
    pub has_worker: bool,
}

/// State of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionState {
    /// The newest turn.
    pub newest: Option<RunId>,
    /// True if the newest turn has not ended.
    pub is_live: bool,
    /// Attempt whose workspace the next turn begins with.
    pub workspace: Option<RunKey>,
}

/// Limits of the kept workspaces of one principal's sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    /// Number of workspaces.
    pub count: u32,
    /// Maximum number of bytes of all of them together.
    pub bytes: u64,
}

/// Error of a turn that cannot begin now: a session has one turn at a time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("another turn of this session is at work; wait for its answer, then send the message again")]
pub struct SessionBusy;

/// Condition of the turns of a session.
const OF_SESSION: &str = "principal = ?1 AND session_id = ?2 AND end_user IS ?3 AND session_agent = ?4";

impl Store {
    /// Returns the state of a session.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn chat_session(&self, session: ChatSession) -> Result<SessionState, StoreError> {
        self.query(move |connection| {
            let ChatSession { principal, end_user, session_id, agent } = &session;
            let named = params![principal, session_id, end_user, agent];
            let query = format!("{NEWEST} WHERE {OF_SESSION} ORDER BY chats.created_us DESC, chats.rowid DESC LIMIT 1");
            let newest = connection
                .prepare_cached(&query)?
                .query_row(named, |row| Ok((row.get::<_, String>(0)?, row.get(1)?)))
                .optional()?;
            let query = format!("SELECT run_id, kept_attempt FROM chats WHERE {OF_SESSION} AND kept_bytes IS NOT NULL");
            let workspace = connection.prepare_cached(&query)?.query_row(named, key).optional()?;
            let (newest, is_live) = newest.map_or((None, false), |(newest, live)| (Some(run_id(&newest)), live));
            Ok(SessionState { newest, is_live, workspace })
        })
        .await
    }

    /// Keeps the workspace of the newest turn for the next one of its session. Returns the attempts whose workspaces
    /// are no longer needed: the session's previous one, and those beyond the principal's limits, which are the longest
    /// unused. The workspace of a session with a live turn is needed. A turn that was retried after a later one began
    /// keeps nothing: its own workspace is the one that is not needed. Returns `None` if the run is not a turn of a
    /// session.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn keep_chat_workspace(
        &self,
        key: RunKey,
        bytes: u64,
        limits: SessionLimits,
    ) -> Result<Option<Vec<RunKey>>, StoreError> {
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let Some(session) = session_of(&transaction, &key.run_id)? else { return Ok(None) };
            if !is_newest(&transaction, &session, &key.run_id)? {
                return Ok(Some(vec![key]));
            }
            let mut removed = release(&transaction, &format!("{OF_SESSION} AND kept_bytes IS NOT NULL"), &session)?;
            transaction
                .prepare_cached("UPDATE chats SET kept_attempt = ?2, kept_bytes = ?3 WHERE run_id = ?1")?
                .execute(params![key.run_id.as_str(), key.attempt, i64::try_from(bytes).unwrap_or(i64::MAX)])?;
            removed.extend(trim(&transaction, &session.principal, limits)?);
            transaction.commit()?;
            removed.retain(|other| *other != key);
            Ok::<_, StoreError>(Some(removed))
        })
        .await
    }

    /// Gives up the workspaces of sessions without a turn since a time. Returns their attempts.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn expire_chat_workspaces(&self, before_us: i64) -> Result<Vec<RunKey>, StoreError> {
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let mut expired = Vec::new();
            for unused in unused(&transaction, None)? {
                if unused.used_us < before_us {
                    give_up(&transaction, &unused.key)?;
                    expired.push(unused.key);
                }
            }
            transaction.commit()?;
            Ok::<_, StoreError>(expired)
        })
        .await
    }

    /// Returns the attempt of a run whose workspace is kept for its session's next turn: `None` if the run is not a turn of
    /// a session, `Some(None)` if its workspace is not needed.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn chat_workspace(&self, run_id: &RunId) -> Result<Option<Option<u32>>, StoreError> {
        let run_id = run_id.clone();
        self.query(move |connection| {
            let mut query = connection
                .prepare_cached("SELECT kept_attempt FROM chats WHERE run_id = ?1 AND session_agent IS NOT NULL")?;
            Ok(query.query_row([run_id.as_str()], |row| row.get(0)).optional()?)
        })
        .await
    }
}

const NEWEST: &str = "SELECT chats.run_id, ended_us IS NULL
                      FROM chats JOIN sandboxes ON sandboxes.run_id = chats.run_id";

/// Checks that a new turn follows the turn that its client has seen, and that the earlier turn has ended.
pub(super) fn check_turn(transaction: &Transaction<'_>, new: &NewChat) -> Result<(), super::ChatBeginError> {
    let (Some(turn), Some(session_id)) = (&new.turn, &new.session_id) else { return Ok(()) };
    let query = format!("{NEWEST} WHERE {OF_SESSION} ORDER BY chats.created_us DESC, chats.rowid DESC LIMIT 1");
    let newest: Option<(String, bool)> = transaction
        .prepare_cached(&query)?
        .query_row(params![new.principal, session_id, new.end_user, turn.agent], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let follows = match newest {
        Some((newest, is_live)) => !is_live && turn.previous.as_ref().is_some_and(|it| it.as_str() == newest),
        None => true,
    };
    if follows { Ok(()) } else { Err(SessionBusy.into()) }
}

fn session_of(transaction: &Transaction<'_>, run_id: &RunId) -> rusqlite::Result<Option<ChatSession>> {
    transaction
        .prepare_cached(
            "SELECT principal, end_user, session_id, session_agent FROM chats
             WHERE run_id = ?1 AND session_id IS NOT NULL AND session_agent IS NOT NULL",
        )?
        .query_row([run_id.as_str()], |row| {
            Ok(ChatSession {
                principal: row.get(0)?,
                end_user: row.get(1)?,
                session_id: row.get(2)?,
                agent: row.get(3)?,
            })
        })
        .optional()
}

/// Returns whether a run is the newest turn of its session.
fn is_newest(transaction: &Transaction<'_>, session: &ChatSession, run_id: &RunId) -> rusqlite::Result<bool> {
    let ChatSession { principal, end_user, session_id, agent } = session;
    let query = format!("SELECT run_id FROM chats WHERE {OF_SESSION} ORDER BY created_us DESC, rowid DESC LIMIT 1");
    let newest: Option<String> = transaction
        .prepare_cached(&query)?
        .query_row(params![principal, session_id, end_user, agent], |row| row.get(0))
        .optional()?;
    Ok(newest.is_some_and(|newest| newest == run_id.as_str()))
}

/// Gives up the workspaces of a session that meet a condition.
fn release(transaction: &Transaction<'_>, condition: &str, session: &ChatSession) -> rusqlite::Result<Vec<RunKey>> {
    let ChatSession { principal, end_user, session_id, agent } = session;
    let query = format!("SELECT run_id, kept_attempt FROM chats WHERE {condition}");
    let mut query = transaction.prepare_cached(&query)?;
    let released = query.query_map(params![principal, session_id, end_user, agent], key)?;
    let released: Vec<RunKey> = released.collect::<Result<_, _>>()?;
    released.iter().try_for_each(|key| give_up(transaction, key))?;
    Ok(released)
}

fn give_up(transaction: &Transaction<'_>, key: &RunKey) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("UPDATE chats SET kept_attempt = NULL, kept_bytes = NULL WHERE run_id = ?1")?
        .execute([key.run_id.as_str()])
        .map(drop)
}

/// A kept workspace.
struct KeptTurn {
    key: RunKey,
    bytes: u64,
    /// End of the newest turn of its session, in microseconds since 1970; `i64::MAX` if that turn has not ended.
    used_us: i64,
}

/// Returns kept workspaces, of one principal or of all, the most recently used first.
fn unused(transaction: &Transaction<'_>, principal: Option<&str>) -> rusqlite::Result<Vec<KeptTurn>> {
    let mut query = transaction.prepare_cached(
        "SELECT kept.run_id, kept.kept_attempt, kept.kept_bytes,
                (SELECT max(coalesce(ended_us, 9223372036854775807))
                 FROM chats JOIN sandboxes ON sandboxes.run_id = chats.run_id
                 WHERE chats.principal = kept.principal AND chats.session_id = kept.session_id
                   AND chats.end_user IS kept.end_user AND chats.session_agent = kept.session_agent
                   AND chats.created_us >= kept.created_us) AS used_us
         FROM chats AS kept
         WHERE kept.kept_bytes IS NOT NULL AND (?1 IS NULL OR kept.principal = ?1)
         ORDER BY used_us DESC, kept.created_us DESC",
    )?;
    let rows = query.query_map([principal], |row| {
        let bytes: i64 = row.get(2)?;
        Ok(KeptTurn { key: key(row)?, bytes: bytes.unsigned_abs(), used_us: row.get(3)? })
    })?;
    rows.collect()
}

/// Gives up the workspaces of a principal beyond its limits.
fn trim(transaction: &Transaction<'_>, principal: &str, limits: SessionLimits) -> rusqlite::Result<Vec<RunKey>> {
    let mut removed = Vec::new();
    let (mut count, mut bytes) = (0_u32, 0_u64);
    for kept in unused(transaction, Some(principal))? {
        count = count.saturating_add(1);
        bytes = bytes.saturating_add(kept.bytes);
        let is_needed = kept.used_us == i64::MAX;
        if !is_needed && (count > limits.count || bytes > limits.bytes) {
            count -= 1;
            bytes -= kept.bytes;
            give_up(transaction, &kept.key)?;
            removed.push(kept.key);
        }
    }
    Ok(removed)
}

fn key(row: &Row<'_>) -> rusqlite::Result<RunKey> {
    let id: String = row.get(0)?;
    Ok(RunKey { run_id: run_id(&id), attempt: row.get(1)? })
}

/// Returns the id of a run that a row has.
pub(super) fn run_id(text: &str) -> RunId {
    text.parse().expect("only ids of runs are written")
}

#[cfg(test)]
mod tests;
