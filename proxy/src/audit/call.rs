//! The facts of one call that its two records hold.

use std::borrow::Cow;

use sluice_contract::Usd;
use sluice_contract::budget::BudgetRefusal;
use sluice_contract::record::{CallResult, CostSource, End, NullReason, Peer, Timing, Usage};

use crate::upstream::NoConnection;

/// Facts of a call's intent.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs, reason = "the members of the record")]
pub struct CallIntent<'a> {
    pub bound: Option<u64>,
    pub call_id: &'a str,
    pub injected: Option<Vec<String>>,
    pub method: &'a str,
    pub model: Option<&'a str>,
    pub path: &'a str,
    pub peer: Peer,
    pub req_bytes: u64,
    pub reserved_strict: Option<bool>,
    pub reserved_tokens: Option<u64>,
    pub reserved_usd: Option<String>,
    pub stream: bool,
    pub stripped: Vec<Cow<'a, str>>,
}

/// Facts of a call's outcome.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the members of the record")]
pub struct CallOutcome {
    /// Reason why there was no connection, if there was none.
    pub connect_error: Option<Box<NoConnection>>,
    pub budget: Option<Box<BudgetRefusal>>,
    pub result: CallResult,
    pub end: End,
    pub status: Option<u16>,
    pub drained: Option<bool>,
    pub cache_hit: Option<bool>,
    pub litellm_call_id: Option<String>,
    pub response_id: Option<String>,
    pub model_served: Option<String>,
    pub usage: Option<Usage>,
    pub cost: Option<Usd>,
    pub cost_source: CostSource,
    pub null_reason: Option<NullReason>,
    pub resp_bytes: u64,
    pub timing: Timing,
}

impl CallOutcome {
    /// Returns the outcome of a call that ended before anything went upstream.
    #[must_use]
    pub fn not_sent(result: CallResult, end: End) -> Self {
        Self {
            connect_error: None,
            budget: None,
            result,
            end,
            status: None,
            drained: None,
            cache_hit: None,
            litellm_call_id: None,
            response_id: None,
            model_served: None,
            usage: None,
            cost: None,
            cost_source: CostSource::None,
            null_reason: Some(NullReason::NotSent),
            resp_bytes: 0,
            timing: Timing::default(),
        }
    }
}
