//! Rule for raising a cap: which person may raise it, and to which value. All values are caps of the whole run after
//! the raise, and not of one attempt.
//!
//! Pure.

use sluice_state::approvals::RaisableCap;

use crate::principal::Role;
use crate::run_policy::RunPolicy;

/// Values that bound a raise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RaiseRule {
    /// Highest value that owners may approve; none for no limit.
    pub(super) highest: Option<i64>,
    /// Cost in nano-USD above which another person than the run's owner and its creator has to approve.
    pub(super) second_person: Option<i64>,
}

/// Reason that a raise is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RaiseRefusal {
    /// Only an admin may go beyond the operator's limit.
    AdminOnly,
    /// The run's own owner or its creator asks, and another person has to approve.
    SecondPerson,
    /// A browser session asks, and a token is needed.
    NeedsToken,
}

/// Checks a raise.
///
/// # Errors
/// [`RaiseRefusal`]
pub(super) fn check(
    rule: RaiseRule,
    (cap, to): (RaisableCap, i64),
    role: Role,
    is_second_person: bool,
) -> Result<(), RaiseRefusal> {
    if role != Role::Admin && rule.highest.is_some_and(|highest| to > highest) {
        return Err(RaiseRefusal::AdminOnly);
    }
    let needs_second = cap == RaisableCap::MaxCostUsd && rule.second_person.is_some_and(|from| to > from);
    if needs_second && !is_second_person { Err(RaiseRefusal::SecondPerson) } else { Ok(()) }
}

/// Checks a raise by a browser session. A compromised page must not spend money, so sessions have a limit of their own,
/// and cannot raise calls and tokens: in a run without a cost cap, more calls and tokens cost money.
///
/// # Errors
/// [`RaiseRefusal::NeedsToken`]
pub(super) fn check_session(max_nano_usd: Option<i64>, (cap, to): (RaisableCap, i64)) -> Result<(), RaiseRefusal> {
    let is_within = cap == RaisableCap::MaxCostUsd && max_nano_usd.is_some_and(|max| to <= max);
    if is_within { Ok(()) } else { Err(RaiseRefusal::NeedsToken) }
}

/// Returns the maximum value of a cap that owners may set. Without a policy, owners may set none.
pub(super) fn highest(policy: Option<&RunPolicy>, cap: RaisableCap) -> Option<i64> {
    let Some(policy) = policy else { return Some(0) };
    let count = |number: Option<u64>| number.map(|number| i64::try_from(number).unwrap_or(i64::MAX));
    match cap {
        RaisableCap::MaxCalls => count(policy.limits_max.max_calls),
        RaisableCap::MaxTokens => count(policy.limits_max.max_tokens),
        RaisableCap::MaxCostUsd => policy.max_cost_max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_raise_costs_alone_up_to_their_amount() {
        let (cost, calls) = (RaisableCap::MaxCostUsd, RaisableCap::MaxCalls);
        for (max, asked, is_allowed) in [
            (None, (cost, 1), false),
            (Some(5), (cost, 5), true),
            (Some(5), (cost, 6), false),
            (Some(5), (calls, 1), false),
            (Some(5), (RaisableCap::MaxTokens, 1), false),
        ] {
            let expected = if is_allowed { Ok(()) } else { Err(RaiseRefusal::NeedsToken) };
            assert_eq!(check_session(max, asked), expected, "{max:?} {asked:?}");
        }
    }

    #[test]
    fn owners_stay_below_the_operators_limit() {
        use RaiseRefusal::{AdminOnly, SecondPerson};
        let (cost, calls) = (RaisableCap::MaxCostUsd, RaisableCap::MaxCalls);
        let rule = |highest, second_person| RaiseRule { highest, second_person };
        for (rule, asked, role, is_second, expected) in [
            (rule(None, None), (cost, i64::MAX), Role::Owner, false, Ok(())),
            (rule(Some(10), None), (cost, 10), Role::Owner, false, Ok(())),
            (rule(Some(10), None), (cost, 11), Role::Owner, false, Err(AdminOnly)),
            (rule(Some(10), None), (calls, 11), Role::Owner, false, Err(AdminOnly)),
            (rule(Some(10), None), (cost, 11), Role::Admin, false, Ok(())),
            (rule(None, Some(5)), (cost, 5), Role::Owner, false, Ok(())),
            (rule(None, Some(5)), (cost, 6), Role::Owner, false, Err(SecondPerson)),
            (rule(None, Some(5)), (cost, 6), Role::Admin, false, Err(SecondPerson)),
            (rule(None, Some(5)), (cost, 6), Role::Admin, true, Ok(())),
            (rule(None, Some(5)), (calls, 6), Role::Owner, false, Ok(())),
            (rule(Some(5), Some(5)), (cost, 6), Role::Owner, false, Err(AdminOnly)),
        ] {
            assert_eq!(check(rule, asked, role, is_second), expected, "{rule:?} {asked:?} {role:?} {is_second}");
        }
        assert_eq!(highest(None, cost), Some(0));
    }
}
