//! A request to merge, and its result.
//!
//! Pure.

use std::str::FromStr;

use super::pull_request::BranchDeletion;

/// Method by which the commits of a branch are merged into its base.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MergeMethod {
    /// One commit with all changes.
    #[default]
    Squash,
    /// A commit with two parents.
    Merge,
    /// The commits, applied again on top of the base.
    Rebase,
}

impl MergeMethod {
    /// Returns the word for the method, which is the same at GitHub and Gitea.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Squash => "squash",
            Self::Merge => "merge",
            Self::Rebase => "rebase",
        }
    }
}

impl FromStr for MergeMethod {
    type Err = UnknownMergeMethod;

    fn from_str(text: &str) -> Result<Self, UnknownMergeMethod> {
        [Self::Squash, Self::Merge, Self::Rebase]
            .into_iter()
            .find(|method| method.as_str() == text)
            .ok_or(UnknownMergeMethod)
    }
}

/// A word that is not a merge method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not a way to merge; use squash, merge or rebase")]
pub struct UnknownMergeMethod;

/// Request to merge a pull request.
#[derive(Debug, Clone, Copy)]
pub struct MergeRequest<'a> {
    /// Merge method.
    pub method: MergeMethod,
    /// Commit that the person reviewed; no other commit is merged.
    pub head_sha: &'a str,
    /// Base branch that the person expects; a pull request for another base is not merged.
    pub base: &'a str,
    /// First line of the new commit's message.
    pub title: &'a str,
    /// Rest of that message; see [`crate::pull_request_text::commit_message`].
    pub message: &'a str,
}

/// Result of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeOutcome {
    /// The pull request is merged.
    Merged {
        /// Commit that merged it, if the forge names it.
        commit: Option<String>,
        /// Result of the deletion of the branch.
        branch: BranchDeletion,
    },
    /// The branches have conflicts. Nothing was merged.
    HasConflicts,
    /// The branch is at another commit by now. Nothing was merged.
    HeadMoved,
    /// The forge refuses the merge, for example because a review is missing. The text comes from the forge; it is cut,
    /// and its hidden characters are made visible.
    Refused(String),
}

/// Answer of a forge to one request to merge.
#[derive(Debug)]
pub(super) enum MergeAnswer {
    Merged(Option<String>),
    HasConflicts,
    HeadMoved,
    Refused(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squash_is_the_default_method() {
        assert_eq!(MergeMethod::default(), MergeMethod::Squash);
        for word in ["squash", "merge", "rebase"] {
            assert_eq!(word.parse::<MergeMethod>().expect(word).as_str(), word);
        }
        assert_eq!("octopus".parse::<MergeMethod>(), Err(UnknownMergeMethod));
    }
}
