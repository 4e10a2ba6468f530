//! Runs by their name, or by the beginning of it.

use sluice_contract::{RunKey, exit};
use sluice_state::store::{KnownRun, Store};

use super::error::CommandError;

/// Maximum number of runs that an error names.
const NAMED_MAX: u32 = 10;

/// Finds the run that a user names: RUN.ATTEMPT, RUN with its last attempt, or the beginning of one RUN.
pub(super) async fn find_run(store: &Store, name: &str) -> Result<KnownRun, CommandError> {
    let failed = |error: &dyn std::error::Error| CommandError::failed(error);
    if let Ok(key) = name.parse::<RunKey>()
        && let Some(run) = store.find_run(&key).await.map_err(|error| failed(&error))?
    {
        return Ok(run);
    }
    let usage = |message| CommandError { code: exit::USAGE, message };
    let unknown = || usage(format!("there is no run '{name}'; sluice ps --all lists all runs"));
    if name.is_empty() {
        return Err(unknown());
    }
    let found = store.runs_with_prefix(name, NAMED_MAX + 1).await.map_err(|error| failed(&error))?;
    let exact = found.iter().find(|key| key.run_id.as_str() == name);
    match (exact, &found[..]) {
        (Some(key), _) | (None, [key]) => {
            store.find_run(key).await.map_err(|error| failed(&error))?.ok_or_else(unknown)
        }
        (None, []) => Err(unknown()),
        (None, several) => {
            let named: Vec<_> = several.iter().take(NAMED_MAX as usize).map(RunKey::to_string).collect();
            let more = if several.len() > NAMED_MAX as usize { ", and more" } else { "" };
            Err(usage(format!("'{name}' is the beginning of several runs: {}{more}", named.join(", "))))
        }
    }
}
