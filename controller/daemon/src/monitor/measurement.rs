//! Counters of each event of the log.
//!
//! Only events of the system count: events of an agent are claims.
//!
//! Pure.

use serde::Deserialize;
use sluice_contract::Usd;
use sluice_contract::record::Usage;
use sluice_state::approvals::{Approval, ApprovalDecision};
use sluice_state::events::{CallData, EventSource, LoggedEvent};
use sluice_state::sandboxes::Sandbox;

/// Types of the events that count.
pub(super) const COUNTED_TYPES: [&str; 6] = [STATE_CHANGED, STOPPED, CALL, DECIDED, EXPIRED, IMPLAUSIBLE_COST];

const STATE_CHANGED: &str = "run.state_changed";
const STOPPED: &str = "sandbox.stopped";
const CALL: &str = "llm.call";
const DECIDED: &str = "approval.decided";
const EXPIRED: &str = "approval.expired";
const IMPLAUSIBLE_COST: &str = "budget.implausible_cost";

/// A change of the metrics because of one event.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Measurement {
    /// An attempt was claimed.
    Claimed {
        /// Seconds in the queue.
        waited: f64,
    },
    /// A run has ended.
    Ended {
        /// `success`, `cancelled` or `failed`.
        outcome: String,
        /// Word for the reason of a failure.
        failure_code: Option<String>,
        /// Seconds from the claim of its first attempt, without the time for which its clocks were stopped; none if it
        /// was never claimed.
        took: Option<f64>,
    },
    /// An approval was decided, or has expired.
    Decided {
        /// The decision.
        decision: &'static str,
        /// Seconds from the request, or from the first call that waited for it.
        waited: f64,
    },
    /// An answer stated a cost that cannot be true.
    ImplausibleCost,
    /// A call has ended.
    Called(Called),
}

/// A call that has ended.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Called {
    /// The model that the request names.
    pub(super) model: Option<String>,
    /// Word for the result; `None` for a call without an end.
    pub(super) result: Option<String>,
    /// Tokens, with all input in `input`.
    pub(super) usage: Usage,
    /// Cost in nano-USD; 0 if it is unknown.
    pub(super) nano_usd: u64,
    /// Seconds to the head of the answer.
    pub(super) first_byte: Option<f64>,
}

#[derive(Deserialize)]
struct StateChanged {
    to: String,
}

#[derive(Deserialize)]
struct Stopped {
    outcome: Option<String>,
    failure_code: Option<String>,
}

#[derive(Deserialize)]
struct DecidedApproval {
    approval_id: String,
}

/// Returns whether [`of_event`] needs the run of an event.
pub(super) fn needs_run(event: &LoggedEvent) -> bool {
    event.source == EventSource::System && matches!(event.event_type.as_str(), STATE_CHANGED | STOPPED)
}

/// Returns the id of the approval that an event closes; [`of_approval`] returns its measurement.
pub(super) fn closed_approval(event: &LoggedEvent) -> Option<String> {
    let is_closed = event.source == EventSource::System && matches!(event.event_type.as_str(), DECIDED | EXPIRED);
    let data = is_closed.then(|| serde_json::from_str::<DecidedApproval>(&event.event_data).ok())?;
    data.map(|data| data.approval_id)
}

/// Returns the measurement of a closed approval; none if the approval closed because its cap has changed, without a
/// decision.
pub(super) fn of_approval(approval: &Approval) -> Option<Measurement> {
    let decision = approval.decision.filter(|decision| *decision != ApprovalDecision::Changed)?;
    let since = approval.held_us.unwrap_or(approval.created_us);
    Some(Measurement::Decided { decision: decision.as_str(), waited: seconds(since, approval.decided_us?) })
}

/// Returns the measurement of an event. `run` is the run as it is now.
pub(super) fn of_event(event: &LoggedEvent, run: Option<&Sandbox>) -> Option<Measurement> {
    if event.source != EventSource::System {
        return None;
    }
    match event.event_type.as_str() {
        STATE_CHANGED => claimed(event, run?),
        STOPPED => ended(event, run),
        CALL => called(event),
        IMPLAUSIBLE_COST => Some(Measurement::ImplausibleCost),
        _ => None,
    }
}

/// A run may have had another attempt since the event: then the waiting time of this attempt is no longer known.
fn claimed(event: &LoggedEvent, run: &Sandbox) -> Option<Measurement> {
    let change: StateChanged = serde_json::from_str(&event.event_data).ok()?;
    let is_claim = change.to == "CREATING" && event.attempt == Some(run.key.attempt);
    is_claim.then(|| Measurement::Claimed { waited: seconds(run.created_us.max(run.next_try_us), event.created_us) })
}

fn ended(event: &LoggedEvent, run: Option<&Sandbox>) -> Option<Measurement> {
    let Stopped { outcome, failure_code } = serde_json::from_str(&event.event_data).ok()?;
    // The deadline is set at the first claim, and moves by the time for which the clocks were stopped.
    let begun = run.and_then(|run| Some(run.deadline_us?.saturating_sub(run.run_time_us)));
    let took = begun.map(|begun| seconds(begun, event.created_us));
    Some(Measurement::Ended { outcome: outcome?, failure_code, took })
}

fn called(event: &LoggedEvent) -> Option<Measurement> {
    let call = CallData::read(&event.event_data)?;
    let usd = call.known_cost().and_then(|known| Usd::parse(&known.usd).ok());
    Some(Measurement::Called(Called {
        model: call.model,
        result: call.result,
        usage: call.usage.unwrap_or_default(),
        nano_usd: usd.map_or(0, |usd| u64::try_from(usd.to_nanos()).unwrap_or(0)),
        first_byte: call
            .timing_us
            .and_then(|timing| timing.ttfb)
            .map(|us| seconds(0, us.try_into().unwrap_or(i64::MAX))),
    }))
}

/// Returns the seconds between two times in microseconds; 0 after a clock that jumped back.
fn seconds(from_us: i64, to_us: i64) -> f64 {
    to_us.saturating_sub(from_us).max(0) as f64 / 1e6
}

#[cfg(test)]
mod tests;
