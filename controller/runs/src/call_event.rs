//! Converts the lines of a run's audit file to events about its calls.
//!
//! The sidecar writes the lines, so they show what Sluice has observed, and not what the agent claims.
//!
//! Pure.

use serde::Serialize;
use sluice_contract::audit_line::{AuditLine, Record};
use sluice_contract::record::{CallResult, CostSource, Intent, NullReason, Outcome, Timing, Usage};
use sluice_state::ledger::IMPLAUSIBLE;

/// An event of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum CallEvent {
    /// `llm.call_started`: the call is about to go upstream.
    Started(CallStarted),
    /// `llm.call`: the call has ended.
    Ended(Box<CallEnded>),
    /// `llm.call` of a call that was open when its sidecar was killed: its result stays unknown.
    Lost(CallLost),
}

/// Start of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "named like the members of the audit file")]
pub struct CallStarted {
    /// Number of the call in the run, from 1.
    pub call: u64,
    pub call_id: String,
    pub method: String,
    pub path: String,
    pub model: Option<String>,
    pub stream: bool,
    pub ts: String,
}

/// End of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "named like the members of the audit file")]
pub struct CallEnded {
    /// Number of the call in the run, from 1.
    pub call: u64,
    pub call_id: String,
    pub model: Option<String>,
    pub model_served: Option<String>,
    /// Provider's id of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
    pub result: CallResult,
    pub status: Option<u16>,
    /// Tokens, with all input in `input`.
    pub usage: Option<Usage>,
    pub cost: CallCost,
    pub cache_hit: bool,
    pub timing_us: Timing,
    pub ts: String,
}

/// Call without an end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "named like the members of the audit file")]
pub struct CallLost {
    pub call_id: String,
    pub cost: CallCost,
    pub ts: String,
}

/// Cost of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallCost {
    /// Cost in US dollars, as the text of its source.
    Known {
        /// The amount.
        usd: String,
        /// Source of the amount.
        source: CostSource,
    },
    /// The cost is not known.
    Unknown {
        /// The reason, if the sidecar said it, or `implausible`.
        reason: Option<&'static str>,
    },
}

/// Returns the events of a line.
#[must_use]
pub fn events_of(line: &AuditLine<'_>) -> Vec<CallEvent> {
    match &line.record {
        Record::Intent(intent) => vec![CallEvent::Started(started(intent))],
        Record::Outcome(outcome) => vec![CallEvent::Ended(Box::new(ended(outcome)))],
        Record::Recovered(recovered) => {
            let cost = CallCost::Unknown { reason: None };
            let ids = recovered.open_calls.iter().map(ToString::to_string);
            ids.map(|call_id| CallEvent::Lost(CallLost { call_id, cost: cost.clone(), ts: recovered.ts.to_string() }))
                .collect()
        }
        Record::Open(_)
        | Record::Refused(_)
        | Record::Epoch(_)
        | Record::Control(_)
        | Record::Close(_)
        | Record::Held(_)
        | Record::Released(_)
        | Record::Other(_) => vec![],
    }
}

/// Returns an event without its cost, which is implausible.
#[must_use]
pub fn without_cost(event: CallEvent) -> CallEvent {
    match event {
        CallEvent::Ended(ended) => {
            let cost = CallCost::Unknown { reason: Some(IMPLAUSIBLE) };
            CallEvent::Ended(Box::new(CallEnded { cost, ..*ended }))
        }
        event => event,
    }
}

/// Change of the calls that wait for a person, as a line reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldChange {
    /// A call waits.
    Begun,
    /// A call does not wait any more.
    Ended,
    /// No call waits any more: another sidecar continues the file, and does not have the connections of the waiting
    /// calls.
    AllEnded,
}

/// Returns the change that a line reports, if any.
#[must_use]
pub fn hold_change_of(line: &AuditLine<'_>) -> Option<HoldChange> {
    match &line.record {
        Record::Held(_) => Some(HoldChange::Begun),
        Record::Released(_) => Some(HoldChange::Ended),
        Record::Recovered(_) => Some(HoldChange::AllEnded),
        _ => None,
    }
}

/// A request that the sidecar has refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRequest {
    /// One word for the reason.
    pub reason: String,
    /// Time of its line, in the text of the audit file.
    pub ts: String,
}

/// Returns the refused request of a line. It is not an event: a sandbox could fill the event log with such requests.
#[must_use]
pub fn refusal_of(line: &AuditLine<'_>) -> Option<RefusedRequest> {
    match &line.record {
        Record::Refused(refused) => {
            Some(RefusedRequest { reason: refused.reason.to_string(), ts: refused.ts.to_string() })
        }
        _ => None,
    }
}

fn started(intent: &Intent<'_>) -> CallStarted {
    CallStarted {
        call: intent.call,
        call_id: intent.call_id.to_string(),
        method: intent.method.to_string(),
        path: intent.path.to_string(),
        model: intent.model.as_ref().map(ToString::to_string),
        stream: intent.stream,
        ts: intent.ts.to_string(),
    }
}

fn ended(outcome: &Outcome<'_>) -> CallEnded {
    let cost = match &outcome.cost_usd {
        Some(usd) => CallCost::Known { usd: usd.to_string(), source: outcome.cost_source },
        None => CallCost::Unknown { reason: outcome.null_reason.map(NullReason::as_str) },
    };
    CallEnded {
        call: outcome.call,
        call_id: outcome.call_id.to_string(),
        model: outcome.model.as_ref().map(|model| model.0.to_string()),
        model_served: outcome.model_served.as_ref().map(ToString::to_string),
        response_id: outcome.response_id.as_ref().map(ToString::to_string),
        result: outcome.result,
        status: outcome.status,
        usage: outcome.usage.map(Usage::inclusive),
        cost,
        cache_hit: outcome.cache_hit == Some(true),
        timing_us: outcome.timing_us,
        ts: outcome.ts.to_string(),
    }
}
