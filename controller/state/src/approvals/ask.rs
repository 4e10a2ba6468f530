//! Creates and updates approvals from the reports of a run's sidecar.

use rusqlite::{Transaction, TransactionBehavior};
use serde_json::json;
use sluice_contract::RunKey;

use super::rows::{Approval, event_data, insert, select, write};
use super::rules::{ApprovalDecision, RaisableCap, propose, raised_run_cap};
use super::{ApprovalError, decide};
use crate::events::announce;
use crate::sandboxes::{self, Sandbox};
use crate::store::Store;

/// Report of an attempt's sidecar about a cap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalAsk {
    /// Id for a new approval.
    pub id: String,
    /// Run and attempt.
    pub key: RunKey,
    /// Cap.
    pub cap: RaisableCap,
    /// Value of the cap in force.
    pub old: i64,
    /// Value that the call that waits needs; none if that is not known.
    pub asked: Option<i64>,
    /// Highest value of the run's cap that the operator allows owners.
    pub highest: Option<i64>,
    /// True if a call waits.
    pub is_held: bool,
    /// Time for which a person may think, in microseconds.
    pub ask_timeout_us: i64,
}

/// Consequence of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalOutcome {
    /// A person decides.
    Open(Approval),
    /// The cap at this value was denied before: the call that waits is refused.
    Denied(Approval),
    /// The cap at this value was raised before: the report is older than the raise.
    Raised,
    /// The attempt is over, or about to end.
    Over,
}

impl Store {
    /// Makes the approval of a cap, or updates the open one: if a call needs more than the proposed value, the approval
    /// gets another proposal and another digest.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn ask_approval(&self, ask: ApprovalAsk, now_us: i64) -> Result<ApprovalOutcome, ApprovalError> {
        let signal = self.event_signal();
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let Some(sandbox) = sandboxes::find(&transaction, &ask.key.run_id)?.filter(|run| run.key == ask.key) else {
                return Ok(ApprovalOutcome::Over);
            };
            if !sandboxes::works(&sandbox) {
                return Ok(ApprovalOutcome::Over);
            }
            let (asked, seq) = settle(&transaction, &sandbox, &ask, now_us)?;
            transaction.commit()?;
            if let Some(seq) = seq {
                announce(&signal, seq);
            }
            Ok(asked)
        })
        .await
    }
}

fn settle(
    transaction: &Transaction<'_>,
    sandbox: &Sandbox,
    ask: &ApprovalAsk,
    now_us: i64,
) -> Result<(ApprovalOutcome, Option<i64>), ApprovalError> {
    let ApprovalAsk { key, cap, old, .. } = ask;
    let of_cap = "run_id = ?1 AND attempt = ?2 AND cap = ?3";
    // A cap is never lowered. A person can decide while the daemon reads the state of the sidecar.
    let clause = format!("{of_cap} AND old_value = ?4 AND decision = 'approve'");
    if !select(transaction, &clause, &[&key.run_id.as_str(), &key.attempt, &cap.as_str(), old])?.is_empty() {
        return Ok((ApprovalOutcome::Raised, None));
    }
    let clause = format!("{of_cap} AND decision IS NULL");
    let open = select(transaction, &clause, &[&key.run_id.as_str(), &key.attempt, &cap.as_str()])?.pop();
    let mut seq = None;
    if let Some(open) = open {
        if open.cap.is_some_and(|(_, value, _)| value == *old) {
            let (open, seq) = refresh(transaction, sandbox, ask, open, now_us)?;
            return Ok((ApprovalOutcome::Open(open), seq));
        }
        // The cap was raised by other means, so the approval that a person saw is outdated.
        seq = Some(decide::close(transaction, sandbox, open, (ApprovalDecision::Changed, "daemon"), now_us)?.1);
    }
    let clause =
        // An approval that expired while no call waited denies nothing: no person had to decide.
        format!(
            "{of_cap} AND old_value = ?4 AND (decision = 'deny' OR decision = 'expired' AND held_us IS NOT NULL)
             ORDER BY decided_us DESC LIMIT 1"
        );
    let denied = select(transaction, &clause, &[&key.run_id.as_str(), &key.attempt, &cap.as_str(), old])?.pop();
    if let Some(denied) = denied {
        return Ok((ApprovalOutcome::Denied(denied), seq));
    }
    let approval = new_approval(sandbox, ask, now_us);
    insert(transaction, &approval)?;
    let seq = sandboxes::report(transaction, sandbox, "approval.requested", &event_data(&approval), now_us)?;
    Ok((ApprovalOutcome::Open(approval), Some(seq)))
}

fn new_approval(sandbox: &Sandbox, ask: &ApprovalAsk, now_us: i64) -> Approval {
    let subject =
        json!({ "account": sandbox.account, "agent_id": sandbox.agent_id, "run_id": sandbox.key.run_id.as_str() });
    let cap = Some((ask.cap, ask.old, propose(ask.old, ask.asked, highest_of_attempt(sandbox, ask))));
    let (of, expires_us) = ((ask.id.clone(), ask.key.clone()), expiry(ask.ask_timeout_us, now_us));
    let asked = Approval {
        cap,
        held_us: ask.is_held.then_some(now_us),
        ..Approval::new(of, subject.to_string(), now_us, expires_us)
    };
    Approval { digest: asked.digest_for(&sandbox.account), ..asked }
}

/// Returns the highest value of the attempt's cap with which the run's cap stays within the operator's limit.
fn highest_of_attempt(sandbox: &Sandbox, ask: &ApprovalAsk) -> Option<i64> {
    let run_cap = raised_run_cap(sandbox.cap, (ask.cap, ask.old, ask.old));
    ask.highest.map(|highest| highest.saturating_sub(run_cap.saturating_sub(ask.old)))
}

/// Returns the time at which an approval that is asked now expires.
pub(super) fn expiry(ask_timeout_us: i64, now_us: i64) -> i64 {
    now_us.saturating_add(ask_timeout_us.max(1))
}

/// Updates an open approval. Its time begins anew when the first call waits for it.
fn refresh(
    transaction: &Transaction<'_>,
    sandbox: &Sandbox,
    ask: &ApprovalAsk,
    open: Approval,
    now_us: i64,
) -> Result<(Approval, Option<i64>), ApprovalError> {
    let mut next = open.clone();
    if let Some((cap, old, new)) = open.cap
        && ask.asked.is_some_and(|asked| asked > new)
    {
        next.cap = Some((cap, old, propose(old, ask.asked, highest_of_attempt(sandbox, ask))));
    }
    if ask.is_held && next.held_us.is_none() {
        // The time until then does not count for the decision: an approval at 80 % of a cap can be as old as its run.
        next.held_us = Some(now_us);
        next.expires_us = expiry(ask.ask_timeout_us, now_us);
    }
    if next == open {
        return Ok((open, None));
    }
    next.digest = next.digest_for(&sandbox.account);
    write(transaction, &next)?;
    let event_type = if next.cap == open.cap { "approval.held" } else { "approval.requested" };
    let seq = sandboxes::report(transaction, sandbox, event_type, &event_data(&next), now_us)?;
    Ok((next, Some(seq)))
}
