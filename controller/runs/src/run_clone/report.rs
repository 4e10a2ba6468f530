//! Commits and changes of a run in its clone, for `--json` and for people.

use serde::Serialize;
use sluice_contract::text::error_chain;
use sluice_git::guarded_paths::Guard;
use sluice_git::{BranchSummary, RunRepository, visible_path};
use sluice_state::git_runs::GitStep;

/// Maximum number of commits in a report.
const COMMITS_MAX: usize = 100;

/// Commits and changes of a run in its clone.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct CloneReport {
    /// Address of the repository, without credentials.
    pub url: String,
    /// Branch that the run started from.
    pub base_branch: String,
    /// Commit that the run started from.
    pub base: String,
    /// Branch of the run.
    pub branch: String,
    /// Head of that branch; the base if the run committed nothing.
    pub head: String,
    /// Commits, the newest one first; at most 100.
    pub commits: Vec<ReportedCommit>,
    /// Number of commits.
    pub ahead: u64,
    /// Number of changed files.
    pub files: u64,
    /// Number of added lines.
    pub insertions: u64,
    /// Number of removed lines.
    pub deletions: u64,
    /// Number of pushes that were taken while the program worked.
    pub pushes: u32,
    /// Commit with the uncommitted changes, under `refs/sluice/wip/RUN`; never published.
    pub uncommitted: Option<String>,
    /// Changed files that need an approval.
    pub guarded: Vec<GuardedChange>,
    /// True if the change is too large to be examined; then it is never published without approval by a person.
    pub too_large: bool,
    /// Branch at the forge; null if it was not published.
    pub published: Option<String>,
    /// Address of the pull request, or its number; null without one.
    pub pull_request: Option<String>,
    /// True if the branch was published, and the pull request could not be opened.
    pub pr_failed: bool,
    /// Reason why the branch is not at the forge although the run requested it.
    pub held: Option<String>,
    /// Reason why the uncommitted changes are missing; the commits are present.
    #[serde(skip)]
    pub uncommitted_fault: Option<String>,
    /// The same reason for the owner of the run: it names nothing of this host.
    #[serde(skip)]
    pub uncommitted_reason: Option<String>,
    /// Faults while it was collected.
    #[serde(skip)]
    pub faults: Vec<String>,
}

/// One commit of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReportedCommit {
    /// Id of the commit.
    pub id: String,
    /// First line of its message, made printable.
    pub subject: String,
}

/// A change that a person has to approve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GuardedChange {
    /// Path, made printable.
    pub path: String,
    /// Reason why the change needs an approval.
    pub guard: &'static str,
}

impl CloneReport {
    /// Returns the steps that are recorded in the database when the commits are collected.
    #[must_use]
    pub fn steps(&self) -> [GitStep; 2] {
        let cloned = GitStep::Cloned { base_branch: self.base_branch.clone(), base_sha: self.base.clone() };
        [cloned, GitStep::Received { head_sha: self.head.clone() }]
    }

    /// Examines the branch of a run, with the commits that have arrived so far.
    pub async fn of(repository: &RunRepository, url: &str, branch: &str, pushes: u32) -> Self {
        let mut report = Self {
            url: url.to_owned(),
            base_branch: repository.base_branch().to_string(),
            base: repository.base().to_string(),
            branch: branch.to_owned(),
            head: repository.base().to_string(),
            pushes,
            ..Self::default()
        };
        match repository.look().await {
            Ok(look) => report.take(&look),
            Err(error) => {
                report.faults.push(format!("cannot look at the run's branch: {}", error_chain(&error)));
                // The changes of the branch are unknown, so a person has to approve it; its head may still be readable.
                report.too_large = true;
                match repository.head().await {
                    Ok(head) => report.head = head.to_string(),
                    Err(error) => report.faults.push(format!("cannot find its head: {}", error_chain(&error))),
                }
            }
        }
        report
    }

    /// Takes over the results of the examination.
    pub fn take(&mut self, look: &BranchSummary) {
        let commit =
            |line: &sluice_git::CommitLine| ReportedCommit { id: line.id.to_string(), subject: line.subject.clone() };
        self.head = look.head.to_string();
        self.commits = look.commits.iter().take(COMMITS_MAX).map(commit).collect();
        self.ahead = look.ahead;
        self.files = look.files.len() as u64;
        self.insertions = look.files.iter().filter_map(|file| file.added).sum();
        self.deletions = look.files.iter().filter_map(|file| file.removed).sum();
        self.too_large = look.too_large;
        let change = |(path, guard): (&[u8], Guard)| GuardedChange { path: visible_path(path), guard: guard.as_str() };
        self.guarded = look.guarded().map(change).collect();
    }

    /// Returns true if the branch has commits that its base does not have.
    #[must_use]
    pub fn has_commits(&self) -> bool {
        self.head != self.base
    }

    /// Returns the summary for people, in lines.
    pub(crate) fn lines(&self) -> Vec<String> {
        let Self { branch, ahead, files, insertions, deletions, .. } = self;
        let mut lines = Vec::new();
        if self.has_commits() {
            let head = self.head.get(..12).unwrap_or(&self.head);
            lines.push(format!(
                "git: {ahead} commits on {branch} ({head}), {files} files changed, {insertions} insertions, {deletions} deletions"
            ));
        } else {
            lines.push(format!("git: nothing was committed on {branch}"));
        }
        if self.uncommitted.is_some() {
            lines.push("git: some changes were not committed; they stay on this host".to_owned());
        }
        if let Some(fault) = &self.uncommitted_fault {
            lines.push(format!("git: what was not committed did not come out: {fault}"));
        }
        lines
    }
}
