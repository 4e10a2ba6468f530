//! The sums that the database keeps while rows are added (migration 7), and whether they are right.

use std::collections::{BTreeMap, HashMap};

use rusqlite::{Connection, Row, TransactionBehavior};
use sluice_contract::Usd;

use super::LedgerError;
use super::query::{self, Filter, Unsettled};
use super::total::{Group, Sums, Total};
use crate::store::Store;

/// What all receipts come to, as of one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageTable {
    /// A sum for each name.
    pub groups: BTreeMap<String, Total>,
    /// The sum of all.
    pub total: Total,
    /// Runs of whose bill more may come, or that nobody vouches for.
    pub unsettled: Vec<Unsettled>,
}

impl Store {
    /// Sums up all receipts. The time it takes grows with runs and days, and with receipts of unknown cost.
    ///
    /// # Errors
    /// Those of SQLite.
    pub async fn usage(&self, by: Group) -> Result<UsageTable, LedgerError> {
        self.call(move |connection| {
            // One moment for all questions.
            let moment = connection.transaction()?;
            let mut usages = UsageTable::default();
            let mut query = moment.prepare(&format!("SELECT {KEY}, calls, {HALVES} FROM usage_sums"))?;
            let mut rows = query.query([])?;
            while let Some(row) = rows.next()? {
                let kept = kept(row)?;
                usages.total.merge(&kept);
                usages.groups.entry(name(row, by)?).or_default().merge(&kept);
            }
            let mut open_calls = HashMap::new();
            let mut query = moment.prepare(
                "SELECT run_id, attempt, account, ifnull(model, ''), arrived_day, reserved_usd
                 FROM open_receipts JOIN receipts ON receipts.id = open_receipts.receipt",
            )?;
            let mut rows = query.query([])?;
            while let Some(row) = rows.next()? {
                let reserved: Option<String> = row.get(5)?;
                let reserved = reserved.as_deref().and_then(|text| Usd::parse(text).ok());
                let open = Total { open: 1, reserved: reserved.map(|usd| usd.to_nanos().into()), ..Total::default() };
                usages.total.merge(&open);
                usages.groups.entry(name(row, by)?).or_default().merge(&open);
                *open_calls.entry(name(row, Group::Run)?).or_default() += 1;
            }
            usages.unsettled = query::unsettled(&moment, &Filter::default(), &open_calls)?;
            Ok(usages)
        })
        .await
    }

    /// Returns the rows of the kept sums that differ from the sums of all rows: what a row is of, and how it differs.
    ///
    /// # Errors
    /// Those of SQLite.
    pub async fn check_sums(&self) -> Result<Vec<(String, String)>, LedgerError> {
        self.call(|connection| {
            let moment = connection.transaction()?;
            wrong_sums(&moment)
        })
        .await
    }

    /// Adds everything up again, and returns what was wrong before.
    ///
    /// # Errors
    /// Those of SQLite.
    pub async fn renew_sums(&self) -> Result<Vec<(String, String)>, LedgerError> {
        self.call(|connection| {
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
/// Both halves of each sum, in the order of [`kept`].
const HALVES: &str = "cache_write_high, cache_write_low, cached_input_high, cached_input_low, input_high, input_low, \
                      output_high, output_low, reasoning_high, reasoning_low, total_high, total_low, nano_usd_high, \
                      nano_usd_low";

fn anew() -> String {
    let sums: Vec<_> = HALVES.split(", ").map(|half| format!("sum({half})")).collect();
    format!("SELECT {KEY}, sum(calls), {} FROM usage_sums_anew GROUP BY {KEY}", sums.join(", "))
}

fn wrong_sums(connection: &Connection) -> Result<Vec<(String, String)>, LedgerError> {
    let kept = format!("SELECT {KEY}, calls, {HALVES} FROM usage_sums");
    let mut wrong = Vec::new();
    for (one, other, text) in
        [(kept.clone(), anew(), "kept, and not added up"), (anew(), kept, "added up, and not kept")]
    {
        let mut query = connection.prepare(&format!("{one} EXCEPT {other}"))?;
        let mut rows = query.query([])?;
        while let Some(row) = rows.next()? {
            let total = self::kept(row)?;
            let cost = total.cost_usd().unwrap_or_else(|| "0".to_owned());
            let detail = format!("{} calls and ${cost} of {} are {text}", total.calls, name(row, Group::Day)?);
            wrong.push((name(row, Group::Run)?, detail));
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

/// The group of a row that begins with [`KEY`].
fn name(row: &Row<'_>, by: Group) -> rusqlite::Result<String> {
    match by {
        Group::Account => row.get(2),
        Group::Run => Ok(format!("{}.{}", row.get::<_, String>(0)?, row.get::<_, u32>(1)?)),
        Group::Model => row.get(3),
        Group::Day => row.get(4),
    }
}

/// What a row of kept sums comes to.
fn kept(row: &Row<'_>) -> rusqlite::Result<Total> {
    let sum = |place: usize| -> rusqlite::Result<Option<i128>> {
        let (high, low): (Option<i64>, Option<i64>) = (row.get(6 + 2 * place)?, row.get(7 + 2 * place)?);
        Ok(high.zip(low).map(|(high, low)| (i128::from(high) << 32) + i128::from(low)))
    };
    let usage = Sums {
        cache_write: sum(0)?,
        cached_input: sum(1)?,
        input: sum(2)?,
        output: sum(3)?,
        reasoning: sum(4)?,
        total: sum(5)?,
    };
    Ok(Total { calls: row.get::<_, i64>(5)?.cast_unsigned(), usage, nano_usd: sum(6)?, ..Total::default() })
}
