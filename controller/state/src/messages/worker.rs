//! Operations of an agent's worker: it takes messages, and acknowledges them.

use rusqlite::Transaction;
use serde_json::json;
use sluice_contract::{RunId, RunKey};

use super::row::{find, report, run, select, set_state};
use super::{LEASE_US, MessageError, MessageState, StoredMessage};
use crate::sandboxes::Sandbox;
use crate::store::Store;

/// Way in which a worker takes messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeMode {
    /// Messages count as delivered when the worker takes them.
    Consume,
    /// Messages are leased again after [`LEASE_US`], until they are acknowledged.
    Lease,
}

/// Maximum number of bytes of several texts that a worker takes at once: the sidecar passes no answer over 1 MiB.
pub const TAKEN_BYTES_MAX: usize = 256 << 10;

/// Condition of the messages that a worker may take: the sidecar adds the others.
const FOR_WORKER: &str =
    "(state = 'queued' OR (state = 'leased' AND leased_until_us <= ?2)) AND inject_mode = 'next_turn'";

impl Store {
    /// Returns whether a worker would get a message now.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn has_messages_for_worker(&self, run_id: &RunId, now_us: i64) -> Result<bool, MessageError> {
        let run_id = run_id.clone();
        self.query(move |connection| Ok(!select(connection, &run_id, FOR_WORKER, now_us, 1)?.is_empty())).await
    }

    /// Gives messages to the worker of an attempt, in the order of their delivery.
    ///
    /// # Errors
    /// [`MessageError::RunFinished`]: another attempt is working, or none.
    pub async fn take_messages(
        &self,
        key: &RunKey,
        mode: TakeMode,
        limit: u32,
        now_us: i64,
    ) -> Result<Vec<StoredMessage>, MessageError> {
        let key = key.clone();
        self.change_messages(move |transaction| {
            let sandbox = present(transaction, &key)?;
            let (mut taken, mut seq) = (select(transaction, &key.run_id, FOR_WORKER, now_us, limit)?, None);
            taken.truncate(super::fitting(&taken, TAKEN_BYTES_MAX));
            for message in &mut taken {
                match mode {
                    TakeMode::Lease => {
                        message.state = MessageState::Leased;
                        let until_us = now_us.saturating_add(LEASE_US);
                        set_state(transaction, &message.id, MessageState::Leased, Some(until_us), None)?;
                    }
                    TakeMode::Consume => seq = Some(deliver(transaction, &sandbox, message, now_us)?),
                }
            }
            Ok((taken, seq))
        })
        .await
    }

    /// Records that the worker of an attempt has messages. Returns the ids of those that were leased, or acknowledged
    /// before.
    ///
    /// # Errors
    /// [`MessageError::RunFinished`]: another attempt is working, or none.
    pub async fn acknowledge_messages(
        &self,
        key: &RunKey,
        ids: Vec<String>,
        now_us: i64,
    ) -> Result<Vec<String>, MessageError> {
        let key = key.clone();
        self.change_messages(move |transaction| {
            let sandbox = present(transaction, &key)?;
            let (mut acknowledged, mut seq) = (Vec::new(), None);
            for id in ids {
                let Some(mut found) = find(transaction, &key.run_id, &id)? else { continue };
                match found.state {
                    MessageState::Leased => seq = Some(deliver(transaction, &sandbox, &mut found, now_us)?),
                    MessageState::Delivered if found.anchor.is_none() => {}
                    _ => continue,
                }
                acknowledged.push(id);
            }
            Ok((acknowledged, seq))
        })
        .await
    }
}

fn deliver(
    transaction: &Transaction<'_>,
    sandbox: &Sandbox,
    message: &mut StoredMessage,
    now_us: i64,
) -> rusqlite::Result<i64> {
    message.state = MessageState::Delivered;
    message.delivered_us = Some(now_us);
    set_state(transaction, &message.id, MessageState::Delivered, None, Some(now_us))?;
    report(transaction, sandbox, "message.delivered", message, json!({ "way": "worker" }), now_us)
}

/// Returns the run of a working attempt.
fn present(transaction: &Transaction<'_>, key: &RunKey) -> Result<Sandbox, MessageError> {
    let sandbox = run(transaction, &key.run_id)?;
    if sandbox.key == *key && !sandbox.state.is_ended() { Ok(sandbox) } else { Err(MessageError::RunFinished) }
}
