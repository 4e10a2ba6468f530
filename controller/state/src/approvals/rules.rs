//! The rules of approvals: caps, proposals, digests, decisions.
//!
//! Pure.

use serde::Serialize;
use sluice_contract::Hash;

use crate::ledger::usd;

/// A cap of a run that a person can raise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RaisableCap {
    /// Number of calls.
    MaxCalls,
    /// Number of tokens.
    MaxTokens,
    /// Cost, in nano-USD.
    MaxCostUsd,
}

/// Decision about an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ApprovalDecision {
    /// The cap is raised, or the branch is published.
    Approve,
    /// The waiting call is refused permanently, or the branch is not published.
    Deny,
    /// The run is cancelled.
    Cancel,
    /// No decision was made in time, which denies the approval.
    Expired,
    /// The cap has changed, the attempt is over, or the branch was published by other means.
    Changed,
}

impl RaisableCap {
    /// All caps.
    pub const ALL: [Self; 3] = [Self::MaxCalls, Self::MaxTokens, Self::MaxCostUsd];

    /// Returns the word in the database and in output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MaxCalls => "max_calls",
            Self::MaxTokens => "max_tokens",
            Self::MaxCostUsd => "max_cost_usd",
        }
    }

    /// Returns the cap of a word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cap| cap.as_str() == word)
    }

    /// Returns a value as people read it: dollars, or a number.
    #[must_use]
    pub fn show(self, value: i64) -> String {
        match self {
            Self::MaxCostUsd => usd(value.into()),
            Self::MaxCalls | Self::MaxTokens => value.to_string(),
        }
    }
}

impl ApprovalDecision {
    const ALL: [Self; 5] = [Self::Approve, Self::Deny, Self::Cancel, Self::Expired, Self::Changed];

    /// Returns the word in the database and in output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Deny => "deny",
            Self::Cancel => "cancel",
            Self::Expired => "expired",
            Self::Changed => "changed",
        }
    }

    /// Returns the decision of a word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|decision| decision.as_str() == word)
    }

    /// Returns whether calls that wait for it are refused permanently.
    #[must_use]
    pub fn denies(self) -> bool {
        matches!(self, Self::Deny | Self::Expired)
    }
}

/// Returns the proposed value for a cap: twice the present one, or the need of the waiting call if that is more, and
/// at most the highest value that the operator allows, unless the call needs more than that.
#[must_use]
pub fn propose(old: i64, asked: Option<i64>, highest: Option<i64>) -> i64 {
    let least = asked.unwrap_or(0).max(old.saturating_add(1));
    let double = old.saturating_mul(2).max(least);
    highest.map_or(double, |highest| double.min(highest)).max(least)
}

/// Returns the value of a run's cap after a raise of its attempt's cap, given as the cap, its old and its new value. A cost
/// has one cap over all attempts, and an attempt has what the earlier ones left of it: a raise adds to both. Calls and tokens
/// have a cap for each attempt.
#[must_use]
pub fn raised_run_cap(run_cap: Option<i64>, (cap, old, to): (RaisableCap, i64, i64)) -> i64 {
    match (cap, run_cap) {
        (RaisableCap::MaxCostUsd, Some(run_cap)) => run_cap.saturating_add(to.saturating_sub(old)),
        (RaisableCap::MaxCostUsd, None) | (RaisableCap::MaxCalls | RaisableCap::MaxTokens, _) => to,
    }
}

/// Everything that a person sees: the digest is over it. Members are in the order of their names.
#[derive(Debug, Serialize)]
pub(super) struct Canonical<'a> {
    pub(super) account: &'a str,
    pub(super) approval_id: &'a str,
    pub(super) attempt: u32,
    pub(super) cap: Option<&'a str>,
    pub(super) expires_us: i64,
    pub(super) kind: &'a str,
    pub(super) new: Option<i64>,
    pub(super) old: Option<i64>,
    pub(super) run_id: &'a str,
    pub(super) subject: &'a str,
}

impl Canonical<'_> {
    pub(super) fn digest(&self) -> String {
        Hash::of(&serde_json::to_vec(self).expect("plain data")).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proposal_doubles_within_the_operators_limit() {
        for (old, asked, highest, expected) in [
            (10, None, None, 20),
            (10, Some(11), None, 20),
            (10, Some(50), None, 50),
            (10, Some(11), Some(15), 15),
            (10, Some(50), Some(15), 50),
            (10, None, Some(10), 11),
            (0, None, None, 1),
            (i64::MAX - 1, None, None, i64::MAX),
        ] {
            assert_eq!(propose(old, asked, highest), expected, "{old} {asked:?} {highest:?}");
        }
    }

    #[test]
    fn a_raise_of_an_attempt_adds_to_its_run() {
        let (cost, calls, tokens) = (RaisableCap::MaxCostUsd, RaisableCap::MaxCalls, RaisableCap::MaxTokens);
        for (run_cap, raise, expected) in [
            (Some(20), (cost, 20, 25), 25),
            // Earlier attempts have spent 19.
            (Some(20), (cost, 1, 20), 39),
            (Some(20), (cost, 1, 1), 20),
            (Some(i64::MAX), (cost, 1, i64::MAX), i64::MAX),
            (None, (cost, 1, 20), 20),
            (Some(20), (calls, 1, 20), 20),
            (Some(20), (tokens, 1, 20), 20),
        ] {
            assert_eq!(raised_run_cap(run_cap, raise), expected, "{run_cap:?} {raise:?}");
        }
    }

    #[test]
    fn each_member_changes_the_digest() {
        let base = || Canonical {
            account: "a",
            approval_id: "apr-1",
            attempt: 0,
            cap: Some("max_calls"),
            expires_us: 9,
            kind: "cap",
            new: Some(4),
            old: Some(2),
            run_id: "r1",
            subject: "{}",
        };
        let all = [
            base(),
            Canonical { account: "b", ..base() },
            Canonical { approval_id: "apr-2", ..base() },
            Canonical { attempt: 1, ..base() },
            Canonical { cap: Some("max_tokens"), ..base() },
            Canonical { expires_us: 8, ..base() },
            Canonical { kind: "publish", ..base() },
            Canonical { new: Some(5), ..base() },
            Canonical { old: Some(3), ..base() },
            Canonical { run_id: "r2", ..base() },
            Canonical { subject: "[]", ..base() },
        ];
        let digests: std::collections::BTreeSet<_> = all.iter().map(Canonical::digest).collect();
        assert_eq!(digests.len(), all.len());
    }

    #[test]
    fn words_are_read_back() {
        for decision in ApprovalDecision::ALL {
            assert_eq!(ApprovalDecision::of(decision.as_str()), Some(decision));
        }
        for cap in RaisableCap::ALL {
            assert_eq!(RaisableCap::of(cap.as_str()), Some(cap));
        }
        assert_eq!((ApprovalDecision::of("yes"), RaisableCap::of("rate")), (None, None));
    }
}
