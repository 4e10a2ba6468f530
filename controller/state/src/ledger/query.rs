//! Queries of receipts and runs.

use std::collections::{BTreeSet, HashMap};
use std::sync::mpsc;

use rusqlite::params_from_iter;
use sluice_contract::RunKey;

use super::LedgerError;
use super::booked::BookedReceipt;
use super::filter::Filter;
use super::receipt_rows::{ENTRY, RECEIPT, entry, receipt};
use super::run_state::{Unsettled, unsettled};
use super::totals::Total;
use crate::store::{Store, run_key};

/// Selected receipts, as one snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Receipts in the order in which the calls were made.
    pub receipts: Vec<BookedReceipt>,
    /// Runs whose bill is not final.
    pub unsettled: Vec<Unsettled>,
}

/// Summary of a list of receipts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListSummary {
    /// Sum of the receipts.
    pub total: Total,
    /// As in [`Selection`].
    pub unsettled: Vec<Unsettled>,
}

impl Store {
    /// Returns the selected receipts, all in memory.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn select(&self, filter: Filter) -> Result<Selection, LedgerError> {
        let (found, receipts) = mpsc::channel();
        // The receiving end outlives the query.
        let listed = self.list(filter, move |receipt| found.send(receipt).is_ok()).await?;
        Ok(Selection { receipts: receipts.into_iter().collect(), unsettled: listed.unsettled })
    }

    /// Passes the selected receipts to `each`, in the order in which the calls were made, until it returns false.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn list(
        &self,
        filter: Filter,
        mut each: impl FnMut(BookedReceipt) -> bool + Send + 'static,
    ) -> Result<ListSummary, LedgerError> {
        self.query(move |connection| {
            // One snapshot for all queries.
            let snapshot = connection.transaction()?;
            let (mut listed, mut open_calls) = (ListSummary::default(), HashMap::<String, u64>::new());
            let (clause, values) = filter.clause();
            let mut query = snapshot.prepare(&format!("{RECEIPT} WHERE {clause} ORDER BY origin_us, id"))?;
            let mut entries = snapshot.prepare(&format!("{ENTRY} WHERE receipt = ?1 ORDER BY id"))?;
            let mut rows = query.query(params_from_iter(values.iter()))?;
            while let Some(row) = rows.next()? {
                let (id, mut receipt) = receipt(row)?;
                for entry in entries.query_map([id], entry)? {
                    receipt.add_entry(entry?.1);
                }
                listed.total.add_receipt(&receipt);
                if receipt.holds_budget() {
                    *open_calls.entry(format!("{}.{}", receipt.run_id, receipt.attempt)).or_default() += 1;
                }
                if !each(receipt) {
                    break;
                }
            }
            listed.unsettled = unsettled(&snapshot, &filter, &open_calls)?;
            listed.total = listed.total.or_zero(listed.unsettled.is_empty());
            Ok(listed)
        })
        .await
    }

    /// Returns closed runs whose audit file was not read to its end, oldest first: each one gets its turn, however many
    /// follow.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn unread_runs(&self, limit: u32) -> Result<Vec<RunKey>, LedgerError> {
        self.query(move |connection| {
            let mut query = connection.prepare(
                "SELECT run_id, attempt FROM runs WHERE phase = 'closed' AND NOT EXISTS (
                     SELECT 1 FROM readings
                     WHERE readings.run_id = runs.run_id AND readings.attempt = runs.attempt AND ended = 1)
                 ORDER BY updated_us, run_id, attempt LIMIT ?1",
            )?;
            let rows = query.query_map([limit], |row| run_key(row, 0))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Returns the runs that have receipts or witnesses.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn known_runs(&self) -> Result<BTreeSet<RunKey>, LedgerError> {
        self.query(|connection| {
            let mut query = connection
                .prepare("SELECT run_id, attempt FROM receipts UNION SELECT run_id, attempt FROM witnesses")?;
            let rows = query.query_map([], |row| run_key(row, 0))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }
}
