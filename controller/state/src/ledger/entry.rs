//! Rows of the ledger, with the values of their source.
//!
//! The time of arrival is not a part of them: the database adds it, and each rebuild changes it.

use sluice_contract::record::Usage;
use sluice_contract::{Hash, RunKey};

use super::ReceiptStatus;

/// Source system of rows from audit files.
pub const SOURCE: &str = "sluice-audit";

/// Price source of a call that LiteLLM's cache answered free of charge.
pub const CACHE_HIT: &str = "cache_hit";

/// Price source of an earlier try of a call, which LiteLLM billed in a row of its own.
pub const RETRY: &str = "spend_log_retry";

/// A call that was about to go upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiptRow {
    /// Name in its source: `RUN/ATTEMPT/CALL`.
    pub reference: String,
    /// Hash of the audit line of the intent, which includes all lines before it.
    pub hash: Hash,
    /// Attempt of the run.
    pub key: RunKey,
    /// Number of the call in the attempt, from 1.
    pub call: u64,
    /// Id of the call, which LiteLLM writes into its spend row.
    pub call_id: String,
    /// Account that pays.
    pub account: String,
    /// Graph of the run.
    pub graph_id: String,
    /// Method of the request.
    pub method: String,
    /// Path of the request.
    pub path: String,
    /// Requested model.
    pub model: Option<String>,
    /// True if a streamed response was requested.
    pub stream: bool,
    /// Amount that was reserved for the call, in dollars.
    pub reserved_usd: Option<String>,
    /// Time in microseconds since 1970.
    pub origin_us: i64,
}

/// End of a call, and its cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerEntry {
    /// Name in its source: the name of the receipt, with `#outcome` or `#end`.
    pub reference: String,
    /// Hash of the audit line.
    pub hash: Hash,
    /// Status of the receipt after this entry.
    pub status: ReceiptStatus,
    /// Result of the call; none if it is unknown.
    pub result: Option<String>,
    /// Cause of the end.
    pub ended: Option<String>,
    /// HTTP status of the upstream.
    pub http_status: Option<u16>,
    /// Id of the call at LiteLLM.
    pub litellm_call_id: Option<String>,
    /// Id of the response at the provider.
    pub response_id: Option<String>,
    /// Model that answered.
    pub model_served: Option<String>,
    /// Tokens as the provider counted them, with all input as input ([`Usage::inclusive`]).
    pub usage: Option<Usage>,
    /// Dollars as the source writes them.
    pub cost_usd: Option<String>,
    /// Amount in nano-USD, rounded half-even.
    pub nano_usd: Option<i64>,
    /// Source of the amount.
    pub price_source: String,
    /// Reason that tokens or dollars are unknown.
    pub null_reason: Option<String>,
    /// Time in microseconds since 1970.
    pub origin_us: i64,
}
