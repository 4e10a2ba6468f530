//! A receipt with its entries, and the values that follow from them.
//!
//! Pure.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use sluice_contract::record::Usage;
use sluice_contract::time::from_unix_micros;
use sluice_contract::{Usd, could_be_billed};

use super::entry::{LedgerEntry, RETRY, ReceiptRow, SOURCE};
use super::status::ReceiptStatus;

/// A receipt with its entries so far.
///
/// A receipt of a run's report names and fills the members that it shares with this one in the same way.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[allow(missing_docs, reason = "as in `ReceiptRow` and `LedgerEntry`")]
pub struct BookedReceipt {
    pub source_system: String,
    pub source_reference: String,
    /// Hash of the audit line of the intent.
    pub payload_hash: String,
    pub run_id: String,
    pub attempt: u32,
    pub call: u64,
    pub call_id: String,
    pub account: String,
    pub graph_id: String,
    pub method: String,
    pub path: String,
    pub stream: bool,
    pub model: Option<String>,
    /// Amount that the sidecar reserved for the call, in dollars; null if it knew no price.
    pub reserved_usd: Option<String>,
    pub model_served: Option<String>,
    pub litellm_call_id: Option<String>,
    pub response_id: Option<String>,
    pub status: ReceiptStatus,
    pub result: Option<String>,
    pub end: Option<String>,
    pub http_status: Option<u16>,
    pub usage: Option<Usage>,
    /// Dollars as the source of the newest amount writes them; several amounts are added.
    pub cost_usd: Option<String>,
    /// Exact sum of the entries; a string in JSON, since a reader's number may be a float.
    #[serde(serialize_with = "as_text")]
    pub nano_usd: Option<i128>,
    /// Source of the amount; null without one.
    pub price_source: Option<String>,
    /// Reason that tokens or dollars are null.
    pub null_reason: Option<String>,
    /// Time of the call in UTC.
    pub origin: String,
    /// Day on which the receipt arrived, in which the call counts. Each amount counts on the day of its entry.
    pub period: String,
    #[serde(skip)]
    pub entries: Vec<BookedEntry>,
}

/// An entry of a receipt. In a reversing entry all numbers are negative.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "as in `LedgerEntry`")]
pub struct BookedEntry {
    pub id: i64,
    pub source_system: String,
    pub source_reference: String,
    pub payload_hash: String,
    pub status: ReceiptStatus,
    /// Entry that it reverses.
    pub reverses: Option<i64>,
    pub result: Option<String>,
    pub end: Option<String>,
    pub http_status: Option<u16>,
    pub litellm_call_id: Option<String>,
    pub response_id: Option<String>,
    pub model_served: Option<String>,
    pub tokens: BookedTokens,
    pub cost_usd: Option<String>,
    pub nano_usd: Option<i64>,
    pub price_source: String,
    pub null_reason: Option<String>,
    pub period: String,
}

/// Tokens with a sign; none where they were not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "as in `Usage`")]
pub struct BookedTokens {
    pub cache_write: Option<i64>,
    pub cached_input: Option<i64>,
    pub input: Option<i64>,
    pub output: Option<i64>,
    pub reasoning: Option<i64>,
    pub total: Option<i64>,
}

impl BookedReceipt {
    /// Returns a receipt without entries.
    #[must_use]
    pub fn of(receipt: &ReceiptRow) -> Self {
        Self {
            source_system: SOURCE.to_owned(),
            source_reference: receipt.reference.clone(),
            payload_hash: receipt.hash.to_string(),
            run_id: receipt.key.run_id.to_string(),
            attempt: receipt.key.attempt,
            call: receipt.call,
            call_id: receipt.call_id.clone(),
            account: receipt.account.clone(),
            graph_id: receipt.graph_id.clone(),
            method: receipt.method.clone(),
            path: receipt.path.clone(),
            stream: receipt.stream,
            model: receipt.model.clone(),
            reserved_usd: receipt.reserved_usd.clone(),
            origin: Self::time(receipt.origin_us),
            ..Self::default()
        }
    }

    /// Formats a time as RFC 3339 in UTC, with microseconds.
    pub(super) fn time(us: i64) -> String {
        humantime::format_rfc3339_micros(from_unix_micros(us)).to_string()
    }

    /// Adds the next entry.
    pub fn add_entry(&mut self, entry: BookedEntry) {
        self.entries.push(entry);
        let live: Vec<_> = live(&self.entries).collect();
        self.status = live.last().map_or(ReceiptStatus::Reversed, |entry| entry.status);
        let newest =
            |read: fn(&BookedEntry) -> Option<&String>| live.iter().rev().find_map(|entry| read(entry)).cloned();
        self.result = newest(|entry| entry.result.as_ref());
        self.end = newest(|entry| entry.end.as_ref());
        self.http_status = live.iter().rev().find_map(|entry| entry.http_status);
        self.litellm_call_id = newest(|entry| entry.litellm_call_id.as_ref());
        self.response_id = newest(|entry| entry.response_id.as_ref());
        self.model_served = newest(|entry| entry.model_served.as_ref());
        let priced: Vec<_> = live.iter().filter(|entry| entry.nano_usd.is_some()).collect();
        let own = priced.iter().rev().find(|entry| !entry.is_retry()).or(priced.last());
        self.price_source = own.map(|entry| entry.price_source.clone());
        self.nano_usd = priced.iter().filter_map(|entry| entry.nano_usd.map(i128::from)).reduce(|sum, more| sum + more);
        self.cost_usd = match priced[..] {
            [_, _, ..] => self.nano_usd.map(|nanos| Usd::from_nano_sum(nanos).to_string()),
            _ => newest(|entry| entry.cost_usd.as_ref()),
        };
        let counted = live.iter().filter(|entry| entry.tokens != BookedTokens::default());
        self.usage = counted.map(|entry| Usage::from(entry.tokens)).reduce(|mut sum, more| {
            sum.add(&more);
            sum
        });
        // If a value arrived later, no reason is needed.
        let is_known = self.nano_usd.is_some() && self.usage.is_some();
        self.null_reason = if is_known { None } else { newest(|entry| entry.null_reason.as_ref()) };
    }

