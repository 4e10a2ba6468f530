//! A command that failed.

use sluice_client::ClientError;
use sluice_contract::exit;
use sluice_contract::text::error_chain;

/// The `error_code` of wrong usage.
pub(super) const WRONG_USAGE: &str = "usage";

/// A command that failed: its exit code, and a message.
#[derive(Debug)]
pub(super) struct CommandError {
    pub(super) code: u8,
    pub(super) message: String,
}

impl CommandError {
    pub(super) fn new(code: u8, error: &dyn std::error::Error) -> Self {
        Self { code, message: error_chain(error) }
    }

    /// Returns the error of a command line, or of settings, that is not valid.
    pub(super) fn usage(error: &dyn std::error::Error) -> Self {
        Self::new(exit::USAGE, error)
    }

    /// Returns the error of wrong usage with this message.
    pub(super) fn wrong_usage(message: impl Into<String>) -> Self {
        Self { code: exit::USAGE, message: message.into() }
    }

    /// Returns the error of a command that could not do its work.
    pub(super) fn failed(error: &dyn std::error::Error) -> Self {
        Self::new(exit::FAILED, error)
    }

    /// Returns the error of a run or a reconciliation that did not start.
    pub(super) fn not_started(error: &dyn std::error::Error) -> Self {
        Self::new(exit::NOT_STARTED, error)
    }

    /// Returns the error of a command whose exit code is otherwise the program's, with a code that cannot be mistaken for the
    /// program's.
    pub(super) fn without_program(self) -> Self {
        let code = if self.code == exit::BUDGET { exit::BUDGET } else { exit::NOT_STARTED };
        Self { code, ..self }
    }

    /// Returns the `error_code`.
    pub(super) fn word(&self) -> &'static str {
        match self.code {
            exit::USAGE => WRONG_USAGE,
            exit::INCOMPLETE => "incomplete",
            exit::UNREADABLE => "unreadable",
            exit::UNKNOWN_RUN => "unknown_run",
            exit::UNKNOWN_KEY => "unknown_key",
            exit::MISMATCH => "mismatch",
            _ => "failed",
        }
    }
}

impl From<ClientError> for CommandError {
    /// Returns the error of a command that called a daemon. The stable word of the API begins its message.
    fn from(error: ClientError) -> Self {
        let Some(failure) = error.failure() else {
            let is_unreachable = matches!(error, ClientError::Unreachable(..));
            let mut unanswered = Self::new(if is_unreachable { exit::NOT_STARTED } else { exit::FAILED }, &error);
            if error.is_unknown_authority() {
                unanswered.message += "; name its authority with --ca FILE, since SLUICE_CA is for the upstream";
            }
            if error.may_be_done() {
                unanswered.message += "; the daemon may have done it, so look before you repeat it";
            }
            return unanswered;
        };
        let code = match failure.status {
            402 => exit::BUDGET,
            404 | 422 => exit::USAGE,
            _ => exit::FAILED,
        };
        let advice =
            if failure.status == 401 { "; name a token with --token-file FILE, or in SLUICE_TOKEN" } else { "" };
        Self { code, message: format!("{}: {}{advice}", failure.code, failure.message) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sluice_client::ApiFailure;

    use super::*;

    #[test]
    fn only_a_missing_token_has_advice_about_tokens() {
        let error = |status| {
            let (code, message) = ("word".to_owned(), "a fault".to_owned());
            CommandError::from(ClientError::Api(ApiFailure { status, code, message, details: None })).message
        };
        let advised = "word: a fault; name a token with --token-file FILE, or in SLUICE_TOKEN";
        assert_eq!((error(401).as_str(), error(403).as_str()), (advised, "word: a fault"));
    }

    #[test]
    fn a_change_without_an_answer_may_be_done() {
        let late = |request: &str| ClientError::Late("host".to_owned(), request.to_owned(), Duration::from_secs(30));
        assert!(
            CommandError::from(late("POST /x"))
                .message
                .ends_with("; the daemon may have done it, so look before you repeat it")
        );
        assert_eq!(CommandError::from(late("GET /x")).message, "host did not answer GET /x within 30s");
    }
}
