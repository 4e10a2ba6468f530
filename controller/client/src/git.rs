//! Objects of the API about the repository of a run. Members that a later daemon adds are ignored.
//!
//! Pure.

use serde::{Deserialize, Serialize};

/// The branch of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiRunBranch {
    /// Address of the repository, without credentials.
    pub url: String,
    /// Commit that the run began with; none until it has its clone.
    pub base_sha: Option<String>,
    /// Branch of the run.
    pub branch: String,
    /// Newest commit that came out of the run.
    pub head_sha: Option<String>,
    /// Changed files.
    pub files: Vec<ApiChangedFile>,
    /// Changed files that control CI or the forge.
    pub guarded_paths: Vec<String>,
    /// True if the change is too large to be reviewed.
    pub is_too_large: bool,
    /// Commit of the merge.
    pub merged_sha: Option<String>,
}

/// A file that a run changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiChangedFile {
    /// Path, with characters escaped that a terminal does not show.
    pub path: String,
    /// Added lines; none for a binary file.
    pub added: Option<u64>,
    /// Removed lines; none for a binary file.
    pub removed: Option<u64>,
}

/// Commits of a run, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCommits {
    /// Commits.
    pub commits: Vec<RunCommit>,
}

/// A commit of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCommit {
    /// Id.
    pub sha: String,
    /// First line of its message.
    pub subject: String,
}

/// The pull request of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunPullRequest {
    /// Number.
    pub number: u64,
    /// Address for people; none at a forge without pages.
    pub url: Option<String>,
}