    /// Returns the receipt without the amounts of earlier tries of its call.
    #[must_use]
    pub fn without_retries(&self) -> Cow<'_, Self> {
        if !self.entries.iter().any(BookedEntry::is_retry) {
            return Cow::Borrowed(self);
        }
        let mut own = Self { entries: Vec::new(), ..self.clone() };
        self.entries.iter().filter(|entry| !entry.is_retry()).for_each(|entry| own.add_entry(entry.clone()));
        Cow::Owned(own)
    }

    /// Returns the day of the last entry, on which the amount changed last; none without an entry.
    #[must_use]
    pub fn last_booked_on(&self) -> Option<&str> {
        self.entries.last().map(|entry| entry.period.as_str())
    }

    /// Returns the entries that are not reversed.
    pub fn live(&self) -> impl Iterator<Item = &BookedEntry> {
        live(&self.entries)
    }

    /// Returns the amount that the sidecar reserved for the call, in nano-USD, if it knew a price.
    #[must_use]
    pub fn reserved_nanos(&self) -> Option<i64> {
        self.reserved_usd.as_deref().and_then(|text| Usd::parse(text).ok()).map(|usd| usd.to_nanos())
    }

    /// Returns true if a budget holds the amount reserved for the call: its cost is unknown, and a provider could bill
    /// its HTTP status. A row that arrives later is billed in any case.
    #[must_use]
    pub fn holds_budget(&self) -> bool {
        self.is_open() && (self.status != ReceiptStatus::PendingCost || could_be_billed(self.http_status))
    }

    /// Returns true if the cost of the call is unknown.
    #[must_use]
    pub fn is_open(&self) -> bool {
        match self.status {
            ReceiptStatus::Pending | ReceiptStatus::PendingCost | ReceiptStatus::Unknown => true,
            ReceiptStatus::Posted | ReceiptStatus::Voided | ReceiptStatus::Settled | ReceiptStatus::Reversed => false,
        }
    }
}

fn live(entries: &[BookedEntry]) -> impl Iterator<Item = &BookedEntry> {
    let is_reversed = |id| entries.iter().any(|entry| entry.reverses == Some(id));
    entries.iter().filter(move |entry| entry.reverses.is_none() && !is_reversed(entry.id))
}

impl BookedEntry {
    /// Returns true if the entry bills an earlier try of the call.
    #[must_use]
    pub fn is_retry(&self) -> bool {
        self.price_source == RETRY
    }

    /// Converts an entry that is not in a database.
    #[must_use]
    pub fn of(entry: &LedgerEntry) -> Self {
        Self {
            id: 0,
            source_system: SOURCE.to_owned(),
            source_reference: entry.reference.clone(),
            payload_hash: entry.hash.to_string(),
            status: entry.status,
            reverses: None,
            result: entry.result.clone(),
            end: entry.ended.clone(),
            http_status: entry.http_status,
            litellm_call_id: entry.litellm_call_id.clone(),
            response_id: entry.response_id.clone(),
            model_served: entry.model_served.clone(),
            tokens: entry.usage.map(BookedTokens::from).unwrap_or_default(),
            cost_usd: entry.cost_usd.clone(),
            nano_usd: entry.nano_usd,
            price_source: entry.price_source.clone(),
            null_reason: entry.null_reason.clone(),
            period: String::new(),
        }
    }
}

impl From<Usage> for BookedTokens {
    fn from(usage: Usage) -> Self {
        // Numbers in an audit file do not exceed 2^53.
        let count = |tokens: Option<u64>| tokens.map(|tokens| i64::try_from(tokens).unwrap_or(i64::MAX));
        Self {
            cache_write: count(usage.cache_write),
            cached_input: count(usage.cached_input),
            input: count(usage.input),
            output: count(usage.output),
            reasoning: count(usage.reasoning),
            total: count(usage.total),
        }
    }
}

impl From<BookedTokens> for Usage {
    fn from(tokens: BookedTokens) -> Self {
        let count = |tokens: Option<i64>| tokens.map(|tokens| u64::try_from(tokens).unwrap_or(0));
        Self {
            cache_write: count(tokens.cache_write),
            cached_input: count(tokens.cached_input),
            input: count(tokens.input),
            output: count(tokens.output),
            reasoning: count(tokens.reasoning),
            total: count(tokens.total),
        }
    }
}

#[allow(clippy::ref_option, reason = "serde's signature")]
fn as_text<S: Serializer>(amount: &Option<i128>, serializer: S) -> Result<S::Ok, S::Error> {
    amount.map(|amount| amount.to_string()).serialize(serializer)
}
