//! Caps: what a run may still spend, reserved before a call and settled after it.
//!
//! Pure but for its lock: the time is given. One lock around the whole decision makes it atomic, so of a
//! burst against a cap of N exactly N pass.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sluice_contract::record::{NullReason, Usage};
use sluice_contract::{Story, Usd};

use crate::refusal::{Reason, Refusal};

/// So many calls that were never sent do not count; further ones do.
const UNSENT_MAX: u64 = 1000;

/// What the operator set; `None` is unlimited.
#[derive(Debug, Clone, Copy, Default)]
pub struct CapLimits {
    /// Calls of the whole run.
    pub calls: Option<u64>,
    /// Tokens of the whole run, input and output.
    pub tokens: Option<u64>,
    /// Nano-USD of the whole run.
    pub nanos: Option<i64>,
    /// Calls at once.
    pub concurrency: usize,
    /// Calls a second, with a burst of as many.
    pub rate: Option<u64>,
}

/// What a call may use at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ask {
    /// Tokens.
    pub tokens: u64,
    /// Nano-USD, when there are prices.
    pub nanos: i64,
    /// The client named a bound. Without one the amounts are a guess, and take no more than what is left:
    /// a guess must not refuse a call that would have fitted.
    pub declared: bool,
}

/// What a call used, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// Tokens, from the provider's usage.
    pub tokens: Option<u64>,
    /// Nano-USD, from the provider's cost, else from usage and prices.
    pub nanos: Option<i64>,
}

/// What a run used before its sidecar was started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "named like the caps")]
pub struct Used {
    pub calls: u64,
    pub tokens: u64,
    pub nanos: i64,
    /// Calls that were never sent, among the others.
    pub unsent: u64,
}

impl Used {
    /// As the audit log has it. A call whose cost is not known is charged as it was reserved.
    #[must_use]
    pub fn of(story: &Story) -> Self {
        let mut used = Self::default();
        for call in story.calls() {
            let outcome = call.outcome.as_ref();
            let why_null = outcome.and_then(|outcome| outcome.null_reason);
            used.calls += 1;
            if why_null == Some(NullReason::NotSent) {
                used.unsent += 1;
            }
            let failed = outcome.is_some_and(|outcome| outcome.status.is_some_and(|status| status >= 400));
            if failed || matches!(why_null, Some(NullReason::NotSent | NullReason::NotBilled)) {
                continue;
            }
            let cost = outcome.and_then(|outcome| outcome.cost_usd.as_deref());
            let cost = cost.or(call.intent.reserved_usd.as_deref()).and_then(|text| Usd::parse(text).ok());
            used.nanos = used.nanos.saturating_add(cost.map_or(0, |cost| cost.to_nanos()));
            let usage = outcome.and_then(|outcome| outcome.usage.as_ref());
            used.tokens = used.tokens.saturating_add(usage.map_or(0, Usage::all));
        }
        used
    }
}

/// The run's account of itself.
#[derive(Debug)]
pub struct Caps {
    limits: CapLimits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    calls: u64,
    open: usize,
    tokens: u64,
    nanos: i64,
    /// Calls that were given back.
    unsent: u64,
    /// When the bucket of `rate` is empty again.
    empty_at: Option<Instant>,
}

/// One call's share. Dropped unsettled, it was never sent, and is given back.
#[derive(Debug)]
pub struct Reservation {
    caps: Arc<Caps>,
    tokens: u64,
    nanos: i64,
    settled: bool,
}

impl Caps {
    /// Nothing spent yet.
    #[cfg(test)]
    fn new(limits: CapLimits) -> Arc<Self> {
        Self::resume(limits, Used::default())
    }

    /// So much spent already.
    #[must_use]
    pub fn resume(limits: CapLimits, used: Used) -> Arc<Self> {
        let Used { calls, tokens, nanos, unsent } = used;
        let unsent = unsent.min(UNSENT_MAX);
        let state = State { calls: calls - unsent, tokens, nanos, unsent, ..State::default() };
        Arc::new(Self { limits, state: Mutex::new(state) })
    }

