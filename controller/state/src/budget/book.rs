//! Budgets and holds in the database. All that they come to is read from the ledger, in the transaction that asks.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension, Row, ToSql, Transaction, TransactionBehavior, params};
use serde::Serialize;
use sluice_contract::{Account, Hash, RunKey};

use super::error::BudgetError;
use super::log::{self, Change, Kind, Known};
use super::{After, Balance, Shortfall, still_held};
use crate::ledger::{self, BookedReceipt, LedgerError, usd};
use crate::run::Phase;
use crate::store::{self, RunRow, Store, now_us};

/// A run that asks to be admitted.
#[derive(Debug, Clone)]
pub struct Admission {
    /// Its first record.
    pub entry: RunRow,
    /// Its own cap, in nano-USD.
    pub cap: Option<i64>,
    /// What a run without one holds of a budget, if that much is left.
    pub default: i64,
}

/// A run that may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admitted {
    /// Its cap from here on: its own, or what it holds of its account's budget.
    pub cap: Option<i64>,
}

/// What a run holds of a budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BudgetHold {
    /// `RUN.ATTEMPT`.
    pub run: String,
    /// What it began with.
    pub hold_usd: String,
    /// What it still holds.
    pub held_usd: String,
    /// Why that is not settled.
    pub reason: String,
}

impl BudgetError {
    /// For what only the database can say.
    fn into_ledger(self) -> LedgerError {
        match self {
            Self::Ledger(error) => error,
            other => LedgerError::Damaged(other.to_string()),
        }
    }
}

impl Store {
    /// Writes down that a run was asked for, with what it holds of its account's budget, or neither.
    ///
    /// # Errors
    /// [`BudgetError::Short`]; those of [`Store::begin`].
    pub async fn admit(&self, asked: Admission) -> Result<Admitted, BudgetError> {
        self.call(move |connection| {
            let Admission { entry, cap, default } = asked;
            // Of runs that come at once, each sees what those before it hold.
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            store::insert(&change, &entry)?;
            let cap = match standing(&change, &entry.account, Ended::WriteDown)? {
                None => cap,
                Some(Standing { budget, balance, counted, .. }) => {
                    let hold = balance.admit(cap, default).map_err(|balance| {
                        BudgetError::Short(Box::new(Shortfall { account: entry.account.clone(), asked: cap, balance }))
                    })?;
                    let spent = i64::try_from(balance.spent).map_err(|_| BudgetError::TooMuch)?;
                    let (run_id, attempt) = (entry.key.run_id.as_str(), entry.key.attempt);
                    change.execute(
                        "INSERT INTO holds (run_id, attempt, account, nano_usd, budget, spent, counted, made_us)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                        params![run_id, attempt, entry.account, hold, budget, spent, counted, now_us()],
                    )?;
                    Some(hold)
                }
            };
            change.commit()?;
            Ok(Admitted { cap })
        })
        .await
    }

    /// From here on an account may spend this much. What runs that are over still held is let go; runs under way keep
    /// what they hold.
    ///
    /// # Errors
    /// Those of SQLite.
    pub async fn set_budget(&self, account: &Account, nano_usd: i64) -> Result<(), BudgetError> {
        let account = account.clone();
        self.call(move |connection| {
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            begin_anew(&change, account.as_str(), "budget_set")?;
            add(&change, account.as_str(), "set", nano_usd)?;
            Ok(change.commit()?)
        })
        .await
    }

    /// An account may spend so much more.
    ///
    /// # Errors
    /// [`BudgetError::None`], [`BudgetError::TooMuch`].
    pub async fn add_budget(&self, account: &Account, nano_usd: i64) -> Result<(), BudgetError> {
        let account = account.clone();
        self.call(move |connection| {
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let Some(standing) = standing(&change, account.as_str(), Ended::Leave)? else {
                return Err(BudgetError::None(account));
            };
            if standing.balance.granted + i128::from(nano_usd) > i128::from(i64::MAX) {
                return Err(BudgetError::TooMuch);
            }
            add(&change, account.as_str(), "added", nano_usd)?;
            Ok(change.commit()?)
        })
        .await
    }

    /// An account has no limit any more.
    ///
    /// # Errors
    /// [`BudgetError::None`].
    pub async fn remove_budget(&self, account: &Account) -> Result<(), BudgetError> {
        let account = account.clone();
        self.call(move |connection| {
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            if opening(&change, account.as_str())?.is_none() {
                return Err(BudgetError::None(account));
            }
            begin_anew(&change, account.as_str(), "budget_removed")?;
            add(&change, account.as_str(), "removed", 0)?;
            Ok(change.commit()?)
        })
        .await
    }

