//! Holds of runs on budgets: their rows, and the states of their runs.

use rusqlite::{Connection, OptionalExtension, Transaction, params};
use sluice_contract::RunKey;

use super::HoldState;
use super::error::BudgetError;
use crate::ledger::{self, BookedReceipt, ReadState};
use crate::run::RunPhase;
use crate::store::{now_us, run_key};

/// A hold that has not ended.
pub(super) struct OpenHold {
    pub(super) id: i64,
    pub(super) key: RunKey,
    pub(super) nano_usd: i64,
}

/// Spending of a run that has a hold.
pub(super) struct HoldUsage {
    /// Billed amount in nano-USD.
    pub(super) billed: i128,
    pub(super) state: HoldState,
    /// Reason that the hold is not settled, if it is not.
    pub(super) reason: String,
}

/// Returns the holds of an account that have not ended, oldest first.
pub(super) fn open_holds(connection: &Connection, account: &str) -> rusqlite::Result<Vec<OpenHold>> {
    let mut query = connection.prepare(
        "SELECT id, run_id, attempt,
                nano_usd + (SELECT coalesce(sum(raised.nano_usd), 0) FROM hold_raises AS raised WHERE hold = holds.id)
         FROM holds
         WHERE account = ?1 AND NOT EXISTS (SELECT 1 FROM hold_ends WHERE hold = holds.id) ORDER BY id",
    )?;
    let rows = query
        .query_map([account], |row| Ok(OpenHold { id: row.get(0)?, key: run_key(row, 1)?, nano_usd: row.get(3)? }))?;
    rows.collect()
}

/// Returns the spending of a run.
pub(super) fn usage(connection: &Connection, key: &RunKey) -> Result<HoldUsage, BudgetError> {
    let receipts = ledger::receipts_of_run(connection, key)?;
    let amounts = receipts.iter().flat_map(|receipt| &receipt.entries).filter_map(|entry| entry.nano_usd);
    let billed = amounts.map(i128::from).sum();
    let uncertain = |reason| HoldUsage { billed, state: HoldState::Uncertain, reason };
    let run = params![key.run_id.as_str(), key.attempt];
    let phase: Option<String> = connection
        .query_row("SELECT phase FROM runs WHERE run_id = ?1 AND attempt = ?2", run, |row| row.get(0))
        .optional()?;
    if phase.as_deref() != Some(RunPhase::Closed.as_str()) {
        return Ok(uncertain("it is under way".to_owned()));
    }
    Ok(match ledger::read_state(connection, key)? {
        ReadState::NotRead => uncertain("its audit file was not read yet".to_owned()),
        ReadState::NotTrusted { reason } => uncertain(reason),
        ReadState::ReadToEnd => {
            let open: Vec<_> =
                receipts.iter().filter(|receipt| receipt.holds_budget()).map(BookedReceipt::reserved_nanos).collect();
            let reason = format!("the cost of {} of its calls is not known", open.len());
            HoldUsage { billed, state: HoldState::Read { open }, reason }
        }
    })
}

/// Ends the holds of an account's runs that have ended.
pub(super) fn release_ended_runs(transaction: &Transaction<'_>, account: &str, why: &str) -> rusqlite::Result<()> {
    for hold in open_holds(transaction, account)? {
        let phase: String = transaction.query_row(
            "SELECT phase FROM runs WHERE run_id = ?1 AND attempt = ?2",
            params![hold.key.run_id.as_str(), hold.key.attempt],
            |row| row.get(0),
        )?;
        if phase == RunPhase::Closed.as_str() {
            end(transaction, hold.id, why)?;
        }
    }
    Ok(())
}

/// Records that a hold is used up.
pub(super) fn end(connection: &Connection, hold: i64, why: &str) -> rusqlite::Result<()> {
    connection
        .execute("INSERT INTO hold_ends (hold, why, ended_us) VALUES (?1, ?2, ?3)", params![hold, why, now_us()])?;
    Ok(())
}
