//! Repositories of runs: the progress of a run's branch, from its clone to the merge of its pull request.
//!
//! Each step is recorded after it was done, and can be repeated: the record shows where to continue after a crash.

use rusqlite::{OptionalExtension, Row, TransactionBehavior, params};
use sluice_contract::RunId;

use crate::approvals::close_published;
use crate::events::announce;
use crate::store::{Store, StoreError};

mod begun_pushes;

pub use begun_pushes::BegunPush;

/// Rule by which the branch of a run leaves the host, the strictest one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PublishRule {
    /// The branch is never published.
    Never,
    /// A person publishes the branch.
    Approve,
    /// The branch is published at the end of a successful run.
    Auto,
}

impl PublishRule {
    /// All rules.
    pub const ALL: [Self; 3] = [Self::Never, Self::Approve, Self::Auto];

    /// Returns the stricter one of two rules.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        self.min(other)
    }

    /// Returns the name, as in settings and requests.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Auto => "auto",
            Self::Never => "never",
        }
    }

    /// Returns the rule of a name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.as_str() == name)
    }
}

/// A run that works on a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewGitRun {
    /// Run.
    pub run_id: RunId,
    /// URL of the repository, without credentials.
    pub url: String,
    /// Branch that the run begins with; none for the default one of the repository.
    pub base_branch: Option<String>,
    /// Branch of the run.
    pub branch: String,
    /// Ticket.
    pub ticket: Option<String>,
    /// Title of the work.
    pub title: Option<String>,
    /// Rule of its publication.
    pub publish: PublishRule,
    /// True if a pull request is wanted.
    pub wants_pull_request: bool,
}

/// State of the branch of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitRun {
    /// The request, with the branches that are in use: the base branch is known after the clone, and the run's own
    /// branch can get a number.
    pub new: NewGitRun,
    /// Commit that the run began with.
    pub base_sha: Option<String>,
    /// Newest commit that came out of the run.
    pub head_sha: Option<String>,
    /// Commit that the forge has.
    pub published_sha: Option<String>,
    /// Number of the pull request.
    pub pull_request: Option<u64>,
    /// Address of the pull request.
    pub pull_request_url: Option<String>,
    /// Commit that the merge has made.
    pub merged_sha: Option<String>,
    /// Error of the last step, if it has failed.
    pub last_error: Option<String>,
    /// Number of failed tries of the next step.
    pub retry_count: u32,
}

/// A step of a branch that was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GitStep {
    /// The run has got its clone.
    Cloned {
        /// Branch of the repository.
        base_branch: String,
        /// Its commit.
        base_sha: String,
    },
    /// Commits came out of the run.
    Received {
        /// Newest commit.
        head_sha: String,
    },
    /// The forge has the branch.
    Published {
        /// Name of the branch there.
        branch: String,
        /// Commit.
        sha: String,
    },
    /// The pull request is open.
    Requested {
        /// Number.
        number: u64,
        /// Address.
        url: String,
    },
    /// The pull request was merged.
    Merged {
        /// Commit of the merge.
        sha: String,
    },
    /// A step has failed.
    Failed {
        /// Error, without credentials and host details.
        error: String,
    },
}

