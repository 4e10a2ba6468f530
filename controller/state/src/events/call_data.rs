//! Members of the event `llm.call` that are read again from the log.
//!
//! Pure.

use serde::Deserialize;
use sluice_contract::record::Usage;

/// A call that has ended, as its event reports it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CallData {
    /// Identity of the call.
    pub call_id: Option<String>,
    /// Model that the agent named.
    pub model: Option<String>,
    /// Model that answered.
    pub model_served: Option<String>,
    /// Identity of the answer.
    pub response_id: Option<String>,
    /// Word for the result; none for a call without an end.
    pub result: Option<String>,
    /// HTTP status of the answer.
    pub status: Option<u16>,
    /// Tokens.
    pub usage: Option<Usage>,
    cost: Option<CostMembers>,
    /// True if LiteLLM answered from its cache.
    pub cache_hit: bool,
    /// Durations.
    pub timing_us: Option<CallTimes>,
    /// Time of the end in UTC.
    pub ts: Option<String>,
}

/// Cost of a call; `known` is null without a price.
#[derive(Debug, Deserialize)]
struct CostMembers {
    known: Option<KnownCost>,
}

/// Cost with its source.
#[derive(Debug, Clone, Deserialize)]
pub struct KnownCost {
    /// Dollars.
    pub usd: String,
    /// Source of the amount.
    pub source: Option<String>,
}

/// Durations in microseconds.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub struct CallTimes {
    /// Time to the end of the call.
    pub total: u64,
    /// Time to the head of the answer.
    pub ttfb: Option<u64>,
    /// Time to the first token.
    pub first_token: Option<u64>,
}

impl CallData {
    /// Reads the data of an event; `None` if it is not the data of a call.
    #[must_use]
    pub fn read(event_data: &str) -> Option<Self> {
        serde_json::from_str(event_data).ok()
    }

    /// Returns the cost, if the price was known.
    #[must_use]
    pub fn known_cost(&self) -> Option<&KnownCost> {
        self.cost.as_ref()?.known.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::CallData;

    #[test]
    fn members_that_are_missing_or_null_are_unknown() {
        for text in ["{}", r#"{"call_id":null,"cost":{"known":null},"timing_us":null,"more":1}"#] {
            let data = CallData::read(text).expect("it is the data of a call");
            assert!(data.call_id.is_none() && data.known_cost().is_none() && data.timing_us.is_none(), "{text}");
        }
        assert!(CallData::read(r#"{"timing_us":5}"#).is_none());
    }

    #[test]
    fn the_cost_and_the_times_are_read() {
        let text = r#"{"cost":{"known":{"usd":"0.5","source":"header"}},"timing_us":{"total":7,"first_token":3}}"#;
        let data = CallData::read(text).expect("it is the data of a call");
        let cost = data.known_cost().expect("it is known");
        assert_eq!((cost.usd.as_str(), cost.source.as_deref()), ("0.5", Some("header")));
        let times = data.timing_us.expect("it has times");
        assert_eq!((times.total, times.ttfb, times.first_token), (7, None, Some(3)));
    }
}
