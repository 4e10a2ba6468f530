//! Receipts that the operator voids: their cost will never be known.
//!
//! A void is first a signed line of the log of decisions, then an entry of the ledger. A rebuild adds the entries of lines
//! that the ledger does not have.

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use sluice_contract::RunKey;

use super::booked::BookedReceipt;
use super::entry::SOURCE;
use super::insert::{append_receipt_event, known};
use super::status::ReceiptStatus;
use super::{LedgerError, receipt_rows};
use crate::decisions::{self, Decision, DecisionError, VoidedReceipt};
use crate::keys::Keys;
use crate::layout::Layout;
use crate::operator;
use crate::run::RunPhase;
use crate::store::{Store, StoreError, now_us};

/// Source system of entries that the operator made.
pub const OPERATOR: &str = "sluice-operator";
/// Reason of the unknown cost of a voided receipt.
pub const VOIDED: &str = "voided_by_operator";

/// A receipt that cannot be voided.
#[derive(Debug, thiserror::Error)]
pub enum VoidError {
    /// No receipt has this name.
    #[error("there is no receipt {0}; sluice receipts --json lists them as source_reference: RUN/ATTEMPT/CALL")]
    Unknown(String),
    /// The receipt needs no decision.
    #[error("receipt {receipt} is {status}: only a receipt that is pending_cost or unknown can be voided")]
    Decided {
        /// Name of the receipt.
        receipt: String,
        /// Status of the receipt.
        status: &'static str,
    },
    /// The run has not ended.
    #[error("run {0} is under way, so the cost of its calls may still come")]
    UnderWay(RunKey),
    /// The reason is empty, or too long for a line.
    #[error("the reason has {0} bytes; give 1 to 1000")]
    Reason(usize),
    /// The decision cannot be recorded.
    #[error(transparent)]
    Decision(#[from] DecisionError),
    /// The ledger cannot be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl From<StoreError> for VoidError {
    fn from(error: StoreError) -> Self {
        Self::Ledger(error.into())
    }
}

impl From<rusqlite::Error> for VoidError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Ledger(error.into())
    }
}

/// Voids a receipt that is `pending_cost` or `unknown`, and releases its reservation. Returns the receipt as it was.
///
/// # Errors
/// [`VoidError`]
pub async fn void(
    layout: &Layout,
    keys: &Keys,
    store: &Store,
    receipt: &str,
    reason: &str,
) -> Result<BookedReceipt, VoidError> {
    if !(1..=1000).contains(&reason.len()) {
        return Err(VoidError::Reason(reason.len()));
    }
    let before = store.voidable(receipt).await?;
    record(layout, keys, store, receipt, reason).await?;
    Ok(before)
}

/// Records the decision, and adds its entry.
pub(super) async fn record(
    layout: &Layout,
    keys: &Keys,
    store: &Store,
    receipt: &str,
    reason: &str,
) -> Result<(), VoidError> {
    let decision = Decision::Void { receipt: receipt.to_owned(), reason: reason.to_owned() };
    let hash = decisions::record(layout, keys, decision)?;
    let (name, reason, made_by) = (receipt.to_owned(), reason.to_owned(), operator::name());
    let voided = VoidedReceipt { receipt: name, reason, made_by, made_us: now_us(), hash };
    if store.add_voids(vec![voided]).await? == 0 {
        // Its cost has become known meanwhile: this is the error that says so.
        store.voidable(receipt).await?;
    }
    Ok(())
}

