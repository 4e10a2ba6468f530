//! A forge of any kind, with the operations that all kinds have.

use super::error::ForgeError;
use super::gitea::Gitea;
use super::github::GitHub;
use super::local::LocalForge;
use super::merge_request::{MergeAnswer, MergeRequest};
use super::pull_request::{BranchDeletion, NewPullRequest, PullRequest};
use super::retry::{Pause, retrying};

/// A repository at a forge, with the credential for it.
#[derive(Debug)]
pub enum Forge {
    /// GitHub, or GitHub Enterprise Server.
    GitHub(Box<GitHub>),
    /// Gitea or Forgejo.
    Gitea(Box<Gitea>),
    /// A bare repository of this host.
    Local(LocalForge),
}

impl From<GitHub> for Forge {
    fn from(forge: GitHub) -> Self {
        Self::GitHub(Box::new(forge))
    }
}

impl From<Gitea> for Forge {
    fn from(forge: Gitea) -> Self {
        Self::Gitea(Box::new(forge))
    }
}

impl From<LocalForge> for Forge {
    fn from(forge: LocalForge) -> Self {
        Self::Local(forge)
    }
}

/// Calls the operation of the forge in this value.
macro_rules! at {
    ($self:ident, $forge:ident => $call:expr) => {
        match $self {
            Forge::GitHub($forge) => $call,
            Forge::Gitea($forge) => $call,
            Forge::Local($forge) => $call,
        }
    };
}

impl Forge {
    /// Returns the open pull request of a branch; otherwise the newest one that has this commit, closed or merged.
    ///
    /// # Errors
    /// [`ForgeError`]
    pub async fn find_pull_request(&self, new: &NewPullRequest<'_>) -> Result<Option<PullRequest>, ForgeError> {
        at!(self, forge => forge.find_pull_request(new).await)
    }

    /// Opens a pull request. [`Self::publish`] also prevents a second one.
    ///
    /// # Errors
    /// [`ForgeError`]
    pub async fn open_pull_request(&self, new: &NewPullRequest<'_>) -> Result<PullRequest, ForgeError> {
        at!(self, forge => forge.open_pull_request(new).await)
    }

    /// Returns a pull request as it is now.
    ///
    /// # Errors
    /// [`ForgeError`]
    pub async fn pull_request(&self, number: u64) -> Result<PullRequest, ForgeError> {
        at!(self, forge => forge.pull_request(number).await)
    }

    /// Deletes a branch if it still is at this commit. The default branch is never deleted.
    ///
    /// # Errors
    /// [`ForgeError`]
    pub async fn delete_branch(&self, name: &str, expected: &str) -> Result<BranchDeletion, ForgeError> {
        at!(self, forge => forge.delete_branch(name, expected).await)
    }

    /// Returns the name of the default branch.
    ///
    /// # Errors
    /// [`ForgeError`]
    pub async fn default_branch(&self) -> Result<String, ForgeError> {
        at!(self, forge => forge.default_branch().await)
    }

    /// Returns the scopes of the credential, if the forge reports them. A scope `workflow` lets a push change what CI runs.
    ///
    /// # Errors
    /// [`ForgeError`]
    pub async fn token_scopes(&self) -> Result<Option<Vec<String>>, ForgeError> {
        match self {
            Self::GitHub(forge) => forge.token_scopes().await,
            Self::Gitea(_) | Self::Local(_) => Ok(None),
        }
    }

    /// Opens the pull request of a branch, or returns its existing one. Temporary failures are retried.
    ///
    /// # Errors
    /// [`ForgeError`] of the last attempt.
    pub async fn publish(&self, new: &NewPullRequest<'_>, pause: &impl Pause) -> Result<PullRequest, ForgeError> {
        retrying(pause, || async {
            // An earlier attempt may have opened it, even if its answer was lost.
            match self.find_pull_request(new).await? {
                Some(existing) => Ok(existing),
                None => self.open_pull_request(new).await,
            }
        })
        .await
    }

    /// Marks a draft as ready for review.
    pub(super) async fn mark_ready(&self, draft: &PullRequest) -> Result<(), ForgeError> {
        at!(self, forge => forge.mark_ready(draft).await)
    }

    /// Requests the merge once.
    pub(super) async fn ask_to_merge(
        &self,
        found: &PullRequest,
        request: &MergeRequest<'_>,
    ) -> Result<MergeAnswer, ForgeError> {
        at!(self, forge => forge.merge(found, request).await)
    }
}
