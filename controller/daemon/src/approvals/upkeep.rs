//! Closes approvals and questions that were not decided in time, and all open ones of attempts that are over.

use serde_json::json;
use sluice_contract::text::error_chain;
use sluice_state::approvals::ApprovalDecision;
use sluice_state::control_log::ControlEntry;
use sluice_state::store::now_us;

use super::apply::apply;
use crate::context::ApiContext;
use crate::loops::LoopFault;

/// Closes expired approvals and questions. An approval that was not decided in time is denied.
pub(crate) async fn turn(context: &ApiContext) -> Result<(), LoopFault> {
    let now = now_us();
    let due = context.store.due_approvals(now).await?;
    for approval in due.iter().filter(|approval| approval.expires_us <= now) {
        let entry = ControlEntry {
            operation: "approval.expire".to_owned(),
            object: Some(format!("{}/{}", approval.key.run_id, approval.id)),
            after: Some(json!({ "approval_digest": approval.digest, "decision": ApprovalDecision::Expired.as_str() })),
            ..ControlEntry::default()
        };
        context.record_own(entry).await.map_err(|error| LoopFault::new(error.code()))?;
    }
    if !due.is_empty() {
        for closed in context.store.expire_approvals(now).await? {
            if closed.decision == Some(ApprovalDecision::Expired)
                && let Err(error) = apply(context, &closed).await
            {
                (context.log)(&format!("run {}: approval {}: {}", closed.key, closed.id, error_chain(&error)));
            }
        }
        context.work.notify_one();
    }
    context.store.expire_questions(now).await?;
    Ok(())
}
