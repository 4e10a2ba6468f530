//! Caps: what a run may still spend, reserved before a call and settled after it.
//!
//! Pure but for its lock: the time is given. One lock around the whole decision makes it atomic, so of a
//! burst against a cap of N exactly N pass.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sluice_contract::record::{CallResult, End, NullReason, Usage};
use sluice_contract::{AuditLog, Usd, could_be_billed};

use crate::prices::{FEMTOS_PER_NANO, nanos};
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

/// An answer is never held to fewer tokens than this: it would end before it says anything.
pub const OUTPUT_FLOOR: u64 = 1024;

/// What a call may use at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ask {
    /// Tokens beside those of the answer.
    pub tokens: u64,
    /// Femto-USD beside those of the answer, when there are prices.
    pub femtos: u128,
    /// The answer, if its length can be bounded.
    pub output: Option<Output>,
    /// It is an upper bound. A guess takes no more than what is left: it must not refuse a call that would have fitted.
    pub strict: bool,
}

/// The answer of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Output {
    /// Tokens of one answer, as the client or the model bounds them. Where that does not fit, fewer are granted.
    pub wanted: u64,
    /// Answers.
    pub choices: u64,
    /// Femto-USD of a token.
    pub femtos: u128,
    /// Fewer tokens are never granted, unless fewer are wanted.
    pub least: u64,
}

impl Ask {
    /// Tokens and femto-USD with answers of so many tokens each.
    fn with(&self, each: u64) -> (u128, u128) {
        let output = self.output.unwrap_or_default();
        let tokens = u128::from(each) * u128::from(output.choices);
        (u128::from(self.tokens) + tokens, self.femtos.saturating_add(tokens.saturating_mul(output.femtos)))
    }

    fn is_priced(&self) -> bool {
        self.femtos > 0 || self.output.is_some_and(|output| output.femtos > 0)
    }

    fn wanted(&self) -> u64 {
        self.output.map_or(0, |output| output.wanted)
    }
}

/// What is left of a run's caps; `None` is unlimited.
#[derive(Debug, Clone, Copy)]
struct Left {
    tokens: Option<u128>,
    femtos: Option<u128>,
}

impl Left {
    fn holds(&self, (tokens, femtos): (u128, u128)) -> bool {
        self.tokens.is_none_or(|left| tokens <= left) && self.femtos.is_none_or(|left| femtos <= left)
    }

    fn is_empty(&self) -> bool {
        self.tokens == Some(0) || self.femtos == Some(0)
    }

    /// The longest answer that fits, up to the one wanted.
    fn longest(&self, ask: &Ask) -> Option<u64> {
        let output = ask.output?;
        let (tokens, femtos) = ask.with(0);
        let by = |left: Option<u128>, used: u128, each: u128| match (left, each) {
            (None, _) => Some(u128::MAX),
            (Some(left), 0) => (used <= left).then_some(u128::MAX),
            (Some(left), each) => left.checked_sub(used).map(|left| left / each),
        };
        let choices = u128::from(output.choices);
        let longest = by(self.tokens, tokens, choices)?.min(by(self.femtos, femtos, choices * output.femtos)?);
        Some(u64::try_from(longest).unwrap_or(u64::MAX).min(output.wanted))
    }

