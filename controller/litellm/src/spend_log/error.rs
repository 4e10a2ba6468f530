//! A spend log that cannot be read.
//!
//! Pure.

use std::fmt;

use super::QUESTIONS_MAX;
use super::row::UnreadablePage;
use crate::client::{LitellmError, MissingFeature, missing_feature};

/// A spend log that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SpendLogError {
    /// LiteLLM did not answer.
    #[error("cannot read the spend log at {upstream}")]
    Asking {
        /// Address of the upstream.
        upstream: String,
        /// Cause.
        #[source]
        source: LitellmError,
    },
    /// The upstream is a LiteLLM without a database, or is not a LiteLLM.
    #[error("{upstream} keeps no spend log: {why}; LiteLLM keeps one when it has a database")]
    None {
        /// Address of the upstream.
        upstream: String,
        /// Reason.
        why: NoSpendLog,
    },
    /// The key may not read the spend log.
    #[error(
        "the key may not read the spend log at {upstream}: {why}; give one that may by --spend-key-file \
         (a key with allowed_routes [\"/spend/logs/v2\"] can do nothing else)"
    )]
    Refused {
        /// Address of the upstream.
        upstream: String,
        /// Reason.
        why: KeyRefusal,
    },
    /// LiteLLM answered with another status.
    #[error("the spend log at {upstream} answered with status {status}; LiteLLM's own log says why")]
    Status {
        /// Address of the upstream.
        upstream: String,
        /// Status of the answer.
        status: u16,
    },
    /// The answer is not a page of a spend log.
    #[error(transparent)]
    Unreadable(#[from] UnreadablePage),
    /// The number of rows differs from the number that LiteLLM states, in all reads.
    #[error(
        "the spend log says that it has {stated} rows of these seconds, and gave {given}; try again when it is at rest"
    )]
    Unstable {
        /// Number of rows that LiteLLM states.
        stated: u64,
        /// Number of rows that it gave.
        given: usize,
    },
    /// One second has more rows than LiteLLM counts.
    #[error("the spend log has more rows than it counts, in one second")]
    Capped,
    /// The reconciliation needs too many requests.
    #[error(
        "this takes more than {QUESTIONS_MAX} questions to the spend log; ask for less with --run, --account or --since"
    )]
    TooMuch,
}

/// Reason why an upstream has no spend log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoSpendLog {
    /// LiteLLM has no database.
    NoDatabase,
    /// LiteLLM has no database, and the key is not its master key.
    NoDatabaseForKey,
    /// The upstream does not have the route, and answers with this status.
    NoRoute(u16),
    /// The upstream redirects to another server.
    Redirect,
}

/// Reason why a key may not read a spend log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyRefusal {
    /// Only keys of admins may read the spend log.
    NotAdmin,
    /// LiteLLM does not accept the key.
    NotAccepted,
}

impl SpendLogError {
    /// Returns whether a later request may succeed.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Asking { source, .. } => source.may_pass(),
            Self::Status { status, .. } => *status >= 500 || *status == 429,
            Self::None { .. }
            | Self::Refused { .. }
            | Self::Unreadable(_)
            | Self::Unstable { .. }
            | Self::Capped
            | Self::TooMuch => false,
        }
    }

    /// Returns whether the error lasts until the operator changes that LiteLLM or the key.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        matches!(self, Self::None { .. } | Self::Refused { .. } | Self::Unreadable(_))
    }
}

/// Returns the error for an answer that is not a page. Its text is examined and not repeated: it may contain the key.
pub(super) fn refusal(upstream: &str, status: u16, text: &str) -> SpendLogError {
    let upstream = upstream.to_owned();
    let none = |why| SpendLogError::None { upstream: upstream.clone(), why };
    let refused = |why| SpendLogError::Refused { upstream: upstream.clone(), why };
    match missing_feature(text) {
        Some(MissingFeature::Database) => return none(NoSpendLog::NoDatabase),
        Some(MissingFeature::MasterKey) => return none(NoSpendLog::NoDatabaseForKey),
        None => {}
    }
    match status {
        404 | 405 => none(NoSpendLog::NoRoute(status)),
        300..=399 => none(NoSpendLog::Redirect),
        401 | 403 if text.contains("Only proxy admin") => refused(KeyRefusal::NotAdmin),
        401 | 403 => refused(KeyRefusal::NotAccepted),
        status => SpendLogError::Status { upstream, status },
    }
}

impl fmt::Display for NoSpendLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDatabase => f.write_str("it has no database"),
            Self::NoDatabaseForKey => f.write_str("it has no database, and does not accept the key"),
            Self::NoRoute(status) => write!(f, "status {status} to GET /spend/logs/v2"),
            Self::Redirect => f.write_str("it redirects, and the key is not sent elsewhere"),
        }
    }
}

impl fmt::Display for KeyRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAdmin => "it takes an admin's key",
            Self::NotAccepted => "it does not take the key",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_the_remedy_and_hide_the_key() {
        let error = |status: u16, text: &str| refusal("http://up", status, text).to_string();
        let message = |text: &str| format!(r#"{{"error":{{"message":"{text}","type":"x"}}}}"#);
        for (status, text) in [
            (401, message("Prisma Client is not initialized")),
            (400, r#"{"error":{"message":"No connected db.","type":"no_db_connection"}}"#.to_owned()),
            (404, r#"{"detail":"Not Found"}"#.to_owned()),
            (307, String::new()),
        ] {
            assert!(error(status, &text).contains("keeps no spend log"), "{text}");
        }
        let leaky = error(401, &message("Received API Key = sk-...abcd, Key Hash =2ab06cfa"));
        assert!(leaky.contains("--spend-key-file") && !leaky.contains("abcd") && !leaky.contains("2ab0"), "{leaky}");
        // A database that is only unreachable comes back.
        let down =
            refusal("http://up", 503, r#"{"error":{"message":"Service Unavailable","type":"no_db_connection"}}"#);
        assert!(down.may_pass() && down.to_string().contains("status 503;"), "{down}");
        assert!(error(401, &message("Only proxy admin can be used")).contains("takes an admin's key"));
        let echo = error(500, &message("boom for Bearer sk-operator"));
        assert!(echo.contains("status 500;") && !echo.contains("sk-operator"), "{echo}");
    }
}
