//! Failures of the clone of a run.

use std::io;

use sluice_git::GitError;
use sluice_state::tokens::TokenError;

use crate::engine::EngineError;

/// A clone that cannot be made or collected.
#[derive(Debug, thiserror::Error)]
pub enum CloneError {
    /// Work with a repository failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// A file or directory of the run cannot be used.
    #[error("cannot {what}")]
    File {
        /// The action.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// No random bytes are available for the token of the run.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The engine did not start the container that collects.
    #[error("cannot collect what the run committed")]
    Engine(#[from] EngineError),
    /// The program removed its clone.
    #[error("/workspace/repo is missing, or is not a directory any more; only what was pushed is left of the run")]
    Gone,
    /// The image cannot collect.
    #[error("the image has no git, so only what was pushed came out; install git in the image")]
    NoGit,
    /// The difference between base and head is too large.
    #[error("the change has more than {0} bytes, so there is no patch; see the branch")]
    LargePatch(usize),
    /// The container that collects ended without a fault, and the branch was not packed.
    #[error("the container that packs the commits ended before it had packed them; only what was pushed came out")]
    Unfinished,
    /// The container that collects did not end in time.
    #[error("git in the sandbox did not pack everything within {0} s")]
    Late(u64),
    /// The container that collects wrote too much: the run's own filters and hooks are executed in it.
    #[error(
        "git in the sandbox wrote more than {0} bytes while it packed, or files that cannot be counted; only what was packed \
         before came out"
    )]
    TooLarge(u64),
    /// Git in the container that collects failed.
    #[error("git in the sandbox could not pack everything (exit code {code}): {message}")]
    Failed {
        /// Exit code.
        code: i64,
        /// End of its output, made printable.
        message: String,
    },
}

impl CloneError {
    /// Returns the text for the owner of a run. Other errors can name files of the operator.
    #[must_use]
    pub fn public_text(&self) -> String {
        match self {
            Self::Git(GitError::Refused(_) | GitError::Bundle(_))
            | Self::Gone
            | Self::NoGit
            | Self::LargePatch(_)
            | Self::Unfinished
            | Self::Late(_)
            | Self::TooLarge(_)
            | Self::Failed { .. } => self.to_string(),
            Self::Git(_) | Self::File { .. } | Self::Token(_) | Self::Engine(_) => {
                "this host has a fault; an admin sees which in the daemon's log".to_owned()
            }
        }
    }

    /// Returns the error of an action on files.
    pub(crate) fn file(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::File { what, source }
    }
}
