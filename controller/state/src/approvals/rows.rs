//! The rows of approvals.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, Row, ToSql, TransactionBehavior, params};
use serde_json::json;
use sluice_contract::{RunId, RunKey};

use super::ApprovalError;
use super::rules::{ApprovalDecision, Canonical, RaisableCap};
use crate::events::announce;
use crate::sandboxes;
use crate::store::{Store, StoreError, run_key};

/// A question of the system to a person. Times are in microseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// Id.
    pub id: String,
    /// Run and attempt.
    pub key: RunKey,
    /// Cap, its value, and the value that is proposed: a number, or nano-USD. None for an approval of another kind.
    pub cap: Option<(RaisableCap, i64, i64)>,
    /// JSON: further typed fields that a person sees.
    pub subject: String,
    /// SHA-256 of what a person sees.
    pub digest: String,
    /// Time of the creation.
    pub created_us: i64,
    /// Time at which it is denied by itself.
    pub expires_us: i64,
    /// Time since which a call waits for it.
    pub held_us: Option<i64>,
    /// Decision.
    pub decision: Option<ApprovalDecision>,
    /// Principal that decided.
    pub decided_by: Option<String>,
    /// Reason of the decision.
    pub reason: Option<String>,
    /// The value of the cap that was approved.
    pub raised_to: Option<i64>,
    /// Time of the decision.
    pub decided_us: Option<i64>,
    /// Time at which the sidecar had the decision, or the branch was published.
    pub applied_us: Option<i64>,
}

const COLUMNS: &str = "id, run_id, attempt, cap, old_value, new_value, subject, digest, created_us, expires_us, held_us, \
    decision, decided_by, reason, raised_to, decided_us, applied_us";

impl Approval {
    /// Returns the kind: `cap` or `publish`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        if self.cap.is_some() { "cap" } else { "publish" }
    }

    /// Returns an open approval without a cap, a waiting call and a digest.
    pub(super) fn new((id, key): (String, RunKey), subject: String, created_us: i64, expires_us: i64) -> Self {
        Self {
            id,
            key,
            cap: None,
            subject,
            digest: String::new(),
            created_us,
            expires_us,
            held_us: None,
            decision: None,
            decided_by: None,
            reason: None,
            raised_to: None,
            decided_us: None,
            applied_us: None,
        }
    }

    pub(super) fn digest_for(&self, account: &str) -> String {
        let (cap, old, new) = self.cap.map_or((None, None, None), |(cap, old, new)| (Some(cap), Some(old), Some(new)));
        let canonical = Canonical {
            account,
            approval_id: &self.id,
            attempt: self.key.attempt,
            cap: cap.map(RaisableCap::as_str),
            expires_us: self.expires_us,
            kind: self.kind(),
            new,
            old,
            run_id: self.key.run_id.as_str(),
            subject: &self.subject,
        };
        canonical.digest()
    }
}

fn approval(row: &Row<'_>) -> rusqlite::Result<Approval> {
    let cap: Option<String> = row.get(3)?;
    let values = cap.as_deref().and_then(RaisableCap::of);
    let decision: Option<String> = row.get(11)?;
    Ok(Approval {
        id: row.get(0)?,
        key: run_key(row, 1)?,
        cap: values.map(|cap| Ok::<_, rusqlite::Error>((cap, row.get(4)?, row.get(5)?))).transpose()?,
        subject: row.get(6)?,
        digest: row.get(7)?,
        created_us: row.get(8)?,
        expires_us: row.get(9)?,
        held_us: row.get(10)?,
        decision: decision.as_deref().and_then(ApprovalDecision::of),
        decided_by: row.get(12)?,
        reason: row.get(13)?,
        raised_to: row.get(14)?,
        decided_us: row.get(15)?,
        applied_us: row.get(16)?,
    })
}

pub(super) fn select(connection: &Connection, clause: &str, values: &[&dyn ToSql]) -> rusqlite::Result<Vec<Approval>> {
    let query = format!("SELECT {COLUMNS} FROM approvals WHERE {clause}");
    let mut query = connection.prepare_cached(&query)?;
    query.query_map(values, approval)?.collect()
}

pub(super) fn find(connection: &Connection, run_id: &RunId, id: &str) -> rusqlite::Result<Option<Approval>> {
    Ok(select(connection, "id = ?1 AND run_id = ?2", &[&id, &run_id.as_str()])?.pop())
}

pub(super) fn insert(connection: &Connection, approval: &Approval) -> rusqlite::Result<()> {
    let (cap, old, new) = approval.cap.map_or((None, None, None), |(cap, old, new)| (Some(cap), Some(old), Some(new)));
    connection.execute(
        "INSERT INTO approvals (id, run_id, attempt, kind, cap, old_value, new_value, subject, digest, created_us,
                                expires_us, held_us)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        params![
            approval.id,
            approval.key.run_id.as_str(),
            approval.key.attempt,
            approval.kind(),
            cap.map(RaisableCap::as_str),
            old,
            new,
            approval.subject,
            approval.digest,
            approval.created_us,
            approval.expires_us,
            approval.held_us,
        ],
    )?;
    Ok(())
}

