//! The messages of a run after the end of an attempt, or of the run.

use rusqlite::{Transaction, params};
use serde_json::json;

use super::row::{Sandbox, report};

/// Records the messages of a run that has ended as lost, because they cannot be delivered any more.
pub(super) fn lose_pending(transaction: &Transaction<'_>, sandbox: &Sandbox, now_us: i64) -> rusqlite::Result<()> {
    let lost: Vec<String> = transaction
        .prepare_cached(
            "UPDATE messages SET state = 'lost', leased_until_us = NULL
             WHERE run_id = ?1 AND state IN ('queued', 'leased', 'offered', 'sent') RETURNING id",
        )?
        .query_map([sandbox.key.run_id.as_str()], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for message_id in lost {
        let data = json!({ "message_id": message_id, "reason": "run_finished" });
        report(transaction, sandbox, "message.lost", &data, now_us)?;
    }
    Ok(())
}

/// Puts the messages that the earlier attempt did not complete into the queue again. Their positions in its conversation
/// are lost with it.
pub(super) fn queue_again(transaction: &Transaction<'_>, sandbox: &Sandbox) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "UPDATE messages SET state = 'queued', leased_until_us = NULL, anchor = NULL, anchor_attempt = NULL
             WHERE run_id = ?1 AND state IN ('leased', 'offered', 'sent')",
        )?
        .execute(params![sandbox.key.run_id.as_str()])?;
    Ok(())
}
