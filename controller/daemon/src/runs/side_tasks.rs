//! Tasks during a run: its pauses, its approvals, its conversation, and the size of its workspace.

use std::convert::Infallible;
use std::sync::Arc;

use sluice_state::sandboxes::Sandbox;

use super::disk_keeper;
use super::talk::talk;
use crate::approvals::ApprovalWatcher;
use crate::context::ApiContext;
use crate::live_run::LiveRun;
use crate::pause::PauseKeeper;

/// Manages a run until it is dropped.
pub(super) async fn look_after(
    context: &Arc<ApiContext>,
    run: &Sandbox,
    live: &Arc<LiveRun>,
    keeper: PauseKeeper,
) -> Infallible {
    let watcher = ApprovalWatcher::new(Arc::clone(context), run.key.clone(), Arc::clone(live));
    tokio::select! {
        never = Box::pin(keeper.run()) => match never {},
        never = Box::pin(watcher.run()) => match never {},
        never = Box::pin(talk(context, run)) => match never {},
        never = Box::pin(disk_keeper::keep(context, run, live)) => match never {},
    }
}
