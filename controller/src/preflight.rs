//! Checks whether runs would work on this machine.

use serde::Serialize;

mod budget_rows;
mod budgets;
mod checks;
mod daemon;
mod git;
mod git_version;
mod host_checks;
mod image;
mod key_answer;
mod listed_models;
mod litellm;
mod probe;
mod scratch_state;

pub use checks::preflight;
pub use daemon::daemon_preflight;

/// A check and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Name of the check.
    pub name: &'static str,
    /// Result.
    pub status: CheckStatus,
    /// Findings, or the fault and its remedy.
    pub detail: String,
    /// Budget at LiteLLM that the check examined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<LitellmBudget>,
    /// Bridge of the image that the check examined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<ImageBridge>,
}

/// Bridge from a sandbox's `localhost` to the sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageBridge {
    /// The image starts its own bridge.
    Image,
    /// The sidecar's program is mounted as one.
    Mounted,
}

/// A budget at LiteLLM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LitellmBudget {
    /// Owner: `customer`, `key`, `team`, `team_member`, `user` and so on.
    pub of: String,
    /// Limit; null if LiteLLM does not state it.
    pub limit_usd: Option<String>,
    /// Amount that is spent; null if LiteLLM does not state it.
    pub spent_usd: Option<String>,
    /// Time of the next reset, as LiteLLM writes it; null if it is unknown, or if the budget is never reset.
    pub resets: Option<String>,
    /// Set if LiteLLM refuses calls because the budget is used up.
    pub is_used_up: bool,
}

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckStatus {
    /// No fault was found.
    Pass,
    /// Runs work, with a limitation.
    Warn,
    /// Runs would not start.
    Fail,
    /// The check was not possible, since an earlier one failed.
    Skipped,
}

impl CheckStatus {
    /// Returns the name, as in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Fail => "fail",
            Self::Skipped => "skipped",
        }
    }

    /// Returns the word at the start of a line.
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
    Check { name, status: CheckStatus::Pass, detail, budget: None, bridge: None }
}

fn warn(name: &'static str, detail: String) -> Check {
    Check { name, status: CheckStatus::Warn, detail, budget: None, bridge: None }
}

fn fail(name: &'static str, detail: String) -> Check {
    Check { name, status: CheckStatus::Fail, detail, budget: None, bridge: None }
}

fn skipped(name: &'static str, detail: &str) -> Check {
    Check { name, status: CheckStatus::Skipped, detail: detail.to_owned(), budget: None, bridge: None }
}
