//! The members of GitHub's answers that are read.
//!
//! Pure.

use serde::Deserialize;

use crate::forge::error::ForgeError;
use crate::forge::pull_request::{PullRequest, PullRequestState, branch, commit_id};
use crate::forge::repository::{NamedRepository, RepositoryName};

/// A pull request. Lists leave out `mergeable`.
#[derive(Debug, Deserialize)]
pub(super) struct GitHubPullRequest {
    pub(super) number: u64,
    pub(super) node_id: String,
    pub(super) state: String,
    #[serde(default)]
    pub(super) draft: bool,
    pub(super) title: String,
    pub(super) head: GitHubSide,
    pub(super) base: GitHubSide,
    #[serde(default)]
    pub(super) mergeable: Option<bool>,
    #[serde(default)]
    pub(super) merged_at: Option<String>,
    #[serde(default)]
    pub(super) merge_commit_sha: Option<String>,
}

/// Head or base of a pull request. The repository of a head may be deleted.
#[derive(Debug, Deserialize)]
pub(super) struct GitHubSide {
    pub(super) r#ref: String,
    pub(super) sha: String,
    #[serde(default)]
    pub(super) repo: Option<NamedRepository>,
}

#[derive(Debug, Deserialize)]
pub(super) struct GitHubRepository {
    pub(super) default_branch: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct GitReference {
    pub(super) object: GitObject,
}

#[derive(Debug, Deserialize)]
pub(super) struct GitObject {
    pub(super) sha: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Merged {
    pub(super) merged: bool,
    #[serde(default)]
    pub(super) sha: Option<String>,
}

impl GitHubPullRequest {
    pub(super) fn into_pull_request(
        self,
        repository: &RepositoryName,
        url: String,
        what: &str,
    ) -> Result<PullRequest, ForgeError> {
        let is_merged = self.merged_at.is_some();
        Ok(PullRequest {
            number: self.number,
            url: Some(url),
            head: branch(&self.head.r#ref, what)?,
            head_sha: commit_id(&self.head.sha, what)?,
            base: branch(&self.base.r#ref, what)?,
            state: match (is_merged, self.state.as_str()) {
                (true, _) => PullRequestState::Merged,
                (false, "open") => PullRequestState::Open,
                (false, _) => PullRequestState::Closed,
            },
            is_draft: self.draft,
            mergeable: self.mergeable,
            // Before the merge, this is the commit of a test merge.
            merge_commit: self.merge_commit_sha.filter(|_| is_merged).map(|sha| commit_id(&sha, what)).transpose()?,
            is_from_fork: self.head.repo.is_none_or(|repo| !repository.is(&repo.full_name)),
            title: self.title,
            node_id: self.node_id,
        })
    }
}
