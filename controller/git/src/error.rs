//! Failures of work with repositories.

use std::io;

use crate::limits::{CHECKOUT_BYTES, TREE_PATHS};
use crate::object_id::ObjectId;
use crate::{BranchError, IdentityError};

/// Reason why work with a repository failed. No text names a directory of this host or holds a credential.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// The git process could not be started.
    #[error("cannot start git for {command}; install git 2.50.1 or a fixed build of the distribution")]
    Start {
        /// Subcommand of git.
        command: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The process could not be confined, so git was not started.
    #[error("git was not started for {command}, because the process cannot be confined: {reason}")]
    Confine {
        /// Subcommand of git.
        command: String,
        /// Step that the kernel refused, and the fix.
        reason: String,
    },
    /// git did not end in time, and was killed.
    #[error("git {command} took longer than {seconds} s and was stopped")]
    TimedOut {
        /// Subcommand of git.
        command: String,
        /// The limit.
        seconds: u64,
    },
    /// git wrote more than the limit, and was killed.
    #[error("git {command} wrote more than {bytes} bytes and was stopped")]
    TooMuchOutput {
        /// Subcommand of git.
        command: String,
        /// The limit.
        bytes: usize,
    },
    /// git ended with an error.
    #[error("git {command} failed: {message}")]
    Failed {
        /// Subcommand of git.
        command: String,
        /// The last lines that git wrote, without control characters.
        message: String,
    },
    /// git wrote output that no version of it should write.
    #[error("the output of git {command} could not be read: {what}")]
    Output {
        /// Subcommand of git.
        command: String,
        /// The part that is wrong.
        what: String,
    },
    /// A file or directory of a repository could not be used.
    #[error("cannot {what}")]
    File {
        /// The action.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// A name of a branch that is not accepted.
    #[error(transparent)]
    Branch(#[from] BranchError),
    /// A committer that is not accepted.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The repository has no branch that a run could start from.
    #[error(
        "the repository at {url} has no default branch and none of main, master, develop and trunk; push a first commit, or name a branch"
    )]
    NoDefaultBranch {
        /// Address of the repository.
        url: String,
    },
    /// The repository does not have the branch.
    #[error("the repository at {url} has no branch {branch}; name one that exists")]
    UnknownBranch {
        /// Address of the repository.
        url: String,
        /// The branch.
        branch: String,
    },
    /// The repository has submodules, which are not fetched.
    #[error(
        "the repository at {url} has submodules (.gitmodules), which a run does not get; with without_submodules = true under [[projects]], runs start without them"
    )]
    Submodules {
        /// Address of the repository.
        url: String,
    },
    /// The repository has files of LFS, which are not fetched.
    #[error(
        "the repository at {url} has files in Git LFS (filter=lfs in .gitattributes), which a run does not get; with without_lfs = true under [[projects]], runs start with pointers in their place"
    )]
    Lfs {
        /// Address of the repository.
        url: String,
    },
    /// The credential does not fit the address.
    #[error(
        "the credential for {url} is of another kind: {kind}; an https address takes a token, an ssh address takes a key"
    )]
    CredentialKind {
        /// Address of the repository.
        url: String,
        /// Kind of the credential.
        kind: &'static str,
    },
    /// The run has no repository here.
    #[error("run {run} has no repository")]
    NoRepository {
        /// The run.
        run: String,
    },
    /// The files of a commit would be too many or too large for the disk of the host.
    #[error(
        "the files of commit {head} need more than {} GiB or are more than {TREE_PATHS}, so there is no clone of it; start a run from a branch with fewer files",
        CHECKOUT_BYTES >> 30
    )]
    CheckoutSize {
        /// The commit.
        head: ObjectId,
    },
    /// The record of a repository cannot be read.
    #[error("the record of the repository of run {run} cannot be read: {reason}")]
    Record {
        /// The run.
        run: String,
        /// The reason.
        reason: String,
    },
    /// The repository of the run has no branch yet, since no clone was made from it.
    #[error("the repository of run {run} has no branch yet; clone it first")]
    NoBranch {
        /// The run.
        run: String,
    },
    /// The run has another branch or committer than the clone requests.
    #[error("run {run} already works on branch {branch}; a run has one branch and one committer")]
    OtherBranch {
        /// The run.
        run: String,
        /// Branch of the run.
        branch: String,
    },
    /// Objects of the sandbox that are not accepted.
    #[error("{0}")]
    Refused(#[from] crate::ingest_refusal::IngestRefusal),
    /// A bundle that is not accepted.
    #[error("the bundle is refused: {0}")]
    Bundle(#[from] crate::bundle_header::BundleError),
    /// The commit to publish is not the verified one.
    #[error("commit {head} is not the head of the run's branch, so it is not published; look at the run again")]
    NotTheHead {
        /// The commit.
        head: ObjectId,
    },
    /// The branch exists at the forge, and is not ours.
    #[error("the branch {branch} already exists at {url} and has other commits; take another name")]
    BranchTaken {
        /// Address of the repository.
        url: String,
        /// The branch.
        branch: String,
    },
    /// The branch at the forge has moved.
    #[error("the branch {branch} at {url} has changed since it was last published; nothing was pushed")]
    BranchMoved {
        /// Address of the repository.
        url: String,
        /// The branch.
        branch: String,
    },
    /// The forge refused the push.
    #[error("the repository at {url} refused the branch {branch}: {reason}")]
    PushRefused {
        /// Address of the repository.
        url: String,
        /// The branch.
        branch: String,
        /// Message of the forge, without control characters.
        reason: String,
    },
}

impl GitError {
    /// Makes the error of a file for `map_err`.
    pub(crate) fn file(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { what, source }
    }
}
