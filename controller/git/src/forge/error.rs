//! Failures of requests to a forge.

use std::io;
use std::time::Duration;

use super::git::GitFault;
use crate::secret_file::CredentialFault;

/// A request to a forge without a usable answer. `Display` and `Debug` contain no token; texts of the forge are redacted, cut
/// and without characters that control or hide others.
#[derive(Debug, thiserror::Error)]
pub enum ForgeError {
    /// The address of the forge cannot be used. Credentials in it are not repeated.
    #[error("'{0}' is not the address of a forge; write https://HOST, without credentials")]
    Address(String),
    /// The name of the repository cannot be used.
    #[error("'{0}' is not a repository of a forge; write OWNER/NAME")]
    Repository(String),
    /// The credential cannot be used.
    #[error("the credential of the forge cannot be used")]
    Credential(#[from] CredentialFault),
    /// Nothing was sent.
    #[error("cannot connect to the forge for {0}")]
    Unreachable(String, #[source] io::Error),
    /// The request was sent, at least in part, and the answer is incomplete.
    #[error("the forge broke off its answer to {0}")]
    Interrupted(String, #[source] io::Error),
    /// No complete answer arrived in time.
    #[error("the forge did not answer {0} within {1:?}")]
    Late(String, Duration),
    /// The answer is too long.
    #[error("the answer of the forge to {0} is longer than {1} bytes")]
    TooLong(String, usize),
    /// The forge limits the rate of requests.
    #[error("the forge limits the rate of requests, also for {0}")]
    RateLimited(String, Option<Duration>),
    /// The forge failed.
    #[error("the forge failed at {0} (status {1}): {2}")]
    Failed(String, u16, String),
    /// The forge does not accept the credential, or not for this request.
    #[error(
        "the forge refuses the credential for {0} (status {1}): {2}; it needs contents and pull requests of the repository"
    )]
    Denied(String, u16, String),
    /// The forge does not have the object, or hides it.
    #[error("the forge has nothing at {0}; check the repository and the rights of the credential")]
    NotFound(String),
    /// The forge refuses the request.
    #[error("the forge refused {0} (status {1}): {2}")]
    Refused(String, u16, String),
    /// The forge sends the request elsewhere, which would carry the credential there.
    #[error(
        "the forge redirects {0} (status {1}), which is not followed; write the address and repository as they are now"
    )]
    Redirected(String, u16),
    /// The answer does not follow the forge's API.
    #[error("the answer of the forge to {0} {1}")]
    Unexpected(String, &'static str),
    /// The forge has not yet decided whether the pull request can be merged.
    #[error("the forge has not decided whether pull request {0} can be merged; try again later")]
    Undecided(u64),
    /// Git failed in the repository of a local forge.
    #[error("git failed at {0} in the local forge")]
    Git(&'static str, #[source] GitFault),
    /// A record of a local forge cannot be read or written.
    #[error("cannot {0} of the local forge")]
    Records(&'static str, #[source] io::Error),
}

impl ForgeError {
    /// Returns whether the same request may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable(..)
            | Self::Interrupted(..)
            | Self::Late(..)
            | Self::RateLimited(..)
            | Self::Failed(..)
            | Self::Undecided(_) => true,
            Self::Address(_)
            | Self::Repository(_)
            | Self::Credential(_)
            | Self::TooLong(..)
            | Self::Denied(..)
            | Self::NotFound(_)
            | Self::Refused(..)
            | Self::Redirected(..)
            | Self::Unexpected(..)
            | Self::Git(..)
            | Self::Records(..) => false,
        }
    }

    /// Returns the text for the owner of a run: the status of the forge in place of its words, and nothing of the settings.
    #[must_use]
    pub fn public_text(&self) -> String {
        match self {
            Self::Failed(request, status, _) => format!("the forge failed at {request} (status {status})"),
            Self::Denied(request, status, _) => {
                format!("the forge refuses the credential for {request} (status {status})")
            }
            Self::Refused(request, status, _) => format!("the forge refused {request} (status {status})"),
            Self::Address(_) | Self::Repository(_) | Self::Credential(_) | Self::Git(..) | Self::Records(..) => {
                "the forge of the project cannot be used; an admin sees why in the daemon's log".to_owned()
            }
            Self::Unreachable(..)
            | Self::Interrupted(..)
            | Self::Late(..)
            | Self::TooLong(..)
            | Self::RateLimited(..)
            | Self::NotFound(_)
            | Self::Redirected(..)
            | Self::Unexpected(..)
            | Self::Undecided(_) => self.to_string(),
        }
    }

    /// Returns the waiting time that the forge requests, if any.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited(_, after) => *after,
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_forge_are_for_the_operator() {
        let (request, words) = (|| "POST /pulls".to_owned(), || "a canary".to_owned());
        for error in [
            ForgeError::Failed(request(), 500, words()),
            ForgeError::Denied(request(), 403, words()),
            ForgeError::Refused(request(), 422, words()),
        ] {
            let text = error.public_text();
            assert!(error.to_string().contains("canary") && !text.contains("canary"), "{text}");
            assert!(text.contains("POST /pulls (status "), "{text}");
        }
        assert!(!ForgeError::Address(words()).public_text().contains("canary"));
        assert_eq!(ForgeError::Undecided(7).public_text(), ForgeError::Undecided(7).to_string());
    }
}
