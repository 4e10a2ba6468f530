//! A receipt as it stands: what its entries come to.
//!
//! Pure.

use std::borrow::Cow;
use std::time::{Duration, UNIX_EPOCH};

use serde::{Serialize, Serializer};
use sluice_contract::Usd;
use sluice_contract::record::Usage;

use super::entry::{LedgerEntry, RETRY, ReceiptRow, SOURCE};

use super::status::ReceiptStatus;

/// A receipt, with what has come of it so far.
///
/// What it shares with the receipts of a run's report has the same names and values there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[allow(missing_docs, reason = "as in `Receipt` and `Entry`")]
pub struct BookedReceipt {
    pub source_system: String,
    pub source_reference: String,
    /// The hash of the audit line that the receipt rests on.
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
    /// What the sidecar reserved for the call, in dollars; null where it knew no price.
    pub reserved_usd: Option<String>,
    pub model_served: Option<String>,
    pub litellm_call_id: Option<String>,
    pub response_id: Option<String>,
    pub status: ReceiptStatus,
    pub result: Option<String>,
    pub end: Option<String>,
    pub http_status: Option<u16>,
    pub usage: Option<Usage>,
    /// As the source of the newest amount wrote it; of several amounts together, their sum in nano-USD.
    pub cost_usd: Option<String>,
    /// The sum of the entries; a string, since a reader's number may be a float.
    #[serde(serialize_with = "as_text")]
    pub nano_usd: Option<i64>,
    /// Where that comes from; null while there is none.
    pub price_source: Option<String>,
    /// Why tokens or dollars are null, where they are.
    pub null_reason: Option<String>,
    /// UTC.
    pub origin: String,
    /// The day in which the call counts.
    pub period: String,
    #[serde(skip)]
    pub entries: Vec<BookedEntry>,
}

/// What an entry adds to a receipt. Of one that takes another back, all numbers are negative.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "as in `Entry`")]
pub struct BookedEntry {
    pub id: i64,
    pub source_system: String,
    pub source_reference: String,
    pub payload_hash: String,
    pub status: ReceiptStatus,
    /// The entry that it takes back.
    pub reverses: Option<i64>,
    pub result: Option<String>,
    pub end: Option<String>,
    pub http_status: Option<u16>,
    pub litellm_call_id: Option<String>,
    pub response_id: Option<String>,
    pub model_served: Option<String>,
    pub tokens: Tokens,
    pub cost_usd: Option<String>,
    pub nano_usd: Option<i64>,
    pub price_source: String,
    pub null_reason: Option<String>,
    pub period: String,
}

/// Tokens with a sign; null where nobody counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "as in `Usage`")]
pub struct Tokens {
    pub cache_write: Option<i64>,
    pub cached_input: Option<i64>,
    pub input: Option<i64>,
    pub output: Option<i64>,
    pub reasoning: Option<i64>,
    pub total: Option<i64>,
}

impl BookedReceipt {
    /// A receipt of which nothing has come yet.
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

    /// UTC, RFC 3339, microseconds.
    pub(super) fn time(us: i64) -> String {
        let time = UNIX_EPOCH + Duration::from_micros(us.max(0).cast_unsigned());
        humantime::format_rfc3339_micros(time).to_string()
    }

    /// Adds its next entry.
    pub fn take(&mut self, posting: BookedEntry) {
        self.entries.push(posting);
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
        self.nano_usd = priced.iter().filter_map(|entry| entry.nano_usd).reduce(i64::saturating_add);
        self.cost_usd = match priced[..] {
            [_, _, ..] => self.nano_usd.map(|nanos| Usd::from_nanos(nanos).to_string()),
            _ => newest(|entry| entry.cost_usd.as_ref()),
        };
        let counted = live.iter().filter(|entry| entry.tokens != Tokens::default());
        self.usage = counted.map(|entry| Usage::from(entry.tokens)).reduce(|mut sum, more| {
            sum.add(&more);
            sum
        });
        // Of what was null and came later there is nothing to explain any more.
        let is_known = self.nano_usd.is_some() && self.usage.is_some();
        self.null_reason = if is_known { None } else { newest(|entry| entry.null_reason.as_ref()) };
    }

    /// Returns the receipt without what was billed for earlier tries of its call.
    #[must_use]
    pub fn without_retries(&self) -> Cow<'_, Self> {
        if !self.entries.iter().any(BookedEntry::is_retry) {
            return Cow::Borrowed(self);
        }
        let mut own = Self { entries: Vec::new(), ..self.clone() };
        self.entries.iter().filter(|entry| !entry.is_retry()).for_each(|entry| own.take(entry.clone()));
        Cow::Owned(own)
    }

    /// The entries that nothing has taken back.
    pub fn live(&self) -> impl Iterator<Item = &BookedEntry> {
        live(&self.entries)
    }

    /// Returns what the sidecar reserved for the call, in nano-USD, where it knew a price.
    #[must_use]
    pub fn reserved_nanos(&self) -> Option<i64> {
        self.reserved_usd.as_deref().and_then(|text| Usd::parse(text).ok()).map(|usd| usd.to_nanos())
    }

    /// Whether nobody knows yet, or ever will, what it cost.
    #[must_use]
    pub fn is_open(&self) -> bool {
        match self.status {
            ReceiptStatus::Pending | ReceiptStatus::PendingCost | ReceiptStatus::Unknown => true,
            ReceiptStatus::Posted | ReceiptStatus::Voided | ReceiptStatus::Settled | ReceiptStatus::Reversed => false,
        }
    }
}

fn live(entries: &[BookedEntry]) -> impl Iterator<Item = &BookedEntry> {
    let taken_back = |id| entries.iter().any(|entry| entry.reverses == Some(id));
    entries.iter().filter(move |entry| entry.reverses.is_none() && !taken_back(entry.id))
}

impl BookedEntry {
    /// Whether it bills an earlier try of the call, beside the call itself.
    #[must_use]
    pub fn is_retry(&self) -> bool {
        self.price_source == RETRY
    }

    /// What an entry adds that has no place in a database yet.
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
            tokens: entry.usage.map(Tokens::from).unwrap_or_default(),
            cost_usd: entry.cost_usd.clone(),
            nano_usd: entry.nano_usd,
            price_source: entry.price_source.clone(),
            null_reason: entry.null_reason.clone(),
            period: String::new(),
        }
    }
}

impl From<Usage> for Tokens {
    fn from(usage: Usage) -> Self {
        // No line of an audit file has more than 2^53.
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

impl From<Tokens> for Usage {
    fn from(tokens: Tokens) -> Self {
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
fn as_text<S: Serializer>(amount: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
    amount.map(|amount| amount.to_string()).serialize(serializer)
}