impl Store {
    /// Adds a run with a repository. Another attempt of the run, or the same step after a crash, changes nothing.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn begin_git_run(&self, new: NewGitRun, now_us: i64) -> Result<(), StoreError> {
        self.write(move |transaction| {
            transaction
                .prepare_cached(
                    "INSERT INTO git_runs (run_id, url, base_branch, branch, ticket, title, publish, wants_pull_request,
                                           created_us, updated_us)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9) ON CONFLICT (run_id) DO NOTHING",
                )?
                .execute(params![
                    new.run_id.as_str(),
                    new.url,
                    new.base_branch,
                    new.branch,
                    new.ticket,
                    new.title,
                    new.publish.as_str(),
                    new.wants_pull_request,
                    now_us
                ])?;
            Ok(())
        })
        .await
    }

    /// Returns the state of the branch of a run.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn find_git_run(&self, run_id: &RunId) -> Result<Option<GitRun>, StoreError> {
        let run_id = run_id.clone();
        self.query(move |connection| {
            Ok(connection.prepare_cached(GIT_RUN)?.query_row([run_id.as_str()], git_run).optional()?)
        })
        .await
    }

    /// Returns which of these runs had the last step of their branch before this time, and were over by then.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn past_git_runs(&self, runs: Vec<RunId>, before_us: i64) -> Result<Vec<RunId>, StoreError> {
        self.query(move |connection| {
            let mut query = connection.prepare_cached(PAST)?;
            let mut past = Vec::new();
            for run in runs {
                if query.exists(params![run.as_str(), before_us])? {
                    past.push(run);
                }
            }
            Ok(past)
        })
        .await
    }

    /// Records a step. A step that succeeded resets the count of failed tries. A publication closes the open approvals
    /// of publications of the run, and removes the records of its push and of earlier pushes.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn record_git_step(&self, run_id: &RunId, step: GitStep, now_us: i64) -> Result<(), StoreError> {
        let (run_id, signal) = (run_id.clone(), self.event_signal());
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let change = |columns: &str, values: &[&dyn rusqlite::ToSql]| {
                let sql = format!("UPDATE git_runs SET {columns}, updated_us = ?2 WHERE run_id = ?1");
                let given: [&dyn rusqlite::ToSql; 2] = [&run_id.as_str(), &now_us];
                transaction.prepare_cached(&sql)?.execute(&*given.iter().chain(values).copied().collect::<Vec<_>>())
            };
            const DONE: &str = "last_error = NULL, retry_count = 0";
            match &step {
                GitStep::Cloned { base_branch, base_sha } => change(
                    &format!("base_branch = ?3, base_sha = coalesce(base_sha, ?4), {DONE}"),
                    &[base_branch, base_sha],
                ),
                GitStep::Received { head_sha } => change(&format!("head_sha = ?3, {DONE}"), &[head_sha]),
                GitStep::Published { branch, sha } => {
                    change(&format!("branch = ?3, published_sha = ?4, {DONE}"), &[branch, sha])
                }
                GitStep::Requested { number, url } => {
                    let number = i64::try_from(*number).unwrap_or(i64::MAX);
                    change(&format!("pull_request = ?3, pull_request_url = ?4, {DONE}"), &[&number, url])
                }
                GitStep::Merged { sha } => change(&format!("merged_sha = ?3, {DONE}"), &[sha]),
                GitStep::Failed { error } => change("last_error = ?3, retry_count = retry_count + 1", &[error]),
            }?;
            let mut last = None;
            if let GitStep::Published { branch, sha } = &step {
                begun_pushes::end(&transaction, &run_id, branch, sha)?;
                last = close_published(&transaction, &run_id, now_us)?;
            }
            transaction.commit()?;
            if let Some(seq) = last {
                announce(&signal, seq);
            }
            Ok(())
        })
        .await
    }
}

const PAST: &str = "
    SELECT 1 FROM git_runs WHERE run_id = ?1 AND updated_us < ?2
    AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.run_id = ?1 AND phase <> 'closed')
    AND NOT EXISTS (SELECT 1 FROM sandboxes WHERE sandboxes.run_id = ?1 AND (ended_us IS NULL OR ended_us >= ?2))";

const GIT_RUN: &str = "
    SELECT run_id, url, base_branch, branch, ticket, title, publish, wants_pull_request, base_sha, head_sha, published_sha,
           pull_request, pull_request_url, merged_sha, last_error, retry_count
    FROM git_runs WHERE run_id = ?1";