    /// The accounts that have a budget, or this one if it has: how they stand, and what holds some of it.
    ///
    /// # Errors
    /// Those of SQLite.
    pub async fn budgets(
        &self,
        only: Option<&Account>,
    ) -> Result<Vec<(String, Balance, Vec<BudgetHold>)>, BudgetError> {
        let only = only.map(Account::to_string);
        self.call(move |connection| {
            // One moment for all of it.
            let moment = connection.transaction()?;
            let accounts: Vec<String> = moment
                .prepare("SELECT DISTINCT account FROM budgets WHERE ?1 IS NULL OR account = ?1 ORDER BY account")?
                .query_map([only], |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            let mut budgets = Vec::new();
            for account in accounts {
                if let Some(Standing { balance, held, .. }) = standing(&moment, &account, Ended::Leave)? {
                    budgets.push((account, balance, held));
                }
            }
            Ok(budgets)
        })
        .await
    }
}

/// What the database knows of the budget log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LogState {
    pub(super) known: Known,
    /// The row of each unlogged change.
    pub(super) ids: Vec<i64>,
    /// For each of them, the runs whose receipts came only after it.
    pub(super) late: Vec<Vec<RunKey>>,
}

/// What the budget log asks and tells.
impl Store {
    /// Whether the database knows no run at all: it was just made.
    ///
    /// # Errors
    /// Those of SQLite.
    pub async fn is_new(&self) -> Result<bool, LedgerError> {
        self.call(|connection| {
            let mut query = connection.prepare("SELECT 1 FROM runs UNION ALL SELECT 1 FROM readings LIMIT 1")?;
            Ok(!query.exists([])?)
        })
        .await
    }

    /// Whether the account has a limit.
    pub(super) async fn has_budget(&self, account: String) -> Result<bool, LedgerError> {
        self.call(move |connection| Ok(opening(connection, &account).map_err(BudgetError::into_ledger)?.is_some()))
            .await
    }

