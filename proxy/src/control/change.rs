//! The decision on a change: the new values, from the values in force.
//!
//! Pure: the time is given.

use std::time::{Duration, Instant};

use http::StatusCode;
use sluice_contract::Usd;
use sluice_contract::control::{
    HoldDecision, LAST_ATTEMPT, NOT_LIMITED, NOT_RAISED, RaiseCaps, STOPPED_TOO_LONG, UNKNOWN_HOLD,
};
use sluice_contract::reason::PAUSED;
use sluice_contract::record::{ControlCount, ControlValues, OptionalText};

use super::error::ControlRefusal;
use super::request::AskedChange;
use crate::caps::Raisable;
use crate::deadline::{DeadlineClock, STOPPED_MAX};
use crate::hold::{Holds, Undecidable};

/// A change that is allowed, and not made yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    /// Name of the change, as its record says it.
    pub(super) what: &'static str,
    pub(super) from: ControlValues<'static>,
    pub(super) to: ControlValues<'static>,
    pub(super) effect: Effect,
}

/// Effect of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// The limits have these values.
    Raise(Raisable),
    /// The clock of the deadline stands still, or goes on.
    SetStopped(bool),
    /// The run is paused, or goes on.
    SetPaused(bool),
    /// The held call has this decision.
    Decide(HoldDecision),
}

/// Decides on a change; `None` if everything is as it is asked for, as when a request is repeated.
pub(super) fn decide(
    asked: &AskedChange,
    limits: &Raisable,
    clock: &DeadlineClock,
    holds: &Holds,
    now: Instant,
) -> Result<Option<Change>, ControlRefusal> {
    match asked {
        AskedChange::Caps(asked, nanos) => raise(asked, *nanos, limits),
        AskedChange::Clock(asked) => set_stopped(asked.stopped, clock, now),
        AskedChange::Pause(asked) => Ok(set_paused(asked.paused, holds.is_paused())),
        AskedChange::Decide(asked, hold_id) => decide_hold(asked.decision, hold_id, holds, now),
    }
}

fn raise(asked: &RaiseCaps, nanos: Option<i64>, limits: &Raisable) -> Result<Option<Change>, ControlRefusal> {
    // Whole seconds, rounded up, as the record of the start has them.
    let deadline_s = limits.deadline.map(seconds);
    let (mut to, mut before, mut after) = (*limits, ControlValues::default(), ControlValues::default());
    if let Some((old, new)) = raised("max_calls", limits.calls, asked.max_calls)? {
        (before.max_calls, after.max_calls) = (Some(ControlCount(old)), Some(ControlCount(new)));
        to.calls = Some(new);
    }
    if let Some((old, new)) = raised("max_tokens", limits.tokens, asked.max_tokens)? {
        (before.max_tokens, after.max_tokens) = (Some(ControlCount(old)), Some(ControlCount(new)));
        to.tokens = Some(new);
    }
    if let Some((old, new)) = raised("max_cost_usd", limits.nanos, nanos)? {
        (before.max_cost_usd, after.max_cost_usd) = (Some(usd(old)), Some(usd(new)));
        to.nanos = Some(new);
    }
    if let Some((old, new)) = raised("deadline_s", deadline_s, asked.deadline_s)? {
        (before.deadline_s, after.deadline_s) = (Some(ControlCount(old)), Some(ControlCount(new)));
        to.deadline = Some(Duration::from_secs(new));
    }
    if to == *limits {
        return Ok(None);
    }
    Ok(Some(Change { what: "caps", from: before, to: after, effect: Effect::Raise(to) }))
}

/// Returns the old and the new value of a limit; `None` if it stays.
fn raised<T: Ord + Copy>(name: &str, limit: Option<T>, asked: Option<T>) -> Result<Option<(T, T)>, ControlRefusal> {
    let conflict = |code, message| Err(ControlRefusal::new(StatusCode::CONFLICT, code, message));
    match (limit, asked) {
        (_, None) => Ok(None),
        (None, Some(_)) => {
            conflict(NOT_LIMITED, format!("the run has no {name}, and a value would lower it; leave it out"))
        }
        (Some(limit), Some(asked)) if asked < limit => {
            conflict(NOT_RAISED, format!("{name} would be lowered; values are absolute, and only go up"))
        }
        (Some(limit), Some(asked)) => Ok((asked > limit).then_some((limit, asked))),
    }
}

