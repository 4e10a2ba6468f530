//! Sums that the database updates while rows are added (migration 7), and their check.

use std::collections::{BTreeMap, HashMap};

use rusqlite::types::Value;
use rusqlite::{Connection, Row, TransactionBehavior, params_from_iter};
use serde::Serialize;

use super::LedgerError;
use super::filter::Filter;
use super::receipt_rows;
use super::run_state::{self, Unsettled};
use super::totals::{GroupBy, TokenSums, Total, dollars};
use crate::store::Store;

/// Sums of selected receipts, as one snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageTable {
    /// Sum of each group.
    pub groups: BTreeMap<String, Total>,
    /// Sum of all groups.
    pub total: Total,
    /// Runs whose bill is not final.
    pub unsettled: Vec<Unsettled>,
}

/// The sum of a group, as commands and the API print it.
#[derive(Debug, Serialize)]
pub struct GroupSum {
    name: String,
    #[serde(flatten)]
    total: Total,
}

impl GroupSum {
    /// Returns the sums of all groups of a table.
    #[must_use]
    pub fn all(groups: BTreeMap<String, Total>) -> Vec<Self> {
        groups.into_iter().map(|(name, total)| Self { name, total }).collect()
    }
}

impl Store {
    /// Sums up a selection: receipts and entries of its run, account, owner and model that arrived in its time. If each
    /// time is the start of a day, the query's duration grows with runs and days, and with receipts of unknown cost.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn usage(&self, by: GroupBy, filter: Filter) -> Result<UsageTable, LedgerError> {
        self.query(move |connection| {
            // One snapshot for all queries.
            let snapshot = connection.transaction()?;
            let mut table = UsageTable::default();
            let source = source(&filter);
            let mut query =
                snapshot.prepare(&format!("SELECT {KEY}, calls, {HALVES} FROM ({source}) WHERE {SELECTED}"))?;
            let values = named_values(&filter);
            let mut rows = query.query(params_from_iter(values.iter()))?;
            while let Some(row) = rows.next()? {
                let stored = stored_total(row)?;
                table.total.merge(&stored);
                table.groups.entry(name(row, by)?).or_default().merge(&stored);
            }
            let open_calls = add_open(&snapshot, by, &filter, &mut table)?;
            table.unsettled = run_state::unsettled(&snapshot, &filter, &open_calls)?;
            table.total = table.total.or_zero(table.unsettled.is_empty());
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

    /// Computes all sums again, and returns the wrong ones.
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

/// Condition on the columns of [`KEY`], with the values of [`named_values`].
const SELECTED: &str = "(?1 IS NULL OR run_id = ?1) AND (?2 IS NULL OR attempt = ?2) AND (?3 IS NULL OR account = ?3) \
                        AND (?4 IS NULL OR model = ?4) \
                        AND (?7 IS NULL OR run_id IN (SELECT run_id FROM sandboxes WHERE owner = ?7))";

/// Returns the values of a filter: run, attempt, account, model, first and last time, owner.
fn named_values(filter: &Filter) -> [Value; 7] {
    let text = |text: &Option<String>| text.clone().map_or(Value::Null, Value::Text);
    [
        text(&filter.run_id),
        filter.attempt.map_or(Value::Null, |attempt| Value::Integer(attempt.into())),
        text(&filter.account),
        text(&filter.model),
        Value::Integer(filter.since_us.unwrap_or(i64::MIN)),
        Value::Integer(filter.until_us.unwrap_or(i64::MAX)),
        text(&filter.owner),
    ]
}

/// Returns the query of the sums of a time: from the stored sums for whole days, else from all rows.
fn source(filter: &Filter) -> String {
    const DAY_US: i64 = 86_400_000_000;
    let is_whole = |time: Option<i64>| time.is_none_or(|us| us % DAY_US == 0);
    if is_whole(filter.since_us) && is_whole(filter.until_us) {
        // Times outside the calendar of SQLite have no day.
        let day = |place: u8| format!("date(max(0, min(?{place}, 253402300799000000)) / 1000000, 'unixepoch')");
        let last = if filter.until_us.is_some() { format!("day < {}", day(6)) } else { "?6 = ?6".to_owned() };
        return format!("SELECT * FROM usage_sums WHERE day >= {} AND {last}", day(5));
    }
    let columns: Vec<_> = HALVES.split(", ").collect();
    let none = vec!["NULL"; columns.len()].join(", ");
    let sums: Vec<_> = columns.iter().map(|half| sum_of_half(half)).collect();
    format!(
        "SELECT run_id, attempt, account, ifnull(model, '') AS model, arrived_day AS day, count(*) AS calls, {}
         FROM receipts WHERE arrived_us >= ?5 AND arrived_us < ?6 GROUP BY 1, 2, 3, 4, 5
         UNION ALL
         SELECT run_id, attempt, account, ifnull(model, ''), entries.arrived_day, 0, {}
         FROM entries JOIN receipts ON receipts.id = entries.receipt
         WHERE entries.arrived_us >= ?5 AND entries.arrived_us < ?6 GROUP BY 1, 2, 3, 4, 5",
        none.split(", ").zip(&columns).map(|(null, name)| format!("{null} AS {name}")).collect::<Vec<_>>().join(", "),
        sums.join(", ")
    )
}

/// Returns the sum of one half of a column of entries, as migration 7 computes it.
fn sum_of_half(half: &str) -> String {
    let (name, part) = half.rsplit_once('_').unwrap_or((half, ""));
    let column = match name {
        "input" => "all_input",
        "total" => "all_tokens",
        name => name,
    };
    let operation = if part == "high" { ">> 32" } else { "& 4294967295" };
    format!("sum(entries.{column} {operation})")
}

/// Adds the receipts of unknown cost that a provider could bill and that arrived in the time of the filter. Returns the
/// number of such receipts for each run, with those that have an entry of that time, as a list of receipts has them.
fn add_open(
    connection: &Connection,
    by: GroupBy,
    filter: &Filter,
    table: &mut UsageTable,
) -> Result<HashMap<String, u64>, LedgerError> {
    let mut open_calls = HashMap::new();
    let (clause, values) = filter.clause();
    let mut query = connection.prepare(&format!(
        "SELECT run_id, attempt, account, ifnull(model, ''), arrived_day, receipts.id, arrived_us
         FROM open_receipts JOIN receipts ON receipts.id = open_receipts.receipt WHERE {clause}"
    ))?;
    let mut rows = query.query(params_from_iter(values.iter()))?;
    while let Some(row) = rows.next()? {
        let receipt = receipt_rows::by_id(connection, row.get(5)?)?;
        if !receipt.holds_budget() {
            continue;
        }
        *open_calls.entry(name(row, GroupBy::Run)?).or_default() += 1;
        let arrived_us: i64 = row.get(6)?;
        let is_after_start = filter.since_us.is_none_or(|since| arrived_us >= since);
        if is_after_start && filter.until_us.is_none_or(|until| arrived_us < until) {
            let open = Total { open: 1, reserved: receipt.reserved_nanos().map(i128::from), ..Total::default() };
            table.total.merge(&open);
            table.groups.entry(name(row, by)?).or_default().merge(&open);
        }
    }
    Ok(open_calls)
}

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
            let cost = dollars(total.nano_usd.unwrap_or(0));
            let detail = format!("{} calls and {cost} of {} are {text}", total.calls, name(row, GroupBy::Day)?);
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
