//! A forge without a server: a bare repository of this host, and a file for each pull request.
//!
//! It is for projects without a forge, and for tests. Merges are made only from objects (`git merge-tree`), without a
//! work tree, by the git that the caller passes. A base branch is updated only if it has not moved since the merge
//! commit was made.

mod records;

use std::fmt;
use std::path::PathBuf;

use super::error::ForgeError;
use super::git::{GitFault, GitOutput, RunGit};
use super::merge_request::{MergeAnswer, MergeMethod, MergeRequest};
use super::pull_request::{BranchDeletion, NewPullRequest, PullRequest, PullRequestState, preferred};
use crate::branch_name::{default_branch, ref_fault};

use records::{LocalRecord, LocalRecords};

/// Author and committer of merges.
const IDENTITY: [&str; 4] = ["-c", "user.name=Sluice", "-c", "user.email=sluice@localhost"];
const NOT_AN_ID: &str = "the forge's own repository";
/// Reason why a pull request cannot be merged.
pub(super) const BRANCH_MISSING: &str = "one of its branches does not exist any more";

/// A bare repository, and the pull requests for it.
pub struct LocalForge {
    git: Box<dyn RunGit>,
    records: LocalRecords,
}

impl fmt::Debug for LocalForge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalForge").field("records", &self.records).finish_non_exhaustive()
    }
}

/// Result of a merge of two trees.
#[derive(Debug, PartialEq, Eq)]
enum MergedTree {
    Tree(String),
    HasConflicts,
}

impl LocalForge {
    /// Makes a forge of the repository in which `git` runs. `records` is a directory for pull requests, which is made if it
    /// does not exist. No sandbox can write to either.
    #[must_use]
    pub fn new(git: Box<dyn RunGit>, records: PathBuf) -> Self {
        Self { git, records: LocalRecords::new(records) }
    }

    pub(super) async fn find_pull_request(&self, new: &NewPullRequest<'_>) -> Result<Option<PullRequest>, ForgeError> {
        let mut found = Vec::new();
        for (number, record) in self.records.all()? {
            if record.head == new.head && record.base == new.base {
                found.push(self.read(number, record).await?);
            }
        }
        Ok(preferred(found, new.head_sha))
    }

    pub(super) async fn open_pull_request(&self, new: &NewPullRequest<'_>) -> Result<PullRequest, ForgeError> {
        let missing = |name: &str| ForgeError::NotFound(format!("branch {name}"));
        let head_sha = self.commit_of(new.head).await?.ok_or_else(|| missing(new.head))?;
        self.commit_of(new.base).await?.ok_or_else(|| missing(new.base))?;
        let record = LocalRecord {
            head: new.head.to_owned(),
            base: new.base.to_owned(),
            title: new.title.to_owned(),
            body: new.body.to_owned(),
            is_draft: new.is_draft,
            state: PullRequestState::Open,
            head_sha,
            merge: None,
        };
        let number = self.records.add(&record)?;
        self.read(number, record).await
    }

    pub(super) async fn pull_request(&self, number: u64) -> Result<PullRequest, ForgeError> {
        self.read(number, self.records.get(number)?).await
    }

    pub(super) async fn mark_ready(&self, draft: &PullRequest) -> Result<(), ForgeError> {
        let record = self.records.get(draft.number)?;
        self.records.replace(draft.number, &LocalRecord { is_draft: false, ..record })
    }

    pub(super) async fn merge(
        &self,
        found: &PullRequest,
        request: &MergeRequest<'_>,
    ) -> Result<MergeAnswer, ForgeError> {
        let record = self.records.get(found.number)?;
        let (Some(head), Some(base)) = (self.commit_of(&record.head).await?, self.commit_of(&record.base).await?)
        else {
            return Ok(MergeAnswer::Refused(BRANCH_MISSING.to_owned()));
        };
        if head != request.head_sha {
            return Ok(MergeAnswer::HeadMoved);
        }
        let MergedTree::Tree(tree) = self.merged_tree(&base, &head).await? else {
            return Ok(MergeAnswer::HasConflicts);
        };
        let parents: &[&str] = match request.method {
            MergeMethod::Squash => &[&base],
            MergeMethod::Merge => &[&base, &head],
            MergeMethod::Rebase => {
                return Ok(MergeAnswer::Refused("a local forge has no rebase; use squash or merge".to_owned()));
            }
        };
        let commit = self.commit(&tree, parents, request).await?;
        // The record is written first: after a crash, the base shows whether the merge was made.
        let merging = LocalRecord { head_sha: head, merge: Some(commit.clone()), ..record };
        self.records.replace(found.number, &merging)?;
        let target = format!("refs/heads/{}", merging.base);
        let moved = self.git("update-ref", &["update-ref", "-m", "sluice: merge", &target, &commit, &base]).await?;
        if moved.code != 0 {
            // Another merge came first.
            return Err(ForgeError::Undecided(found.number));
        }
        self.records.replace(found.number, &LocalRecord { state: PullRequestState::Merged, ..merging })?;
        Ok(MergeAnswer::Merged(Some(commit)))
    }

