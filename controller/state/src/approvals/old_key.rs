//! Raises that the sidecar has, and for which LiteLLM did not raise the virtual key of the run.

use rusqlite::{TransactionBehavior, params};

use super::ApprovalError;
use super::rows::{Approval, event_data};
use crate::events::announce;
use crate::sandboxes;
use crate::store::Store;

impl Store {
    /// Records that the sidecar has a decision and that the virtual key of the run stays as it is, with an event that has the
    /// reason. Returns false if the decision was recorded as applied before; then nothing changes.
    ///
    /// # Errors
    /// [`ApprovalError::NotFound`], errors of SQLite.
    pub async fn record_applied_with_old_key(
        &self,
        approval: &Approval,
        reason: &str,
        now_us: i64,
    ) -> Result<bool, ApprovalError> {
        let (approval, reason, signal) = (approval.clone(), reason.to_owned(), self.event_signal());
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let sandbox = sandboxes::find(&transaction, &approval.key.run_id)?.ok_or(ApprovalError::NotFound)?;
            let changed = transaction.execute(
                "UPDATE approvals SET applied_us = ?2 WHERE id = ?1 AND decision IS NOT NULL AND applied_us IS NULL",
                params![approval.id, now_us],
            )?;
            if changed == 0 {
                return Ok(false);
            }
            let mut data = event_data(&approval);
            data["reason"] = reason.into();
            let seq = sandboxes::report(&transaction, &sandbox, "approval.key_not_raised", &data, now_us)?;
            transaction.commit()?;
            announce(&signal, seq);
            Ok(true)
        })
        .await
    }
}