/// Returns the receipt of this name, if it can be voided.
fn voidable(connection: &mut Connection, name: &str) -> Result<BookedReceipt, VoidError> {
    let snapshot = connection.transaction()?;
    let receipt = receipt_rows::by_reference(&snapshot, SOURCE, name)?;
    let receipt = receipt.ok_or_else(|| VoidError::Unknown(name.to_owned()))?;
    let phase: Option<String> = snapshot
        .prepare("SELECT phase FROM runs WHERE run_id = ?1 AND attempt = ?2")?
        .query_row(params![receipt.run_id, receipt.attempt], |row| row.get(0))
        .optional()?;
    let is_under_way = phase.is_some_and(|phase| phase != RunPhase::Closed.as_str());
    if is_under_way && let Ok(run_id) = receipt.run_id.parse() {
        return Err(VoidError::UnderWay(RunKey { run_id, attempt: receipt.attempt }));
    }
    if !receipt.is_open() || receipt.status == ReceiptStatus::Pending {
        return Err(VoidError::Decided { receipt: name.to_owned(), status: receipt.status.as_str() });
    }
    Ok(receipt)
}

impl Store {
    /// Returns the receipt of this name, if it can be voided.
    async fn voidable(&self, receipt: &str) -> Result<BookedReceipt, VoidError> {
        let name = receipt.to_owned();
        self.query(move |connection| voidable(connection, &name)).await
    }

    /// Adds the entries of these voids, as far as their receipts exist and are still open. Returns their number.
    pub(super) async fn add_voids(&self, voids: Vec<VoidedReceipt>) -> Result<u64, LedgerError> {
        self.write(move |connection| {
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let mut added = 0;
            for voided in &voids {
                added += u64::from(add_void(&change, voided, now_us())?);
            }
            change.commit()?;
            Ok(added)
        })
        .await
    }

    /// Returns which of these receipts are open although they were voided: their void is not in the ledger.
    pub(super) async fn missing_voids(&self, voids: Vec<VoidedReceipt>) -> Result<Vec<(RunKey, String)>, LedgerError> {
        self.query(move |connection| {
            let mut missing = Vec::new();
            for VoidedReceipt { receipt, .. } in voids {
                let found = receipt_rows::by_reference(connection, SOURCE, &receipt)?;
                if let Some(open) = found.filter(BookedReceipt::is_open)
                    && let Ok(run_id) = open.run_id.parse()
                {
                    missing.push((RunKey { run_id, attempt: open.attempt }, receipt));
                }
            }
            Ok(missing)
        })
        .await
    }
}

/// Adds the entry of a void. Facts of the call stay.
fn add_void(change: &Connection, voided: &VoidedReceipt, now: i64) -> Result<bool, LedgerError> {
    let reference = format!("{}#voided", voided.receipt);
    if known(change, "entries", OPERATOR, &reference, voided.hash).is_ok_and(|known| known.is_some()) {
        return Ok(false);
    }
    let id: Option<i64> = change
        .prepare("SELECT id FROM receipts WHERE source_system = ?1 AND source_reference = ?2")?
        .query_row([SOURCE, &voided.receipt], |row| row.get(0))
        .optional()?;
    let Some(id) = id else { return Ok(false) };
    let bill = receipt_rows::by_id(change, id)?;
    if !bill.is_open() {
        return Ok(false);
    }
    let mut insert = change.prepare_cached(
        "INSERT INTO entries (receipt, source_system, source_reference, payload_hash, status, cause, result, ended,
                              http_status, litellm_call_id, response_id, model_served, price_source, null_reason,
                              origin_us, origin_day, arrived_us, arrived_day)
         SELECT id, ?2, ?3, ?4, 'voided', ?5, ?6, ?7, ?8, ?9, ?10, ?11, 'operator', ?12, origin_us, origin_day, ?13,
                date(?13 / 1000000, 'unixepoch')
         FROM receipts WHERE id = ?1",
    )?;
    let entry = insert.insert(params![
        id,
        OPERATOR,
        reference,
        voided.hash.to_string(),
        voided.reason,
        bill.result,
        bill.end,
        bill.http_status,
        bill.litellm_call_id,
        bill.response_id,
        bill.model_served,
        VOIDED,
        now,
    ])?;
    append_receipt_event(change, id, Some(entry), ReceiptStatus::Voided, now)?;
    Ok(true)
}