    /// How long an answer may be: as wanted, or half of what fits, so that another call can be made beside this one.
    fn grant(&self, ask: &Ask) -> Option<u64> {
        // What is only guessed of the prompt must not refuse the call.
        let beside = Ask { tokens: 0, femtos: 0, ..*ask };
        let longest = self.longest(ask).or_else(|| self.longest(&beside).filter(|_| !ask.strict))?;
        let wanted = ask.wanted();
        if longest >= wanted {
            return Some(wanted);
        }
        let least = ask.output.map_or(OUTPUT_FLOOR, |output| output.least.max(OUTPUT_FLOOR));
        let granted = (longest / 2).max(least).min(wanted);
        (granted <= longest).then_some(granted)
    }
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
    /// Reads it from the audit log. A call whose cost or usage is not known is charged as it was reserved.
    #[must_use]
    pub fn of(log: &AuditLog) -> Self {
        let mut used = Self::default();
        for call in log.calls() {
            let outcome = call.outcome.as_ref();
            let why_null = outcome.and_then(|outcome| outcome.null_reason);
            used.calls += 1;
            if why_null == Some(NullReason::NotSent) {
                used.unsent += 1;
            }
            let status = outcome.map(|outcome| outcome.status);
            let is_unknown = outcome.is_none_or(|outcome| outcome.result == CallResult::Unknown);
            let is_free = !is_unknown && status.is_some_and(|status| status.is_some() && !could_be_billed(status));
            let is_cache_hit = outcome.is_some_and(|outcome| outcome.cache_hit == Some(true));
            if is_free || is_cache_hit || matches!(why_null, Some(NullReason::NotSent | NullReason::NotBilled)) {
                continue;
            }
            let cost = outcome.and_then(|outcome| outcome.cost_usd.as_deref());
            let cost = cost.or(call.intent.reserved_usd.as_deref()).and_then(|text| Usd::parse(text).ok());
            used.nanos = used.nanos.saturating_add(cost.map_or(0, |cost| cost.to_nanos()));
            let is_whole = outcome.is_some_and(|it| it.end == End::Complete || it.drained == Some(true));
            let usage = outcome.and_then(|outcome| outcome.usage.as_ref()).map_or(0, Usage::all);
            let reserved = call.intent.reserved_tokens.filter(|_| !is_whole || usage == 0).map_or(0, |tokens| tokens.0);
            used.tokens = used.tokens.saturating_add(usage.max(reserved));
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
    /// Spent, and reserved by open calls.
    tokens: u64,
    nanos: i64,
    /// Reserved by open calls alone.
    held_tokens: u64,
    held_nanos: i64,
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
    /// The most tokens that each answer may have.
    output: Option<u64>,
    is_lowered: bool,
    is_limited: bool,
    is_strict: bool,
    settled: bool,
    /// Nano-USD of a million tokens of the answer.
    output_price: i64,
    /// Tokens and nano-USD beside the answer.
    prompt: (u64, i64),
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
        let left = self.left(&state);
        let output = match ask.output {
            _ if left.is_empty() => return Err(self.over(&state, &ask)),
            Some(_) => Some(left.grant(&ask).ok_or_else(|| self.over(&state, &ask))?),
            None if ask.strict && !left.holds(ask.with(0)) => return Err(self.over(&state, &ask)),
            None => None,
        };
        let (tokens, femtos) = ask.with(output.unwrap_or(0));
        let tokens = u64::try_from(tokens.min(left.tokens.unwrap_or(u128::MAX))).unwrap_or(u64::MAX);
        let nanos = nanos(femtos.min(left.femtos.unwrap_or(u128::MAX)));
        state.empty_at = empty_at;
        state.calls += 1;
        state.open += 1;
        state.tokens = state.tokens.saturating_add(tokens);
        state.nanos = state.nanos.saturating_add(nanos);
        state.held_tokens = state.held_tokens.saturating_add(tokens);
        state.held_nanos = state.held_nanos.saturating_add(nanos);
        let price = ask.output.map_or(0, |output| output.femtos);
        Ok(Reservation {
            caps: Arc::clone(self),
            tokens,
            nanos,
            output,
            is_lowered: output.is_some_and(|output| output < ask.wanted()),
            is_limited: self.rests_on(&ask),
            is_strict: ask.strict && (self.limits.nanos.is_none() || ask.is_priced()),
            settled: false,
            output_price: crate::prices::nanos(price.saturating_mul(1_000_000)),
            prompt: (ask.tokens, crate::prices::nanos(ask.femtos)),
        })
    }

    /// Whether a call fits as its client wants it.
    #[must_use]
    pub fn fits(&self, ask: &Ask) -> bool {
        let left = self.left(&self.lock());
        left.holds(ask.with(ask.wanted())) && !left.is_empty()
    }

    /// Whether a call that does not fit now might fit when the open calls have ended, should they cost nothing.
    #[must_use]
    pub fn may_fit_later(&self, ask: &Ask) -> bool {
        let state = self.lock();
        if state.open == 0 || self.limits.calls.is_some_and(|max| state.calls >= max) {
            return false;
        }
        let alone = State {
            tokens: state.tokens.saturating_sub(state.held_tokens),
            nanos: state.nanos.saturating_sub(state.held_nanos),
            ..State::default()
        };
        let left = self.left(&alone);
        let fits =
            if ask.output.is_some() { left.grant(ask).is_some() } else { !ask.strict || left.holds(ask.with(0)) };
        fits && !left.is_empty()
    }

    /// Whether a cap rests on what a call reserves: without prices, that of dollars does not.
    fn rests_on(&self, ask: &Ask) -> bool {
        self.limits.tokens.is_some() || self.limits.nanos.is_some() && ask.is_priced()
    }

    fn left(&self, state: &State) -> Left {
        let nanos = self.limits.nanos.map(|cap| u128::try_from(cap.saturating_sub(state.nanos)).unwrap_or(0));
        Left {
            tokens: self.limits.tokens.map(|cap| u128::from(cap.saturating_sub(state.tokens))),
            femtos: nanos.map(|left| left * FEMTOS_PER_NANO),
        }
    }

    /// Says which cap is in the way, what it is, what is left of it, and what the call needs.
    fn over(&self, state: &State, ask: &Ask) -> Refusal {
        let left = self.left(state);
        let floor = ask.output.map_or(OUTPUT_FLOOR, |output| output.least.max(OUTPUT_FLOOR));
        let least = ask.with(ask.wanted().min(floor));
        if let Some(cap) = self.limits.tokens.filter(|_| left.tokens.is_some_and(|left| least.0 > left || left == 0)) {
            let left = cap.saturating_sub(state.tokens);
            return over(&format!("of the run's {cap} tokens {left} are left, and this call needs up to {}", least.0));
        }
        let cap = self.limits.nanos.unwrap_or(0);
        over(&format!(
            "of the run's ${} ${} are left, and this call needs up to ${}",
            Usd::from_nanos(cap),
            Usd::from_nanos(cap.saturating_sub(state.nanos).max(0)),
            Usd::from_nanos(nanos(least.1))
        ))
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

fn over(what: &str) -> Refusal {
    Refusal::new(
        Reason::BudgetExceeded,
        format!("{what}; open calls count as reserved; the operator can raise the caps"),
    )
}

impl State {
    /// One call is no longer open.
    fn give_back(&mut self, reservation: &Reservation) {
        self.open -= 1;
        self.held_tokens = self.held_tokens.saturating_sub(reservation.tokens);
        self.held_nanos = self.held_nanos.saturating_sub(reservation.nanos);
    }
}

impl Reservation {
    /// Nano-USD that were reserved.
    #[must_use]
    pub fn nanos(&self) -> i64 {
        self.nanos
    }

    /// Tokens that were reserved.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The most tokens that each answer may have.
    #[must_use]
    pub fn output(&self) -> Option<u64> {
        self.output
    }

    /// Fewer tokens are granted than were wanted.
    #[must_use]
    pub fn is_lowered(&self) -> bool {
        self.is_lowered
    }

    /// A cap rests on it.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.is_limited
    }

    /// What was reserved is an upper bound.
    #[must_use]
    pub fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// What a call is charged of which only the length of its answer is known: at least what was reserved.
    #[must_use]
    pub fn at_least(&self, output: u64) -> Spent {
        let price = i128::from(self.output_price) * i128::from(output) / 1_000_000;
        let nanos = self.prompt.1.saturating_add(i64::try_from(price).unwrap_or(i64::MAX));
        Spent {
            tokens: Some(self.prompt.0.saturating_add(output).max(self.tokens)),
            nanos: Some(nanos.max(self.nanos)),
        }
    }

    /// The call is over: what it used replaces what was reserved; what is not known is charged as reserved.
    pub fn settle(mut self, spent: Spent) {
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
    fn thinking_that_cannot_be_switched_off_has_room_or_no_call() {
        let output = |wanted| Some(Output { wanted, choices: 1, least: 2048, ..Output::default() });
        let granted = |left: u64, wanted| {
            let caps = Caps::new(CapLimits { tokens: Some(left), concurrency: 9, ..CapLimits::default() });
            let ask = Ask { output: output(wanted), strict: true, ..Ask::default() };
            caps.reserve(ask, Instant::now()).ok().and_then(|reservation| reservation.output())
        };
        assert_eq!(granted(10_000, 32_000), Some(5000));
        assert_eq!((granted(4095, 32_000), granted(2048, 32_000)), (Some(2048), Some(2048)));
        assert_eq!((granted(2047, 32_000), granted(1500, 1500), granted(1499, 1500)), (None, Some(1500), None));
    }

    #[test]
    fn of_a_burst_exactly_as_many_pass_as_the_cap_says() {
        let now = Instant::now();
        let ask = Ask { tokens: 10, femtos: 100 * FEMTOS_PER_NANO, strict: true, output: None };
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
        let guess = Ask { tokens: 4096, ..Ask::default() };
        let first = caps.reserve(guess, Instant::now()).expect("a guess may take all");
        assert_eq!(reason(&caps.reserve(guess, Instant::now())), Some(Reason::BudgetExceeded));
        first.settle(Spent { tokens: Some(15), nanos: None });
        let second = caps.reserve(guess, Instant::now()).expect("985 are left");
        second.settle(Spent { tokens: Some(985), nanos: None });
        assert_eq!(reason(&caps.reserve(guess, Instant::now())), Some(Reason::BudgetExceeded));
    }

    #[test]
    fn an_answer_that_does_not_fit_is_made_shorter() {
        let cap = |tokens| caps(CapLimits { tokens: Some(tokens), ..CapLimits::default() });
        let output = |wanted| Some(Output { wanted, choices: 2, ..Output::default() });
        let ask = |wanted| Ask { tokens: 100, femtos: 0, output: output(wanted), strict: true };
        let granted = |caps: &Arc<Caps>, wanted| caps.reserve(ask(wanted), Instant::now());
        let whole = granted(&cap(8100), 4000).expect("it fits");
        assert_eq!((whole.output(), whole.is_lowered(), whole.tokens()), (Some(4000), false, 8100));
        let halved = granted(&cap(16_100), 64_000).expect("half of what fits");
        assert_eq!((halved.output(), halved.is_lowered(), halved.tokens()), (Some(4000), true, 8100));
        let shared = cap(20_100);
        let open: Vec<_> = std::iter::from_fn(|| granted(&shared, 64_000).ok()).take(9).collect();
        assert_eq!(open.iter().map(|it| it.output().unwrap_or(0)).collect::<Vec<_>>(), [5000, 2475, 1212, 1024]);
        assert_eq!(reason(&granted(&cap(2000), 64_000)), Some(Reason::BudgetExceeded), "below the floor");
        assert!(granted(&cap(2000), 950).is_ok(), "so short an answer was wanted");
        let guess = Ask { strict: false, tokens: 1_000_000, ..ask(64_000) };
        let guessed = cap(50_000).reserve(guess, Instant::now()).expect("a guess refuses nothing");
        assert_eq!((guessed.output(), guessed.tokens()), (Some(12_500), 50_000));
    }

    #[test]
    fn a_call_that_open_calls_leave_no_room_for_may_fit_later() {
        let caps = caps(CapLimits { tokens: Some(3000), calls: Some(3), ..CapLimits::default() });
        let output = Some(Output { wanted: 64_000, choices: 1, ..Output::default() });
        let ask = |tokens| Ask { tokens, femtos: 0, output, strict: true };
        assert!(!caps.may_fit_later(&ask(0)), "no call is open");
        let open = caps.reserve(ask(900), Instant::now()).expect("it fits");
        assert_eq!(reason(&caps.reserve(ask(900), Instant::now())), Some(Reason::BudgetExceeded));
        assert_eq!(
            (caps.may_fit_later(&ask(900)), caps.may_fit_later(&ask(1977))),
            (true, false),
            "1,024 for the answer"
        );
        open.settle(Spent { tokens: Some(1500), nanos: None });
        let open = caps.reserve(ask(100), Instant::now()).expect("1,500 are left");
        assert_eq!((caps.may_fit_later(&ask(476)), caps.may_fit_later(&ask(477))), (true, false));
        let _third = caps.reserve(Ask::default(), Instant::now()).expect("it takes nothing");
        assert!(!caps.may_fit_later(&ask(100)), "three calls are all");
        drop(open);
    }

    #[test]
    fn dollars_are_granted_without_rounding_in_the_clients_favour() {
        let caps = caps(CapLimits { nanos: Some(10), ..CapLimits::default() });
        // 1.5 nano-dollars a token.
        let output = Some(Output { wanted: 5000, choices: 1, femtos: 1_500_000, least: 0 });
        let ask = Ask { tokens: 0, femtos: 1, output, strict: true };
        assert_eq!(
            caps.reserve(ask, Instant::now()).map_err(|refusal| refusal.reason).err(),
            Some(Reason::BudgetExceeded)
        );
        let short = Ask { output: output.map(|output| Output { wanted: 6, ..output }), ..ask };
        let reserved = caps.reserve(short, Instant::now()).expect("nine and a bit");
        assert_eq!((reserved.nanos(), reserved.output()), (10, Some(6)));
    }

    #[test]
    fn a_refusal_names_the_cap_and_what_is_left() {
        let tokens = caps(CapLimits { tokens: Some(100), ..CapLimits::default() });
        let ask = Ask { tokens: 150, femtos: 2_000 * FEMTOS_PER_NANO, strict: true, output: None };
        let said = tokens.reserve(ask, Instant::now()).expect_err("too many").message;
        assert!(said.starts_with("of the run's 100 tokens 100 are left, and this call needs up to 150"), "{said}");
        let dollars = caps(CapLimits { nanos: Some(1000), ..CapLimits::default() });
        let said = dollars.reserve(ask, Instant::now()).expect_err("too much").message;
        assert!(
            said.starts_with("of the run's $0.000001 $0.000001 are left, and this call needs up to $0.000002"),
            "{said}"
        );
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
        let ask = Ask { tokens: 60, strict: true, ..Ask::default() };
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
        /// Whatever the order, what is used and reserved stays within a cap of strict calls, and nothing is lost.
        #[test]
        fn strict_calls_never_pass_the_cap(steps in prop::collection::vec((1u64..50, 0u64..3), 1..60)) {
            let caps = caps(CapLimits { tokens: Some(100), ..CapLimits::default() });
            let (mut open, mut settled) = (Vec::new(), 0u64);
            for (tokens, what) in steps {
                if what == 0 {
                    if let Ok(reservation) = caps.reserve(Ask { tokens, strict: true, ..Ask::default() }, Instant::now()) {
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
