//! Sums that the database updates while rows are added (migration 7), and their check.

use std::collections::{BTreeMap, HashMap};

use rusqlite::{Connection, Row, TransactionBehavior};
use sluice_contract::Usd;

use super::LedgerError;
use super::filter::Filter;
use super::run_state::{self, Unsettled};
use super::totals::{GroupBy, TokenSums, Total};
use crate::store::Store;

/// Sums of all receipts, as one snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageTable {
    /// Sum of each group.
    pub groups: BTreeMap<String, Total>,
    /// Sum of all groups.
    pub total: Total,
    /// Runs whose bill is not final.
    pub unsettled: Vec<Unsettled>,
}

impl Store {
    /// Sums up all receipts. The time grows with runs and days, and with receipts of unknown cost.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn usage(&self, by: GroupBy) -> Result<UsageTable, LedgerError> {
        self.query(move |connection| {
            // One snapshot for all queries.
            let snapshot = connection.transaction()?;
            let mut table = UsageTable::default();
            let mut query = snapshot.prepare(&format!("SELECT {KEY}, calls, {HALVES} FROM usage_sums"))?;
            let mut rows = query.query([])?;
            while let Some(row) = rows.next()? {
                let stored = stored_total(row)?;
                table.total.merge(&stored);
                table.groups.entry(name(row, by)?).or_default().merge(&stored);
            }
            let mut open_calls = HashMap::new();
            let mut query = snapshot.prepare(
                "SELECT run_id, attempt, account, ifnull(model, ''), arrived_day, reserved_usd
                 FROM open_receipts JOIN receipts ON receipts.id = open_receipts.receipt",
            )?;
            let mut rows = query.query([])?;
            while let Some(row) = rows.next()? {
                let reserved: Option<String> = row.get(5)?;
                let reserved = reserved.as_deref().and_then(|text| Usd::parse(text).ok());
                let open = Total { open: 1, reserved: reserved.map(|usd| usd.to_nanos().into()), ..Total::default() };
                table.total.merge(&open);
                table.groups.entry(name(row, by)?).or_default().merge(&open);
                *open_calls.entry(name(row, GroupBy::Run)?).or_default() += 1;
            }
            table.unsettled = run_state::unsettled(&snapshot, &Filter::default(), &open_calls)?;
            Ok(table)
        })
        .await
    }

    /// Returns the stored sums that differ from the sums of all rows: the run of each, and a description.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn check_sums(&self) -> Result<Vec<(String, String)>, LedgerError> {
        self.query(|connection| {
            let snapshot = connection.transaction()?;
            wrong_sums(&snapshot)
        })
        .await
    }

    /// Computes all sums again, and returns the ones that were wrong.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn renew_sums(&self) -> Result<Vec<(String, String)>, LedgerError> {
        self.write(|connection| {
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let wrong = wrong_sums(&change)?;
            if !wrong.is_empty() {
                change.execute_batch(&format!(
                    "DELETE FROM usage_sums;
                     INSERT INTO usage_sums ({KEY}, calls, {HALVES}) {ANEW};
                     DELETE FROM open_receipts;
                     INSERT INTO open_receipts (receipt) SELECT receipt FROM open_receipts_anew;",
                    ANEW = anew()
                ))?;
                change.commit()?;
            }
            Ok(wrong)
        })
        .await
    }
}

const KEY: &str = "run_id, attempt, account, model, day";
/// Both halves of each sum, in the order of [`stored_total`].
const HALVES: &str = "cache_write_high, cache_write_low, cached_input_high, cached_input_low, input_high, input_low, \
                      output_high, output_low, reasoning_high, reasoning_low, total_high, total_low, nano_usd_high, \
                      nano_usd_low";

fn anew() -> String {
    let sums: Vec<_> = HALVES.split(", ").map(|half| format!("sum({half})")).collect();
    format!("SELECT {KEY}, sum(calls), {} FROM usage_sums_anew GROUP BY {KEY}", sums.join(", "))
}

fn wrong_sums(connection: &Connection) -> Result<Vec<(String, String)>, LedgerError> {
    let stored = format!("SELECT {KEY}, calls, {HALVES} FROM usage_sums");
    let mut wrong = Vec::new();
    for (one, other, text) in
        [(stored.clone(), anew(), "kept, and not added up"), (anew(), stored, "added up, and not kept")]
    {
        let mut query = connection.prepare(&format!("{one} EXCEPT {other}"))?;
        let mut rows = query.query([])?;
        while let Some(row) = rows.next()? {
            let total = stored_total(row)?;
            let cost = total.cost_usd().unwrap_or_else(|| "0".to_owned());
            let detail = format!("{} calls and ${cost} of {} are {text}", total.calls, name(row, GroupBy::Day)?);
            wrong.push((name(row, GroupBy::Run)?, detail));
        }
    }
    let open = "SELECT count(*) FROM (SELECT receipt FROM {} EXCEPT SELECT receipt FROM {})";
    for (one, other, text) in [
        ("open_receipts", "open_receipts_anew", "listed as open, and are not"),
        ("open_receipts_anew", "open_receipts", "open, and not listed so"),
    ] {
        let query = open.replacen("{}", one, 1).replacen("{}", other, 1);
        let count: i64 = connection.query_row(&query, [], |row| row.get(0))?;
        if count > 0 {
            wrong.push(("all runs".to_owned(), format!("{count} receipts are {text}")));
        }
    }
    Ok(wrong)
}

/// Returns the group of a row that begins with [`KEY`].
fn name(row: &Row<'_>, by: GroupBy) -> rusqlite::Result<String> {
    match by {
        GroupBy::Account => row.get(2),
        GroupBy::Run => Ok(format!("{}.{}", row.get::<_, String>(0)?, row.get::<_, u32>(1)?)),
        GroupBy::Model => row.get(3),
        GroupBy::Day => row.get(4),
    }
}

/// Converts a row of stored sums.
fn stored_total(row: &Row<'_>) -> rusqlite::Result<Total> {
    let sum = |place: usize| -> rusqlite::Result<Option<i128>> {
        let (high, low): (Option<i64>, Option<i64>) = (row.get(6 + 2 * place)?, row.get(7 + 2 * place)?);
        Ok(high.zip(low).map(|(high, low)| (i128::from(high) << 32) + i128::from(low)))
    };
    let usage = TokenSums {
        cache_write: sum(0)?,
        cached_input: sum(1)?,
        input: sum(2)?,
        output: sum(3)?,
        reasoning: sum(4)?,
        total: sum(5)?,
    };
    Ok(Total { calls: row.get::<_, i64>(5)?.cast_unsigned(), usage, nano_usd: sum(6)?, ..Total::default() })
}
