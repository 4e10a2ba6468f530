//! Caps of a run: reserved before a call, settled after it.
//!
//! Pure but for its lock: the time is given. One lock around the whole decision makes it atomic, so exactly N calls
//! of a burst pass a cap of N.

mod gate;
mod prior_usage;
mod raise;
mod request;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sluice_contract::Usd;

pub use gate::{AskedCap, Gate};
pub use prior_usage::{PriorUsage, was_read_to_end};
pub use raise::{CapUsage, Raisable};
pub use request::{CapRequest, OUTPUT_FLOOR, OutputBounds, OutputRequest};

use crate::prices::{FEMTOS_PER_NANO, nanos};
use crate::refusal::{Reason, Refusal};
use request::Remainder;

/// Maximum number of calls that were never sent and do not count; further ones count.
const UNSENT_MAX: u64 = 1000;

/// Caps that the operator set; `None` is unlimited.
#[derive(Debug, Clone, Copy, Default)]
pub struct CapLimits {
    /// Maximum number of calls of the run.
    pub calls: Option<u64>,
    /// Maximum number of tokens of the run, input and output.
    pub tokens: Option<u64>,
    /// Maximum cost of the run, in nano-USD.
    pub nanos: Option<i64>,
    /// Maximum number of calls at once.
    pub concurrency: usize,
    /// Maximum number of calls a second, with a burst of the same size.
    pub rate: Option<u64>,
    /// Setting of the output bounds that the sidecar writes.
    pub bounds: OutputBounds,
}

impl CapLimits {
    /// Returns true if a cap depends on the reservation of a call: without prices, the cap in dollars does not.
    fn applies_to(&self, request: &CapRequest) -> bool {
        self.tokens.is_some() || self.nanos.is_some() && request.is_priced()
    }
}

/// Amounts that a call used, as far as they are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ActualUsage {
    /// Tokens, from the provider's usage.
    pub tokens: Option<u64>,
    /// Nano-USD, from the provider's cost, else from usage and prices.
    pub nanos: Option<i64>,
}

/// Account of the run's caps.
#[derive(Debug)]
pub struct Caps {
    bounds: OutputBounds,
    /// Maximum number of calls at once while the gate is open.
    concurrency: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Limits, under the lock so that a raise takes effect between two reservations.
    limits: CapLimits,
    calls: u64,
    open: usize,
    /// Tokens spent, and reserved by open calls.
    tokens: u64,
    nanos: i64,
    /// Tokens reserved by open calls only.
    held_tokens: u64,
    held_nanos: i64,
    /// Number of calls that were given back.
    unsent: u64,
    /// Time at which the bucket of `rate` is empty again.
    empty_at: Option<Instant>,
}

/// Share of one call. If it is dropped unsettled, the call was never sent, and the share is given back.
#[derive(Debug)]
pub struct Reservation {
    caps: Arc<Caps>,
    tokens: u64,
    nanos: i64,
    /// Maximum number of tokens that each response may have.
    output: Option<u64>,
    is_lowered: bool,
    is_limited: bool,
    is_strict: bool,
    settled: bool,
    /// Nano-USD for a million tokens of the response.
    output_price: i64,
    /// Tokens and nano-USD beside the response.
    prompt: (u64, i64),
}

impl Caps {
    /// Creates an account with nothing spent.
    #[cfg(test)]
    fn new(limits: CapLimits) -> Arc<Self> {
        Self::resume(limits, PriorUsage::default())
    }

    /// Creates an account with these amounts spent.
    #[must_use]
    pub fn resume(limits: CapLimits, used: PriorUsage) -> Arc<Self> {
        let PriorUsage { calls, tokens, nanos, unsent } = used;
        let unsent = unsent.min(UNSENT_MAX);
        let state = State { limits, calls: calls - unsent, tokens, nanos, unsent, ..State::default() };
        Arc::new(Self { bounds: limits.bounds, concurrency: limits.concurrency, state: Mutex::new(state) })
    }

