//! What the spend log knows of receipts: added like everything else, once, and compared for ever after.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use sluice_contract::record::Usage;
use sluice_contract::{Hash, RunKey};

use super::bill::BookedReceipt;
use super::entry::{CACHE_HIT, LedgerEntry, RETRY, SOURCE};
use super::query::{self, Filter};
use super::status::ReceiptStatus;
use super::{LedgerError, post};
use crate::store::{Store, now_us};

/// The name of what the spend log says.
pub const SPEND_LOG: &str = "litellm-spend";

/// Where the amount of a settlement comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriceSource {
    /// A row of a call that LiteLLM answered, or no row at all.
    SpendLog,
    /// A row of a call that failed in LiteLLM. Its amount is nearly always 0, also where the provider answered and
    /// billed before the call failed: only the provider's invoice shows that.
    FailureRow,
    /// A row of a call that LiteLLM's cache answered, for nothing.
    CacheHit,
    /// A row of an earlier try of the call. It adds to the receipt, and stands in place of nothing.
    Retry,
}

/// What settles a receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The receipt's name.
    pub receipt: String,
    /// Its own, in its source.
    pub reference: String,
    /// Of the row.
    pub hash: Hash,
    /// Dollars in the source's own words; null where there is no row, and no money.
    pub cost_usd: Option<String>,
    /// The same, rounded half-even.
    pub nano_usd: Option<i64>,
    /// Where that comes from.
    pub price_source: PriceSource,
    /// Tokens that the receipt does not have.
    pub usage: Option<Usage>,
    /// Why there is no money.
    pub null_reason: Option<String>,
    /// LiteLLM's id of the call.
    pub litellm_call_id: Option<String>,
    /// What answered.
    pub model_served: Option<String>,
    /// When, in microseconds since 1970; 0 is when the call was.
    pub origin_us: i64,
    /// Entries that it stands in place of.
    pub takes_back: Vec<i64>,
    /// Why, if it takes something back.
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
            takes_back: Vec::new(),
            cause: None,
        }
    }
}

/// What was new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Settled {
    /// Receipts that were settled.
    pub receipts: u64,
    /// Entries that were taken back.
    pub reversed: u64,
}

/// Receipts, and what is known beside them.
#[derive(Debug, Clone, Default)]
pub struct ReconcilableReceipts {
    /// As they stand, each with the time when it was heard of last, in microseconds since 1970.
    pub bills: Vec<(BookedReceipt, i64)>,
    /// Runs of which more receipts may come.
    pub under_way: HashSet<RunKey>,
}

impl PriceSource {
    /// The word in the database and in output.
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
    /// Looks for receipts, with what a reconciliation asks of them, as of one moment.
    ///
    /// # Errors
    /// Those of SQLite.
    pub async fn hold(&self, filter: Filter) -> Result<ReconcilableReceipts, LedgerError> {
        self.call(move |connection| {
            let moment = connection.transaction()?;
            let bills = query::bills(&moment, &filter)?;
            let bills = heard(&moment, bills)?;
            Ok(ReconcilableReceipts { bills, under_way: under_way(&moment)? })
        })
        .await
    }

    /// Who pays the calls of these ids that have a receipt.
    ///
    /// # Errors
    /// Those of SQLite.
    pub async fn payers(&self, call_ids: Vec<String>) -> Result<HashMap<String, String>, LedgerError> {
        self.call(move |connection| {
            let mut query = connection.prepare("SELECT account FROM receipts WHERE call_id = ?1")?;
            let mut payers = HashMap::new();
            for id in call_ids {
                let account = query.query_map([&id], |row| row.get(0))?.next().transpose()?;
                payers.extend(account.map(|account| (id, account)));
            }
            Ok(payers)
        })
        .await
    }

