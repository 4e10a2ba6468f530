//! Forges: where the branch of a run becomes a pull request.
//!
//! One set of operations for GitHub, Gitea (and Forgejo), and a bare repository of this host. [`Forge::publish`] and
//! [`merge`] are the two that other modules need; each can be repeated after a crash.

mod any;
mod api;
mod credential;
mod delays;
mod error;
mod git;
mod gitea;
mod github;
mod local;
mod merge_request;
mod merging;
mod pull_request;
mod repository;
mod retry;

pub use any::Forge;
pub use credential::{ForgeToken, scope_warning};
pub use delays::delay;
pub use error::ForgeError;
pub use git::{GitFault, GitFuture, GitOutput, RunGit};
pub use gitea::Gitea;
pub use github::{AppKey, GitHub, GitHubCredential};
pub use local::LocalForge;
pub use merge_request::{MergeMethod, MergeOutcome, MergeRequest, UnknownMergeMethod};
pub use merging::merge;
pub use pull_request::{BranchDeletion, NewPullRequest, PullRequest, PullRequestState};
pub use repository::RepositoryName;
pub use retry::{Pause, RuntimePause, retrying};

pub use crate::secret_file::CredentialFault;

#[cfg(test)]
mod tests;
