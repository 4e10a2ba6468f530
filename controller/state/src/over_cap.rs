//! Caps that a run exceeded, from its audit file alone.
//!
//! Pure. A cap refuses the calls that would not fit, by an upper bound of each. A run still exceeds a cap if the bound
//! was wrong: a call that cannot be bounded, prices that are too low, a provider that does not keep to the output bound.

use std::fmt;

use serde::Serialize;
use sluice_contract::record::{RunLimits, Usage};
use sluice_contract::{AuditLog, Usd};

/// A cap with more use than it allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OverCap {
    /// Name of the cap: `max_tokens` or `max_cost_usd`.
    pub cap: &'static str,
    /// Amount that it allows, as a decimal.
    pub limit: String,
    /// Known amount of the run, as a decimal.
    pub used: String,
}

/// Returns the caps that the known use of a run exceeds.
#[must_use]
pub fn over_caps(log: &AuditLog, usage: &Usage) -> Vec<OverCap> {
    let limits = limits_at_end(log);
    let over = |cap, limit: String, used: String| OverCap { cap, limit, used };
    let tokens = Usage::all(usage);
    let cost = log.totals().cost();
    let max_cost = limits.max_cost_usd.as_deref().and_then(|text| Usd::parse(text).ok());
    let by_tokens = limits.max_tokens.filter(|limit| tokens > *limit);
    let by_cost = max_cost.filter(|limit| cost.to_nanos() > limit.to_nanos());
    by_tokens
        .map(|limit| over("max_tokens", limit.to_string(), tokens.to_string()))
        .into_iter()
        .chain(by_cost.map(|limit| over("max_cost_usd", limit.to_string(), cost.to_string())))
        .collect()
}

/// Returns the limits of a run at its end: those of its start, with the caps that were raised since.
pub(crate) fn limits_at_end(log: &AuditLog) -> RunLimits {
    let mut limits = log.open().map(|open| open.limits.clone()).unwrap_or_default();
    // A change names the new value of each cap that it raises. It gives no cap to a run without one.
    for to in log.controls().iter().map(|control| &control.to) {
        let RunLimits { max_calls, max_cost_usd, max_tokens, .. } = &mut limits;
        replace(max_calls, to.max_calls.as_ref().map(|count| count.0));
        replace(max_tokens, to.max_tokens.as_ref().map(|count| count.0));
        replace(max_cost_usd, to.max_cost_usd.as_ref().map(|usd| usd.0.to_string()));
    }
    limits
}

fn replace<T>(cap: &mut Option<T>, new: Option<T>) {
    if cap.is_some() && new.is_some() {
        *cap = new;
    }
}

impl fmt::Display for OverCap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cap, limit, used } = self;
        match *cap {
            "max_cost_usd" => write!(f, "${used} spent, and --max-cost-usd is ${limit}"),
            _ => write!(f, "{used} tokens used, and --max-tokens is {limit}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cap_is_named_as_its_flag() {
        let over = |cap, limit: &str, used: &str| OverCap { cap, limit: limit.to_owned(), used: used.to_owned() };
        let cost = over("max_cost_usd", "0.01", "0.5").to_string();
        assert_eq!(cost, "$0.5 spent, and --max-cost-usd is $0.01");
        let tokens = over("max_tokens", "5", "30").to_string();
        assert_eq!(tokens, "30 tokens used, and --max-tokens is 5");
    }

    #[test]
    fn an_empty_log_has_no_caps() {
        assert_eq!(over_caps(&AuditLog::default(), &Usage::default()), []);
    }
}
