//! Settlement of receipts by the spend log. An entry is added once, and compared after that.

use rusqlite::{Transaction, TransactionBehavior, params};
use sluice_contract::Hash;
use sluice_contract::record::Usage;

use super::booked::BookedReceipt;
use super::entry::{CACHE_HIT, LedgerEntry, RETRY, SOURCE};
use super::status::ReceiptStatus;
use super::{LedgerError, insert, receipt_rows};
use crate::store::{Store, now_us};

/// Source system of entries from the spend log.
pub const SPEND_LOG: &str = "litellm-spend";

/// Source of the amount of a settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriceSource {
    /// A row of a call that LiteLLM answered, or no row at all.
    SpendLog,
    /// A row of a call that failed in LiteLLM. Its amount is nearly always 0, also where the provider answered and
    /// billed before the call failed: only the provider's invoice shows that.
    FailureRow,
    /// A row of a call that LiteLLM's cache answered free of charge.
    CacheHit,
    /// A row of an earlier try of the call. Its amount is added to the receipt, and replaces nothing.
    Retry,
}

/// Entry that settles a receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// Name of the receipt.
    pub receipt: String,
    /// Name of the settlement in its source.
    pub reference: String,
    /// Hash of the row in the spend log.
    pub hash: Hash,
    /// Dollars as the source writes them; none without a row.
    pub cost_usd: Option<String>,
    /// Amount in nano-USD, rounded half-even.
    pub nano_usd: Option<i64>,
    /// Source of the amount.
    pub price_source: PriceSource,
    /// Tokens, where the receipt has none.
    pub usage: Option<Usage>,
    /// Reason that no amount is known.
    pub null_reason: Option<String>,
    /// Id of the call at LiteLLM.
    pub litellm_call_id: Option<String>,
    /// Model that answered.
    pub model_served: Option<String>,
    /// Time in microseconds since 1970; 0 for the time of the call.
    pub origin_us: i64,
    /// Entries that the settlement replaces.
    pub replaces: Vec<i64>,
    /// Reason of the replacement.
    pub cause: Option<String>,
}

impl Settlement {
    /// Returns the settlement of a receipt without a row in the spend log, whose call cost nothing.
    #[must_use]
    pub fn not_billed(receipt: &str) -> Self {
        let reference = format!("{receipt}#not_billed");
        Self {
            receipt: receipt.to_owned(),
            hash: Hash::of(reference.as_bytes()),
            reference,
            cost_usd: None,
            nano_usd: None,
            price_source: PriceSource::SpendLog,
            usage: None,
            null_reason: Some("not_billed".to_owned()),
            litellm_call_id: None,
            model_served: None,
            origin_us: 0,
            replaces: Vec::new(),
            cause: None,
        }
    }
}

/// Number of new rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Settled {
    /// Settled receipts.
    pub receipts: u64,
    /// Reversed entries.
    pub reversed: u64,
}

impl PriceSource {
    /// Returns the word in the database and in output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SpendLog => "spend_log",
            Self::FailureRow => "spend_log_failure",
            Self::CacheHit => CACHE_HIT,
            Self::Retry => RETRY,
        }
    }
}

impl Store {
    /// Adds settlements, all of them or none. Existing ones are compared. A receipt that another process has settled in the
    /// meantime is skipped.
    ///
    /// # Errors
    /// [`LedgerError::Conflict`], and errors of SQLite.
    pub async fn settle(&self, settlements: Vec<Settlement>) -> Result<Settled, LedgerError> {
        self.write(move |connection| {
            let now = now_us();
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let mut settled = Settled::default();
            for settlement in &settlements {
                settle(&change, settlement, now, &mut settled)?;
            }
            change.commit()?;
            Ok(settled)
        })
        .await
    }
}

