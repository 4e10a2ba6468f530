//! Caps that are raised while the run goes on.
//!
//! Pure but for the lock of the account: a raise takes effect between two reservations.

use std::time::Duration;

use sluice_contract::record::{ControlCount, ControlValues};
use sluice_contract::{AuditLog, Usd};

use super::{CapLimits, Caps};

/// Limits of a run that the operator can raise; `None` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Raisable {
    /// Maximum number of calls.
    pub calls: Option<u64>,
    /// Maximum number of tokens.
    pub tokens: Option<u64>,
    /// Maximum cost, in nano-USD.
    pub nanos: Option<i64>,
    /// Length of the run.
    pub deadline: Option<Duration>,
}

/// Amounts that count against the caps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "named like the caps")]
pub struct CapUsage {
    /// Number of calls, with those under way.
    pub calls: u64,
    /// Number of calls under way.
    pub open: u64,
    pub tokens: u64,
    pub nanos: i64,
    /// Tokens that are reserved for calls under way; not in `tokens`.
    pub reserved_tokens: u64,
    pub reserved_nanos: i64,
}

impl Raisable {
    /// Returns these limits with the raises of a log: a raise that was recorded and did not take effect, or that an
    /// earlier process made, holds for the next process of the attempt.
    #[must_use]
    pub fn with_recorded(self, log: &AuditLog) -> Self {
        log.controls().iter().fold(self, |limits, control| limits.with_values(&control.to))
    }

    fn with_values(self, to: &ControlValues<'_>) -> Self {
        let nanos = to.max_cost_usd.as_ref().and_then(|cost| Some(Usd::parse(&cost.0).ok()?.to_nanos()));
        let deadline = to.deadline_s.map(|ControlCount(seconds)| Duration::from_secs(seconds));
        Self {
            calls: higher(self.calls, to.max_calls.map(|count| count.0)),
            tokens: higher(self.tokens, to.max_tokens.map(|count| count.0)),
            nanos: higher(self.nanos, nanos),
            deadline: higher(self.deadline, deadline),
        }
    }

    /// Returns the caps with these values.
    #[must_use]
    pub fn in_caps(self, caps: CapLimits) -> CapLimits {
        CapLimits { calls: self.calls, tokens: self.tokens, nanos: self.nanos, ..caps }
    }
}

/// Returns the higher limit; a limit that the run does not have stays absent.
fn higher<T: Ord>(limit: Option<T>, raised: Option<T>) -> Option<T> {
    match (limit, raised) {
        (Some(limit), Some(raised)) => Some(limit.max(raised)),
        (limit, _) => limit,
    }
}

impl CapLimits {
    /// Returns the limits that can be raised, with the length of the run.
    #[must_use]
    pub fn raisable(&self, deadline: Option<Duration>) -> Raisable {
        Raisable { calls: self.calls, tokens: self.tokens, nanos: self.nanos, deadline }
    }
}

impl Caps {
    /// Returns the caps in force, and what counts against them.
    #[must_use]
    pub fn in_force(&self) -> (CapLimits, CapUsage) {
        let state = self.lock();
        let usage = CapUsage {
            calls: state.calls,
            open: state.open as u64,
            tokens: state.tokens.saturating_sub(state.held_tokens),
            nanos: state.nanos.saturating_sub(state.held_nanos),
            reserved_tokens: state.held_tokens,
            reserved_nanos: state.held_nanos,
        };
        (state.limits, usage)
    }

    /// Raises the caps to these values. No cap is lowered, and none is added.
    pub fn raise(&self, to: &Raisable) {
        let mut state = self.lock();
        let limits = &mut state.limits;
        limits.calls = higher(limits.calls, to.calls);
        limits.tokens = higher(limits.tokens, to.tokens);
        limits.nanos = higher(limits.nanos, to.nanos);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Raisable {
        Raisable { calls: Some(10), tokens: Some(1000), nanos: None, deadline: Some(Duration::from_secs(60)) }
    }

    #[test]
    fn recorded_raises_hold_for_the_next_process() {
        let to = |calls, seconds| ControlValues {
            max_calls: Some(ControlCount(calls)),
            deadline_s: Some(ControlCount(seconds)),
            max_cost_usd: Some(sluice_contract::record::OptionalText("5".into())),
            ..ControlValues::default()
        };
        let raised = limits().with_values(&to(20, 90)).with_values(&to(15, 30));
        let expected = Raisable { calls: Some(20), deadline: Some(Duration::from_secs(90)), ..limits() };
        assert_eq!(raised, expected, "a lower value lowers nothing, and a cap that is not set stays so");
        assert_eq!(limits().with_values(&ControlValues::default()), limits());
    }

    #[test]
    fn a_raise_lowers_and_adds_no_cap() {
        let caps = Caps::new(limits().in_caps(CapLimits::default()));
        caps.raise(&Raisable { calls: Some(5), tokens: Some(2000), nanos: Some(1), deadline: None });
        let (raised, _) = caps.in_force();
        assert_eq!((raised.calls, raised.tokens, raised.nanos), (Some(10), Some(2000), None));
    }
}