    /// Reserves a share for one call.
    ///
    /// # Errors
    /// `too_many_calls`, `rate_limited` or `budget_exceeded`, with the name of the cap.
    pub fn reserve(self: &Arc<Self>, request: CapRequest, now: Instant) -> Result<Reservation, Refusal> {
        self.reserve_in(&mut self.lock(), request, now)
    }

    fn reserve_in(
        self: &Arc<Self>,
        state: &mut State,
        request: CapRequest,
        now: Instant,
    ) -> Result<Reservation, Refusal> {
        let limits = state.limits;
        if state.open >= limits.concurrency {
            return Err(state.busy());
        }
        let empty_at = state.rate(now)?;
        if limits.calls.is_some_and(|max| state.calls >= max) {
            return Err(over(&format!("the run's {} calls are used", state.calls)));
        }
        let left = state.left();
        let output = match request.output {
            _ if left.is_empty() => return Err(state.over(&request)),
            Some(_) => Some(left.grant(&request, limits.bounds).ok_or_else(|| state.over(&request))?),
            None if request.strict && !left.holds(request.with(0)) => return Err(state.over(&request)),
            None => None,
        };
        let (tokens, femtos) = request.with(output.unwrap_or(0));
        let tokens = u64::try_from(tokens.min(left.tokens.unwrap_or(u128::MAX))).unwrap_or(u64::MAX);
        let nanos = nanos(femtos.min(left.femtos.unwrap_or(u128::MAX)));
        state.empty_at = empty_at;
        state.calls += 1;
        state.open += 1;
        state.tokens = state.tokens.saturating_add(tokens);
        state.nanos = state.nanos.saturating_add(nanos);
        state.held_tokens = state.held_tokens.saturating_add(tokens);
        state.held_nanos = state.held_nanos.saturating_add(nanos);
        let price = request.output.map_or(0, |output| output.femtos);
        let is_strict = request.strict && !request.is_assumed(limits.bounds);
        Ok(Reservation {
            caps: Arc::clone(self),
            tokens,
            nanos,
            output,
            is_lowered: output.is_some_and(|output| output < request.wanted()),
            is_limited: limits.applies_to(&request),
            is_strict: is_strict && (limits.nanos.is_none() || request.is_priced()),
            settled: false,
            output_price: crate::prices::nanos(price.saturating_mul(1_000_000)),
            prompt: (request.tokens, crate::prices::nanos(request.femtos)),
        })
    }

    /// Returns true if a call fits as its client wants it.
    #[must_use]
    pub fn fits(&self, request: &CapRequest) -> bool {
        let left = self.lock().left();
        left.holds(request.with(request.wanted())) && !left.is_empty()
    }

    /// Returns true if a call that does not fit now might fit when the open calls have ended, in case they cost
    /// nothing.
    #[must_use]
    pub fn may_fit_later(&self, request: &CapRequest) -> bool {
        let state = self.lock();
        if state.open == 0 || state.limits.calls.is_some_and(|max| state.calls >= max) {
            return false;
        }
        let alone = State {
            limits: state.limits,
            tokens: state.tokens.saturating_sub(state.held_tokens),
            nanos: state.nanos.saturating_sub(state.held_nanos),
            ..State::default()
        };
        let left = alone.left();
        let fits = if request.output.is_some() {
            left.grant(request, self.bounds).is_some()
        } else {
            !request.strict || left.holds(request.with(0))
        };
        fits && !left.is_empty()
    }

    /// Returns the operator's setting about output bounds.
    #[must_use]
    pub fn bounds(&self) -> OutputBounds {
        self.bounds
    }

