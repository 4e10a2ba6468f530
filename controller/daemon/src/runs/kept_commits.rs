//! Kept workspaces of runs whose commits were not collected: bounded for each owner when one is added. The upkeep removes
//! expired ones.

use sluice_contract::RunKey;
use sluice_contract::text::error_chain;
use sluice_runs::exchange::disk_usage::{DiskUsage, disk_usage};
use sluice_runs::exchange::kept_workspace;
use sluice_state::sandboxes::{Sandbox, SandboxError};
use tokio::task::spawn_blocking;

use super::service::shown;
use crate::context::ApiContext;
use crate::kept_workspaces::{OF_OWNER, list_kept, remove_kept};

/// Bytes of all kept workspaces of an owner, as a multiple of those that one workspace may take.
const SPACE: u64 = 2;

/// Removes kept workspaces of the owner of a run that has just ended, the oldest ones first, until they fit. One that takes more
/// than its run was allowed is not kept.
pub(super) async fn bound_kept(context: &ApiContext, run: &Sandbox, limit: u64) {
    let kept = match of_owner(context, run).await {
        Ok(kept) => kept,
        Err(error) => return report(context, &run.key, &error_chain(&error)),
    };
    let (mut left, mut removed) = (limit.saturating_mul(SPACE), Vec::new());
    for (position, key) in kept.into_iter().enumerate() {
        let (path, most) = (kept_workspace(&context.layout.run(&key)), limit.min(left));
        let measured = spawn_blocking(move || disk_usage(&path, most)).await;
        match measured {
            Ok(Ok(DiskUsage::Within(bytes))) if position < OF_OWNER => left -= bytes,
            _ => removed.push(key),
        }
    }
    for key in &removed {
        report(context, key, "it is not kept: with the newer ones of its owner, it takes more space than they may");
    }
    if let Err(error) = remove_kept(&context.layout, removed).await {
        report(context, &run.key, &error.to_string());
    }
}

/// Returns the kept workspaces of the owner, the newest first; none if that of the run itself was not kept. Chats have limits of
/// their own.
async fn of_owner(context: &ApiContext, run: &Sandbox) -> Result<Vec<RunKey>, SandboxError> {
    let keys = list_kept(&context.layout).await.unwrap_or_default();
    if !keys.contains(&run.key) {
        return Ok(Vec::new());
    }
    let mut kept = Vec::new();
    for key in keys {
        let found = context.store.find_sandbox(None, &key.run_id).await?;
        let Some(found) = found.filter(|found| found.owner == run.owner) else { continue };
        if context.store.chat_workspace(&key.run_id).await?.is_none() {
            kept.push((found.created_us, key));
        }
    }
    kept.sort_by_key(|(created_us, key)| std::cmp::Reverse((*created_us, key.attempt)));
    Ok(kept.into_iter().map(|(_, key)| key).collect())
}

fn report(context: &ApiContext, key: &RunKey, text: &str) {
    (context.log)(&format!("{}: its kept workspace: {text}", shown(key)));
}
