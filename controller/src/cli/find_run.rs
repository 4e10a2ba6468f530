//! Runs of this state directory by id, name, or the beginning of an id.

use std::path::Path;

use sluice_contract::RunKey;
use sluice_state::decisions::{Decisions, PrunedRun};
use sluice_state::keys::Keys;
use sluice_state::layout::Layout;
use sluice_state::store::{KnownRun, Store};

use super::error::CommandError;

/// Maximum number of runs that an error names.
const NAMED_MAX: u32 = 10;

/// Finds the run that a user names: RUN.ATTEMPT; RUN, or the name of a daemon's run, with its last attempt; or a unique
/// prefix of RUN. A name with several owners is written OWNER/NAME.
pub(super) async fn find_run(store: &Store, name: &str) -> Result<KnownRun, CommandError> {
    let failed = |error: &dyn std::error::Error| CommandError::failed(error);
    if let Ok(key) = name.parse::<RunKey>()
        && let Some(run) = store.find_run(&key).await.map_err(|error| failed(&error))?
    {
        return Ok(run);
    }
    let unknown = || CommandError::wrong_usage(format!("there is no run '{name}'; sluice ps --all lists all runs"));
    if name.is_empty() {
        return Err(unknown());
    }
    let found = store.runs_with_prefix(name, NAMED_MAX + 1).await.map_err(|error| failed(&error))?;
    let exact = found.iter().find(|key| key.run_id.as_str() == name).cloned();
    let named = if exact.is_some() { exact } else { named(store, name).await? };
    match (named, &found[..]) {
        (Some(key), _) => store.find_run(&key).await.map_err(|error| failed(&error))?.ok_or_else(unknown),
        (None, [key]) => store.find_run(key).await.map_err(|error| failed(&error))?.ok_or_else(unknown),
        (None, []) => Err(unknown()),
        (None, several) => {
            let named: Vec<_> = several.iter().take(NAMED_MAX as usize).map(RunKey::to_string).collect();
            let more = if several.len() > NAMED_MAX as usize { ", and more" } else { "" };
            Err(CommandError::wrong_usage(format!(
                "'{name}' is the beginning of several runs: {}{more}",
                named.join(", ")
            )))
        }
    }
}

/// Finds the daemon's run of a name: the live one, else the newest one that has ended.
async fn named(store: &Store, name: &str) -> Result<Option<RunKey>, CommandError> {
    let failed = |error: sluice_state::sandboxes::SandboxError| CommandError::failed(&error);
    if let Some((owner, name)) = name.split_once('/') {
        let found = store.find_sandbox_by_name(owner, name).await.map_err(failed)?;
        return Ok(found.map(|sandbox| sandbox.key));
    }
    let found = store.sandboxes_named(name).await.map_err(failed)?;
    match &found[..] {
        [] => Ok(None),
        [sandbox] => Ok(Some(sandbox.key.clone())),
        several => {
            let owners: Vec<_> = several.iter().map(|sandbox| format!("{}/{name}", sandbox.owner)).collect();
            let message = format!("several owners have a run of the name '{name}'; write {}", owners.join(" or "));
            Err(CommandError::wrong_usage(message))
        }
    }
}

/// Returns a run whose audit file was pruned, by RUN.ATTEMPT or RUN with its last attempt, and the time of pruning in
/// microseconds since 1970. `None` for another run, or if the log of decisions cannot be read.
pub(super) fn pruned_run(state: &Path, name: &str) -> Option<(RunKey, PrunedRun, i64)> {
    let decisions = Decisions::read(&Layout::at(state), &Keys::at(state).public().ok()?).ok()?;
    let is_named = |key: &RunKey| key.to_string() == name || key.run_id.as_str() == name;
    let (key, (run, when_us)) = decisions.pruned.into_iter().rfind(|(key, _)| is_named(key))?;
    Some((key, run, when_us))
}
