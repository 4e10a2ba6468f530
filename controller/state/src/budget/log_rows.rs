//! Rows of the database that record the lines of the budget log.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};
use sluice_contract::{Hash, RunKey};

use super::log::{BudgetChange, ChangeKind, DatabaseState, LogEntry};
use super::{account_state, accounts, holds};
use crate::ledger::LedgerError;
use crate::store::{Store, hash, run_key};

/// State of the database in relation to the budget log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LogRows {
    pub(super) state: DatabaseState,
    /// Row of each unlogged change.
    pub(super) ids: Vec<i64>,
    /// Runs whose receipts arrived only after the change, for each unlogged change.
    pub(super) late: Vec<Vec<RunKey>>,
}

impl LogRows {
    /// Returns the rows without the first changes, which are logged by now.
    pub(super) fn without_first(&self, changes: usize) -> Self {
        let DatabaseState { logged, unlogged, is_original } = &self.state;
        let unlogged = unlogged[changes..].to_vec();
        let state = DatabaseState { logged: logged.clone(), unlogged, is_original: *is_original };
        Self { state, ids: self.ids[changes..].to_vec(), late: self.late[changes..].to_vec() }
    }
}

impl Store {
    /// Returns true if the database has neither runs nor readings, which means that it was just created.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn is_new(&self) -> Result<bool, LedgerError> {
        self.query(|connection| {
            let mut query = connection.prepare("SELECT 1 FROM runs UNION ALL SELECT 1 FROM readings LIMIT 1")?;
            Ok(!query.exists([])?)
        })
        .await
    }

    /// Returns the time at which the budget of an account was set, in microseconds since 1970; `None` without a budget.
    pub(super) async fn budget_opened(&self, account: String) -> Result<Option<i64>, LedgerError> {
        self.query(move |connection| {
            let Some((budget, _)) = account_state::opening(connection, &account)? else { return Ok(None) };
            Ok(Some(connection.query_row("SELECT made_us FROM budgets WHERE id = ?1", [budget], |row| row.get(0))?))
        })
        .await
    }

    /// Returns the number of logged lines and the hash of the last one; `None` without lines, or with unlogged changes.
    pub(super) async fn last_logged(&self) -> Result<Option<(u64, Hash)>, LedgerError> {
        self.query(|connection| {
            let mut query = connection.prepare(
                "SELECT seq + 1, hash FROM budget_log
                 WHERE NOT EXISTS (SELECT 1 FROM budgets WHERE id > (SELECT coalesce(max(budget), 0) FROM budget_log))
                 ORDER BY seq DESC LIMIT 1",
            )?;
            let row = query.query_row([], |row| Ok((row.get::<_, i64>(0)?, hash(row, 1)?))).optional()?;
            Ok(row.map(|(lines, hash)| (lines.cast_unsigned(), hash)))
        })
        .await
    }

    /// Returns the state of the database in relation to the log, as one snapshot.
    pub(super) async fn log_rows(&self) -> Result<LogRows, LedgerError> {
        self.query(|connection| {
            let snapshot = connection.transaction()?;
            let mut found = LogRows::default();
            let mut query = snapshot.prepare("SELECT hash FROM budget_log ORDER BY seq")?;
            found.state.logged = query.query_map([], |row| hash(row, 0))?.collect::<Result<_, _>>()?;
            found.state.is_original = snapshot.prepare("SELECT 1 FROM runs")?.exists([])?;
            let mut query = snapshot.prepare(
                "SELECT account, kind, nano_usd, made_us, made_by, id, entries_to FROM budgets
                 WHERE id > (SELECT coalesce(max(budget), 0) FROM budget_log) ORDER BY id",
            )?;
            let mut rows = query.query([])?;
            while let Some(row) = rows.next()? {
                let change = change(row)?;
                let late = match change.kind {
                    ChangeKind::Set => late_runs(&snapshot, &change, row.get(6)?)?,
                    _ => Vec::new(),
                };
                found.late.push(late);
                found.state.unlogged.push(change);
                found.ids.push(row.get(5)?);
            }
            Ok(found)
        })
        .await
    }

    /// Records that a change is in the log.
    pub(super) async fn record_logged(&self, seq: u64, line: Hash, budget: Option<i64>) -> Result<(), LedgerError> {
        self.write(move |connection| Ok(insert_logged(connection, seq, line, budget)?)).await
    }

    /// Adds a change that the log has and the database does not.
    pub(super) async fn restore_budget(&self, seq: u64, entry: LogEntry) -> Result<(), LedgerError> {
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let releases = match entry.change.kind {
                ChangeKind::Begun | ChangeKind::Added => None,
                ChangeKind::Set => Some("budget_set"),
                ChangeKind::Removed => Some("budget_removed"),
            };
            if let Some(why) = releases {
                holds::release_ended_runs(&transaction, &entry.change.account, why)?;
            }
            let mut budget = None;
            if entry.change.kind != ChangeKind::Begun {
                accounts::insert_budget(&transaction, &entry.change)?;
                budget = Some(transaction.last_insert_rowid());
            }
            insert_logged(&transaction, seq, entry.hash, budget)?;
            Ok(transaction.commit()?)
        })
        .await
    }

    /// Deletes the record of logged lines, before another log begins.
    pub(super) async fn clear_logged(&self) -> Result<(), LedgerError> {
        self.write(|connection| {
            connection.execute("DELETE FROM budget_log", [])?;
            Ok(())
        })
        .await
    }

    /// Returns which of these runs have neither a row nor a reading in the database.
    pub(super) async fn unknown_runs(&self, runs: Vec<RunKey>) -> Result<Vec<RunKey>, LedgerError> {
        self.without(runs, "SELECT run_id, attempt FROM runs UNION SELECT run_id, attempt FROM readings").await
    }

    /// Returns which of these runs have an audit file that was not read to its end.
    pub(super) async fn unread_files(&self, runs: Vec<RunKey>) -> Result<Vec<RunKey>, LedgerError> {
        self.without(runs, "SELECT run_id, attempt FROM readings WHERE ended = 1").await
    }

    async fn without(&self, runs: Vec<RunKey>, known: &'static str) -> Result<Vec<RunKey>, LedgerError> {
        self.query(move |connection| {
            let mut query = connection.prepare(known)?;
            let known: HashSet<RunKey> = query.query_map([], |row| run_key(row, 0))?.collect::<Result<_, _>>()?;
            Ok(runs.into_iter().filter(|run| !known.contains(run)).collect())
        })
        .await
    }
}

