//! The fill level of the event log and of its disk: above a limit, only events of runs are refused.

use nix::sys::statvfs::statvfs;
use tokio::task::spawn_blocking;

use crate::context::ApiContext;
use crate::event_limits::{EventLimits, StoreLevel, store_full};
use crate::loops::LoopFault;

/// Name of the event log in the readiness.
const PART: &str = "event store";

/// Measures the level, and refuses the events of runs or takes them again.
pub(super) async fn look(context: &ApiContext, limits: &EventLimits) -> Result<(), LoopFault> {
    let used = context.store.used_bytes().await?;
    let path = context.layout.state().to_owned();
    let disk = spawn_blocking(move || statvfs(&path)).await??;
    let block = disk.fragment_size();
    let level = StoreLevel { used, disk_free: disk.blocks_available() * block, disk_total: disk.blocks() * block };
    let full = store_full(level, limits, context.events.is_full());
    context.events.set_full(full.is_some());
    match full {
        None => {
            context.readiness.pass(PART);
            Ok(())
        }
        Some(full) => {
            context.readiness.fail(PART, full.to_string());
            Err(LoopFault::new(full.to_string()))
        }
    }
}
