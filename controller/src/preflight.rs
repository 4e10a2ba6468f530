//! Whether this machine can do what is asked of it: a list, each with what to do about it.

use serde::Serialize;

mod budgets;
mod checks;
mod litellm;
mod probe;

pub use checks::preflight;

/// One question and its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// What came of it.
    pub status: Status,
    /// What was found; or what is wrong and what to do.
    pub detail: String,
    /// The budget at LiteLLM that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
}

/// A budget at LiteLLM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Budget {
    /// Whose it is: `customer`, `key`, `team`, `team_member`, `user` and so on.
    pub of: String,
    /// Its limit; null where LiteLLM does not give it.
    pub limit_usd: Option<String>,
    /// What is spent of it; null where LiteLLM does not say.
    pub spent_usd: Option<String>,
    /// When it begins anew, as LiteLLM writes it; null where that is not known, or never.
    pub resets: Option<String>,
    /// Whether LiteLLM refuses calls for it.
    pub is_used_up: bool,
}

/// What came of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// As it should be.
    Pass,
    /// It works, and could be better.
    Warn,
    /// Runs would not start.
    Fail,
    /// It could not be asked, since something before it failed.
    Skipped,
}

impl Status {
    /// The word in front of a line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
            Self::Skipped => "skip",
        }
    }
}

fn pass(name: &'static str, detail: String) -> Check {
    Check { name, status: Status::Pass, detail, budget: None }
}

fn warn(name: &'static str, detail: String) -> Check {
    Check { name, status: Status::Warn, detail, budget: None }
}

fn fail(name: &'static str, detail: String) -> Check {
    Check { name, status: Status::Fail, detail, budget: None }
}