/// Converts the first five columns of a row of budgets.
pub(super) fn change(row: &Row<'_>) -> rusqlite::Result<BudgetChange> {
    let kind: String = row.get(1)?;
    let kind = match kind.as_str() {
        "set" => ChangeKind::Set,
        "added" => ChangeKind::Added,
        _ => ChangeKind::Removed,
    };
    Ok(BudgetChange { account: row.get(0)?, kind, nano_usd: row.get(2)?, made_us: row.get(3)?, made_by: row.get(4)? })
}

/// Returns the runs of an account that began before a change, and for which the ledger had no entries at that time.
fn late_runs(connection: &Connection, change: &BudgetChange, entries_to: i64) -> rusqlite::Result<Vec<RunKey>> {
    let mut query = connection.prepare(
        "SELECT run_id, attempt FROM runs
         WHERE account = ?1 AND created_us <= ?2
           AND NOT EXISTS (
               SELECT 1 FROM receipts JOIN entries ON entries.receipt = receipts.id AND entries.id <= ?3
               WHERE receipts.run_id = runs.run_id AND receipts.attempt = runs.attempt)
           AND NOT EXISTS (
               SELECT 1 FROM readings
               WHERE readings.run_id = runs.run_id AND readings.attempt = runs.attempt AND ended = 1 AND read_us <= ?2)",
    )?;
    query.query_map(params![change.account, change.made_us, entries_to], |row| run_key(row, 0))?.collect()
}

fn insert_logged(connection: &Connection, seq: u64, line: Hash, budget: Option<i64>) -> rusqlite::Result<()> {
    connection.execute(
        "INSERT INTO budget_log (seq, hash, budget) VALUES (?1, ?2, ?3)",
        params![seq.cast_signed(), line.to_string(), budget],
    )?;
    Ok(())
}
