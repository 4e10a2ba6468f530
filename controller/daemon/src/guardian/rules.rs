//! The rules of the Guardian, as an admin sets them. They are never disclosed to a run.
//!
//! Pure.

use std::collections::BTreeMap;
use std::time::Duration;

/// Action of the Guardian when a rule matches, in addition to the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardianAction {
    /// Only records the event.
    Notify,
    /// Sends the agent a fixed text.
    Nudge,
    /// Pauses the run. Only a person can resume it.
    Pause,
}

/// Rule: the same thing happens again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepetitionRule {
    /// Number of times, at most [`RepetitionRule::COUNT_MAX`].
    pub count: u32,
    /// Time within which they count.
    pub within: Duration,
    /// Action that follows.
    pub action: GuardianAction,
}

/// Rule: the run costs this much or more within a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CostRate {
    /// Cost in nano-USD from which the rule matches.
    pub nano_usd: i64,
    /// Time within which costs are added up.
    pub within: Duration,
    /// Action that follows.
    pub action: GuardianAction,
}

/// Rule: calls continue, and no file changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoFileChange {
    /// Time without a changed file.
    pub after: Duration,
    /// Calls that have ended in that time.
    pub calls: u32,
    /// Action that follows.
    pub action: GuardianAction,
}

/// Rule: nothing happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SilenceRule {
    /// Time without an event other than a heartbeat, and without an open call.
    pub after: Duration,
    /// Action that follows.
    pub action: GuardianAction,
}

/// The rules for a run; none of them by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "described at their types")]
pub struct GuardianRules {
    /// Time after a hit in which the same rule is not met again for the same run.
    pub cool_down: Duration,
    /// The same call of a tool.
    pub repeated_tool: Option<RepetitionRule>,
    /// The same error.
    pub repeated_error: Option<RepetitionRule>,
    pub cost_rate: Option<CostRate>,
    pub no_file_change: Option<NoFileChange>,
    pub silence: Option<SilenceRule>,
}

/// The rules of a host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GuardianSettings {
    /// Rules for runs of agents that have none of their own.
    pub host: GuardianRules,
    /// Rules for runs of an agent, by `sandbox:NAME`.
    pub agents: BTreeMap<String, GuardianRules>,
}

impl GuardianAction {
    /// Returns the word in settings and events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Notify => "notify",
            Self::Nudge => "nudge",
            Self::Pause => "pause",
        }
    }
}

impl RepetitionRule {
    /// Maximum count.
    pub const COUNT_MAX: u32 = 100;
}

impl Default for GuardianRules {
    fn default() -> Self {
        Self {
            cool_down: Duration::from_secs(600),
            repeated_tool: None,
            repeated_error: None,
            cost_rate: None,
            no_file_change: None,
            silence: None,
        }
    }
}

impl GuardianRules {
    /// Returns true if no rule is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { cool_down: _, repeated_tool, repeated_error, cost_rate, no_file_change, silence } = self;
        repeated_tool.is_none()
            && repeated_error.is_none()
            && cost_rate.is_none()
            && no_file_change.is_none()
            && silence.is_none()
    }
}

impl GuardianSettings {
    /// Returns the rules for a run of an agent.
    #[must_use]
    pub fn of(&self, graph_id: &str) -> GuardianRules {
        *self.agents.get(graph_id).unwrap_or(&self.host)
    }

    /// Returns true if no run has a rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.host.is_empty() && self.agents.values().all(GuardianRules::is_empty)
    }
}