fn set_stopped(stopped: bool, clock: &DeadlineClock, now: Instant) -> Result<Option<Change>, ControlRefusal> {
    if clock.length().is_none() {
        let message = "the run has no deadline, so no clock runs";
        return Err(ControlRefusal::new(StatusCode::CONFLICT, NOT_LIMITED, message));
    }
    if stopped && clock.stopped_for(now) >= STOPPED_MAX {
        let message = "the clock has stood still for 24 hours in all, and goes on";
        return Err(ControlRefusal::new(StatusCode::CONFLICT, STOPPED_TOO_LONG, message));
    }
    let was = clock.is_stopped(now);
    if was == stopped {
        return Ok(None);
    }
    let values = |stopped| ControlValues { stopped: Some(stopped), ..ControlValues::default() };
    Ok(Some(Change { what: "clock", from: values(was), to: values(stopped), effect: Effect::SetStopped(stopped) }))
}

fn set_paused(paused: bool, was: bool) -> Option<Change> {
    let values = |paused| ControlValues { paused: Some(paused), ..ControlValues::default() };
    let effect = Effect::SetPaused(paused);
    (was != paused).then(|| Change { what: "pause", from: values(was), to: values(paused), effect })
}

fn decide_hold(
    decision: HoldDecision,
    hold_id: &str,
    holds: &Holds,
    now: Instant,
) -> Result<Option<Change>, ControlRefusal> {
    let refused = |status, code, message: &'static str| ControlRefusal::new(status, code, message);
    let changes = holds.check(hold_id, decision, now).map_err(|error| match error {
        Undecidable::Unknown => {
            refused(StatusCode::NOT_FOUND, UNKNOWN_HOLD, "no call waits with this id, or no longer; see GET /held")
        }
        Undecidable::LastAttempt => refused(
            StatusCode::CONFLICT,
            LAST_ATTEMPT,
            "the client of this call has tried as often as it does; raise the cap, or deny the call",
        ),
        Undecidable::Paused => {
            refused(StatusCode::CONFLICT, PAUSED, "this call waits for the end of the pause; let the run go on")
        }
    })?;
    let text = |text: String| Some(OptionalText(text.into()));
    let to = ControlValues {
        decision: text(decision.as_str().to_owned()),
        hold_id: text(hold_id.to_owned()),
        ..ControlValues::default()
    };
    let effect = Effect::Decide(decision);
    Ok(changes.then(|| Change { what: "hold", from: ControlValues::default(), to, effect }))
}

/// Returns whole seconds, rounded up.
pub(super) fn seconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis().div_ceil(1000)).unwrap_or(u64::MAX)
}

