//! Reads the pushed changes of a run, within the limits for objects of a sandbox.

use std::collections::BTreeMap;

use crate::error::GitError;
use crate::guarded_changes::{GuardedPaths, guard_of_change, guarded_changes};
use crate::guarded_paths::Guard;
use crate::limits::{LOOK, LOOK_COMMITS, LOOK_PATHS};
use crate::look_parse::{COMMIT_FORM, ChangedFile, CommitLine, add_counts, changed_files, commit_lines};
use crate::object_id::ObjectId;
use crate::output::Output;
use crate::program::Input;
use crate::run_repository::RunRepository;

/// Arguments of `diff-tree` without renames, and without programs from attributes or configuration. Submodules are
/// ordinary entries: no work tree is opened.
const DIFF: [&str; 8] = [
    "diff-tree", "-r", "--no-renames", "--no-textconv", "--no-ext-diff", "--no-color", "--ignore-submodules=none",
    "--submodule=short",
];

/// Summary of a run's branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchSummary {
    /// Commit that the run started from.
    pub base: ObjectId,
    /// Head of the branch.
    pub head: ObjectId,
    /// Commits from base to head, the newest one first; at most 1,000.
    pub commits: Vec<CommitLine>,
    /// Changed paths between base and head, at most 5,000. A rename is listed with both paths, so rules about paths see
    /// both.
    pub files: Vec<ChangedFile>,
    /// Guarded paths that single commits change, even if a later commit reverts the change; at most 5,000.
    pub(crate) guarded_in_commits: GuardedPaths,
    /// True if the lists are not complete: they are longer than the limits, or took too long. A rule about paths must
    /// treat such a summary as if it had every path.
    pub too_large: bool,
    /// Number of commits that the base branch does not have.
    pub ahead: u64,
}

impl BranchSummary {
    /// Returns the paths that need an approval, each with the reason, in their order: the paths that differ between
    /// base and head, and the guarded paths of each commit, because all commits are published.
    pub fn guarded(&self) -> impl Iterator<Item = (&[u8], Guard)> {
        let of_commits = self.guarded_in_commits.iter().map(|(path, guard)| (path.as_slice(), *guard));
        let of_files = self.files.iter().filter_map(|file| {
            let guard = guard_of_change(&file.path, &[file.old_mode, file.mode])?;
            Some((file.path.as_slice(), guard))
        });
        of_commits.chain(of_files).collect::<BTreeMap<&[u8], Guard>>().into_iter()
    }
}

/// How a list of git ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListEnd {
    /// All entries were read.
    Whole,
    /// There are more entries than the limit.
    Cut,
    /// git was killed at a limit.
    Killed,
}

impl ListEnd {
    fn of(is_cut: bool) -> Self {
        if is_cut { Self::Cut } else { Self::Whole }
    }
}

fn broken(command: &str) -> GitError {
    GitError::Output { command: command.to_owned(), what: "a list".to_owned() }
}

impl RunRepository {
    /// Reads the run's branch. If the branch is too large to read, `too_large` is true; that is not an error.
    ///
    /// # Errors
    /// [`GitError`]
    pub async fn look(&self) -> Result<BranchSummary, GitError> {
        let head = self.head().await?;
        let mut look = BranchSummary {
            base: self.base().clone(),
            head,
            commits: Vec::new(),
            files: Vec::new(),
            guarded_in_commits: GuardedPaths::new(),
            too_large: false,
            ahead: 0,
        };
        match self.fill_look(&mut look).await {
            Err(GitError::TimedOut { .. } | GitError::TooMuchOutput { .. }) => look.too_large = true,
            done => done?,
        }
        Ok(look)
    }

    /// Reads one list after the other. The paths come before the numbers of lines: rules about paths need all paths,
    /// and counting lines may take too long.
    async fn fill_look(&self, look: &mut BranchSummary) -> Result<(), GitError> {
        let commits = self.fill_commits(look).await?;
        look.too_large |= commits != ListEnd::Whole;
        if commits == ListEnd::Killed {
            return Ok(());
        }
        let files = self.fill_files(look).await?;
        look.too_large |= files != ListEnd::Whole;
        if files == ListEnd::Killed {
            return Ok(());
        }
        look.too_large |= self.fill_guarded(look).await? != ListEnd::Whole;
        if files == ListEnd::Whole {
            let counted = self.list_changes(look, "--numstat").await?;
            add_counts(&mut look.files, &counted.stdout);
        }
        Ok(())
    }

