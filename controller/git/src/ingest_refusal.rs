//! Reasons why objects of a sandbox are not accepted.
//!
//! Pure.

use crate::limits::{
    COMMIT_BYTES, OBJECT_BYTES, PACK_OBJECTS, RUN_BYTES, STRUCTURE_BYTES, TREE_DEPTH, TREE_ENTRIES, TREE_PATHS,
};

/// Reason why objects of a sandbox are not accepted. The texts go to the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IngestRefusal {
    /// The data do not begin with the header of a pack.
    #[error("the pack cannot be read")]
    NotAPack,
    /// The body of the request ended early.
    #[error("the push has ended before its pack was whole; push again")]
    CutOff,
    /// Too many objects.
    #[error("the pack has {0} objects, and at most {PACK_OBJECTS} are accepted; push fewer commits at a time")]
    Objects(u32),
    /// The packs of the run are too large together.
    #[error(
        "the pushes of this run would have more than {} GiB together; push less, without large files, or go on in a new run",
        RUN_BYTES >> 30
    )]
    Total,
    /// A commit or tag is too large.
    #[error("commit or tag {0} has more than {COMMIT_BYTES} bytes")]
    Commit(String),
    /// A file is too large.
    #[error("object {0} has more than {OBJECT_BYTES} bytes; remove the file from the commits")]
    Blob(String),
    /// Commits and trees together are too large.
    #[error("commits and directories of the pack have more than {STRUCTURE_BYTES} bytes; push fewer commits at a time")]
    Structure,
    /// Directories are too deep.
    #[error("a commit has directories {0} deep, and at most {TREE_DEPTH} are accepted")]
    Depth(u32),
    /// All directories together have too many entries.
    #[error("directories of the pack have more than {TREE_ENTRIES} entries; push fewer commits at a time")]
    Entries,
    /// A work tree would have too many files.
    #[error("a commit has more than {TREE_PATHS} files")]
    Paths,
    /// git refused the pack.
    #[error("the pack is not accepted: {0}")]
    Pack(String),
    /// An object is missing.
    #[error("objects of {0} are missing")]
    Missing(String),
    /// The id does not name a commit.
    #[error("{0} is not a commit")]
    NotACommit(String),
    /// The branch would lose commits.
    #[error(
        "{old} is not part of the history of {new}, and pushed commits stay; add new commits on top of {old} (git reset --soft {old}, then commit again)"
    )]
    NotForward {
        /// Present head of the branch.
        old: String,
        /// The commit that was pushed.
        new: String,
    },
    /// A commit of another committer.
    #[error(
        "commit {commit} has another committer than {expected}; commit with the identity that the repository has configured (git commit --amend --reset-author)"
    )]
    Committer {
        /// The commit.
        commit: String,
        /// Name and address of the run's committer.
        expected: String,
    },
}
