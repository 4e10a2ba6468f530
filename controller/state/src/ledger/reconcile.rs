//! Queries of a reconciliation with the spend log.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, params};
use sluice_contract::RunKey;

use super::LedgerError;
use super::booked::BookedReceipt;
use super::filter::Filter;
use super::{receipt_rows, run_state};
use crate::store::Store;

/// Receipts for a reconciliation, as one snapshot.
#[derive(Debug, Clone, Default)]
pub struct ReconcilableReceipts {
    /// Receipts, each with its last arrival from its own source, in microseconds since 1970.
    pub receipts: Vec<(BookedReceipt, i64)>,
    /// Runs that may have more receipts later.
    pub under_way: HashSet<RunKey>,
}

impl Store {
    /// Returns the selected receipts for a reconciliation.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn receipts_for_reconcile(&self, filter: Filter) -> Result<ReconcilableReceipts, LedgerError> {
        self.query(move |connection| {
            let snapshot = connection.transaction()?;
            let receipts = receipt_rows::selected(&snapshot, &filter)?;
            let receipts = with_last_arrival(&snapshot, receipts)?;
            Ok(ReconcilableReceipts { receipts, under_way: run_state::under_way(&snapshot)? })
        })
        .await
    }

    /// Returns the account of each of these call ids that has a receipt.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn payers(&self, call_ids: Vec<String>) -> Result<HashMap<String, String>, LedgerError> {
        self.query(move |connection| {
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

    /// Returns the accounts that have receipts.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn payer_names(&self) -> Result<Vec<String>, LedgerError> {
        self.query(|connection| {
            let mut query = connection.prepare("SELECT DISTINCT account FROM receipts ORDER BY 1")?;
            let names = query.query_map([], |row| row.get(0))?;
            Ok(names.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Returns the account of a run, and its first and last time in microseconds since 1970; `None` for an unknown run.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn span_of_run(
        &self,
        run_id: String,
        attempt: Option<u32>,
    ) -> Result<Option<(String, i64, i64)>, LedgerError> {
        self.query(move |connection| {
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
}

/// Adds the last arrival to each receipt.
fn with_last_arrival(
    connection: &Connection,
    receipts: Vec<BookedReceipt>,
) -> Result<Vec<(BookedReceipt, i64)>, LedgerError> {
    let mut query = connection.prepare(
        "SELECT max(receipts.arrived_us, ifnull((SELECT max(arrived_us) FROM entries WHERE receipt = receipts.id
                                                 AND source_system = receipts.source_system), 0))
         FROM receipts WHERE source_system = ?1 AND source_reference = ?2",
    )?;
    let mut found = Vec::with_capacity(receipts.len());
    for receipt in receipts {
        let at = query.query_row([&receipt.source_system, &receipt.source_reference], |row| row.get(0))?;
        found.push((receipt, at));
    }
    Ok(found)
}
