//! Caps while calls wait for a person: the gate that lets no new call pass them, and the caps that they ask for.
//!
//! Pure but for the lock of the account.

use std::sync::Arc;
use std::time::Instant;

use sluice_contract::Usd;
use sluice_contract::control::HoldCause;

use super::{CapLimits, CapRequest, CapUsage, Caps, Reservation, State, over};
use crate::prices::nanos;
use crate::refusal::{Reason, Refusal};

/// Cap that stops a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedCap {
    /// The cap.
    pub cause: HoldCause,
    /// Value of the cap with which the request passes, as a decimal.
    pub value: String,
}

impl Caps {
    /// Closes or opens the gate: a closed gate refuses every new call. Only [`Caps::reserve_held`] passes a closed
    /// gate: what is left of the caps belongs to the calls that wait.
    pub fn set_gate(&self, gate: Gate) {
        // The gate uses the concurrency limit, which is checked anyway, so an open gate costs nothing.
        self.lock().limits.concurrency = if gate == Gate::Closed { 0 } else { self.concurrency };
    }

    /// Reserves a share for a call that waits.
    ///
    /// # Errors
    /// The errors of [`Caps::reserve`].
    pub fn reserve_held(self: &Arc<Self>, request: CapRequest, now: Instant) -> Result<Reservation, Refusal> {
        let mut state = self.lock();
        let gated = std::mem::replace(&mut state.limits.concurrency, self.concurrency);
        let reserved = self.reserve_in(&mut state, request, now);
        state.limits.concurrency = gated;
        reserved
    }

    /// Returns for each request the cap that stops it, if the requests before it pass; `None` if it fits.
    pub fn asked<'r>(&self, requests: impl IntoIterator<Item = &'r CapRequest>) -> Vec<Option<AskedCap>> {
        let (limits, used) = self.in_force();
        let mut needed = Needed::default();
        requests.into_iter().map(|request| needed.with(request).asked(&limits, &used)).collect()
    }
}

/// State of the gate before the caps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "said above")]
pub enum Gate {
    Open,
    Closed,
}

impl State {
    /// Returns the refusal of a call when the maximum number of calls is open, or the gate is closed.
    #[cold]
    pub(super) fn busy(&self) -> Refusal {
        if self.limits.concurrency == 0 {
            return over("calls before this one wait for the operator, and what is left of the run's caps is theirs");
        }
        let busy = format!("{} calls are open, which is the limit; wait for one to end", self.open);
        Refusal::new(Reason::TooManyCalls, busy).retry_after(1)
    }
}

/// Amounts that requests need together.
#[derive(Debug, Default)]
struct Needed {
    calls: u64,
    tokens: u128,
    femtos: u128,
}

impl Needed {
    fn with(&mut self, request: &CapRequest) -> &Self {
        let (tokens, femtos) = request.with(request.wanted());
        self.calls += 1;
        self.tokens = self.tokens.saturating_add(tokens);
        self.femtos = self.femtos.saturating_add(femtos);
        self
    }

    fn asked(&self, limits: &CapLimits, used: &CapUsage) -> Option<AskedCap> {
        let calls = used.calls.saturating_add(self.calls);
        // A cap that is reached stops every call, also one that needs none of it.
        let tokens = used.tokens.saturating_add(used.reserved_tokens);
        let tokens = tokens.saturating_add(u64::try_from(self.tokens.max(1)).unwrap_or(u64::MAX));
        let cost = used.nanos.saturating_add(used.reserved_nanos).saturating_add(nanos(self.femtos).max(1));
        let asked = |cause, value: String| Some(AskedCap { cause, value });
        if limits.calls.is_some_and(|cap| calls > cap) {
            return asked(HoldCause::MaxCalls, calls.to_string());
        }
        if limits.tokens.is_some_and(|cap| tokens > cap) {
            return asked(HoldCause::MaxTokens, tokens.to_string());
        }
        if limits.nanos.is_some_and(|cap| cost > cap) {
            return asked(HoldCause::MaxCostUsd, Usd::from_nanos(cost).to_string());
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caps::{OutputRequest, Raisable};

    const NANO: u128 = crate::prices::FEMTOS_PER_NANO;

    fn caps(calls: Option<u64>, tokens: Option<u64>, nanos: Option<i64>) -> Arc<Caps> {
        Caps::new(CapLimits { calls, tokens, nanos, concurrency: 64, ..CapLimits::default() })
    }

    fn request(tokens: u64, output: u64, femtos: u128) -> CapRequest {
        let output =
            Some(OutputRequest { wanted: output, choices: 1, femtos, is_bounded: true, ..OutputRequest::default() });
        CapRequest { tokens, femtos: u128::from(tokens) * femtos, output, strict: true }
    }

    fn words(asked: &[Option<AskedCap>]) -> Vec<Option<(HoldCause, &str)>> {
        asked.iter().map(|asked| asked.as_ref().map(|asked| (asked.cause, &*asked.value))).collect()
    }

    #[test]
    fn each_request_asks_for_those_before_it_too() {
        let one = request(100, 2000, 0);
        let calls = caps(Some(1), None, None);
        let _open = calls.reserve(one, Instant::now()).expect("the first one fits");
        assert_eq!(
            words(&calls.asked(&[one, one])),
            [Some((HoldCause::MaxCalls, "2")), Some((HoldCause::MaxCalls, "3"))]
        );
        let tokens = caps(None, Some(3000), None);
        assert_eq!(words(&tokens.asked(&[one, one])), [None, Some((HoldCause::MaxTokens, "4200"))]);
        let priced = request(1, 2, NANO);
        let cost = caps(None, None, Some(5));
        assert_eq!(words(&cost.asked(&[priced, priced])), [None, Some((HoldCause::MaxCostUsd, "0.000000006"))]);
    }

    #[test]
    fn a_raise_to_what_is_asked_passes_the_call() {
        for (tokens, output, cap) in [(100, 2000, 50), (1000, 2000, 1500), (5000, 16, 4000), (0, 0, 0)] {
            let (caps, one) = (caps(None, Some(cap), None), request(tokens, output, 0));
            let Err(refusal) = caps.reserve(one, Instant::now()) else { panic!("{cap} is too little") };
            assert_eq!(refusal.reason, Reason::BudgetExceeded);
            let asked = caps.asked(&[one]).remove(0).expect("a cap is in the way");
            caps.raise(&Raisable { tokens: asked.value.parse().ok(), ..Raisable::default() });
            let reserved = caps.reserve(one, Instant::now()).expect("it fits now");
            assert!(!reserved.is_lowered(), "it passes as its client wants it");
        }
    }

    #[test]
    fn a_closed_gate_passes_held_calls_alone() {
        let (caps, one) = (caps(Some(9), None, None), request(1, 16, 0));
        caps.set_gate(Gate::Closed);
        assert_eq!(caps.reserve(one, Instant::now()).map(|_| ()).expect_err("closed").reason, Reason::BudgetExceeded);
        let held = caps.reserve_held(one, Instant::now()).expect("there is room");
        assert!(caps.reserve(one, Instant::now()).is_err(), "it stays closed");
        caps.set_gate(Gate::Open);
        drop(held);
        assert!(caps.reserve(one, Instant::now()).is_ok());
    }
}
