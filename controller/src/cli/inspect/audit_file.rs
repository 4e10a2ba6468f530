//! The reason why a run has no audit file.

use sluice_contract::RunKey;
use sluice_state::layout::Layout;
use sluice_state::store::Store;

use super::super::error::CommandError;
use super::super::find_run::pruned_run;
use super::super::output::timestamp_to_second;

/// Returns why a run has no audit file; `None` if it has one.
///
/// # Errors
/// Errors of the database.
pub(super) async fn reason_of_absence(
    store: &Store,
    layout: &Layout,
    key: &RunKey,
) -> Result<Option<String>, CommandError> {
    if layout.run(key).audit.exists() {
        return Ok(None);
    }
    if let Some(reason) = pruned(layout, key) {
        return Ok(Some(reason));
    }
    let seen = store.witnesses(key).await.map_err(|error| CommandError::failed(&error))?;
    Ok(Some(if seen.is_empty() {
        "no file: the run has not started".to_owned()
    } else {
        format!("no file, although lines of it were seen; see sluice audit verify {key}")
    }))
}

/// Returns the time at which the file was pruned; `None` for a run that was not pruned, or if the log of decisions cannot
/// be read.
fn pruned(layout: &Layout, key: &RunKey) -> Option<String> {
    let (_, run, when_us) = pruned_run(layout.state(), &key.to_string())?;
    Some(format!("no file: sluice prune removed it at {} ({} lines)", timestamp_to_second(when_us), run.lines))
}