    /// Returns the number of open calls.
    #[cfg(test)]
    fn open(&self) -> usize {
        self.lock().open
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn over(what: &str) -> Refusal {
    Refusal::new(
        Reason::BudgetExceeded,
        format!("{what}; open calls count as reserved; the operator can raise the caps"),
    )
}

impl State {
    fn left(&self) -> Remainder {
        let nanos = self.limits.nanos.map(|cap| u128::try_from(cap.saturating_sub(self.nanos)).unwrap_or(0));
        Remainder {
            tokens: self.limits.tokens.map(|cap| u128::from(cap.saturating_sub(self.tokens))),
            femtos: nanos.map(|left| left * FEMTOS_PER_NANO),
        }
    }

    /// Returns the refusal that names the cap, its size, what is left of it, and what the call needs.
    fn over(&self, request: &CapRequest) -> Refusal {
        let left = self.left();
        let floor = match self.limits.bounds {
            OutputBounds::Auto => request.output.map_or(OUTPUT_FLOOR, |output| output.least.max(OUTPUT_FLOOR)),
            OutputBounds::Off if request.is_assumed(OutputBounds::Off) => 0,
            OutputBounds::Off => u64::MAX,
        };
        let least = request.with(request.wanted().min(floor));
        if let Some(cap) = self.limits.tokens.filter(|_| left.tokens.is_some_and(|left| least.0 > left || left == 0)) {
            let left = cap.saturating_sub(self.tokens);
            return over(&format!("of the run's {cap} tokens {left} are left, and this call needs up to {}", least.0));
        }
        let cap = self.limits.nanos.unwrap_or(0);
        over(&format!(
            "of the run's ${} ${} are left, and this call needs up to ${}",
            Usd::from_nanos(cap),
            Usd::from_nanos(cap.saturating_sub(self.nanos).max(0)),
            Usd::from_nanos(nanos(least.1))
        ))
    }

    /// Counts a call in a leaky bucket. Returns the time at which the bucket is empty again after this call.
    fn rate(&self, now: Instant) -> Result<Option<Instant>, Refusal> {
        let Some(rate) = self.limits.rate.filter(|rate| *rate > 0) else {
            return Ok(self.empty_at);
        };
        let each = Duration::from_nanos(1_000_000_000 / rate);
        let from = self.empty_at.map_or(now, |at| at.max(now));
        let full_for = (from + each).duration_since(now);
        if full_for > each * u32::try_from(rate).unwrap_or(u32::MAX) {
            let refusal = Refusal::new(Reason::RateLimited, format!("more than {rate} calls a second; wait a second"));
            return Err(refusal.retry_after(1));
        }
        Ok(Some(from + each))
    }

    /// Gives back the share of a call that is no longer open.
    fn give_back(&mut self, reservation: &Reservation) {
        self.open -= 1;
        self.held_tokens = self.held_tokens.saturating_sub(reservation.tokens);
        self.held_nanos = self.held_nanos.saturating_sub(reservation.nanos);
    }
}

impl Reservation {
    /// Returns the reserved nano-USD.
    #[must_use]
    pub fn nanos(&self) -> i64 {
        self.nanos
    }

    /// Returns the reserved tokens.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Returns the maximum number of tokens that each response may have.
    #[must_use]
    pub fn output(&self) -> Option<u64> {
        self.output
    }

    /// Returns true if fewer tokens are granted than were wanted.
    #[must_use]
    pub fn is_lowered(&self) -> bool {
        self.is_lowered
    }

    /// Returns true if a cap depends on this reservation.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.is_limited
    }

    /// Returns true if the reserved amounts are an upper bound.
    #[must_use]
    pub fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// Returns the charge of a call of which only the length of the response is known: at least what was reserved.
    #[must_use]
    pub fn at_least(&self, output: u64) -> ActualUsage {
        let price = i128::from(self.output_price) * i128::from(output) / 1_000_000;
        let nanos = self.prompt.1.saturating_add(i64::try_from(price).unwrap_or(i64::MAX));
        ActualUsage {
            tokens: Some(self.prompt.0.saturating_add(output).max(self.tokens)),
            nanos: Some(nanos.max(self.nanos)),
        }
    }

    /// Replaces the reserved amounts with the used ones. An unknown amount is charged as reserved.
    pub fn settle(mut self, spent: ActualUsage) {
        self.settled = true;
        let mut state = self.caps.lock();
        state.give_back(&self);
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
        state.give_back(self);
        // A client that leaves at once, again and again, would fill the log with calls that were never sent.
        if state.unsent < UNSENT_MAX {
            state.unsent += 1;
            state.calls -= 1;
        }
        state.tokens = state.tokens.saturating_sub(self.tokens);
        state.nanos = state.nanos.saturating_sub(self.nanos);
    }
}

#[cfg(test)]
mod tests;
