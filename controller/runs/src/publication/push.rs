//! The push of a run's branch to its forge.
//!
//! Each push is recorded before it is made. After a crash, the branch at the forge is found by the commits of the pushes
//! that had begun, and moves on from there: it does not get a second name.

use sluice_contract::RunId;
use sluice_git::branch_name::candidate;
use sluice_git::forge::{RuntimePause, retrying};
use sluice_git::{Branch, Credentials, GitError, ObjectId, RepositoryUrl, RunRepository};
use sluice_state::git_runs::{BegunPush, GitRun};
use sluice_state::store::Store;

use crate::publication_error::PublicationError;

/// Maximum number of names that are tried when the branch's name is taken.
const CANDIDATES: u32 = 20;

/// The push of one commit of a run.
pub(super) struct BranchPush<'a> {
    pub(super) store: &'a Store,
    pub(super) run_id: &'a RunId,
    pub(super) repository: &'a RunRepository,
    /// Address of the forge.
    pub(super) url: &'a RepositoryUrl,
    pub(super) credentials: &'a Credentials,
    /// Commit that is pushed.
    pub(super) head: &'a ObjectId,
}

impl BranchPush<'_> {
    /// Pushes the commit, and returns the name of the branch at the forge. A branch that the forge has from this run keeps
    /// its name, and is moved only from a commit that this run has pushed.
    pub(super) async fn push(&self, row: &GitRun) -> Result<String, PublicationError> {
        if let Some(branch) = self.move_unrecorded().await? {
            return Ok(branch);
        }
        match &row.published_sha {
            Some(last) => self.push_to(&row.new.branch, Some(last)).await.map(|()| row.new.branch.clone()),
            None => self.push_to_free_name(&row.new.branch).await,
        }
    }

    /// Moves the branch of an earlier push that may have arrived, and is not recorded as done. `None` if the forge has no
    /// such branch.
    async fn move_unrecorded(&self) -> Result<Option<String>, PublicationError> {
        for begun in self.store.begun_git_pushes(self.run_id).await? {
            // The push of the same commit is simply repeated.
            if begun.sha == self.head.as_str() {
                continue;
            }
            let moved = self.push_to(&begun.branch, Some(&begun.sha)).await;
            match moved {
                Ok(()) => return Ok(Some(begun.branch)),
                Err(PublicationError::Git(GitError::BranchMoved { .. })) => {
                    self.store.withdraw_git_push(self.run_id, begun).await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Pushes to the first name that no other branch has.
    async fn push_to_free_name(&self, branch: &str) -> Result<String, PublicationError> {
        for nth in 1..=CANDIDATES {
            let name = candidate(branch, nth);
            match self.push_to(&name, None).await {
                Ok(()) => return Ok(name),
                Err(PublicationError::Git(GitError::BranchTaken { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        Err(PublicationError::Taken(branch.to_owned()))
    }

    /// Pushes to one name, and records before that the push begins. `lease` is the commit that the forge must have there.
    async fn push_to(&self, name: &str, lease: Option<&str>) -> Result<(), PublicationError> {
        let target: Branch = name.parse()?;
        let lease: Option<ObjectId> = lease.map(str::parse).transpose().map_err(|_| PublicationError::NotPublished)?;
        let begun = BegunPush { branch: name.to_owned(), sha: self.head.to_string() };
        self.store.begin_git_push(self.run_id, begun.clone()).await?;
        let push = || self.repository.publish(self.url, self.credentials, &target, self.head, lease.as_ref());
        let pushed = retrying(&RuntimePause, push).await;
        if pushed.as_ref().is_err_and(is_refusal) {
            self.store.withdraw_git_push(self.run_id, begun).await?;
        }
        pushed.map(|_| ()).map_err(Into::into)
    }
}

/// Returns true if the forge certainly does not have the commit under this name. After any other error it may.
fn is_refusal(error: &GitError) -> bool {
    matches!(
        error,
        GitError::BranchTaken { .. }
            | GitError::BranchMoved { .. }
            | GitError::PushRefused { .. }
            | GitError::NotTheHead { .. }
    )
}
