//! The outbox: one event for each booking of the ledger, in the order of commits.
//!
//! An event is written in the transaction of its booking, so neither exists without the other. No program reads the events
//! yet.

use rusqlite::{Connection, params};

/// An event to append. Its content follows from the receipt and its entries up to this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NewEvent<'a> {
    /// Words joined by dots, at most 100 of `[A-Za-z0-9_.]`.
    pub kind: &'a str,
    /// Row of the receipt.
    pub receipt: i64,
    /// Row of the newest entry; none for a receipt without entries.
    pub entry: Option<i64>,
}

/// Appends an event in the caller's transaction.
pub(crate) fn append(transaction: &Connection, event: NewEvent<'_>, made_us: i64) -> rusqlite::Result<()> {
    let NewEvent { kind, receipt, entry } = event;
    transaction
        .prepare_cached("INSERT INTO outbox (kind, receipt, entry, made_us) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![kind, receipt, entry, made_us])?;
    Ok(())
}
