//! Reasons why a branch stays on this host.

use sluice_git::forge::{CredentialFault, ForgeError};
use sluice_git::{BranchError, CredentialsError, GitError};
use sluice_state::store::StoreError;

/// Reason why a branch is not published, requested or merged.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum PublicationError {
    #[error("this run works on no repository; create it with one")]
    NoRepository,
    #[error("the project of this run has no repository any more; an admin sets it under [[projects]]")]
    ProjectChanged,
    #[error("this run has no clone yet; it gets one when it begins")]
    NoClone,
    #[error(transparent)]
    Branch(#[from] BranchError),
    #[error("this run must not publish its branch (publish = never); its commits can be read as a patch")]
    Never,
    #[error(
        "the project has another repository now than when the run began, and the branch is not published there; an admin sets the earlier address under [[projects]], or create a new run"
    )]
    OtherRepository,
    #[error("the run has committed nothing: its branch is where it began")]
    Nothing,
    #[error("the branch is at {head} now; look at it again, and name that commit")]
    HeadMoved { head: String },
    #[error(
        "the run changes more than 5,000 files, or more than can be looked at; publish it by hand from its repository"
    )]
    TooLarge,
    #[error("the run changes files that CI or the forge obey: {}; look at them, and accept them", paths.join(", "))]
    Guarded { head: String, paths: Vec<String> },
    #[error("the forge has branches named {0}, {0}-2 and so on, up to 20; delete some of them")]
    Taken(String),
    #[error("the branch is not published yet; publish it first")]
    NotPublished,
    #[error("the run has no pull request; open one first")]
    NoPullRequest,
    #[error("the project has no forge where pull requests are opened; an admin sets forge under [[projects]]")]
    NoForge,
    #[error("the address of the project's forge is not known; an admin sets forge_api under [[projects]]")]
    NoApi,
    #[error(
        "the forge of the project needs a token; an admin writes one into the file that credentials names under [[projects]]"
    )]
    NoToken,
    #[error("runs of this project are not merged by Sluice; an admin sets merge = true under [[projects]]")]
    MergeIsOff,
    #[error(transparent)]
    Git(#[from] GitError),
    #[error(transparent)]
    Forge(#[from] ForgeError),
    #[error("the credentials of the project cannot be used: {0}")]
    Credentials(#[from] CredentialsError),
    #[error("the token of the project's forge cannot be used: {0}")]
    Token(#[from] CredentialFault),
    #[error("app_key of the project cannot be used: {0}")]
    AppKey(#[source] CredentialFault),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl PublicationError {
    /// Returns the text for the owner of a run. Errors of git and of credentials can name files and hosts of the operator, and
    /// the words of the forge may be about more than the run.
    #[must_use]
    pub fn public_text(&self) -> String {
        match self {
            Self::Git(_) => "the repository did not take the branch; the branch stays on this host".to_owned(),
            Self::Credentials(_) | Self::Token(_) | Self::AppKey(_) | Self::NoToken => {
                "the credentials of the project cannot be used; an admin sees why in the daemon's log".to_owned()
            }
            Self::Forge(error) => error.public_text(),
            Self::Store(_) => "the database of this host has a fault; try again later".to_owned(),
            other => other.to_string(),
        }
    }

    /// Returns true if the operator's log needs the whole error.
    #[must_use]
    pub fn is_of_host(&self) -> bool {
        matches!(
            self,
            Self::Git(_)
                | Self::Forge(_)
                | Self::Credentials(_)
                | Self::Token(_)
                | Self::AppKey(_)
                | Self::NoToken
                | Self::Store(_)
        )
    }
}
