//! Amounts and holds of an account, computed from the ledger in the transaction of the caller.

use rusqlite::{Connection, OptionalExtension, ToSql, params};
use serde::Serialize;

use super::error::BudgetError;
use super::{Balance, HoldState, holds, still_held};
use crate::ledger::usd;

/// A hold of a run on a budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BudgetHold {
    /// `RUN.ATTEMPT`.
    pub run: String,
    /// Amount that the run held at its beginning, with the raises since then.
    pub hold_usd: String,
    /// Amount that is still held.
    pub held_usd: String,
    /// Reason that the hold is not settled.
    pub reason: String,
}

/// Treatment of holds that are fully settled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SettledHolds {
    /// Record their end, so that they are not computed again.
    RecordEnd,
    /// Change nothing.
    Leave,
}

/// State of an account that has a budget.
pub(super) struct AccountState {
    /// Row that set the budget.
    pub(super) budget: i64,
    pub(super) balance: Balance,
    /// Last entry of the ledger that is counted in the balance.
    pub(super) counted: i64,
    pub(super) held: Vec<BudgetHold>,
}

/// Reads the state of an account; `None` for an account without a budget.
pub(super) fn read(
    connection: &Connection,
    account: &str,
    settled: SettledHolds,
) -> Result<Option<AccountState>, BudgetError> {
    let Some((budget, entries_to)) = opening(connection, account)? else { return Ok(None) };
    let granted =
        sum(connection, "SELECT nano_usd FROM budgets WHERE account = ?1 AND id >= ?2", params![account, budget])?;
    let (before, from): (i64, i64) = connection
        .prepare("SELECT spent, counted FROM holds WHERE account = ?1 AND budget = ?2 ORDER BY id DESC LIMIT 1")?
        .query_row(params![account, budget], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?
        .unwrap_or((0, entries_to));
    let counted = connection.query_row("SELECT coalesce(max(id), 0) FROM entries", [], |row| row.get(0))?;
    // Selected by entry, and not by account: few entries are new, and an account may have a million receipts.
    let since = sum(
        connection,
        "SELECT entries.nano_usd FROM entries CROSS JOIN receipts ON receipts.id = entries.receipt
         WHERE entries.id > ?2 AND receipts.account = ?1 AND entries.nano_usd IS NOT NULL",
        params![account, from],
    )?;
    let spent = i128::from(before) + since;
    let (mut held, mut amount) = (Vec::new(), 0);
    for hold in holds::open_holds(connection, account)? {
        let usage = holds::usage(connection, &hold.key)?;
        let still = still_held(hold.nano_usd, usage.billed, &usage.state);
        amount += still;
        if still > 0 || usage.state == HoldState::Uncertain {
            held.push(BudgetHold {
                run: hold.key.to_string(),
                hold_usd: usd(hold.nano_usd.into()),
                held_usd: usd(still),
                reason: usage.reason,
            });
        } else if settled == SettledHolds::RecordEnd && (HoldState::Read { open: Vec::new() }) == usage.state {
            holds::end(connection, hold.id, "settled")?;
        }
    }
    Ok(Some(AccountState { budget, balance: Balance { granted, spent, held: amount }, counted, held }))
}

/// Returns the row that set the account's budget, and the last entry of the ledger before it.
pub(super) fn opening(connection: &Connection, account: &str) -> rusqlite::Result<Option<(i64, i64)>> {
    let last = connection
        .prepare(
            "SELECT id, entries_to, kind FROM budgets WHERE account = ?1 AND kind <> 'added' ORDER BY id DESC LIMIT 1",
        )?
        .query_row([account], |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?)))
        .optional()?;
    Ok(last.filter(|(_, _, kind)| kind == "set").map(|(id, entries_to, _)| (id, entries_to)))
}

/// Adds up a column. In `i128`: a sum must not fail for its size.
fn sum(connection: &Connection, query: &str, values: &[&dyn ToSql]) -> rusqlite::Result<i128> {
    let mut query = connection.prepare(query)?;
    let rows = query.query_map(values, |row| row.get::<_, i64>(0))?;
    let mut sum = 0;
    for row in rows {
        sum += i128::from(row?);
    }
    Ok(sum)
}
