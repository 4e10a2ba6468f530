//! Decisions about approvals, with their effects in the same transaction.

use rusqlite::{Transaction, TransactionBehavior};
use sluice_contract::RunId;

use super::ApprovalError;
use super::rows::{Approval, event_data, find, select, write};
use super::rules::{ApprovalDecision, RaisableCap, raised_run_cap};
use crate::budget;
use crate::events::announce;
use crate::sandboxes::{self, DesiredState, Sandbox};
use crate::store::Store;

/// Open approvals that were not decided in time, and those of attempts that are over. An approval of a publication
/// stays open after the end of its run, until another attempt begins.
const DUE: &str = "decision IS NULL AND (expires_us <= ?1 OR NOT EXISTS (
    SELECT 1 FROM sandboxes WHERE sandboxes.run_id = approvals.run_id AND sandboxes.attempt = approvals.attempt
    AND (approvals.kind = 'publish' OR outcome IS NULL AND ended_us IS NULL)))";

/// A decision of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionRequest {
    /// The run.
    pub run_id: RunId,
    /// The approval.
    pub id: String,
    /// Digest of the approval as the person saw it.
    pub digest: String,
    /// Decision: approve, deny or cancel.
    pub decision: ApprovalDecision,
    /// New value of the cap; the proposed one otherwise.
    pub raise: Option<i64>,
    /// Cap of all attempts in nano-USD, as it was when the raise of a cost was judged.
    pub run_cap: Option<i64>,
    /// Principal that decides.
    pub by: String,
    /// Reason.
    pub reason: Option<String>,
}

impl Store {
    /// Decides about an approval. A raise of the cost is added to the hold on the account's budget; if the budget is
    /// too small, nothing changes. The raise is refused as [`ApprovalError::Changed`] if the cap of the run is no
    /// longer the judged one.
    ///
    /// # Errors
    /// [`ApprovalError`]; then nothing is decided. If the cap has changed or the attempt is over, the approval is
    /// closed.
    pub async fn decide_approval(&self, request: DecisionRequest, now_us: i64) -> Result<Approval, ApprovalError> {
        let signal = self.event_signal();
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let approval = find(&transaction, &request.run_id, &request.id)?.ok_or(ApprovalError::NotFound)?;
            if let Some(decision) = approval.decision {
                return Err(ApprovalError::Decided(decision.as_str()));
            }
            let sandbox = sandboxes::find(&transaction, &request.run_id)?.ok_or(ApprovalError::NotFound)?;
            if has_moved(&sandbox, &approval) {
                let (_, seq) = close(&transaction, &sandbox, approval, (ApprovalDecision::Changed, "daemon"), now_us)?;
                transaction.commit()?;
                announce(&signal, seq);
                return Err(ApprovalError::Changed);
            }
            if approval.digest != request.digest || approval.expires_us <= now_us {
                return Err(ApprovalError::Changed);
            }
            let (approval, seq) = decide(&transaction, sandbox, approval, &request, now_us)?;
            transaction.commit()?;
            announce(&signal, seq);
            Ok(approval)
        })
        .await
    }

    /// Returns the open approvals that were not decided in time, and those of attempts that are over.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn due_approvals(&self, now_us: i64) -> Result<Vec<Approval>, ApprovalError> {
        self.query(move |connection| Ok(select(connection, DUE, &[&now_us])?)).await
    }

    /// Closes approvals that were not decided in time, and those of attempts that are over. Returns them.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn expire_approvals(&self, now_us: i64) -> Result<Vec<Approval>, ApprovalError> {
        let signal = self.event_signal();
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let (mut closed, mut last) = (Vec::new(), None);
            for approval in select(&transaction, DUE, &[&now_us])? {
                let Some(sandbox) = sandboxes::find(&transaction, &approval.key.run_id)? else { continue };
                let decision =
                    if has_moved(&sandbox, &approval) { ApprovalDecision::Changed } else { ApprovalDecision::Expired };
                let (approval, seq) = close(&transaction, &sandbox, approval, (decision, "daemon"), now_us)?;
                closed.push(approval);
                last = Some(seq);
            }
            transaction.commit()?;
            if let Some(seq) = last {
                announce(&signal, seq);
            }
            Ok(closed)
        })
        .await
    }
}

/// Returns whether an approval is outdated: the attempt is over, or its cap has changed.
fn has_moved(sandbox: &Sandbox, approval: &Approval) -> bool {
    let is_other_cap = matches!(approval.cap, Some((RaisableCap::MaxCostUsd, old, _)) if sandbox.attempt_cap.is_some_and(|cap| cap != old));
    let is_over = approval.cap.is_some() && !sandboxes::works(sandbox);
    sandbox.key != approval.key || is_over || is_other_cap
}

fn decide(
    transaction: &Transaction<'_>,
    mut sandbox: Sandbox,
    mut approval: Approval,
    request: &DecisionRequest,
    now_us: i64,
) -> Result<(Approval, i64), ApprovalError> {
    match (request.decision, approval.cap) {
        (ApprovalDecision::Approve, Some((cap, old, new))) => {
            let raised = request.raise.unwrap_or(new);
            if raised <= old {
                return Err(ApprovalError::NotRaised(cap.show(old)));
            }
            approval.raised_to = Some(raised);
            if cap == RaisableCap::MaxCostUsd {
                if sandbox.cap != request.run_cap {
                    return Err(ApprovalError::Changed);
                }
                budget::raise_hold(transaction, &sandbox.account, sandbox.hold, raised - old, &approval.id)?;
                sandbox.cap = sandbox.cap.map(|run_cap| raised_run_cap(Some(run_cap), (cap, old, raised)));
                sandbox.attempt_cap = Some(raised);
                sandboxes::update(transaction, &mut sandbox)?;
            }
        }
        (ApprovalDecision::Cancel, Some(_)) => {
            sandbox.desired_state = DesiredState::Stopped;
            sandboxes::update(transaction, &mut sandbox)?;
        }
        _ => {}
    }
    approval.reason.clone_from(&request.reason);
    Ok(close(transaction, &sandbox, approval, (request.decision, &request.by), now_us)?)
}

/// Writes a decision with its event, and returns the approval and the position of the event.
pub(super) fn close(
    transaction: &Transaction<'_>,
    sandbox: &Sandbox,
    mut approval: Approval,
    (decision, by): (ApprovalDecision, &str),
    now_us: i64,
) -> rusqlite::Result<(Approval, i64)> {
    approval.decision = Some(decision);
    approval.decided_by = Some(by.to_owned());
    approval.decided_us = Some(now_us);
    if decision == ApprovalDecision::Changed {
        // The decision has no further effect.
        approval.applied_us = Some(now_us);
    }
    write(transaction, &approval)?;
    let mut data = event_data(&approval);
    data["decision"] = decision.as_str().into();
    let event_type = match decision {
        ApprovalDecision::Expired | ApprovalDecision::Changed => "approval.expired",
        ApprovalDecision::Approve | ApprovalDecision::Deny | ApprovalDecision::Cancel => "approval.decided",
    };
    let seq = sandboxes::report(transaction, sandbox, event_type, &data, now_us)?;
    Ok((approval, seq))
}