fn git_run(row: &Row<'_>) -> rusqlite::Result<GitRun> {
    let (run_id, publish): (String, String) = (row.get(0)?, row.get(6)?);
    let number: Option<i64> = row.get(11)?;
    Ok(GitRun {
        new: NewGitRun {
            run_id: run_id.parse().expect("only ids of runs are written"),
            url: row.get(1)?,
            base_branch: row.get(2)?,
            branch: row.get(3)?,
            ticket: row.get(4)?,
            title: row.get(5)?,
            publish: PublishRule::of(&publish).expect("only names of rules are written"),
            wants_pull_request: row.get(7)?,
        },
        base_sha: row.get(8)?,
        head_sha: row.get(9)?,
        published_sha: row.get(10)?,
        pull_request: number.and_then(|number| u64::try_from(number).ok()),
        pull_request_url: row.get(12)?,
        merged_sha: row.get(13)?,
        last_error: row.get(14)?,
        retry_count: row.get(15)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_id() -> RunId {
        "r_1".parse().expect("an id")
    }

    async fn begun() -> (tempfile::TempDir, Store) {
        let directory = tempfile::tempdir().expect("there is room");
        let store = Store::open(&directory.path().join("sluice.db")).expect("it is new");
        let new = NewGitRun {
            run_id: run_id(),
            url: "https://forge.test/a/b".to_owned(),
            base_branch: None,
            branch: "feature/ABC-1".to_owned(),
            ticket: Some("ABC-1".to_owned()),
            title: None,
            publish: PublishRule::Approve,
            wants_pull_request: true,
        };
        store.begin_git_run(new, 1).await.expect("it is writable");
        (directory, store)
    }

    async fn found(store: &Store) -> GitRun {
        store.find_git_run(&run_id()).await.expect("it is readable").expect("it was begun")
    }

    #[tokio::test]
    async fn each_step_is_kept() {
        let (_directory, store) = begun().await;
        let steps = [
            GitStep::Cloned { base_branch: "main".to_owned(), base_sha: "b".to_owned() },
            GitStep::Received { head_sha: "h".to_owned() },
            GitStep::Published { branch: "feature/ABC-1-2".to_owned(), sha: "h".to_owned() },
            GitStep::Requested { number: 7, url: "https://forge.test/7".to_owned() },
            GitStep::Merged { sha: "m".to_owned() },
        ];
        for step in steps {
            store.record_git_step(&run_id(), step, 2).await.expect("it is writable");
        }
        let run = found(&store).await;
        assert_eq!((run.new.base_branch.as_deref(), run.base_sha.as_deref()), (Some("main"), Some("b")));
        assert_eq!((run.new.branch.as_str(), run.published_sha.as_deref()), ("feature/ABC-1-2", Some("h")));
        assert_eq!((run.pull_request, run.pull_request_url.as_deref()), (Some(7), Some("https://forge.test/7")));
        assert_eq!((run.head_sha.as_deref(), run.merged_sha.as_deref()), (Some("h"), Some("m")));
    }

    #[tokio::test]
    async fn failed_tries_are_counted_until_a_step_succeeds() {
        let (_directory, store) = begun().await;
        for _ in 0..3 {
            let failed = GitStep::Failed { error: "the forge is away".to_owned() };
            store.record_git_step(&run_id(), failed, 2).await.expect("it is writable");
        }
        let run = found(&store).await;
        assert_eq!((run.retry_count, run.last_error.as_deref()), (3, Some("the forge is away")));
        let step = GitStep::Received { head_sha: "h".to_owned() };
        store.record_git_step(&run_id(), step, 3).await.expect("it is writable");
        assert_eq!((found(&store).await.retry_count, found(&store).await.last_error), (0, None));
    }

    #[tokio::test]
    async fn the_first_base_stays() {
        let (_directory, store) = begun().await;
        for base in ["b", "c"] {
            let step = GitStep::Cloned { base_branch: "main".to_owned(), base_sha: base.to_owned() };
            store.record_git_step(&run_id(), step, 2).await.expect("it is writable");
        }
        assert_eq!(found(&store).await.base_sha.as_deref(), Some("b"));
    }

    #[tokio::test]
    async fn a_branch_is_past_when_no_step_came_for_long() {
        let (_directory, store) = begun().await;
        let step = GitStep::Received { head_sha: "h".to_owned() };
        store.record_git_step(&run_id(), step, 5).await.expect("it is writable");
        let unknown: RunId = "r_2".parse().expect("an id");
        for (before_us, past) in [(5, vec![]), (6, vec![run_id()])] {
            let runs = vec![unknown.clone(), run_id()];
            assert_eq!(store.past_git_runs(runs, before_us).await.expect("it is readable"), past, "{before_us}");
        }
    }

    #[tokio::test]
    async fn another_attempt_changes_nothing() {
        let (_directory, store) = begun().await;
        let step = GitStep::Received { head_sha: "h".to_owned() };
        store.record_git_step(&run_id(), step, 2).await.expect("it is writable");
        let before = found(&store).await;
        let again = NewGitRun { branch: "other".to_owned(), ..before.new.clone() };
        store.begin_git_run(again, 3).await.expect("it is writable");
        assert_eq!(found(&store).await, before);
    }
}
