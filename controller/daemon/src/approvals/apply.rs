//! Carries out a decision: at LiteLLM, which may have a virtual key of the run, and at the sidecar of the run.
//!
//! The database already has the decision. If one of the two cannot be reached, or the daemon is killed between two steps,
//! the decision is carried out again; each step may be repeated. If LiteLLM refuses permanently to raise the key, the
//! sidecar gets the raise nevertheless.

use std::time::Duration;

use sluice_contract::control::{DecideHold, HeldCall, HoldDecision, RaiseCaps};
use sluice_contract::text::{error_chain, sanitize};
use sluice_runs::run_locks::RunLocks;
use sluice_runs::sidecar_control::{ControlError, SidecarControl};
use sluice_runs::virtual_key::{self, RaiseKeyError};
use sluice_state::approvals::{Approval, ApprovalDecision, ApprovalError, RaisableCap};
use sluice_state::ledger::usd;
use sluice_state::store::now_us;

use super::near_cap::cap_of;
use crate::context::ApiContext;

/// Maximum length of a reason at a sidecar, in bytes.
const REASON_MAX: usize = 1000;
/// Maximum length of a name at a sidecar, in bytes.
const BY_MAX: usize = 128;

/// Locks of runs while their virtual keys are raised.
static KEY_RAISES: RunLocks = RunLocks::new();

/// A decision that LiteLLM or the sidecar does not have yet. It is carried out again.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApplyError {
    #[error("its virtual key is not raised")]
    Key(#[from] RaiseKeyError),
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Approval(#[from] ApprovalError),
}

/// Sends the decision to LiteLLM and to the sidecar. A repetition changes nothing, because caps are absolute.
///
/// # Errors
/// [`ApplyError`]
pub(super) async fn apply(context: &ApiContext, approval: &Approval) -> Result<(), ApplyError> {
    let control = SidecarControl::of(&context.layout, &approval.key);
    let by = cut(approval.decided_by.as_deref().unwrap_or("daemon"), BY_MAX);
    let reason = reason(approval);
    match (approval.decision, approval.cap) {
        (Some(ApprovalDecision::Approve), Some((cap, _, _))) => {
            if let Some(to) = approval.raised_to {
                // With a raised cap and an old key, LiteLLM may refuse calls that the sidecar lets through.
                let refused = raise_key(context, approval, cap).await?;
                raise(&control, cap, to, (by, reason)).await?;
                if let Some(refused) = refused {
                    return record_old_key(context, approval, &refused).await;
                }
            }
        }
        (Some(decision), Some((cap, _, _))) if decision.denies() => deny(&control, cap, (by, reason)).await?,
        (Some(ApprovalDecision::Cancel), _) => context.work.notify_one(),
        _ => {}
    }
    Ok(context.store.record_applied(&approval.id, now_us()).await?)
}

/// Records that the sidecar has the raise and that the key stays as it is, and logs this once.
async fn record_old_key(context: &ApiContext, approval: &Approval, refused: &RaiseKeyError) -> Result<(), ApplyError> {
    let reason = error_chain(refused);
    if context.store.record_applied_with_old_key(approval, &reason, now_us()).await? {
        let Approval { key, id, .. } = approval;
        (context.log)(&format!("run {key}: approval {id}: the cap is raised, and its virtual key stays: {reason}"));
    }
    Ok(())
}

/// Extends the life of the attempt's virtual key, if it has one, and raises its budget to the cost cap in force.
/// Returns a refusal that no later try can change.
async fn raise_key(
    context: &ApiContext,
    approval: &Approval,
    cap: RaisableCap,
) -> Result<Option<RaiseKeyError>, ApplyError> {
    let Some(host) = context.execs.host() else { return Ok(None) };
    let _lock = KEY_RAISES.lock(&approval.key.run_id).await;
    // The cap is read under the lock: a slow request for an earlier decision must not lower the budget of a later one.
    let run = context.store.find_sandbox(None, &approval.key.run_id).await.map_err(ApprovalError::from)?;
    let Some(run) = run.filter(|run| run.key == approval.key) else { return Ok(None) };
    let max_cost = run.attempt_cap.filter(|_| cap == RaisableCap::MaxCostUsd);
    let now = now_us();
    let tried_us = approval.decided_us.map_or(0, |decided| now.saturating_sub(decided).max(0).unsigned_abs());
    match virtual_key::raise_of(host, &run.key, max_cost, run.ends_us(now)).await {
        Ok(()) => Ok(None),
        Err(error) if error.is_final(Duration::from_micros(tried_us)) => Ok(Some(error)),
        Err(error) => Err(error.into()),
    }
}

async fn raise(
    control: &SidecarControl,
    cap: RaisableCap,
    to: i64,
    (by, reason): (String, String),
) -> Result<(), ControlError> {
    let count = || u64::try_from(to).ok();
    let raise = match cap {
        RaisableCap::MaxCalls => RaiseCaps { max_calls: count(), ..RaiseCaps::default() },
        RaisableCap::MaxTokens => RaiseCaps { max_tokens: count(), ..RaiseCaps::default() },
        RaisableCap::MaxCostUsd => RaiseCaps { max_cost_usd: Some(usd(to.into())), ..RaiseCaps::default() },
    };
    match control.raise_caps(&RaiseCaps { by, reason, ..raise }).await {
        Ok(_) => Ok(()),
        // The cap in force is higher already, or the run has none.
        Err(error) if error.is_moot() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Denies the calls that need more than the cap. Calls that come meanwhile are left to the watcher: a sandbox can send them
/// without an end.
async fn deny(control: &SidecarControl, cap: RaisableCap, (by, reason): (String, String)) -> Result<(), ControlError> {
    for hold_id in needing_more(control, cap).await? {
        // After a denial, the next call may fit.
        if !needing_more(control, cap).await?.contains(&hold_id) {
            continue;
        }
        let deny = DecideHold { decision: HoldDecision::Deny, by: by.clone(), reason: reason.clone() };
        match control.decide_hold(&hold_id, &deny).await {
            Ok(_) => {}
            Err(error) if error.is_unknown() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the holds whose calls need more than the cap.
async fn needing_more(control: &SidecarControl, cap: RaisableCap) -> Result<Vec<String>, ControlError> {
    let held = match control.held().await {
        Err(error) if error.is_unknown() => return Ok(Vec::new()),
        held => held?,
    };
    let needs_more = |call: &HeldCall| cap_of(call.cause) == Some(cap) && call.asked.is_some();
    Ok(held.into_iter().filter(needs_more).map(|call| call.hold_id).collect())
}

/// Returns the reason for the run's own audit log, which names the digest as the control log does.
fn reason(approval: &Approval) -> String {
    let text = approval.reason.as_deref().unwrap_or_default();
    let whole = format!("approval {} digest {} {text}", approval.id, approval.digest);
    cut(sanitize(whole.trim_end()).as_ref(), REASON_MAX)
}

fn cut(text: &str, max: usize) -> String {
    text[..text.floor_char_boundary(max)].to_owned()
}