    /// The number of lines that were logged, and the hash of the last one; none if there are none, or changes wait.
    pub(super) async fn last_logged(&self) -> Result<Option<(u64, Hash)>, LedgerError> {
        self.call(|connection| {
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

    /// All that the database knows of the log, as of one moment.
    pub(super) async fn log_state(&self) -> Result<LogState, LedgerError> {
        self.call(|connection| {
            let moment = connection.transaction()?;
            let mut state = LogState::default();
            let mut query = moment.prepare("SELECT hash FROM budget_log ORDER BY seq")?;
            state.known.logged = query.query_map([], |row| hash(row, 0))?.collect::<Result<_, _>>()?;
            state.known.is_original = moment.prepare("SELECT 1 FROM runs")?.exists([])?;
            let mut query = moment.prepare(
                "SELECT account, kind, nano_usd, made_us, id, entries_to FROM budgets
                 WHERE id > (SELECT coalesce(max(budget), 0) FROM budget_log) ORDER BY id",
            )?;
            let mut rows = query.query([])?;
            while let Some(row) = rows.next()? {
                let (kind, entries_to): (String, i64) = (row.get(1)?, row.get(5)?);
                let kind = match kind.as_str() {
                    "set" => Kind::Set,
                    "added" => Kind::Added,
                    _ => Kind::Removed,
                };
                let change = Change { account: row.get(0)?, kind, nano_usd: row.get(2)?, made_us: row.get(3)? };
                let late = if kind == Kind::Set { late(&moment, &change, entries_to)? } else { Vec::new() };
                state.late.push(late);
                state.known.unlogged.push(change);
                state.ids.push(row.get(4)?);
            }
            Ok(state)
        })
        .await
    }

    /// Writes down that a change is in the log.
    pub(super) async fn note_logged(&self, seq: u64, line: Hash, budget: Option<i64>) -> Result<(), LedgerError> {
        self.call(move |connection| note_logged(connection, seq, line, budget)).await
    }

    /// Writes down a change that the log has, and the database has not.
    pub(super) async fn restore_budget(&self, seq: u64, entry: log::LogEntry) -> Result<(), LedgerError> {
        self.call(move |connection| {
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let Change { account, kind, nano_usd, made_us } = &entry.change;
            let word = match kind {
                Kind::Begun => None,
                Kind::Set => Some(("set", Some("budget_set"))),
                Kind::Added => Some(("added", None)),
                Kind::Removed => Some(("removed", Some("budget_removed"))),
            };
            let mut budget = None;
            if let Some((word, anew)) = word {
                if let Some(why) = anew {
                    begin_anew(&change, account, why).map_err(BudgetError::into_ledger)?;
                }
                insert(&change, account, word, *nano_usd, *made_us)?;
                budget = Some(change.last_insert_rowid());
            }
            note_logged(&change, seq, entry.hash, budget)?;
            Ok(change.commit()?)
        })
        .await
    }

    /// Forgets which lines were logged: another log begins.
    pub(super) async fn forget_log(&self) -> Result<(), LedgerError> {
        self.call(|connection| {
            connection.execute("DELETE FROM budget_log", [])?;
            Ok(())
        })
        .await
    }

    /// Those of these runs of which the database has neither a row nor a reading.
    pub(super) async fn unknown_runs(&self, runs: Vec<RunKey>) -> Result<Vec<RunKey>, LedgerError> {
        self.without(runs, "SELECT run_id, attempt FROM runs UNION SELECT run_id, attempt FROM readings").await
    }

    /// Those of these runs whose file was not read to its end.
    pub(super) async fn unread_files(&self, runs: Vec<RunKey>) -> Result<Vec<RunKey>, LedgerError> {
        self.without(runs, "SELECT run_id, attempt FROM readings WHERE ended = 1").await
    }

    async fn without(&self, runs: Vec<RunKey>, known: &'static str) -> Result<Vec<RunKey>, LedgerError> {
        self.call(move |connection| {
            let mut query = connection.prepare(known)?;
            let known: HashSet<RunKey> = query.query_map([], |row| ledger::key(row, 0))?.collect::<Result<_, _>>()?;
            Ok(runs.into_iter().filter(|run| !known.contains(run)).collect())
        })
        .await
    }
}

/// Runs of an account that had begun before a change, and of which nothing was in the ledger then.
fn late(connection: &Connection, change: &Change, entries_to: i64) -> Result<Vec<RunKey>, LedgerError> {
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
    let rows = query.query_map(params![change.account, change.made_us, entries_to], |row| ledger::key(row, 0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn note_logged(connection: &Connection, seq: u64, line: Hash, budget: Option<i64>) -> Result<(), LedgerError> {
    connection.execute(
        "INSERT INTO budget_log (seq, hash, budget) VALUES (?1, ?2, ?3)",
        params![seq.cast_signed(), line.to_string(), budget],
    )?;
    Ok(())
}

fn hash(row: &Row<'_>, column: usize) -> rusqlite::Result<Hash> {
    let text: String = row.get(column)?;
    text.parse().map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, Box::new(error))
    })
}

/// What to do about holds of which nothing is left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// Not to look at them again.
    WriteDown,
    /// Nothing: somebody only looks.
    Leave,
}

/// The row with which the account's budget began, and the ledger's last entry then.
fn opening(connection: &Connection, account: &str) -> Result<Option<(i64, i64)>, BudgetError> {
    let last = connection
        .prepare(
            "SELECT id, entries_to, kind FROM budgets WHERE account = ?1 AND kind <> 'added' ORDER BY id DESC LIMIT 1",
        )?
        .query_row([account], |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?)))
        .optional()?;
    Ok(last.filter(|(_, _, kind)| kind == "set").map(|(id, entries_to, _)| (id, entries_to)))
}

/// An account as it stands.
struct Standing {
    /// The row with which its budget began.
    budget: i64,
    balance: Balance,
    /// The last entry of the ledger that counts in it.
    counted: i64,
    held: Vec<BudgetHold>,
}

