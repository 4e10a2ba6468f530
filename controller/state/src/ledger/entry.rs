//! The rows of the ledger, as their source gives them.
//!
//! When a row arrived is not in it: that is the database's to say, and differs each time it is built.

use sluice_contract::record::Usage;
use sluice_contract::{Hash, RunKey};

use super::ReceiptStatus;

/// The name of what our own audit files say.
pub const SOURCE: &str = "sluice-audit";

/// The price source of a call that LiteLLM's cache answered, for nothing.
pub const CACHE_HIT: &str = "cache_hit";

/// The price source of an earlier try of a call, which LiteLLM billed in a row of its own.
pub const RETRY: &str = "spend_log_retry";

/// A call that was about to go upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiptRow {
    /// Its name in its source: `RUN/ATTEMPT/CALL`.
    pub reference: String,
    /// Of the audit line that says all this; the line stands for all lines before it.
    pub hash: Hash,
    /// Which start of which run.
    pub key: RunKey,
    /// Which call of it, from 1.
    pub call: u64,
    /// Its id, which stands on LiteLLM's spend row.
    pub call_id: String,
    /// Who pays.
    pub account: String,
    /// The graph that the run belongs to.
    pub graph_id: String,
    /// Of the request.
    pub method: String,
    /// Of the request.
    pub path: String,
    /// What was asked for.
    pub model: Option<String>,
    /// Whether the answer was to be streamed.
    pub stream: bool,
    /// What was kept of the run's cap for it, in dollars.
    pub reserved_usd: Option<String>,
    /// When, in microseconds since 1970.
    pub origin_us: i64,
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerEntry {
    /// Its name in its source: the receipt's, with `#outcome` or `#end`.
    pub reference: String,
    /// Of the audit line that says all this.
    pub hash: Hash,
    /// What is known of its money from here on.
    pub status: ReceiptStatus,
    /// How the call went; none if nobody knows.
    pub result: Option<String>,
    /// Who ended it.
    pub ended: Option<String>,
    /// What the upstream answered.
    pub http_status: Option<u16>,
    /// LiteLLM's id of it.
    pub litellm_call_id: Option<String>,
    /// The provider's.
    pub response_id: Option<String>,
    /// What answered.
    pub model_served: Option<String>,
    /// Tokens as the provider counted them, with all input as input ([`Usage::inclusive`]).
    pub usage: Option<Usage>,
    /// Dollars in the provider's own words.
    pub cost_usd: Option<String>,
    /// The same, rounded half-even.
    pub nano_usd: Option<i64>,
    /// Where that comes from.
    pub price_source: String,
    /// Why tokens or dollars are not known.
    pub null_reason: Option<String>,
    /// When, in microseconds since 1970.
    pub origin_us: i64,
}