fn settle(
    change: &Transaction<'_>,
    settlement: &Settlement,
    now: i64,
    settled: &mut Settled,
) -> Result<(), LedgerError> {
    if insert::known(change, "entries", SPEND_LOG, &settlement.reference, settlement.hash)?.is_some() {
        return Ok(());
    }
    let id: i64 = change
        .prepare("SELECT id FROM receipts WHERE source_system = ?1 AND source_reference = ?2")?
        .query_row([SOURCE, &settlement.receipt], |row| row.get(0))?;
    let bill = receipt_rows::by_id(change, id)?;
    if !may_follow(&bill, settlement) {
        return Ok(());
    }
    for entry in &settlement.replaces {
        reverse(change, *entry, settlement, now)?;
        settled.reversed += 1;
    }
    let entry = entry(&bill, settlement, origin(change, id, settlement)?);
    let entry = insert::add_entry(change, id, SPEND_LOG, &entry, now)?;
    settled.receipts += 1;
    insert::append_receipt_event(change, id, Some(entry), ReceiptStatus::Settled, now)
}

/// Returns true if a receipt in this state can take the settlement.
fn may_follow(bill: &BookedReceipt, settlement: &Settlement) -> bool {
    if settlement.price_source == PriceSource::Retry {
        // A retry would close an open receipt: the cost of the call itself must arrive first.
        return matches!(bill.status, ReceiptStatus::Posted | ReceiptStatus::Settled);
    }
    let own = bill.without_retries();
    match &settlement.cause {
        None => own.is_open() || (own.status == ReceiptStatus::Settled && own.nano_usd.is_none()),
        // All entries that it replaces are still live, and no other amount was added.
        Some(_) => {
            let is_live = |id: &i64| own.live().any(|entry| entry.id == *id);
            let is_named = |id: i64| settlement.replaces.contains(&id);
            settlement.replaces.iter().all(is_live)
                && own.live().filter(|entry| entry.nano_usd.is_some()).all(|entry| is_named(entry.id))
        }
    }
}

fn origin(change: &Transaction<'_>, id: i64, settlement: &Settlement) -> Result<i64, LedgerError> {
    if settlement.origin_us > 0 {
        return Ok(settlement.origin_us);
    }
    Ok(change.query_row("SELECT origin_us FROM receipts WHERE id = ?1", [id], |row| row.get(0))?)
}

fn entry(bill: &BookedReceipt, settlement: &Settlement, origin_us: i64) -> LedgerEntry {
    LedgerEntry {
        reference: settlement.reference.clone(),
        hash: settlement.hash,
        status: ReceiptStatus::Settled,
        // Facts of the call stay, also when the numbers are reversed.
        result: bill.result.clone(),
        ended: bill.end.clone(),
        http_status: bill.http_status,
        litellm_call_id: bill.litellm_call_id.clone().or_else(|| settlement.litellm_call_id.clone()),
        response_id: bill.response_id.clone(),
        model_served: bill.model_served.clone().or_else(|| settlement.model_served.clone()),
        usage: settlement.usage,
        cost_usd: settlement.cost_usd.clone(),
        nano_usd: settlement.nano_usd,
        price_source: settlement.price_source.as_str().to_owned(),
        null_reason: settlement.null_reason.clone(),
        origin_us,
    }
}

/// Inserts an entry with the opposite numbers.
fn reverse(change: &Transaction<'_>, entry: i64, settlement: &Settlement, now: i64) -> Result<(), LedgerError> {
    let added = change.prepare(
        "INSERT INTO entries (receipt, source_system, source_reference, payload_hash, status, reverses, cause, input,
                              output, cached_input, cache_write, reasoning, total, cost_usd, nano_usd, price_source,
                              origin_us, origin_day, arrived_us, arrived_day)
         SELECT receipt, ?2, source_reference || '#reversed', ?3, 'reversed', id, ?4, -input, -output, -cached_input,
                -cache_write, -reasoning, -total, cost_usd, -nano_usd, price_source, origin_us, origin_day, ?5,
                date(?5 / 1000000, 'unixepoch')
         FROM entries WHERE id = ?1",
    )?
    .execute(params![entry, SPEND_LOG, settlement.hash.to_string(), settlement.cause, now])?;
    debug_assert_eq!(added, 1, "it was found before, in this transaction");
    Ok(())
}
