//! Ends workers of chat sessions: after their idle time, beyond the limit of their principal, for runs that wait in the queue,
//! and all of them if sessions no longer use workers.

use std::time::Duration;

use sluice_contract::RunId;
use sluice_contract::text::error_chain;
use sluice_contract::time::duration_micros;
use sluice_state::chats::{AbandonedTurn, ChatWorker};
use sluice_state::control_log::ControlEntry;
use sluice_state::messages::{MessageError, MessageState};
use sluice_state::store::now_us;

use super::workers::{gives_way, overdue, to_end};
use crate::chat_settings::SessionCarry;
use crate::context::ApiContext;
use crate::loops::LoopFault;
use crate::runs::cancellation;

/// Time for which a run waits in the queue before a worker is ended for it.
const QUEUE_WAIT: Duration = Duration::from_secs(1);

/// Ends the workers that are due.
pub(super) async fn end_workers(context: &ApiContext, workers: &[ChatWorker]) -> Result<(), LoopFault> {
    if workers.is_empty() {
        return Ok(());
    }
    let (sessions, now) = (context.chat.sessions, now_us());
    let idle = if sessions.carried == SessionCarry::Worker { sessions.idle } else { Duration::ZERO };
    let mut ending = to_end(workers, idle, sessions.count, now);
    if ending.is_empty()
        && let Some(policy) = &context.policy
    {
        let pressure = context.store.queue_pressure(now.saturating_sub(duration_micros(QUEUE_WAIT))).await?;
        ending.extend(gives_way(workers, &pressure, policy.running_max, policy.owner_running_max));
    }
    for run_id in ending {
        end_worker(context, &run_id).await?;
    }
    for run_id in overdue(workers, now) {
        record(context, "sandbox.cancel", &run_id, "its worker was told to end, and did not").await?;
        cancellation::cancel(context, &run_id).await?;
    }
    Ok(())
}

/// Requests the end of a waiting worker. It ends a moment later.
pub(crate) async fn end_worker(context: &ApiContext, run_id: &RunId) -> Result<(), LoopFault> {
    record(context, "chat.end", run_id, "its place, or its time, is over").await?;
    context.store.end_chat_worker(run_id, now_us()).await.map(drop).or_else(gone)
}

/// Ends a turn that has no client. Returns false if that has to be tried again.
pub(super) async fn abandon_turn(context: &ApiContext, worker: &ChatWorker) -> Result<bool, LoopFault> {
    if matches!(worker.turn.message, Some((_, MessageState::Leased | MessageState::Sent))) {
        return Ok(false);
    }
    let run_id = &worker.key.run_id;
    record(context, "chat.interrupt", run_id, "its chat client has hung up").await?;
    match context.store.abandon_chat_turn(run_id, worker.turn.number, now_us()).await {
        Ok(done) => Ok(done != AbandonedTurn::OnItsWay),
        Err(error) => gone(error).map(|()| true),
    }
}

/// Records an action of the daemon itself. If that fails, the action is not done, and the next check tries again.
async fn record(context: &ApiContext, operation: &str, run_id: &RunId, reason: &str) -> Result<(), LoopFault> {
    let entry = ControlEntry {
        operation: operation.to_owned(),
        object: Some(run_id.to_string()),
        reason: Some(reason.to_owned()),
        ..ControlEntry::default()
    };
    context.record_own(entry).await.map(drop).map_err(|error| LoopFault::new(error.code()))
}

/// Ignores a run that has ended, because nothing is left to do, and a full queue, which is checked again later.
fn gone(error: MessageError) -> Result<(), LoopFault> {
    match error {
        MessageError::RunFinished | MessageError::QueueFull => Ok(()),
        error => Err(LoopFault::new(error_chain(&error))),
    }
}
