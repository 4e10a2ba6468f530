//! The step of a run's branch to a new commit.

use crate::error::GitError;
use crate::identity::CommitterIdentity;
use crate::ingest::{Quarantine, parse_output};
use crate::ingest_refusal::IngestRefusal;
use crate::limits::HOSTILE;
use crate::object_graph::{BrokenBatch, batch_objects, committer};
use crate::object_id::ObjectId;
use crate::output::Output;
use crate::program::Input;

impl Quarantine<'_> {
    /// Checks that a commit and all objects reachable from it exist.
    pub(crate) async fn check_complete(&self, new: &ObjectId) -> Result<(), GitError> {
        let kind = self.command().args(["cat-file", "-t", new.as_str()]).run(Input::Nothing).await?;
        if !kind.is_success() {
            return Err(IngestRefusal::Missing(new.to_string()).into());
        }
        if kind.line() != b"commit" {
            return Err(IngestRefusal::NotACommit(new.to_string()).into());
        }
        let words = ["rev-list", "--objects", "--quiet", new.as_str(), "--not", "--all"];
        let walked = self.command().args(words).run(Input::Nothing).await?;
        if walked.is_success() { Ok(()) } else { Err(IngestRefusal::Missing(new.to_string()).into()) }
    }

    /// Returns true if a commit is the head or in its history; an error if it is not a complete commit.
    pub(crate) async fn is_part_of(&self, commit: &ObjectId, head: &ObjectId) -> Result<bool, GitError> {
        self.check_complete(commit).await?;
        self.is_ancestor(commit, head).await
    }

    async fn is_ancestor(&self, commit: &ObjectId, of: &ObjectId) -> Result<bool, GitError> {
        let words = ["merge-base", "--is-ancestor", commit.as_str(), of.as_str()];
        match self.command().args(words).run(Input::Nothing).await? {
            Output { code: Some(0), .. } => Ok(true),
            Output { code: Some(1), .. } => Ok(false),
            output => Err(GitError::Failed { command: "merge-base".to_owned(), message: output.message() }),
        }
    }

    /// Checks that the branch only gets longer, by commits of this committer.
    pub(crate) async fn check_advance(
        &self,
        old: &ObjectId,
        new: &ObjectId,
        identity: &CommitterIdentity,
    ) -> Result<(), GitError> {
        self.check_complete(new).await?;
        if !self.is_ancestor(old, new).await? {
            return Err(IngestRefusal::NotForward { old: old.to_string(), new: new.to_string() }.into());
        }
        // Uncommitted changes (`refs/sluice/wip`) may have commits of any author, so they do not count as known.
        let words = ["rev-list", new.as_str(), "--not", "--exclude=refs/sluice/wip/*", "--all"];
        let commits = self.command().args(words).check(Input::Nothing).await?.stdout;
        let mut limits = HOSTILE;
        limits.output = 64 << 20;
        let read = self.command().limits(limits).args(["cat-file", "--batch"]);
        let broken = |_| GitError::Output { command: "cat-file".to_owned(), what: "a commit".to_owned() };
        let known = identity.clone();
        let other = parse_output(read, &commits, move |objects: &[u8]| other_committer(objects, &known)).await?;
        match other.map_err(broken)? {
            None => Ok(()),
            Some(commit) => {
                let expected = format!("{} <{}>", identity.name(), identity.email());
                Err(IngestRefusal::Committer { commit: commit.to_string(), expected }.into())
            }
        }
    }
}

/// Returns the first commit of another committer in the output of `cat-file --batch`.
fn other_committer(commits: &[u8], identity: &CommitterIdentity) -> Result<Option<ObjectId>, BrokenBatch> {
    let is_other = |commit: &[u8]| !committer(commit).is_some_and(|line| identity.is_in_line(line));
    Ok(batch_objects(commits)?.into_iter().find(|commit| is_other(commit.bytes)).map(|commit| commit.id))
}
