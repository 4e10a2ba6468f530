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
    /// The database cannot tell which repositories are old.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A repository cannot be removed.
    #[error(transparent)]
    Git(#[from] GitError),
}

/// Removes the repositories of runs if the last step of the branch was this long ago, a day at least, and mirrors that
/// were not used for a run since then. Returns their number. A repository in use stays for the next time.
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

#[cfg(test)]
mod tests {
    use std::fs;

    use sluice_git::GitProgram;
    use sluice_state::git_runs::{NewGitRun, PublishRule};
    use sluice_state::store::now_us;

    use super::*;

    fn git_run(run: &str) -> NewGitRun {
        NewGitRun {
            run_id: run.parse().expect("an id"),
            url: "https://forge.test/a/b".to_owned(),
            base_branch: None,
            branch: format!("run/{run}"),
            ticket: None,
            title: None,
            publish: PublishRule::Approve,
            wants_pull_request: false,
        }
    }

    /// Bug: a process that was killed while it made a repository left it for ever.
    #[tokio::test]
    async fn an_unfinished_repository_is_removed_in_time() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::open(&directory.path().join("sluice.db")).expect("it is new");
        let git = directory.path().join("git");
        let home = GitHome::new(git.clone(), GitProgram::unconfined("/usr/bin/git".into()));
        for (run, begun_us) in [("r1", 1), ("r2", now_us())] {
            store.begin_git_run(git_run(run), begun_us).await.expect("it is writable");
            fs::create_dir_all(git.join(format!("runs/{run}.new/objects"))).expect("it is ours");
            fs::write(git.join(format!("runs/{run}.lock")), "").expect("it is ours");
        }
        let removed = remove_old_repositories(&home, &store, Duration::ZERO, SystemTime::now()).await;
        assert_eq!(removed.expect("it is ours"), 1);
        let entries =
            fs::read_dir(git.join("runs")).expect("it is ours").map(|entry| entry.expect("an entry").file_name());
        let mut left: Vec<_> = entries.collect();
        left.sort();
        assert_eq!(left, ["r2.lock", "r2.new"]);
    }
}