    pub(super) async fn delete_branch(&self, name: &str, expected: &str) -> Result<BranchDeletion, ForgeError> {
        match self.commit_of(name).await? {
            None => return Ok(BranchDeletion::Deleted),
            Some(at) if at != expected => return Ok(BranchDeletion::Moved),
            Some(_) => {}
        }
        if self.default_branch().await? == name {
            return Ok(BranchDeletion::Kept("it is the default branch".to_owned()));
        }
        let branch = format!("refs/heads/{name}");
        let deleted = self.git("update-ref", &["update-ref", "-d", &branch, expected]).await?;
        Ok(if deleted.code == 0 { BranchDeletion::Deleted } else { BranchDeletion::Moved })
    }

    pub(super) async fn default_branch(&self) -> Result<String, ForgeError> {
        let head = self.git("symbolic-ref", &["symbolic-ref", "--quiet", "--short", "HEAD"]).await?;
        let head = text(&head.stdout).trim().to_owned();
        let branches =
            self.done("for-each-ref", &["for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads/"]).await?;
        let branches: Vec<&str> = branches.lines().collect();
        // HEAD of a new bare repository may name a branch that was never pushed.
        let found = default_branch(Some(&head), |branch| branches.contains(&branch));
        found.map(str::to_owned).ok_or_else(|| ForgeError::NotFound("the default branch".to_owned()))
    }

    /// Returns a pull request as it is now. After a crash during a merge, the merge commit in the base shows that the
    /// merge was made.
    async fn read(&self, number: u64, record: LocalRecord) -> Result<PullRequest, ForgeError> {
        let base = self.commit_of(&record.base).await?;
        let mut record = record;
        if record.state == PullRequestState::Open
            && let (Some(commit), Some(base)) = (&record.merge, &base)
            && self.is_ancestor(commit, base).await?
        {
            record.state = PullRequestState::Merged;
            self.records.replace(number, &record)?;
        }
        let is_open = record.state == PullRequestState::Open;
        let head = if is_open { self.commit_of(&record.head).await? } else { None };
        let mergeable = match (&head, &base) {
            (Some(head), Some(base)) => Some(self.merged_tree(base, head).await? != MergedTree::HasConflicts),
            _ => None,
        };
        // A pull request without its branch cannot be merged.
        let state = if is_open && head.is_none() { PullRequestState::Closed } else { record.state };
        Ok(PullRequest {
            number,
            url: None,
            head_sha: head.unwrap_or(record.head_sha),
            head: record.head,
            base: record.base,
            state,
            is_draft: record.is_draft,
            mergeable,
            merge_commit: record.merge.filter(|_| state == PullRequestState::Merged),
            is_from_fork: false,
            title: record.title,
            node_id: String::new(),
        })
    }

    async fn commit_of(&self, branch: &str) -> Result<Option<String>, ForgeError> {
        if ref_fault(branch).is_some() {
            return Ok(None);
        }
        let name = format!("refs/heads/{branch}^{{commit}}");
        let found = self.git("rev-parse", &["rev-parse", "--verify", "--quiet", "--end-of-options", &name]).await?;
        if found.code == 0 { id(&found.stdout).map(Some) } else { Ok(None) }
    }

    async fn is_ancestor(&self, commit: &str, of: &str) -> Result<bool, ForgeError> {
        let answer = self.git("merge-base", &["merge-base", "--is-ancestor", commit, of]).await?;
        Ok(answer.code == 0)
    }

    async fn merged_tree(&self, base: &str, head: &str) -> Result<MergedTree, ForgeError> {
        let merged = self.git("merge-tree", &["merge-tree", "--write-tree", "--no-messages", "-z", base, head]).await?;
        match merged.code {
            0 => Ok(MergedTree::Tree(id(merged.stdout.split(|byte| *byte == 0).next().unwrap_or_default())?)),
            1 => Ok(MergedTree::HasConflicts),
            code => Err(ForgeError::Git("merge-tree", GitFault::Code(code))),
        }
    }

    async fn commit(&self, tree: &str, parents: &[&str], request: &MergeRequest<'_>) -> Result<String, ForgeError> {
        let mut arguments = IDENTITY.to_vec();
        arguments.extend(["commit-tree", tree]);
        arguments.extend(parents.iter().flat_map(|parent| ["-p", *parent]));
        arguments.extend(["-m", request.title, "-m", request.message]);
        id(self.done("commit-tree", &arguments).await?.as_bytes())
    }

    async fn git(&self, what: &'static str, arguments: &[&str]) -> Result<GitOutput, ForgeError> {
        self.git.run(arguments).await.map_err(|fault| ForgeError::Git(what, fault))
    }

    /// Runs git, and returns its output if it succeeded.
    async fn done(&self, what: &'static str, arguments: &[&str]) -> Result<String, ForgeError> {
        let output = self.git(what, arguments).await?;
        if output.code == 0 {
            Ok(text(&output.stdout))
        } else {
            Err(ForgeError::Git(what, GitFault::Code(output.code)))
        }
    }
}

fn id(output: &[u8]) -> Result<String, ForgeError> {
    super::pull_request::commit_id(text(output).trim(), NOT_AN_ID)
        .map_err(|_| ForgeError::Git("rev-parse", GitFault::Output))
}

fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

#[cfg(test)]
mod tests;