    /// Takes a share for one call, or says which cap is in the way.
    ///
    /// # Errors
    /// `too_many_calls`, `rate_limited`, `budget_exceeded`.
    pub fn reserve(self: &Arc<Self>, ask: Ask, now: Instant) -> Result<Reservation, Refusal> {
        let limits = &self.limits;
        let mut state = self.lock();
        if state.open >= limits.concurrency {
            let busy = format!("{} calls are open, which is the limit; wait for one to end", state.open);
            return Err(Refusal::new(Reason::TooManyCalls, busy).retry_after(1));
        }
        let empty_at = self.rate(&state, now)?;
        if limits.calls.is_some_and(|max| state.calls >= max) {
            return Err(over(&format!("the run's {} calls are used", state.calls)));
        }
        let tokens = take(limits.tokens.map(u128::from), state.tokens.into(), ask.tokens.into(), ask.declared)
            .ok_or_else(|| {
                over(&format!(
                    "{} of the run's tokens are used or reserved by open calls; this one may need {}",
                    state.tokens, ask.tokens
                ))
            })?;
        let cap = limits.nanos.map(|nanos| nanos.max(0) as u128);
        let nanos = take(cap, state.nanos.max(0) as u128, ask.nanos.max(0) as u128, ask.declared).ok_or_else(|| {
            over(&format!(
                "${} of the run's money is used or reserved by open calls; this one may need ${}",
                Usd::from_nanos(state.nanos),
                Usd::from_nanos(ask.nanos)
            ))
        })?;
        let (tokens, nanos) = (u64::try_from(tokens).unwrap_or(u64::MAX), i64::try_from(nanos).unwrap_or(i64::MAX));
        state.empty_at = empty_at;
        state.calls += 1;
        state.open += 1;
        state.tokens = state.tokens.saturating_add(tokens);
        state.nanos = state.nanos.saturating_add(nanos);
        Ok(Reservation { caps: Arc::clone(self), tokens, nanos, settled: false })
    }

    /// A leaky bucket: when it is empty again after this call.
    fn rate(&self, state: &State, now: Instant) -> Result<Option<Instant>, Refusal> {
        let Some(rate) = self.limits.rate.filter(|rate| *rate > 0) else {
            return Ok(state.empty_at);
        };
        let each = Duration::from_nanos(1_000_000_000 / rate);
        let from = state.empty_at.map_or(now, |at| at.max(now));
        let full_for = (from + each).duration_since(now);
        if full_for > each * u32::try_from(rate).unwrap_or(u32::MAX) {
            let refusal = Refusal::new(Reason::RateLimited, format!("more than {rate} calls a second; wait a second"));
            return Err(refusal.retry_after(1));
        }
        Ok(Some(from + each))
    }