/// Writes the columns that change.
pub(super) fn write(connection: &Connection, approval: &Approval) -> rusqlite::Result<()> {
    connection.execute(
        "UPDATE approvals SET new_value = ?2, digest = ?3, held_us = ?4, decision = ?5, decided_by = ?6, reason = ?7,
             raised_to = ?8, decided_us = ?9, applied_us = ?10, expires_us = ?11
         WHERE id = ?1",
        params![
            approval.id,
            approval.cap.map(|(_, _, new)| new),
            approval.digest,
            approval.held_us,
            approval.decision.map(ApprovalDecision::as_str),
            approval.decided_by,
            approval.reason,
            approval.raised_to,
            approval.decided_us,
            approval.applied_us,
            approval.expires_us,
        ],
    )?;
    Ok(())
}

/// Returns the data of an event: ids and the digest.
pub(super) fn event_data(approval: &Approval) -> serde_json::Value {
    json!({
        "approval_id": approval.id,
        "cap": approval.cap.map(|(cap, _, _)| cap.as_str()),
        "digest": approval.digest,
        "kind": approval.kind(),
    })
}

impl Store {
    /// Returns the approvals of a run, oldest first.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn approvals_of(&self, run_id: &RunId) -> Result<Vec<Approval>, ApprovalError> {
        let run_id = run_id.clone();
        self.query(move |connection| {
            Ok(select(connection, "run_id = ?1 ORDER BY created_us, id", &[&run_id.as_str()])?)
        })
        .await
    }

    /// Returns all approvals with the accounts of their runs, oldest first.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn all_approvals(&self) -> Result<Vec<(Approval, String)>, ApprovalError> {
        self.query(|connection| {
            let query = format!(
                "SELECT {COLUMNS}, (SELECT account FROM sandboxes WHERE sandboxes.run_id = approvals.run_id)
                 FROM approvals ORDER BY created_us, id"
            );
            let mut query = connection.prepare(&query)?;
            let rows = query.query_map([], |row| Ok((approval(row)?, row.get(17)?)))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Returns an approval of a run.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn find_approval(&self, run_id: &RunId, id: &str) -> Result<Option<Approval>, ApprovalError> {
        let (run_id, id) = (run_id.clone(), id.to_owned());
        self.query(move |connection| Ok(find(connection, &run_id, &id)?)).await
    }

    /// Returns the decisions about an attempt that its sidecar may not have.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn unapplied_approvals(&self, key: &RunKey) -> Result<Vec<Approval>, ApprovalError> {
        let key = key.clone();
        self.query(move |connection| {
            let clause =
                "run_id = ?1 AND attempt = ?2 AND kind = 'cap' AND decision IS NOT NULL AND applied_us IS NULL ORDER BY decided_us";
            Ok(select(connection, clause, &[&key.run_id.as_str(), &key.attempt])?)
        })
        .await
    }

    /// Returns the runs with a call that waits for an approval.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn runs_on_hold(&self) -> Result<BTreeSet<String>, StoreError> {
        self.query(|connection| {
            let clause = "SELECT DISTINCT run_id FROM approvals WHERE decision IS NULL AND held_us IS NOT NULL";
            let mut query = connection.prepare_cached(clause)?;
            let rows = query.query_map([], |row| row.get(0))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Returns whether a call of a run waits for an approval.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn is_on_hold(&self, key: &RunKey) -> Result<bool, StoreError> {
        let key = key.clone();
        self.query(move |connection| {
            let clause = "SELECT 1 FROM approvals
                          WHERE run_id = ?1 AND attempt = ?2 AND decision IS NULL AND held_us IS NOT NULL";
            let mut query = connection.prepare_cached(clause)?;
            let found = query.query_row(params![key.run_id.as_str(), key.attempt], |_| Ok(())).optional()?;
            Ok(found.is_some())
        })
        .await
    }

    /// Reports the open cost approvals of an account again after its budget has changed: a refused raise may now fit.
    /// Returns their number.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn announce_approvals(&self, account: &str, now_us: i64) -> Result<usize, ApprovalError> {
        let (account, signal) = (account.to_owned(), self.event_signal());
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let clause = "decision IS NULL AND cap = 'max_cost_usd' AND EXISTS (
                SELECT 1 FROM sandboxes WHERE sandboxes.run_id = approvals.run_id AND account = ?1)";
            let (open, mut last) = (select(&transaction, clause, &[&account])?, None);
            for approval in &open {
                let Some(sandbox) = sandboxes::find(&transaction, &approval.key.run_id)? else { continue };
                let data = event_data(approval);
                last = Some(sandboxes::report(&transaction, &sandbox, "approval.requested", &data, now_us)?);
            }
            transaction.commit()?;
            if let Some(seq) = last {
                announce(&signal, seq);
            }
            Ok(open.len())
        })
        .await
    }

    /// Records that the sidecar has the decision, or that the branch was published.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn record_applied(&self, id: &str, now_us: i64) -> Result<(), ApprovalError> {
        let id = id.to_owned();
        self.write(move |connection| {
            connection.execute(
                "UPDATE approvals SET applied_us = ?2 WHERE id = ?1 AND decision IS NOT NULL AND applied_us IS NULL",
                params![id, now_us],
            )?;
            Ok(())
        })
        .await
    }
}
