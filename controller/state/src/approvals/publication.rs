//! Approvals of publications: the branch of a run is to leave this host.
//!
//! Such an approval outlives its run. It is bound to the commit that its subject names, and another attempt makes it outdated.

use rusqlite::{Transaction, TransactionBehavior, params};
use sluice_contract::{RunId, RunKey};

use super::ApprovalError;
use super::ask::expiry;
use super::decide::close;
use super::rows::{Approval, event_data, insert, select};
use super::rules::ApprovalDecision;
use crate::events::announce;
use crate::sandboxes;
use crate::store::Store;

/// Request for the approval of a publication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicationAsk {
    /// Id for a new approval.
    pub id: String,
    /// Run and attempt.
    pub key: RunKey,
    /// JSON: what a person sees, with the commit.
    pub subject: String,
    /// Time for which a person may think, in microseconds.
    pub ask_timeout_us: i64,
}

impl Store {
    /// Makes the approval of a publication, or returns the one that the same subject has. Returns `None` if another
    /// attempt has begun.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn ask_publication(&self, ask: PublicationAsk, now_us: i64) -> Result<Option<Approval>, ApprovalError> {
        let signal = self.event_signal();
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let Some(sandbox) = sandboxes::find(&transaction, &ask.key.run_id)?.filter(|run| run.key == ask.key) else {
                return Ok(None);
            };
            let clause = "run_id = ?1 AND attempt = ?2 AND kind = 'publish' AND subject = ?3";
            let asked = select(&transaction, clause, &[&ask.key.run_id.as_str(), &ask.key.attempt, &ask.subject])?;
            if let Some(asked) = asked.into_iter().next() {
                return Ok(Some(asked));
            }
            let expires_us = expiry(ask.ask_timeout_us, now_us);
            let asked = Approval::new((ask.id, ask.key), ask.subject, now_us, expires_us);
            let approval = Approval { digest: asked.digest_for(&sandbox.account), ..asked };
            insert(&transaction, &approval)?;
            let seq = sandboxes::report(&transaction, &sandbox, "approval.requested", &event_data(&approval), now_us)?;
            transaction.commit()?;
            announce(&signal, seq);
            Ok(Some(approval))
        })
        .await
    }

    /// Records that a person has published a run by other means: its decided approvals need no further step.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn settle_publications(&self, run_id: &RunId, now_us: i64) -> Result<(), ApprovalError> {
        let run_id = run_id.clone();
        self.write(move |connection| {
            connection.execute(
                "UPDATE approvals SET applied_us = ?2
                 WHERE run_id = ?1 AND kind = 'publish' AND decision IS NOT NULL AND applied_us IS NULL",
                params![run_id.as_str(), now_us],
            )?;
            Ok(())
        })
        .await
    }

    /// Returns the publications that were approved since this time, and may not have been made.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn unapplied_publications(&self, since_us: i64) -> Result<Vec<Approval>, ApprovalError> {
        self.query(move |connection| {
            let clause = "kind = 'publish' AND decision = 'approve' AND applied_us IS NULL AND decided_us >= ?1
                          ORDER BY decided_us";
            Ok(select(connection, clause, &[&since_us])?)
        })
        .await
    }
}

/// Closes a run's open approvals of publications after its branch has left this host. Returns the position of the last
/// event.
pub(crate) fn close_published(
    transaction: &Transaction<'_>,
    run_id: &RunId,
    now_us: i64,
) -> rusqlite::Result<Option<i64>> {
    let Some(sandbox) = sandboxes::find(transaction, run_id)? else { return Ok(None) };
    let clause = "run_id = ?1 AND kind = 'publish' AND decision IS NULL";
    let mut last = None;
    for open in select(transaction, clause, &[&run_id.as_str()])? {
        last = Some(close(transaction, &sandbox, open, (ApprovalDecision::Changed, "daemon"), now_us)?.1);
    }
    Ok(last)
}
