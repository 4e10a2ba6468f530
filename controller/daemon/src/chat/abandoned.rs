//! Ends chat runs and worker turns that no client follows: at once, or after the time in which the client may come
//! back. Workers that wait have no client, and end by their own rules.
//!
//! After a restart, each live chat gets that time again.

use std::sync::Arc;
use std::time::Duration;

use sluice_contract::RunId;
use sluice_state::chats::ChatWorker;
use sluice_state::control_log::ControlEntry;

use super::worker_upkeep::{abandon_turn, end_workers};
use super::workers::{LeftTurn, left_turn};
use crate::chat_followers::{FIRST_TIME, FollowedTurn};
use crate::chat_settings::HangUp;
use crate::context::ApiContext;
use crate::loops::{LoopFault, LoopTimer, every};
use crate::runs::cancellation;
use crate::stop_signal::StopSignal;

const TIMER: LoopTimer = LoopTimer { name: "chats", period: Duration::from_millis(500), first: Duration::from_secs(1) };

/// Ends chat runs and worker turns that no client follows, until the signal.
pub(crate) async fn run(context: Arc<ApiContext>, stop: StopSignal) {
    let (loops, log) = (Arc::clone(&context.loops), context.log);
    every(TIMER, loops, log, stop, || turn(Arc::clone(&context))).await;
}

async fn turn(context: Arc<ApiContext>) -> Result<(), LoopFault> {
    let workers = context.store.chat_workers().await?;
    end_workers(&context, &workers).await?;
    if context.chat.hang_up == HangUp::Keep {
        return Ok(());
    }
    let find = |run_id: &RunId| workers.iter().find(|worker| worker.key.run_id == *run_id);
    let live = context.store.live_chats().await?.into_iter().map(|chat| chat.run_id);
    let under_way = |run_id: RunId| match find(&run_id) {
        Some(worker) => worker.turn.end.is_none().then_some((run_id, worker.turn.number)),
        None => Some((run_id, 1)),
    };
    let live: Vec<_> = live.filter_map(under_way).collect();
    for left in context.followers.left(&live, FIRST_TIME.max(context.chat.resume)) {
        match find(&left.0) {
            Some(worker) if left_turn(worker) == LeftTurn::Interrupt => interrupt(&context, worker).await?,
            // Meanwhile the turn may have ended, and another client may have begun the next one.
            Some(_) if !is_under_way(&context, &left).await? => {}
            _ => cancel(&context, &left.0).await?,
        }
    }
    Ok(())
}

/// Returns whether a turn of a worker has not ended.
async fn is_under_way(context: &ApiContext, (run_id, turn): &FollowedTurn) -> Result<bool, LoopFault> {
    let workers = context.store.chat_workers().await?;
    let mut turns = workers.into_iter().filter(|worker| worker.key.run_id == *run_id).map(|worker| worker.turn);
    Ok(turns.any(|now| now.number == *turn && now.end.is_none()))
}

async fn interrupt(context: &ApiContext, worker: &ChatWorker) -> Result<(), LoopFault> {
    if !abandon_turn(context, worker).await? {
        context.followers.expect_none(&worker.key.run_id);
    }
    Ok(())
}

async fn cancel(context: &ApiContext, run_id: &RunId) -> Result<(), LoopFault> {
    let entry = ControlEntry {
        operation: "sandbox.cancel".to_owned(),
        object: Some(run_id.to_string()),
        reason: Some("its chat client has hung up".to_owned()),
        ..ControlEntry::default()
    };
    // The action requires its control log entry; if that fails, the next turn tries again.
    context.record_own(entry).await.map_err(|error| LoopFault::new(error.code()))?;
    cancellation::cancel(context, run_id).await?;
    Ok(())
}
