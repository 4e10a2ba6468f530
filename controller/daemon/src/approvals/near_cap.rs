//! Finds the caps of a run that are nearly used up.
//!
//! Pure.

use sluice_contract::Usd;
use sluice_contract::control::{CapsInForce, HoldCause, SidecarState};
use sluice_state::approvals::RaisableCap;

/// Used part of a cap, in percent, from which a person is asked while the run works.
const NEAR: i128 = 80;

/// Returns the value of a cap in force: a number, or nano-USD.
pub(super) fn in_force(caps: &CapsInForce, cap: RaisableCap) -> Option<i64> {
    match cap {
        RaisableCap::MaxCalls => caps.max_calls.and_then(|number| number.try_into().ok()),
        RaisableCap::MaxTokens => caps.max_tokens.and_then(|number| number.try_into().ok()),
        RaisableCap::MaxCostUsd => nanos(caps.max_cost_usd.as_deref()?),
    }
}

/// Returns the caps that are mostly used up, each with its value.
pub(super) fn near_caps(state: &SidecarState) -> Vec<(RaisableCap, i64)> {
    let used = |cap| match cap {
        RaisableCap::MaxCalls => state.used.calls.try_into().ok(),
        RaisableCap::MaxTokens => state.used.tokens.try_into().ok(),
        RaisableCap::MaxCostUsd => nanos(&state.used.cost_usd),
    };
    let near = |cap| {
        let (value, used): (i64, i64) = (in_force(&state.caps, cap)?, used(cap)?);
        (i128::from(used) * 100 >= i128::from(value) * NEAR).then_some((cap, value))
    };
    RaisableCap::ALL.into_iter().filter_map(near).collect()
}

/// Returns the cap at which a call waits; none for a pause.
pub(super) fn cap_of(cause: HoldCause) -> Option<RaisableCap> {
    match cause {
        HoldCause::MaxCalls => Some(RaisableCap::MaxCalls),
        HoldCause::MaxTokens => Some(RaisableCap::MaxTokens),
        HoldCause::MaxCostUsd => Some(RaisableCap::MaxCostUsd),
        HoldCause::Paused => None,
    }
}

/// Returns the value that a waiting call needs.
pub(super) fn asked_value(cap: RaisableCap, text: &str) -> Option<i64> {
    match cap {
        RaisableCap::MaxCostUsd => nanos(text),
        RaisableCap::MaxCalls | RaisableCap::MaxTokens => text.parse().ok().filter(|value| *value >= 0),
    }
}

fn nanos(text: &str) -> Option<i64> {
    Usd::parse(text).ok().filter(Usd::is_countable).map(|amount| amount.to_nanos())
}

#[cfg(test)]
mod tests {
    use sluice_contract::control::UsedAmounts;

    use super::*;

    fn state(caps: (Option<u64>, Option<u64>, Option<&str>), used: (u64, u64, &str)) -> SidecarState {
        serde_json::from_value(serde_json::json!({
            "caps": CapsInForce {
                max_calls: caps.0, max_tokens: caps.1, max_cost_usd: caps.2.map(str::to_owned)
            },
            "used": UsedAmounts {
                calls: used.0, tokens: used.1, cost_usd: used.2.to_owned(), reserved_cost_usd: "0".to_owned(),
                reserved_tokens: 0
            },
            "open_calls": 0, "held_calls": 0, "deadline": null, "draining": false, "paused": false,
        }))
        .expect("a state")
    }

    #[test]
    fn a_cap_is_near_from_80_percent_on() {
        let all = (Some(10), Some(1000), Some("1"));
        for (used, expected) in [
            ((7, 799, "0.79"), vec![]),
            ((8, 799, "0.79"), vec![(RaisableCap::MaxCalls, 10)]),
            ((7, 800, "0.79"), vec![(RaisableCap::MaxTokens, 1000)]),
            ((7, 799, "0.8"), vec![(RaisableCap::MaxCostUsd, 1_000_000_000)]),
            (
                (12, 1200, "1.2"),
                vec![
                    (RaisableCap::MaxCalls, 10),
                    (RaisableCap::MaxTokens, 1000),
                    (RaisableCap::MaxCostUsd, 1_000_000_000),
                ],
            ),
        ] {
            assert_eq!(near_caps(&state(all, used)), expected, "{used:?}");
        }
        assert_eq!(near_caps(&state((None, None, None), (9, 9, "9"))), []);
        assert_eq!(near_caps(&state((None, None, Some("nonsense")), (9, 9, "9"))), []);
    }

    #[test]
    fn what_a_call_needs_is_read_by_its_cap() {
        for (cap, text, expected) in [
            (RaisableCap::MaxCalls, "5", Some(5)),
            (RaisableCap::MaxTokens, "-5", None),
            (RaisableCap::MaxTokens, "5.5", None),
            (RaisableCap::MaxCostUsd, "5.5", Some(5_500_000_000)),
            (RaisableCap::MaxCostUsd, "x", None),
        ] {
            assert_eq!(asked_value(cap, text), expected, "{cap:?} {text}");
        }
    }
}
