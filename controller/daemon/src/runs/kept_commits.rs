//! Kept workspaces of runs, except workspaces of chats: bounded for each owner when one is added. The upkeep removes
//! expired ones.

use sluice_contract::RunKey;
use sluice_contract::text::error_chain;
use sluice_runs::exchange::disk_usage::DiskUsage;
use sluice_runs::exchange::kept_workspace;
use sluice_state::sandboxes::Sandbox;

use super::disk_keeper::measure;
use super::service::shown;
use crate::api_error::ApiError;
use crate::context::ApiContext;
use crate::kept_workspaces::{OF_OWNER, list_kept, remove_kept};

/// Maximum size of all kept workspaces of an owner, as a multiple of the largest of their limits.
const SPACE: u64 = 2;

/// A kept workspace, and the bytes that its run was allowed.
struct KeptEntry {
    key: RunKey,
    created_us: i64,
    limit: u64,
}

/// Removes kept workspaces of the owner of a run that has just ended, the oldest ones first, until they fit. One that takes more
/// than its run was allowed is not kept. One that cannot be measured stays: a fault of this host must not cost commits.
pub(super) async fn bound_kept(context: &ApiContext, run: &Sandbox) {
    let kept = match of_owner(context, run).await {
        Ok(kept) => kept,
        Err(error) => return report(context, &run.key, error.code()),
    };
    let largest = kept.iter().map(|one| one.limit).max().unwrap_or(0);
    let (mut left, mut removed) = (largest.saturating_mul(SPACE), Vec::new());
    for (position, KeptEntry { key, limit, .. }) in kept.into_iter().enumerate() {
        match measure(kept_workspace(&context.layout.run(&key)), limit.min(left)).await.0 {
            Some(Ok(DiskUsage::Within(bytes))) if position < OF_OWNER => left -= bytes,
            Some(Ok(usage)) => removed.push((key, reason(position, usage, (limit, left)))),
            Some(Err(error)) => report(context, &key, &error_chain(&error)),
            None => {}
        }
    }
    for (key, reason) in &removed {
        report(context, key, &format!("it is not kept: {reason}"));
    }
    let removed = removed.into_iter().map(|(key, _)| key).collect();
    if let Err(error) = remove_kept(&context.layout, removed).await {
        report(context, &run.key, &error.to_string());
    }
}

/// Returns the kept workspaces of the owner, the newest first; none if the run's own workspace was not kept. Chats have
/// limits of their own.
async fn of_owner(context: &ApiContext, run: &Sandbox) -> Result<Vec<KeptEntry>, ApiError> {
    let keys = list_kept(&context.layout).await.map_err(|error| ApiError::internal(&error))?;
    if !keys.contains(&run.key) {
        return Ok(Vec::new());
    }
    let mut kept = Vec::new();
    for key in keys {
        let found = context.store.find_sandbox(None, &key.run_id).await?;
        let Some(found) = found.filter(|found| found.owner == run.owner) else { continue };
        if context.store.chat_workspace(&key.run_id).await?.is_none() {
            let limit = context.stored_request(&key.run_id).await?.limits.workspace;
            kept.push(KeptEntry { key, created_us: found.created_us, limit });
        }
    }
    kept.sort_by_key(|one| std::cmp::Reverse((one.created_us, one.key.attempt)));
    Ok(kept)
}

/// Returns the reason for which a kept workspace is removed. `position` is its place among the workspaces of its owner,
/// the newest first. `limit` is the space that its run was allowed, and `left` is the space that the newer ones leave.
fn reason(position: usize, usage: DiskUsage, (limit, left): (u64, u64)) -> String {
    if position >= OF_OWNER {
        return format!("its owner has {OF_OWNER} newer ones, which is the maximum");
    }
    let text = match usage {
        DiskUsage::Evasive | DiskUsage::Uncountable => "its names and directories cannot be counted",
        DiskUsage::Within(_) | DiskUsage::Over if limit <= left => "it takes more space than its run was allowed",
        DiskUsage::Within(_) | DiskUsage::Over => "with the newer ones of its owner, it takes more space than they may",
    };
    text.to_owned()
}

fn report(context: &ApiContext, key: &RunKey, text: &str) {
    (context.log)(&format!("{}: its kept workspace: {text}", shown(key)));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bug: a workspace that was one too many was logged as one that takes too much space.
    #[test]
    fn a_removed_workspace_has_its_true_reason() {
        let small = DiskUsage::Within(1);
        assert_eq!(reason(OF_OWNER, small, (8, 8)), "its owner has 20 newer ones, which is the maximum");
        for (usage, left, expected) in [
            (DiskUsage::Over, 8, "it takes more space than its run was allowed"),
            (DiskUsage::Over, 7, "with the newer ones of its owner, it takes more space than they may"),
            (DiskUsage::Uncountable, 8, "its names and directories cannot be counted"),
            (DiskUsage::Evasive, 7, "its names and directories cannot be counted"),
        ] {
            assert_eq!(reason(OF_OWNER - 1, usage, (8, left)), expected, "{usage:?}, {left}");
        }
    }
}