    /// The accounts that have receipts.
    ///
    /// # Errors
    /// Those of SQLite.
    pub async fn payer_names(&self) -> Result<Vec<String>, LedgerError> {
        self.call(|connection| {
            let mut query = connection.prepare("SELECT DISTINCT account FROM receipts ORDER BY 1")?;
            let names = query.query_map([], |row| row.get(0))?;
            Ok(names.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Who pays a run, and from when to when it went, in microseconds since 1970. None if nobody knows it.
    ///
    /// # Errors
    /// Those of SQLite.
    pub async fn span_of_run(
        &self,
        run_id: String,
        attempt: Option<u32>,
    ) -> Result<Option<(String, i64, i64)>, LedgerError> {
        self.call(move |connection| {
            let mut query = connection.prepare(
                "SELECT max(account), min(begun), max(ended) FROM (
                     SELECT account, created_us AS begun, updated_us AS ended FROM runs
                     WHERE run_id = ?1 AND (?2 IS NULL OR attempt = ?2)
                     UNION ALL
                     SELECT account, origin_us, origin_us FROM receipts
                     WHERE run_id = ?1 AND (?2 IS NULL OR attempt = ?2))
                 HAVING count(*) > 0",
            )?;
            let mut rows =
                query.query_map(params![run_id, attempt], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
            Ok(rows.next().transpose()?)
        })
        .await
    }

    /// Adds what the spend log knows, all of it or nothing. What is there already is compared; what somebody else has
    /// settled meanwhile is left to the next look.
    ///
    /// # Errors
    /// [`LedgerError::Conflict`], and those of SQLite.
    pub async fn settle(&self, settlements: Vec<Settlement>) -> Result<Settled, LedgerError> {
        self.call(move |connection| {
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
    if post::known(change, "entries", SPEND_LOG, &settlement.reference, settlement.hash)?.is_some() {
        return Ok(());
    }
    let id: i64 = change
        .prepare("SELECT id FROM receipts WHERE source_system = ?1 AND source_reference = ?2")?
        .query_row([SOURCE, &settlement.receipt], |row| row.get(0))?;
    let bill = query::bill(change, id)?;
    if !may_follow(&bill, settlement) {
        return Ok(());
    }
    for entry in &settlement.takes_back {
        take_back(change, *entry, settlement, now)?;
        settled.reversed += 1;
    }
    let entry = entry(&bill, settlement, origin(change, id, settlement)?);
    let entry = post::add_entry(change, id, SPEND_LOG, &entry, now)?;
    settled.receipts += 1;
    post::tell(change, id, Some(entry), ReceiptStatus::Settled, now)
}

/// Whether a receipt can take a settlement as it stands now.
fn may_follow(bill: &BookedReceipt, settlement: &Settlement) -> bool {
    if settlement.price_source == PriceSource::Retry {
        // An open receipt would no longer be open: first comes what the call itself cost.
        return matches!(bill.status, ReceiptStatus::Posted | ReceiptStatus::Settled);
    }
    let own = bill.without_retries();
    match &settlement.cause {
        None => own.is_open() || (own.status == ReceiptStatus::Settled && own.nano_usd.is_none()),
        // All that it takes back stands still, and nothing came beside it.
        Some(_) => {
            let is_live = |id: &i64| own.live().any(|entry| entry.id == *id);
            let is_named = |id: i64| settlement.takes_back.contains(&id);
            settlement.takes_back.iter().all(is_live)
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
        // What was seen of the call stays so, also when the numbers beside it are taken back.
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

/// An entry with the opposite numbers.
fn take_back(change: &Transaction<'_>, entry: i64, settlement: &Settlement, now: i64) -> Result<(), LedgerError> {
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
    debug_assert_eq!(added, 1, "it was found before, in this change");
    Ok(())
}

/// With the time at which each was heard of last.
fn heard(connection: &Connection, bills: Vec<BookedReceipt>) -> Result<Vec<(BookedReceipt, i64)>, LedgerError> {
    let mut query = connection.prepare(
        "SELECT max(receipts.arrived_us, ifnull((SELECT max(arrived_us) FROM entries WHERE receipt = receipts.id
                                                 AND source_system = receipts.source_system), 0))
         FROM receipts WHERE source_system = ?1 AND source_reference = ?2",
    )?;
    let mut heard = Vec::with_capacity(bills.len());
    for bill in bills {
        let at = query.query_row([&bill.source_system, &bill.source_reference], |row| row.get(0))?;
        heard.push((bill, at));
    }
    Ok(heard)
}

/// Runs that are open, or whose audit file was not read to its end.
fn under_way(connection: &Connection) -> Result<HashSet<RunKey>, LedgerError> {
    let mut query = connection.prepare(
        "SELECT run_id || '.' || attempt FROM runs WHERE phase <> 'closed' OR NOT EXISTS (
             SELECT 1 FROM readings
             WHERE readings.run_id = runs.run_id AND readings.attempt = runs.attempt AND ended = 1)",
    )?;
    let keys = query.query_map([], |row| row.get::<_, String>(0))?;
    Ok(keys.collect::<Result<Vec<_>, _>>()?.iter().filter_map(|key| key.parse().ok()).collect())
}