    async fn fill_commits(&self, look: &mut BranchSummary) -> Result<ListEnd, GitError> {
        let range = format!("{}..{}", look.base, look.head);
        let most = format!("--max-count={}", LOOK_COMMITS + 1);
        let words = ["rev-list", "--no-commit-header", &most, COMMIT_FORM, &range, "--"];
        let Some(listed) = self.listed(&words).await? else { return Ok(ListEnd::Killed) };
        look.commits = commit_lines(&listed.stdout).map_err(|_| broken("rev-list"))?;
        let is_cut = look.commits.len() > LOOK_COMMITS;
        look.commits.truncate(LOOK_COMMITS);
        let words = ["rev-list", "--count", &range, "--"];
        let Some(counted) = self.listed(&words).await? else { return Ok(ListEnd::Killed) };
        let ahead = std::str::from_utf8(counted.line()).ok().and_then(|line| line.parse().ok());
        look.ahead = ahead.ok_or_else(|| broken("rev-list"))?;
        Ok(ListEnd::of(is_cut))
    }

    async fn fill_files(&self, look: &mut BranchSummary) -> Result<ListEnd, GitError> {
        let changed = self.list_changes(look, "--raw").await?;
        if !changed.is_success() {
            return Ok(ListEnd::Killed);
        }
        let (files, is_cut) = changed_files(&changed.stdout, LOOK_PATHS).map_err(|_| broken("diff-tree"))?;
        look.files = files;
        Ok(ListEnd::of(is_cut))
    }

    /// Reads the guarded paths of each commit that the base does not have. For a merge, only paths that differ from all
    /// parents are read (`-c`): a path taken from one parent is a change of another commit, or of the base's own
    /// history.
    async fn fill_guarded(&self, look: &mut BranchSummary) -> Result<ListEnd, GitError> {
        let commits: String = look.commits.iter().flat_map(|commit| [commit.id.as_str(), "\n"]).collect();
        let words = ["--stdin", "--root", "-c", "--no-commit-id", "-z", "--raw", "--"];
        let command = self.command(LOOK).read_only().args(DIFF).args(words);
        let changed = command.run(Input::Bytes(commits.as_bytes())).await?;
        if !changed.is_success() {
            return Ok(ListEnd::Killed);
        }
        let (guarded, is_cut) = guarded_changes(&changed.stdout, LOOK_PATHS).map_err(|_| broken("diff-tree"))?;
        look.guarded_in_commits = guarded;
        Ok(ListEnd::of(is_cut))
    }

    /// Lists the changed paths between base and head in this form.
    async fn list_changes(&self, look: &BranchSummary, form: &str) -> Result<Output, GitError> {
        let words = ["-z", form, look.base.as_str(), look.head.as_str(), "--"];
        self.command(LOOK).read_only().args(DIFF).args(words).run(Input::Nothing).await
    }

    /// Returns a list of commits, or none if the kernel ended git at a limit.
    async fn listed(&self, words: &[&str]) -> Result<Option<Output>, GitError> {
        let output = self.command(LOOK).read_only().args(words).run(Input::Nothing).await?;
        match output.code {
            Some(0) => Ok(Some(output)),
            None => Ok(None),
            Some(_) => Err(GitError::Failed { command: "rev-list".to_owned(), message: output.message() }),
        }
    }

    /// Returns the difference between base and head as text of git, or none if it is larger than `max_bytes` or takes
    /// longer than 30 seconds. The bytes come from the sandbox.
    ///
    /// # Errors
    /// [`GitError`]
    pub async fn diff(&self, max_bytes: usize) -> Result<Option<Vec<u8>>, GitError> {
        let head = self.head().await?;
        let mut limits = LOOK;
        limits.output = max_bytes;
        let words = ["--patch", "--full-index", "--binary", self.base().as_str(), head.as_str(), "--"];
        match self.command(limits).read_only().args(DIFF).args(words).run(Input::Nothing).await {
            Ok(output) if output.is_success() => Ok(Some(output.stdout)),
            // The kernel ended git at a limit.
            Ok(output) if output.code.is_none() => Ok(None),
            Ok(output) => Err(GitError::Failed { command: "diff-tree".to_owned(), message: output.message() }),
            Err(GitError::TimedOut { .. } | GitError::TooMuchOutput { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look_parse::{ChangeStatus, SUBMODULE};

    #[test]
    fn a_submodule_that_goes_is_guarded() {
        let file = |old_mode, mode, status| ChangedFile {
            path: b"sub".to_vec(),
            status,
            old_mode,
            mode,
            added: None,
            removed: None,
        };
        let id: ObjectId = "1".repeat(40).parse().expect("an id");
        for (old_mode, mode, status, guards) in [
            (SUBMODULE, 0, ChangeStatus::Deleted, 1),
            (SUBMODULE, 100_644, ChangeStatus::TypeChanged, 1),
            (0, SUBMODULE, ChangeStatus::Added, 1),
            (100_644, 100_755, ChangeStatus::Modified, 0),
        ] {
            let files = vec![file(old_mode, mode, status)];
            let look = BranchSummary {
                base: id.clone(),
                head: id.clone(),
                commits: vec![],
                files,
                guarded_in_commits: GuardedPaths::new(),
                too_large: false,
                ahead: 0,
            };
            assert_eq!(look.guarded().count(), guards, "{old_mode} {mode}");
        }
    }
}