/// An account as it stands, if it has a budget.
fn standing(connection: &Connection, account: &str, ended: Ended) -> Result<Option<Standing>, BudgetError> {
    let Some((budget, entries_to)) = opening(connection, account)? else { return Ok(None) };
    let granted =
        sum(connection, "SELECT nano_usd FROM budgets WHERE account = ?1 AND id >= ?2", params![account, budget])?;
    let (before, from): (i64, i64) = connection
        .prepare("SELECT spent, counted FROM holds WHERE account = ?1 AND budget = ?2 ORDER BY id DESC LIMIT 1")?
        .query_row(params![account, budget], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?
        .unwrap_or((0, entries_to));
    let counted = connection.query_row("SELECT coalesce(max(id), 0) FROM entries", [], |row| row.get(0))?;
    // By entry, and not by account: what is new is little, and an account may have a million receipts.
    let since = sum(
        connection,
        "SELECT entries.nano_usd FROM entries CROSS JOIN receipts ON receipts.id = entries.receipt
         WHERE entries.id > ?2 AND receipts.account = ?1 AND entries.nano_usd IS NOT NULL",
        params![account, from],
    )?;
    let spent = i128::from(before) + since;
    let mut held = Vec::new();
    let mut sum = 0;
    for (hold, key, nano_usd) in holds(connection, account)? {
        let (billed, after, reason) = after(connection, &key)?;
        let still = still_held(nano_usd, billed, &after);
        sum += still;
        if still > 0 || after == After::Unsure {
            held.push(BudgetHold {
                run: key.to_string(),
                hold_usd: usd(nano_usd.into()),
                held_usd: usd(still),
                reason,
            });
        } else if ended == Ended::WriteDown && (After::Read { open: Vec::new() }) == after {
            end(connection, hold, "settled")?;
        }
    }
    Ok(Some(Standing { budget, balance: Balance { granted, spent, held: sum }, counted, held }))
}

/// In `i128`: no budget is so large, but a sum must not fail for that.
fn sum(connection: &Connection, query: &str, of: &[&dyn ToSql]) -> Result<i128, BudgetError> {
    let mut query = connection.prepare(query)?;
    let rows = query.query_map(of, |row| row.get::<_, i64>(0))?;
    let mut sum = 0;
    for row in rows {
        sum += i128::from(row?);
    }
    Ok(sum)
}

/// The holds that have not ended.
fn holds(connection: &Connection, account: &str) -> Result<Vec<(i64, RunKey, i64)>, BudgetError> {
    let mut query = connection.prepare(
        "SELECT id, run_id, attempt, nano_usd FROM holds
         WHERE account = ?1 AND NOT EXISTS (SELECT 1 FROM hold_ends WHERE hold = holds.id) ORDER BY id",
    )?;
    let rows = query.query_map([account], |row| Ok((row.get(0)?, ledger::key(row, 1)?, row.get(3)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// What a run was billed for, what became of it, and that in words.
fn after(connection: &Connection, key: &RunKey) -> Result<(i128, After, String), BudgetError> {
    let bills = ledger::of_run(connection, key)?;
    let amounts = bills.iter().flat_map(|bill| &bill.entries).filter_map(|entry| entry.nano_usd);
    let billed = amounts.map(i128::from).sum();
    let run = params![key.run_id.as_str(), key.attempt];
    let phase: Option<String> = connection
        .query_row("SELECT phase FROM runs WHERE run_id = ?1 AND attempt = ?2", run, |row| row.get(0))
        .optional()?;
    if phase.as_deref() != Some(Phase::Closed.as_str()) {
        return Ok((billed, After::Unsure, "it is under way".to_owned()));
    }
    match ledger::read_to_end(connection, key)? {
        Err(reason) => Ok((billed, After::Unsure, reason)),
        Ok(()) => {
            let open: Vec<_> = bills.iter().filter(|bill| bill.is_open()).map(BookedReceipt::reserved_nanos).collect();
            let reason = format!("the cost of {} of its calls is not known", open.len());
            Ok((billed, After::Read { open }, reason))
        }
    }
}

/// Lets go what runs that are over hold.
fn begin_anew(change: &Transaction<'_>, account: &str, why: &str) -> Result<(), BudgetError> {
    for (hold, key, _) in holds(change, account)? {
        let phase: String = change.query_row(
            "SELECT phase FROM runs WHERE run_id = ?1 AND attempt = ?2",
            params![key.run_id.as_str(), key.attempt],
            |row| row.get(0),
        )?;
        if phase == Phase::Closed.as_str() {
            end(change, hold, why)?;
        }
    }
    Ok(())
}

fn end(connection: &Connection, hold: i64, why: &str) -> Result<(), BudgetError> {
    connection
        .execute("INSERT INTO hold_ends (hold, why, ended_us) VALUES (?1, ?2, ?3)", params![hold, why, now_us()])?;
    Ok(())
}

fn add(change: &Transaction<'_>, account: &str, kind: &str, nano_usd: i64) -> Result<(), BudgetError> {
    Ok(insert(change, account, kind, nano_usd, now_us())?)
}

fn insert(change: &Connection, account: &str, kind: &str, nano_usd: i64, made_us: i64) -> Result<(), LedgerError> {
    change.execute(
        "INSERT INTO budgets (account, kind, nano_usd, entries_to, made_us)
         VALUES (?1, ?2, ?3, (SELECT coalesce(max(id), 0) FROM entries), ?4)",
        params![account, kind, nano_usd, made_us],
    )?;
    Ok(())
}
