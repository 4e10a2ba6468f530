//! A pull request, in the same form for all forges.
//!
//! Pure.

use serde::{Deserialize, Serialize};

use super::error::ForgeError;

/// A new pull request.
#[derive(Debug, Clone, Copy)]
pub struct NewPullRequest<'a> {
    /// Branch with the changes.
    pub head: &'a str,
    /// Commit of that branch. A closed or merged pull request is used only if it has this commit.
    pub head_sha: &'a str,
    /// Base branch of the changes.
    pub base: &'a str,
    /// Title; see [`crate::pull_request_text::title`].
    pub title: &'a str,
    /// Body; see [`crate::pull_request_text::body`].
    pub body: &'a str,
    /// True for a draft, which the forge does not merge.
    pub is_draft: bool,
}

/// A pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequest {
    /// Number at the forge.
    pub number: u64,
    /// Web page; its address is computed from the address of the forge, not taken from an answer.
    pub url: Option<String>,
    /// Branch with the changes.
    pub head: String,
    /// Commit of that branch.
    pub head_sha: String,
    /// Base branch of the changes.
    pub base: String,
    /// State at the forge.
    pub state: PullRequestState,
    /// True for a draft.
    pub is_draft: bool,
    /// True if the branches can be merged without conflicts; none if the forge has not decided.
    pub mergeable: Option<bool>,
    /// Commit that merged it.
    pub merge_commit: Option<String>,
    /// True if the branch is of another repository.
    pub is_from_fork: bool,
    /// Title at the forge: foreign text.
    pub(super) title: String,
    /// Id for GitHub's GraphQL API.
    pub(super) node_id: String,
}

/// State of a pull request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PullRequestState {
    /// Open: to be merged or closed.
    Open,
    /// Closed without a merge.
    Closed,
    /// Merged.
    Merged,
}

/// Result of the deletion of a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BranchDeletion {
    /// The branch no longer exists.
    Deleted,
    /// The branch is at another commit by now, and stays.
    Moved,
    /// The forge keeps the branch; the text says why.
    Kept(String),
}

/// Returns the id of a commit of a forge's answer.
pub(super) fn commit_id(text: &str, what: &str) -> Result<String, ForgeError> {
    let is_id = matches!(text.len(), 40 | 64) && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_id.then(|| text.to_owned()).ok_or_else(|| ForgeError::Unexpected(what.to_owned(), "has a commit without an id"))
}

/// Returns the name of a branch of a forge's answer.
pub(super) fn branch(text: &str, what: &str) -> Result<String, ForgeError> {
    match crate::branch_name::ref_fault(text) {
        None => Ok(text.to_owned()),
        Some(_) => Err(ForgeError::Unexpected(what.to_owned(), "has a branch whose name git refuses")),
    }
}

/// Returns the pull request that [`super::Forge::find_pull_request`] promises: an earlier run may have used the branch, and
/// its pull request is closed or merged by now.
pub(super) fn preferred(found: impl IntoIterator<Item = PullRequest>, head_sha: &str) -> Option<PullRequest> {
    let is_open = |one: &PullRequest| one.state == PullRequestState::Open;
    let usable = found.into_iter().filter(|one| is_open(one) || one.head_sha == head_sha);
    usable.max_by_key(|one| (is_open(one), one.number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_of_commits_pass() {
        let id = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(commit_id(id, "GET /x").expect("it is one"), id);
        for text in ["", "HEAD", &id[1..], &id.to_uppercase(), "--upload-pack=x"] {
            let error = commit_id(text, "GET /x").expect_err(text);
            assert_eq!(error.to_string(), "the answer of the forge to GET /x has a commit without an id");
        }
        assert!(branch("a..b", "GET /x").is_err());
    }
}