fn usd(nanos: i64) -> OptionalText<'static> {
    OptionalText(Usd::from_nanos(nanos).to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caps::{CapLimits, Caps, PriorUsage};
    use crate::hold::OnCap;
    use sluice_contract::control::{SetClock, SetPause};

    const LIMITS: Raisable = Raisable {
        calls: Some(10),
        tokens: None,
        nanos: Some(500_000_000),
        deadline: Some(Duration::from_millis(1500)),
    };

    fn holds() -> Holds {
        let caps = Caps::resume(CapLimits::default(), PriorUsage::default());
        Holds::new(OnCap::Ask, Duration::from_secs(1), None, &caps)
    }

    fn caps(asked: RaiseCaps) -> Result<Option<Change>, ControlRefusal> {
        let nanos = asked.max_cost_usd.as_deref().map(|text| Usd::parse(text).expect("an amount").to_nanos());
        let now = Instant::now();
        decide(&AskedChange::Caps(asked, nanos), &LIMITS, &DeadlineClock::start(LIMITS.deadline, now), &holds(), now)
    }

    fn clock(stopped: bool, clock: &DeadlineClock, now: Instant) -> Result<Option<Change>, ControlRefusal> {
        decide(&AskedChange::Clock(SetClock { stopped, by: None, reason: None }), &LIMITS, clock, &holds(), now)
    }

    #[test]
    fn only_raised_values_are_recorded() {
        let asked = RaiseCaps {
            max_calls: Some(10),
            max_cost_usd: Some("0.75".to_owned()),
            deadline_s: Some(3),
            ..RaiseCaps::default()
        };
        let change = caps(asked).expect("nothing is lowered").expect("two values are raised");
        let values = |cost: &'static str, deadline_s| ControlValues {
            max_cost_usd: Some(OptionalText(cost.into())),
            deadline_s: Some(ControlCount(deadline_s)),
            ..ControlValues::default()
        };
        assert_eq!((change.from, change.to), (values("0.5", 2), values("0.75", 3)));
        let to = Raisable { nanos: Some(750_000_000), deadline: Some(Duration::from_secs(3)), ..LIMITS };
        assert_eq!(change.effect, Effect::Raise(to));
    }

    #[test]
    fn a_repeated_raise_changes_nothing() {
        let asked = RaiseCaps { max_calls: Some(10), deadline_s: Some(2), ..RaiseCaps::default() };
        assert_eq!(caps(asked), Ok(None));
    }

    #[test]
    fn one_lowered_value_refuses_the_whole_change() {
        for (asked, code) in [
            (RaiseCaps { max_calls: Some(9), ..RaiseCaps::default() }, NOT_RAISED),
            (RaiseCaps { max_calls: Some(20), deadline_s: Some(1), ..RaiseCaps::default() }, NOT_RAISED),
            (RaiseCaps { max_tokens: Some(u64::MAX), ..RaiseCaps::default() }, NOT_LIMITED),
        ] {
            let refused = caps(asked.clone()).expect_err("it is no raise");
            assert_eq!((refused.status, refused.code), (StatusCode::CONFLICT, code), "{asked:?}");
        }
    }

    #[test]
    fn a_pause_is_recorded_once() {
        let (clock, now) = (DeadlineClock::start(None, Instant::now()), Instant::now());
        let asked = |paused| AskedChange::Pause(SetPause { paused, by: "b".to_owned(), reason: "r".to_owned() });
        assert_eq!(decide(&asked(false), &LIMITS, &clock, &holds(), now), Ok(None));
        let change = decide(&asked(true), &LIMITS, &clock, &holds(), now).expect("it may pause").expect("it goes on");
        assert_eq!((change.from.paused, change.to.paused), (Some(false), Some(true)));
        assert_eq!((change.what, change.effect), ("pause", Effect::SetPaused(true)));
        let refused = decide_hold(HoldDecision::Deny, "hold-1", &holds(), now).expect_err("nothing waits");
        assert_eq!((refused.status, refused.code), (StatusCode::NOT_FOUND, UNKNOWN_HOLD));
    }

    #[test]
    fn a_clock_stops_for_a_day_in_all() {
        let start = Instant::now();
        let mut running = DeadlineClock::start(Some(Duration::from_secs(60)), start);
        assert_eq!(clock(false, &running, start), Ok(None));
        let change = clock(true, &running, start).expect("it may stop").expect("it runs");
        assert_eq!((change.to.stopped, change.effect), (Some(true), Effect::SetStopped(true)));
        running.set_stopped(true, start);
        assert_eq!(clock(true, &running, start + STOPPED_MAX / 2), Ok(None));
        let refused = clock(true, &running, start + STOPPED_MAX).expect_err("it goes on");
        assert_eq!(refused.code, STOPPED_TOO_LONG);
        let unlimited = DeadlineClock::start(None, start);
        assert_eq!(clock(true, &unlimited, start).expect_err("no clock").code, NOT_LIMITED);
    }
}