    /// Calls that are open now.
    #[cfg(test)]
    fn open(&self) -> usize {
        self.lock().open
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What to reserve of a cap, or `None` when it is too little.
fn take(cap: Option<u128>, used: u128, ask: u128, declared: bool) -> Option<u128> {
    let Some(cap) = cap else { return Some(ask) };
    let left = cap.saturating_sub(used);
    match (left, declared) {
        (0, _) => None,
        (left, true) => (ask <= left).then_some(ask),
        (left, false) => Some(ask.min(left)),
    }
}

fn over(what: &str) -> Refusal {
    Refusal::new(Reason::BudgetExceeded, format!("{what}; the operator can raise the run's caps"))
}

impl Reservation {
    /// Nano-USD that were reserved.
    #[must_use]
    pub fn nanos(&self) -> i64 {
        self.nanos
    }

    /// The call is over: what it used replaces what was reserved; what is not known is charged as reserved.
    pub fn settle(mut self, spent: Spent) {
        self.settled = true;
        let mut state = self.caps.lock();
        state.open -= 1;
        if let Some(tokens) = spent.tokens {
            state.tokens = state.tokens.saturating_sub(self.tokens).saturating_add(tokens);
        }
        if let Some(nanos) = spent.nanos {
            state.nanos = state.nanos.saturating_sub(self.nanos).saturating_add(nanos);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        let mut state = self.caps.lock();
        state.open -= 1;
        // A client that leaves at once, for ever, would fill the log with calls that were never sent.
        if state.unsent < UNSENT_MAX {
            state.unsent += 1;
            state.calls -= 1;
        }
        state.tokens = state.tokens.saturating_sub(self.tokens);
        state.nanos = state.nanos.saturating_sub(self.nanos);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn caps(limits: CapLimits) -> Arc<Caps> {
        Caps::new(CapLimits { concurrency: if limits.concurrency == 0 { 1000 } else { limits.concurrency }, ..limits })
    }

    fn reason(result: &Result<Reservation, Refusal>) -> Option<Reason> {
        result.as_ref().err().map(|refusal| refusal.reason)
    }

    #[test]
    fn of_a_burst_exactly_as_many_pass_as_the_cap_says() {
        let now = Instant::now();
        let ask = Ask { tokens: 10, nanos: 100, declared: true };
        for limits in [
            CapLimits { calls: Some(7), ..CapLimits::default() },
            CapLimits { tokens: Some(79), ..CapLimits::default() },
            CapLimits { nanos: Some(700), ..CapLimits::default() },
            CapLimits { rate: Some(7), ..CapLimits::default() },
            CapLimits { concurrency: 7, ..CapLimits::default() },
        ] {
            let caps = caps(limits);
            let burst: Vec<_> = (0..70).map(|_| caps.reserve(ask, now)).collect();
            assert_eq!(burst.iter().filter(|one| one.is_ok()).count(), 7, "{limits:?}");
        }
    }

    #[test]
    fn a_guess_takes_no_more_than_what_is_left() {
        let caps = caps(CapLimits { tokens: Some(1000), ..CapLimits::default() });
        let guess = Ask { tokens: 4096, nanos: 0, declared: false };
        let first = caps.reserve(guess, Instant::now()).expect("a guess may take all");
        assert_eq!(reason(&caps.reserve(guess, Instant::now())), Some(Reason::BudgetExceeded));
        first.settle(Spent { tokens: Some(15), nanos: None });
        let second = caps.reserve(guess, Instant::now()).expect("985 are left");
        second.settle(Spent { tokens: Some(985), nanos: None });
        assert_eq!(reason(&caps.reserve(guess, Instant::now())), Some(Reason::BudgetExceeded));
    }

    #[test]
    fn without_prices_known_cost_stops_the_next_call() {
        let caps = caps(CapLimits { nanos: Some(100), ..CapLimits::default() });
        let free = Ask::default();
        caps.reserve(free, Instant::now()).expect("nothing known yet").settle(Spent { tokens: None, nanos: Some(99) });
        caps.reserve(free, Instant::now()).expect("99 of 100").settle(Spent { tokens: None, nanos: Some(1) });
        assert_eq!(reason(&caps.reserve(free, Instant::now())), Some(Reason::BudgetExceeded));
    }

    #[test]
    fn a_call_without_usage_is_charged_its_reservation() {
        let ask = Ask { tokens: 60, nanos: 0, declared: true };
        let charged = caps(CapLimits { tokens: Some(100), ..CapLimits::default() });
        charged.reserve(ask, Instant::now()).expect("fits").settle(Spent::default());
        assert_eq!(reason(&charged.reserve(ask, Instant::now())), Some(Reason::BudgetExceeded));
        assert_eq!(charged.open(), 0);
        let caps = caps(CapLimits { calls: Some(1), tokens: Some(100), ..CapLimits::default() });
        drop(caps.reserve(ask, Instant::now()).expect("fits"));
        assert!(caps.reserve(ask, Instant::now()).is_ok(), "what was never sent is given back");
    }

    #[test]
    fn calls_that_are_never_sent_come_to_an_end() {
        let caps = caps(CapLimits { calls: Some(5), ..CapLimits::default() });
        let given = (0..UNSENT_MAX + 10).filter(|_| caps.reserve(Ask::default(), Instant::now()).is_ok()).count();
        assert_eq!(given as u64, UNSENT_MAX + 5);
    }

    #[test]
    fn the_rate_refills_with_time() {
        let caps = caps(CapLimits { rate: Some(2), ..CapLimits::default() });
        let start = Instant::now();
        let at = |ms: u64| reason(&caps.reserve(Ask::default(), start + Duration::from_millis(ms)));
        assert_eq!(
            [at(0), at(0), at(0), at(500), at(500), at(10_000), at(10_000), at(10_000)],
            [
                None,
                None,
                Some(Reason::RateLimited),
                None,
                Some(Reason::RateLimited),
                None,
                None,
                Some(Reason::RateLimited)
            ]
        );
    }

    proptest! {
        /// Whatever the order, what is used and reserved stays within a cap of declared calls, and nothing is lost.
        #[test]
        fn declared_calls_never_pass_the_cap(steps in prop::collection::vec((1u64..50, 0u64..3), 1..60)) {
            let caps = caps(CapLimits { tokens: Some(100), ..CapLimits::default() });
            let (mut open, mut settled) = (Vec::new(), 0u64);
            for (tokens, what) in steps {
                if what == 0 {
                    if let Ok(reservation) = caps.reserve(Ask { tokens, nanos: 0, declared: true }, Instant::now()) {
                        open.push((reservation, tokens));
                    }
                } else if let Some((reservation, tokens)) = open.pop() {
                    if what == 1 {
                        settled += tokens / 2;
                        reservation.settle(Spent { tokens: Some(tokens / 2), nanos: None });
                    } else {
                        drop(reservation);
                    }
                }
                let reserved: u64 = open.iter().map(|(_, tokens)| tokens).sum();
                prop_assert_eq!(caps.lock().tokens, reserved + settled);
                prop_assert!(reserved + settled <= 100);
                prop_assert_eq!(caps.open(), open.len());
            }
        }
    }
}
