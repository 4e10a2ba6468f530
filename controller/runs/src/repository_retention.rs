//! Removal of expired repositories: repositories of runs, and mirrors.

use std::time::{Duration, SystemTime};

use sluice_contract::time::{duration_micros, unix_micros};
use sluice_git::{GitError, GitHome};
use sluice_state::store::{Store, StoreError};

/// Shortest time for which a branch stays after its last step: a person publishes it meanwhile.
const KEEP_MIN: Duration = Duration::from_secs(24 * 3600);

/// Reason why old repositories stay.
#[derive(Debug, thiserror::Error)]
pub enum RepositoryRetentionError {
    /// The database cannot tell which are old.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// One cannot be removed.
    #[error(transparent)]
    Git(#[from] GitError),
}

/// Removes the repositories of runs whose branch had its last step this long ago, a day at least, and mirrors that were not
/// used for a run since then. Returns their number. A repository in use stays for the next time.
///
/// # Errors
/// [`RepositoryRetentionError`]
pub async fn remove_old_repositories(
    home: &GitHome,
    store: &Store,
    keep: Duration,
    now: SystemTime,
) -> Result<u64, RepositoryRetentionError> {
    let keep = keep.max(KEEP_MIN);
    let before_us = unix_micros(now).unwrap_or_default().saturating_sub(duration_micros(keep));
    let past = store.past_git_runs(home.runs()?, before_us).await?;
    let home = home.clone();
    let removal = move || {
        let mut removed = 0;
        for run in &past {
            removed += u64::from(home.remove_run(run)?);
        }
        let mirrors = now.checked_sub(keep).map_or(Ok(0), |before| home.remove_old_mirrors(before))?;
        Ok::<u64, GitError>(removed + mirrors)
    };
    // Repositories can be large.
    match tokio::task::spawn_blocking(removal).await {
        Ok(removed) => Ok(removed?),
        Err(stopped) => std::panic::resume_unwind(stopped.into_panic()),
    }
}
